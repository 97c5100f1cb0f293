"""What `lockctl fence sql --dialect postgresql` prints runs as it is printed, and refuses what is stale."""

from __future__ import annotations

import contextlib
import copy
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lockctl.fence import LARGEST, sql
from tests.fence.contract import LIMIT, OTHER, Client, mark
from tests.fence.databases import PostgresqlHarness
from tests.fence.printed import NAME, STOCK, examples, starting
from tests.jobs import eventually
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lockctl.fence import Mark
    from tests.servers.postgres import Postgres


def search_path(harness: PostgresqlHarness) -> str:
    """The settings of a user before ours."""
    return '-c search_path="' + harness.schema.replace(" ", "\\ ") + '"'


class Psql:
    """A program that knows nothing of tokens, as an ordinary user."""

    def __init__(self, harness: PostgresqlHarness, directory: Path) -> None:
        self.harness = harness
        self.text = sql.text("postgresql", NAME, harness.schema)
        self.file = directory / "program.sql"
        self.url = harness.server.url

    def run(self, statements: str, shown: Mark | None = None) -> str:
        """What psql prints. Raises ``RuntimeError``, with what it says."""
        self.file.write_text(statements)
        options = search_path(self.harness)
        whole = options if shown is None else sql.pgoptions(shown, options)
        server = self.harness.server
        command = [str(server.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-f", str(self.file)]
        return programs.run(command, PGOPTIONS=whole).strip()

    def amount(self) -> str:
        """What is in the table."""
        return self.harness.command("select amount from stock where id = 1")


@pytest.fixture
def psql(postgres_server: Postgres, tmp_path: Path) -> Iterator[Psql]:
    with contextlib.closing(PostgresqlHarness(postgres_server, table=False)) as harness:
        made = Psql(harness, tmp_path)
        made.run(made.text)
        made.run(made.text)
        made.run(STOCK)
        yield made


def test_postgresql_runs_all_that_is_printed(psql: Psql) -> None:
    printed = psql.run("".join(examples(psql.text)), mark(33))
    assert printed.splitlines() == ["33"]
    assert psql.amount() == "9"
    assert psql.harness.command("select * from lockctl_mark") == f"{NAME}|{mark(33).domain}|33"
    assert psql.harness.command("select fence_domain, fence_token from stock") == f"{mark(33).domain}|33"


CHANGES = {
    "insert": "insert into stock values (2, 5)",
    "update": "update stock set amount = 7",
    "delete": "delete from stock",
    "truncate": "truncate stock",
    "copy": "copy stock from stdin;\n3\t4\n\\.\n",
    "update of nothing": "update stock set amount = 8 where false",
    "merge": "with gone as (delete from stock returning id) select count(*) from gone",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_postgresql_trigger_fences_a_program_that_knows_nothing(psql: Psql, change: str) -> None:
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    client = Client(psql.harness, NAME)
    client.advance(mark(33))
    before = psql.harness.command("select md5(string_agg(stock::text, ',')) from stock")
    for offered, reason in (
        (None, "refuses a change without a fencing token"),
        (mark(32), "refuses token 32: it has already seen token 33"),
        (mark(34, OTHER), f"its mark is of another domain, {mark(33).domain} and not {OTHER}"),
    ):
        with pytest.raises(RuntimeError) as refused:
            psql.run(CHANGES[change], offered)
        assert NAME in str(refused.value)
        assert reason in str(refused.value)
    assert psql.harness.command("select md5(string_agg(stock::text, ',')) from stock") == before
    psql.run(CHANGES[change], mark(33))
    psql.run("select * from stock")
    psql.run("delete from stock", mark(34))
    assert client.current() == mark(34)
    client.store.close()


def test_a_postgresql_partition_that_is_named_itself_needs_a_trigger_of_its_own(psql: Psql) -> None:
    psql.run(
        "drop table stock; create table stock (id integer, amount bigint) partition by range (id);"
        " create table few partition of stock for values from (0) to (100); insert into stock values (1, 10);"
    )
    triggers = "".join(starting(psql.text, "CREATE TRIGGER"))
    psql.run(triggers)
    with pytest.raises(RuntimeError, match="without a fencing token"):
        psql.run("update stock set amount = 7")
    psql.run("update few set amount = 9")
    psql.run(triggers.replace("ON stock", "ON few"))
    with pytest.raises(RuntimeError, match="without a fencing token"):
        psql.run("update few set amount = 8")
    psql.run("update few set amount = 8; update stock set amount = amount - 1", mark(33))
    assert psql.amount() == "7"


@pytest.fixture
def eve(psql: Psql) -> Iterator[Psql]:
    """As another user, who may write the table, and make tables of her own, and no more."""
    harness, role = psql.harness, f"eve_{os.getpid()}"
    harness.command(f'create role {role} login; grant usage, create on schema "{harness.schema}" to {role}')
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    psql.run(f"grant select, insert, update, delete on stock to {role}")
    other = copy.copy(psql)
    other.url = harness.server.url.replace(harness.server.user, role, 1)
    yield other
    harness.command(f"drop owned by {role}; drop role {role}")


def test_who_only_writes_the_table_cannot_lower_its_mark_in_postgresql(psql: Psql, eve: Psql) -> None:
    eve.run("update stock set amount = 20", mark(33))
    with pytest.raises(RuntimeError, match="already seen token 33"):
        eve.run("update stock set amount = 1", mark(32))
    for attack in ("update lockctl_mark set token = 5", "delete from lockctl_mark", "truncate lockctl_mark"):
        with pytest.raises(RuntimeError, match="permission denied for table lockctl_mark"):
            eve.run(f"{attack}; update stock set amount = 1", mark(32))
    with pytest.raises(RuntimeError, match="permission denied for function lockctl_fence"):
        eve.run(
            "create table mine (i int); create trigger t before insert on mine for each statement"
            " execute function lockctl_fence('stock'); insert into mine values (1)",
            mark(LARGEST),
        )
    with pytest.raises(RuntimeError, match="already seen token 33"):
        eve.run(
            "create temp table lockctl_mark (resource text primary key, domain text, token bigint);"
            " set search_path = pg_temp, public; update "
            f'"{psql.harness.schema}".stock set amount = 1',
            mark(32),
        )
    assert psql.amount() == "20"
    assert psql.harness.command("select token from lockctl_mark") == "33"


def test_the_function_of_before_is_replaced_in_postgresql(psql: Psql, eve: Psql) -> None:
    psql.run("alter function lockctl_fence() security invoker; grant execute on function lockctl_fence() to public")
    with pytest.raises(RuntimeError, match="permission denied for table lockctl_mark"):
        eve.run("update stock set amount = 20", mark(33))
    psql.run(psql.text)
    eve.run("update stock set amount = 20", mark(33))
    with pytest.raises(RuntimeError, match="permission denied for function lockctl_fence"):
        eve.run("create table mine (i int); create trigger t before insert on mine execute function lockctl_fence('x')")
    assert psql.amount() == "20"


def test_the_function_has_no_more_rights_than_the_owner_of_the_mark_in_postgresql(psql: Psql) -> None:
    """An administrator may run all of it where another user made the table, and could put a trigger on it."""
    psql.run("drop function lockctl_fence()")
    psql.harness.command(psql.text)
    owner = "select pg_get_userbyid(proowner) from pg_proc where proname = 'lockctl_fence' and pronamespace ="
    assert psql.harness.command(f"{owner} '\"{psql.harness.schema}\"'::regnamespace") == psql.harness.server.user
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    psql.run("update stock set amount = 20", mark(33))
    assert psql.amount() == "20"


SHADOWS = {
    "temporary table": "create temp table lockctl_mark as select * from {schema}.lockctl_mark with no data;"
    " alter table pg_temp.lockctl_mark add primary key (resource);",
    "schema of the user": "create schema {own}; set search_path = {own}, {schema}, pg_catalog;"
    " create table lockctl_mark (like {schema}.lockctl_mark including all);"
    " create function {own}.current_setting(text, boolean) returns text language sql as $$ select '99' $$;",
}


@pytest.mark.parametrize("shadow", SHADOWS)
def test_a_table_of_the_user_does_not_stand_in_for_the_mark_of_postgresql(psql: Psql, shadow: str) -> None:
    """As with the table of 0.1.0: whoever writes chooses its search_path and its temporary tables."""
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    psql.run("update stock set amount = 9", mark(34))
    own = f"own_{os.getpid()}"
    schema = f'"{psql.harness.schema}"'
    hidden = SHADOWS[shadow].format(schema=schema, own=own)
    psql.harness.command(f"grant create on database {psql.harness.server.database} to {psql.harness.server.user}")
    with pytest.raises(RuntimeError, match="already seen token 34"):
        psql.run(f"begin; {hidden} update {schema}.stock set amount = 1; commit;", mark(33))
    psql.run(f"begin; {hidden} update {schema}.stock set amount = 2; rollback;", mark(34))
    assert psql.amount() == "9"


@pytest.mark.parametrize("token", ["", "x", "-1", "0", "33 ", "1e3", "0x21", str(LARGEST + 1), "9" * 30])
def test_a_postgresql_trigger_takes_nothing_for_a_token_that_is_none(psql: Psql, token: str) -> None:
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    with pytest.raises(RuntimeError, match="ERROR"):
        psql.run(f"set lockctl.token = '{token}'; set lockctl.token_domain = 'd'; delete from stock")
    with pytest.raises(RuntimeError, match="without a fencing token"):
        psql.run("set lockctl.token = '33'; delete from stock")
    assert psql.amount() == "10"
    psql.run(f"set lockctl.token = '{LARGEST}'; set lockctl.token_domain = 'd'; delete from stock")


def test_a_postgresql_setting_of_one_transaction_is_gone_after_it(psql: Psql) -> None:
    """As behind a pooler: there a setting that was once local is an empty text, not unset."""
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    local = "begin; set local lockctl.token = '33'; set local lockctl.token_domain = 'd'; delete from stock; commit;"
    psql.run(local)
    with pytest.raises(RuntimeError, match="without a fencing token"):
        psql.run(f"{local} insert into stock values (1, 10)")


def waits_for_a_row(harness: PostgresqlHarness) -> bool:
    found = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query not like '%pg_stat_activity%'"
    )
    return harness.command(found) != "0"


def test_an_old_postgresql_writer_that_waits_for_a_newer_one_is_refused(psql: Psql) -> None:
    psql.run("".join(starting(psql.text, "CREATE TRIGGER")))
    psql.run("update stock set amount = 20", mark(33))
    newer = connected(psql.harness, mark(34))
    with newer.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("update stock set amount = amount + 1 where id = 1")
        older = pool.submit(psql.run, "update stock set amount = 99", mark(33))
        eventually(lambda: waits_for_a_row(psql.harness))
        newer.commit()
        with pytest.raises(RuntimeError, match="already seen token 34"):
            older.result(LIMIT)
    newer.close()
    assert psql.amount() == "21"


def connected(harness: PostgresqlHarness, shown: Mark) -> Any:
    """A transaction of READ COMMITTED, as psycopg2 opens it."""
    return psycopg2.connect(harness.server.url, options=sql.pgoptions(shown, search_path(harness)))


def test_no_newer_holder_comes_between_check_and_commit_in_postgresql(psql: Psql) -> None:
    (upsert,) = starting(psql.text, "INSERT INTO ")
    older, newer = connected(psql.harness, mark(33)), connected(psql.harness, mark(34))
    with older.cursor() as one, newer.cursor() as two, ThreadPoolExecutor(1) as pool:
        one.execute(upsert)
        assert one.fetchall() == [(33,)]
        one.execute("update stock set amount = 33")
        advancing = pool.submit(two.execute, upsert)
        eventually(lambda: waits_for_a_row(psql.harness))
        assert not advancing.done()
        older.commit()
        advancing.result(LIMIT)
        assert two.fetchall() == [(34,)]
        two.execute("select amount from stock")
        assert two.fetchall() == [(33,)]
        newer.commit()
        one.execute(upsert)
        assert one.fetchall() == []
    older.close()
    newer.close()


def test_a_row_with_its_own_mark_in_postgresql_refuses_older_tokens(psql: Psql) -> None:
    text = psql.text
    psql.run("".join(starting(text, "ALTER TABLE")))
    show, write = starting(text, "UPDATE stock")
    counts = []
    for offered in (mark(33), mark(34), mark(34), mark(33), mark(35, OTHER)):
        connection = connected(psql.harness, offered)
        with connection.cursor() as cursor:
            for statement in (show, write):
                cursor.execute(statement)
                counts.append(cursor.rowcount)
        connection.commit()
        connection.close()
    assert counts == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert psql.amount() == "7"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    domain=st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
    before=st.sampled_from(
        ["", "-c work_mem=123kB", "  -c  work_mem=123kB ", "-c work_mem=123kB\\", "-c application_name=a\\\\"]
    ),
)
@example(domain="file:host:/a b\\c\\ d\u2003e", before="")
@example(domain="\\", before="-c work_mem=123kB")
def test_settings_for_libpq_arrive_as_they_are(postgres_server: Postgres, domain: str, before: str) -> None:
    offered = mark(2**53 + 1, domain)
    options = sql.pgoptions(mark(34), before)
    connection = psycopg2.connect(postgres_server.url, options=sql.pgoptions(offered, options))
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(
            "select current_setting('lockctl.token'), current_setting('lockctl.token_domain'),"
            " current_setting('work_mem'), current_setting('application_name')"
        )
        assert cursor.fetchall() == [
            (
                str(offered.token),
                domain,
                "123kB" if "work_mem" in before else "4MB",
                "a\\" if "name" in before else "",
            )
        ]
