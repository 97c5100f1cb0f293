"""Marks in the databases that tests share, and what all of them promise.

Each test has tables of its own, behind a proxy.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import locate, sql
from tests.fence.changed_answers import ChangedAnswers
from tests.fence.contract import LIMIT, Client, FenceHarness, StoreContract, mark
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres

NUMBERS = itertools.count()


class DatabaseHarness(FenceHarness):
    """Tables of its own in a shared server, behind a proxy."""

    dialect: str
    more = "?"  # before the first parameter that is added to a URL
    two_lines: str  # an expression

    def __init__(self, front: Any) -> None:
        self.proxy = Proxy(front)

    @abstractmethod
    def command(self, statement: str) -> str:
        """What the client of the server prints, as superuser."""

    @abstractmethod
    def url(self, more: str = "") -> str:
        """The URL of the store."""

    @abstractmethod
    def drop_table(self) -> None:
        """As if it had never been made."""

    @abstractmethod
    def make_table(self) -> None:
        """With what `lockctl fence sql` prints."""

    @abstractmethod
    def allow_anything(self) -> None:
        """The table takes every row from now on."""

    @abstractmethod
    def end_holds(self) -> None:
        """The server ends the connections that hold a mark."""

    def row(self) -> str:
        """The only one, or a digest of it."""
        return self.command("select md5(concat(domain, ';', token)) from lockctl_mark")

    def behind(self, address: str) -> tuple[str, str]:
        """As :meth:`words`, through a server at this address."""
        return "stock", self.url().replace(self.proxy.address, address)

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return resource, self.url()

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.mode = "blackhole"
        try:
            yield
        finally:
            self.proxy.mode = "pass"


class PostgresqlHarness(DatabaseHarness):
    """A schema of its own in a shared server."""

    dialect = "postgresql"
    more = "&"
    two_lines = "E'a\\nb'"

    def __init__(self, server: Postgres, front: Any = None, *, table: bool = True) -> None:
        super().__init__(front or server)
        self.server = server
        self.schema = f"Fence {os.getpid()} {next(NUMBERS)}"
        self.command(f'create schema "{self.schema}" authorization {server.user}')
        if table:
            self.make_table()

    def command(self, statement: str) -> str:
        return self.server.command(f'set search_path = "{self.schema}"; {statement}').strip()

    def url(self, more: str = "") -> str:
        plain = self.server.url.replace(self.server.address, self.proxy.address)
        return f"{plain}?schema={self.schema.replace(' ', '%20')}{more}"

    def drop_table(self) -> None:
        self.command("drop table lockctl_mark")

    def make_table(self) -> None:
        self.command(f"set role {self.server.user}; {sql.text('postgresql', schema=self.schema)}")

    def allow_anything(self) -> None:
        self.command(
            "alter table lockctl_mark drop constraint lockctl_mark_token_check,"
            " drop constraint lockctl_mark_domain_check, alter token drop not null, alter domain drop not null"
        )

    def end_holds(self) -> None:
        ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'lockctl fence'"
        assert int(self.command(f"{ended} and state = 'idle in transaction'")) >= 1

    def damage(self, resource: str = "stock") -> None:
        self.command("alter table lockctl_mark drop constraint lockctl_mark_token_check")
        self.command(f"update lockctl_mark set token = -7 where resource = '{resource}'")

    def close(self) -> None:
        self.proxy.close()
        self.command(f'drop schema "{self.schema}" cascade')


class MysqlHarness(DatabaseHarness):
    """A database of its own in a shared server."""

    dialect = "mysql"
    two_lines = "'a\\nb'"

    def __init__(self, server: MariaDb, *, table: bool = True) -> None:
        super().__init__(server)
        self.server = server
        self.database = f"fence_{os.getpid()}_{next(NUMBERS)}"
        server.command(f"create database {self.database}; grant all on {self.database}.* to {server.user}", database="")
        if table:
            self.make_table()

    def command(self, statements: str) -> str:
        return self.server.command(statements, database=self.database).strip()

    def url(self, more: str = "") -> str:
        plain = self.server.url.replace(self.server.address, self.proxy.address)
        return f"{plain.rpartition('/')[0]}/{self.database}{more}"

    def drop_table(self) -> None:
        self.command("drop table lockctl_mark")

    def make_table(self) -> None:
        self.server.client([], database=self.database, text=sql.text("mysql"))

    def allow_anything(self) -> None:
        self.command(
            "alter table lockctl_mark modify domain longtext character set utf8mb4 collate utf8mb4_bin,"
            " modify token bigint, drop constraint CONSTRAINT_1"
        )

    def end_holds(self) -> None:
        ours = f"from information_schema.processlist where db = '{self.database}' and user = 'lockctl'"
        (thread,) = self.command(f"select id {ours}").split()
        self.command(f"kill {thread}")

    def damage(self, resource: str = "stock") -> None:
        self.command(
            f"set check_constraint_checks = off; update lockctl_mark set token = -7 where resource = '{resource}'"
        )

    def close(self) -> None:
        self.proxy.close()
        self.server.command(f"drop database {self.database}", database="")


class DatabaseContract(ChangedAnswers, StoreContract):
    """What marks in rows of a database promise beside what all marks do."""

    def test_a_resource_can_be_a_url(self, harness: DatabaseHarness, client: Client) -> None:
        location = locate(harness.url(f"{harness.more}resource=stock"))
        assert location.store.advance(location.resource, mark(33), timeout=LIMIT) == mark(33)
        assert client.current() == mark(33)
        location.store.close()

    def test_a_hold_that_the_server_has_ended_is_told_at_its_end(
        self, harness: DatabaseHarness, client: Client
    ) -> None:
        hold = client.store.holding(client.resource, mark(33), timeout=LIMIT)
        hold.__enter__()
        harness.end_holds()
        with pytest.raises(BackendUnavailable, match="not held until the end"):
            hold.__exit__(None, None, None)

    def test_what_a_block_raises_is_not_hidden(self, client: Client) -> None:
        with pytest.raises(ZeroDivisionError), client.store.holding(client.resource, mark(33), timeout=LIMIT):
            raise ZeroDivisionError
        assert client.accepts(mark(34))

    def test_a_missing_table_names_what_prints_it(self, harness: DatabaseHarness, client: Client) -> None:
        harness.drop_table()
        for step in (lambda: client.advance(mark(33)), client.current, lambda: client.reset(mark(33))):
            with pytest.raises(ConfigError, match=f"lockctl fence sql --dialect {harness.dialect}") as told:
                step()
            assert "\n" not in str(told.value)
        with pytest.raises(ConfigError), client.store.holding("stock", mark(33), timeout=LIMIT):
            pytest.fail("it was let in")
        harness.make_table()
        assert client.accepts(mark(33))

    @pytest.mark.parametrize(
        "content",
        ["token = 0", "token = null", "domain = ''", "domain = null", "two lines", "domain = repeat('x', 2000000)"],
    )
    def test_a_row_that_is_no_mark_is_never_believed(
        self, harness: DatabaseHarness, client: Client, content: str
    ) -> None:
        client.advance(mark(33))
        harness.allow_anything()
        harness.command(f"update lockctl_mark set {content}".replace("two lines", f"domain = {harness.two_lines}"))
        before = harness.row()
        for step in (client.current, lambda: client.advance(mark(10**18))):
            with pytest.raises(ConfigError, match="fence reset") as told:
                step()
            assert len(str(told.value)) < 500
        assert harness.row() == before
        assert client.reset(mark(34)) is None
        assert client.current() == mark(34)

    def test_a_connection_that_ended_between_two_steps_is_made_anew(
        self, harness: DatabaseHarness, client: Client
    ) -> None:
        client.advance(mark(33))
        harness.proxy.mode = "reset"
        harness.proxy.mode = "pass"
        assert client.advance(mark(34)) == mark(34)

    @pytest.mark.parametrize("mode", ["blackhole", "drop_replies", "trickle", "refuse", "reset"])
    def test_no_network_keeps_a_step_longer_than_its_time(
        self, harness: DatabaseHarness, client: Client, mode: str
    ) -> None:
        client.advance(mark(33))
        harness.proxy.mode = mode
        before = time.monotonic()
        for each in (client, Client(harness)):
            with pytest.raises(BackendUnavailable):
                each.advance(mark(34), timeout=0.7)
        assert time.monotonic() - before < 5.0
        harness.proxy.mode = "pass"
        assert client.advance(mark(35)) == mark(35)
