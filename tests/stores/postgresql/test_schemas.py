"""Users whose search_path leads to different schemas of one database have one table of tokens, or are refused."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.contract.harness import claim, one_of
from tests.promises.attempts import refused
from tests.promises.tokens import tenure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Claim
    from tests.servers.postgres import Postgres

NUMBERS = itertools.count()
TABLES = "select schemaname from pg_tables where tablename ~ '^lockctl_' and schemaname !~ '^pg_temp'"


class Shared:
    """A database of two users: *own* has a schema of its own name, and *plain* has none."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        word = f"s{os.getpid()}_{next(NUMBERS)}"
        self.database, self.own, self.plain = f"{word}_jobs", f"{word}_own", f"{word}_plain"
        server.command(f"create role {self.own} login; create role {self.plain} login", database="postgres")
        server.command(f"create database {self.database}", database="postgres")
        self.command(f"create schema {self.own} authorization {self.own}; grant create on schema public to public")

    def command(self, statement: str) -> str:
        """What psql prints for a statement of the superuser."""
        return self.server.command(statement, database=self.database).strip()

    def run(self, user: str, query: str = "") -> int:
        """The token of a grant."""
        return tenure(self._url(user, query)).token

    def refusal(self, user: str, query: str = "", wanted: Claim | None = None) -> str:
        """What is said to who is refused for its configuration."""
        return refused(self._url(user, query), "", wanted=wanted)

    def _url(self, user: str, query: str) -> str:
        return f"postgresql://{user}@{self.server.address}/{self.database}{query}"

    def close(self) -> None:
        self.server.command(f"drop database {self.database} with (force)", database="postgres")
        self.server.command(f"drop role {self.own}; drop role {self.plain}", database="postgres")


@pytest.fixture
def shared(postgres_server: Postgres) -> Iterator[Shared]:
    made = Shared(postgres_server)
    yield made
    made.close()


@pytest.mark.parametrize("wanted", [claim(), one_of(2)], ids=["alone", "slot"])
def test_no_second_table_of_tokens_is_made_beside_one_in_the_schema_of_another_user(
    shared: Shared, wanted: Claim
) -> None:
    first = shared.run(shared.own)
    said = shared.refusal(shared.plain, wanted=wanted)
    assert f"lockctl_fence is already in the schema {shared.own}," in said
    assert f"say ?schema={shared.own} in the URLs of all users" in said
    assert set(shared.command(TABLES).split()) == {shared.own}
    shared.command(f"grant usage on schema {shared.own} to {shared.plain}")
    shared.command(f"grant all on all tables in schema {shared.own} to {shared.plain}")
    named = f"?schema={shared.own}"
    assert first < shared.run(shared.plain, query=named) < shared.run(shared.own, query=named)
    # without the schema the same user has the same table
    assert shared.run(shared.own) < shared.run(shared.plain, query=named)


def test_no_second_table_of_tokens_is_made_by_a_user_whose_search_path_leaves_out_the_first(shared: Shared) -> None:
    shared.run(shared.plain)
    shared.command(f"alter role {shared.own} set search_path = {shared.own}")
    assert "say ?schema=public in the URLs of all users" in shared.refusal(shared.own)
    shared.command(
        f"alter role {shared.own} set search_path = {shared.own}, public; grant all on lockctl_fence to public"
    )
    shared.run(shared.own)
    assert set(shared.command(TABLES).split()) == {"public"}


def test_who_names_a_schema_has_a_table_there_whatever_others_have(shared: Shared) -> None:
    shared.run(shared.own)
    shared.run(shared.plain, query="?schema=public")
    shared.run(shared.plain)
    assert set(shared.command(TABLES).split()) == {shared.own, "public"}


def test_a_schema_with_an_odd_name_is_named_as_a_url_has_it(shared: Shared) -> None:
    shared.command(f'create schema "a b&%" authorization {shared.own}')
    shared.run(shared.own, query="?schema=a%20b%26%25")
    assert "is already in the schema a b&%," in (said := shared.refusal(shared.plain))
    assert "say ?schema=a%20b%26%25 in" in said


@pytest.mark.parametrize("kind", ["temp table lockctl_fence (i int)", "view {own}.lockctl_fence as select 1 as i"])
def test_what_is_no_table_of_lockctl_keeps_nobody_from_making_one(shared: Shared, kind: str) -> None:
    import psycopg2

    other = psycopg2.connect(f"postgresql://{shared.own}@{shared.server.address}/{shared.database}")
    other.cursor().execute(f"create {kind.format(own=shared.own)}")
    other.commit()
    shared.run(shared.plain)
    other.close()
    assert set(shared.command(TABLES).split()) == {"public"}


def test_statements_for_the_owner_can_be_run_as_they_are_whatever_the_names(shared: Shared) -> None:
    user, schema = f'{shared.plain}-"x" y', f'{shared.plain}-"z"'
    role, home = (f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (user, schema))
    shared.command(f"create role {role} login; revoke all on schema public from public")
    named, plain = (quote(name, safe="") for name in (user, schema))

    def told(beginning: str, query: str, wanted: Claim | None = None) -> None:
        statements = shared.refusal(named, query, wanted).partition("run: ")[2]
        assert statements.startswith(beginning)
        shared.command(statements)

    try:
        query = f"?schema={plain}"
        told(f"CREATE SCHEMA {home}; ", query)
        first = shared.run(named, query=query)
        told(f"CREATE TABLE IF NOT EXISTS {home}.lockctl_holder ", query, one_of(2))
        shared.command(f"revoke insert on {home}.lockctl_fence from {role}")
        told(f"GRANT SELECT, INSERT, UPDATE ON {home}.lockctl_fence TO {role}", query)
        shared.command(f"revoke usage on schema {home} from {role}")
        told(f"GRANT USAGE ON SCHEMA {home} TO {role}", query)
        assert shared.run(named, query=query) > first
        shared.command(f"drop schema {home} cascade")
        (usage,) = re.findall("run: (GRANT .*), and if the table is not there: ", shared.refusal(named))
        shared.command(usage)
        told("CREATE TABLE IF NOT EXISTS lockctl_fence ", "")
        assert shared.run(named)
    finally:
        shared.command(f"drop owned by {role} cascade; drop role {role}")
