"""Marks in PostgreSQL: the contract, and what only a database can do to a mark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import Stale, locate, sql
from lockctl.fence.stores.postgresql import PostgresqlStore
from lockctl.url import parse_url
from tests.fence.contract import LIMIT, Client, mark
from tests.fence.databases import DatabaseContract, PostgresqlHarness
from tests.jobs import eventually
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.certificates import Certificates
    from tests.servers.pgbouncer import PgBouncer


@pytest.fixture
def harness(postgres_server: Postgres) -> Iterator[PostgresqlHarness]:
    made = PostgresqlHarness(postgres_server)
    yield made
    made.close()


@pytest.fixture
def client(harness: PostgresqlHarness) -> Iterator[Client]:
    made = Client(harness)
    yield made
    made.store.close()


class TestPostgresql(DatabaseContract):
    """Every promise, held by rows."""


def test_a_pooler_that_lends_connections_for_a_transaction_may_stand_between(
    postgres_server: Postgres, pgbouncer_transaction: PgBouncer
) -> None:
    with contextlib.closing(PostgresqlHarness(postgres_server, pgbouncer_transaction)) as harness:
        first, second = Client(harness), Client(harness)
        first.advance(mark(33))
        with first.store.holding(first.resource, mark(33), timeout=LIMIT):
            with pytest.raises(BackendUnavailable):
                second.advance(mark(34), timeout=0.3)
            assert second.current() == mark(33)
        assert second.advance(mark(34)) == mark(34)
        assert not first.accepts(mark(33))
        assert postgres_server.command("select setting from pg_settings where name = 'lock_timeout'").strip() == "0"
        for each in (first, second):
            each.store.close()


def test_a_mark_stays_held_where_idle_transactions_are_ended(harness: PostgresqlHarness, client: Client) -> None:
    user = harness.server.user
    harness.command(f"alter role {user} set idle_in_transaction_session_timeout = '100ms'")
    try:
        other = Client(harness)
        with (
            client.store.holding(client.resource, mark(33), timeout=LIMIT),
            pytest.raises(BackendUnavailable, match="held by somebody else"),
        ):
            other.advance(mark(34), timeout=2.0)  # with the time to connect, also on a busy machine
        other.store.close()
    finally:
        harness.command(f"alter role {user} reset idle_in_transaction_session_timeout")


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_the_usual_isolation_of_a_database_does_not_matter(harness: PostgresqlHarness, level: str) -> None:
    user = harness.server.user
    harness.command(f"alter role {user} set default_transaction_isolation = '{level}'")
    try:
        clients = [Client(harness) for _ in range(2)]
        # who waits for a row that has changed meanwhile would get an error at these levels
        with clients[0].store.holding("stock", mark(33), timeout=LIMIT):
            words = [sys.executable, "-c", ADVANCE, *harness.words(), "34", mark(1).domain]
            waiting = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'SET TRANS%'"
            eventually(lambda: harness.command(locked) != "0")
            harness.command("insert into lockctl_mark values ('other', 'd', 1)")
        out, _ = waiting.communicate(timeout=LIMIT)
        assert out == f"{mark(34)}\n"
        assert not clients[1].accepts(mark(33))
        for each in clients:
            each.store.close()
    finally:
        harness.command(f"alter role {user} reset default_transaction_isolation")


ADVANCE = """
import sys
from lockctl.fence import Mark, locate
location = locate(sys.argv[1], sys.argv[2])
print(location.store.advance(location.resource, Mark(sys.argv[4], int(sys.argv[3])), timeout=10.0))
"""


def test_an_accepted_token_that_is_not_new_writes_no_new_row(harness: PostgresqlHarness, client: Client) -> None:
    client.advance(mark(33))
    place = harness.command("select ctid from lockctl_mark")
    client.advance(mark(33))
    assert harness.command("select ctid from lockctl_mark") == place
    client.advance(mark(34))
    assert harness.command("select ctid from lockctl_mark") != place


def test_a_commit_waits_for_the_disk_whatever_is_usual(harness: PostgresqlHarness, client: Client) -> None:
    harness.command(
        "create function spy() returns trigger language plpgsql as $$begin"
        " if current_setting('synchronous_commit') = 'off' then raise exception 'not durable'; end if;"
        " return new; end$$;"
        "create trigger spy before insert or update on lockctl_mark for each row execute function spy()"
    )
    user = harness.server.user
    harness.command(f"alter role {user} set synchronous_commit = off")
    try:
        assert client.accepts(mark(33))
        plain = psycopg2.connect(harness.server.url)
        with plain.cursor() as cursor, pytest.raises(psycopg2.Error, match="not durable"):
            cursor.execute(f"insert into \"{harness.schema}\".lockctl_mark values ('x', 'd', 1)")
        plain.close()
    finally:
        harness.command(f"alter role {user} reset synchronous_commit")


@pytest.mark.parametrize("fsync", ["on", "off"])
def test_a_server_that_does_not_wait_for_its_disk_is_known(start_server: Callable[..., Any], fsync: str) -> None:
    server: Postgres = start_server(Postgres, extra=[f"fsync = {fsync}"])
    store = PostgresqlStore.from_url(parse_url(server.url))
    expected = contextlib.nullcontext() if fsync == "on" else pytest.raises(ConfigError, match="set fsync = on")
    with expected:
        store.check_durable(timeout=LIMIT)
    store.close()


def test_a_store_takes_its_table_from_one_schema_whatever_the_search_path_is(
    start_server: Callable[..., Any],
) -> None:
    server: Postgres = start_server(Postgres)
    server.command(f"{sql.text('postgresql')}; grant all on lockctl_mark to public")
    store = PostgresqlStore.from_url(parse_url(server.url))
    assert store.advance("stock", mark(34), timeout=LIMIT) == mark(34)
    store.close()
    server.command(f"create schema authorization {server.user} create table lockctl_mark (like public.lockctl_mark)")
    with pytest.raises(Stale):
        store.advance("stock", mark(33), timeout=LIMIT)
    store.close()
    server.command("drop table public.lockctl_mark")
    with pytest.raises(ConfigError, match=r'no table "public"\.lockctl_mark .*schema=NAME'):
        store.current("stock", timeout=LIMIT)
    store.close()


def test_a_user_without_rights_is_told_which_are_missing(harness: PostgresqlHarness, client: Client) -> None:
    client.advance(mark(33))
    user = f"marks-{os.getpid()}"
    harness.command(f'create role "{user}" login; grant usage on schema "{harness.schema}" to "{user}"')
    try:
        location = locate(client.resource, harness.url().replace(f"//{harness.server.user}@", f"//{user}@"))
        with contextlib.closing(location.store) as store:
            with pytest.raises(ConfigError, match="GRANT SELECT, INSERT, UPDATE, DELETE") as told:
                store.advance(client.resource, mark(34), timeout=LIMIT)
            harness.command(str(told.value).partition("run: ")[2])
            assert store.advance(client.resource, mark(34), timeout=LIMIT) == mark(34)
            assert store.reset(client.resource, None, timeout=LIMIT) == mark(34)
    finally:
        harness.command(f'drop owned by "{user}"; drop role "{user}"')


def test_a_database_that_is_read_only_is_said_to_be(harness: PostgresqlHarness) -> None:
    user = harness.server.user
    harness.command(f"alter role {user} set default_transaction_read_only = on")
    try:
        client = Client(harness)
        with pytest.raises(BackendUnavailable, match="read-only"):
            client.advance(mark(33))
        assert client.current() is None
        client.store.close()
    finally:
        harness.command(f"alter role {user} reset default_transaction_read_only")


SHAPES = {
    "token as text": "(resource text primary key, domain text, token text)",
    "token as numeric": "(resource text primary key, domain text, token numeric)",
    "domain as number": "(resource text primary key, domain int, token bigint)",
    "no key": "(resource text, domain text, token bigint)",
    "other columns": "(id int)",
    "short": "(resource text primary key, domain varchar(3), token int)",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_of_another_shape_is_not_used(harness: PostgresqlHarness, client: Client, shape: str) -> None:
    harness.command(f"drop table lockctl_mark; create table lockctl_mark {SHAPES[shape]}")
    harness.command(f"grant all on lockctl_mark to {harness.server.user}")
    with pytest.raises(ConfigError):
        client.advance(mark(33))


def test_a_table_that_swallows_what_is_written_is_found_out(harness: PostgresqlHarness, client: Client) -> None:
    harness.command("create rule swallow as on insert to lockctl_mark do instead nothing")
    with pytest.raises(ConfigError):
        client.advance(mark(33))


@pytest.mark.servers("postgres_server")
def test_a_standby_keeps_no_marks(start_server: Callable[..., Any]) -> None:
    server: Postgres = start_server(Postgres)
    store = PostgresqlStore.from_url(parse_url(server.url))
    server.command(sql.text("postgresql"))
    server.command("grant all on lockctl_mark to public")
    assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
    server.stop()
    (server._data / "standby.signal").touch()
    server.start()
    for step in (
        lambda: store.advance("stock", mark(34), timeout=LIMIT),
        lambda: store.current("stock", timeout=LIMIT),
    ):
        with pytest.raises(BackendUnavailable, match="standby, where no mark can be kept"):
            step()
    store.close()


def test_a_mark_outlives_a_server_that_is_killed(start_server: Callable[..., Any]) -> None:
    server: Postgres = start_server(Postgres, extra=["synchronous_commit = off", "wal_writer_delay = 10s"])
    server.command(f"{sql.text('postgresql')}; grant all on lockctl_mark to public")
    store = PostgresqlStore.from_url(parse_url(server.url))
    for token in range(1, 40):
        store.advance("stock", mark(token), timeout=LIMIT)
    server.kill()
    server.start()
    assert store.current("stock", timeout=LIMIT) == mark(39)
    with pytest.raises(Stale):
        store.advance("stock", mark(38), timeout=LIMIT)
    store.close()


def test_passwords_and_tls_are_those_of_all_urls(
    start_server: Callable[..., Any], certificates: Certificates, tmp_path: Any
) -> None:
    server: Postgres = start_server(Postgres, auth="scram-sha-256", tls=certificates, tls_only=True)
    server.command(f"{sql.text('postgresql')}; grant all on lockctl_mark to public")
    secret = tmp_path / "secret"
    secret.write_text(server.password + "\n")
    url = f"{server.url.replace(':' + server.password, '')}?password_file={secret}"
    location = locate(
        "stock", f"{url}&ca={certificates.ca}&cert={certificates.client_cert}&key={certificates.client_key}"
    )
    assert location.store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
    location.store.close()
    for wrong in (f"{url}&ca={certificates.other_ca}", f"{url}&tls=no"):
        location = locate("stock", wrong)
        with pytest.raises(ConfigError) as told:
            location.store.current("stock", timeout=LIMIT)
        assert server.password not in str(told.value)
        location.store.close()
