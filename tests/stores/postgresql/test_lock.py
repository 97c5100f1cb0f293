"""What only the postgresql backend has: keys, its table, poolers, standbys, and answers that come late."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import Revocation
from lockctl.stores.postgresql import layout, queue, scope, wait
from lockctl.stores.postgresql.address import from_url
from lockctl.stores.postgresql.layout import DURABLE
from lockctl.stores.postgresql.lock import PostgresqlBackend
from lockctl.url import parse_url
from lockctl.value import replace
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, claim, refused, take, wait_for_turn
from tests.contract.keeping import revoke
from tests.jobs import eventually
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres
from tests.servers.replay import recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.model import Claim, Grant
    from tests.jobs import Lockctl
    from tests.servers.proxy import Proxy

URL = "postgresql://ops@db.example/locks"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("42", (0, 42, 1)),
        ("-1", (0xFFFFFFFF, 0xFFFFFFFF, 1)),
        ("9223372036854775807", (0x7FFFFFFF, 0xFFFFFFFF, 1)),
        ("-9223372036854775808", (0x80000000, 0, 1)),
        ("1,2", (1, 2, 2)),
        ("-1,-2147483648", (0xFFFFFFFF, 0x80000000, 2)),
    ],
)
def test_a_key_is_written_as_pg_locks_shows_it_and_back(text: str, parts: tuple[int, int, int]) -> None:
    found = layout.parse(text)
    assert found is not None
    assert (found.classid, found.objid, found.objsubid) == parts
    assert layout.seen(*parts) == found.text == text


def test_the_documented_hash_of_a_name_does_not_change() -> None:
    assert layout.of_name("lockctl:nightly").text == "6624573836774041332"


def test_a_number_and_the_file_of_a_certificates_key_can_both_be_given() -> None:
    made = from_url(parse_url(URL + "?key=7&cert=/c.pem&sslkey=/k.pem"))
    assert made.key is not None
    assert (made.key.text, made.tls.key) == ("7", "/k.pem")
    assert from_url(parse_url(URL + "?key=/k.pem&cert=/c.pem")).tls.key == "/k.pem"


@pytest.mark.parametrize("text", ["-8", "8,-9"])
def test_a_key_that_is_given_is_the_lock_of_every_name(
    open_client: Callable[..., PostgresqlBackend], text: str
) -> None:
    one, two = open_client(key=text), open_client(key=text)
    grant = take(one, claim("a"))
    assert grant.key == text
    assert refused(two, claim("b"))
    assert [(lock.name, lock.key, lock.state) for lock in two.list("*", timeout=LIMIT)] == [("a", text, "held")]
    one.release(grant, timeout=LIMIT)
    assert take(two, claim("b")).token > grant.token


def test_two_names_with_one_key_are_refused_and_nothing_is_held(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    grant = take(client, claim())
    client.release(grant, timeout=LIMIT)
    postgres_server.command(f"update {schema}.lockctl_fence set name = '{schema}:other'")
    with pytest.raises(ConfigError, match="another lock has the advisory key"):
        client.try_acquire(claim(), timeout=LIMIT)
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")


def test_eight_who_are_the_first_at_the_same_time_make_one_table(open_client: Callable[..., PostgresqlBackend]) -> None:
    clients = [open_client() for _ in range(8)]
    calls = [
        Background(lambda client=client, number=number: take(client, claim(f"lock{number}")))  # type: ignore[misc]
        for number, client in enumerate(clients)
    ]
    assert all(call.result().token > 0 for call in calls)


def test_who_may_not_make_the_table_is_told_the_statements_and_holds_nothing(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    postgres_server.command(f"alter schema {schema} owner to postgres; grant usage on schema {schema} to public")
    client = open_client()
    with pytest.raises(
        ConfigError, match=r"CREATE TABLE .*; GRANT SELECT, INSERT, UPDATE ON .* TO \"lockctl\""
    ) as told:
        client.try_acquire(claim(), timeout=LIMIT)
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")
    create = str(told.value).partition("run: ")[2]
    postgres_server.command(create)
    take(client, claim())


@pytest.mark.parametrize("shape", ["token text", "key text primary key", "key text, name text, token bigint"])
def test_a_table_of_another_shape_is_a_fault_of_the_configuration(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str, shape: str
) -> None:
    postgres_server.command(f"create table {schema}.lockctl_fence ({shape})")
    postgres_server.command(f"alter table {schema}.lockctl_fence owner to {postgres_server.user}")
    client = open_client()
    with pytest.raises(ConfigError, match="is not the table that lockctl made"):
        client.try_acquire(claim(), timeout=LIMIT)


STRANGE = (
    "document = 'not json'",
    "document = '{'",
    "document = repeat('[', 60000)",
    "document = repeat('x', 10000000)",
    "document = null, owner = null",
    'document = \'{"owner": "somebody else"}\'',
    "owner = repeat('y', 10000000)",
    "revocation = repeat('z', 10000000)",
    "revocation = '{\"owner\": 1}'",
    "taken_at = 'infinity'",
    "taken_at = '4713-01-01 BC'",
    "taken_at = null",
    "token = -9223372036854775808",
)


def test_what_others_write_into_the_table_neither_frees_nor_breaks_anything(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client, other = open_client(), open_client()
    for content in STRANGE:
        grant = take(client, claim())
        postgres_server.command(f"update {schema}.lockctl_fence set {content}")
        assert other.inspect("nightly", timeout=LIMIT).state == "held", content
        assert [lock.state for lock in other.list("*", timeout=LIMIT)] == ["held"]
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        client.release(grant, timeout=LIMIT)
        later = take(other, claim())
        assert later.token > grant.token
        other.release(later, timeout=LIMIT)


def test_rows_with_strange_names_are_not_shown(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    client.release(take(client, claim()), timeout=LIMIT)
    for number, name in enumerate(
        (f"'{schema}:-x'", f"'{schema}:a b'", f"'{schema}:forged'", "repeat('x', 1000000)", "null")
    ):
        postgres_server.command(f"insert into {schema}.lockctl_fence values ('{number}', {name}, 1)")
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]


def test_the_token_at_its_end_is_an_error_and_not_a_smaller_token(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    client.release(take(client, claim()), timeout=LIMIT)
    postgres_server.command(f"update {schema}.lockctl_fence set token = 9223372036854775807")
    with pytest.raises(ConfigError, match="holds what it did not write"):
        client.try_acquire(claim(), timeout=LIMIT)


@pytest.mark.parametrize("held_by", ["session", "transaction"])
def test_a_job_goes_on_when_somebody_drops_the_table(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str, held_by: str
) -> None:
    client = open_client(scope=held_by)
    grant = take(client, claim())
    postgres_server.command(f"drop table {schema}.lockctl_fence")
    for _ in range(2):
        client.renew(grant, timeout=LIMIT)
    assert open_client().inspect("nightly", timeout=LIMIT).state == "held"
    client.release(grant, timeout=LIMIT)
    assert take(client, claim()).token > grant.token


def test_ten_thousand_locks_are_listed_in_a_moment(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    grant = take(client, claim("lock00007"))
    postgres_server.command(
        f"insert into {schema}.lockctl_fence select ('x' || left(encode(sha256(n::bytea), 'hex'), 16))::bit(64)::bigint,"
        f" n, 1, 'o', repeat('d', 500) from (select '{schema}:lock' || lpad(i::text, 5, '0') n from generate_series(0, 9999) i) x"
        " on conflict do nothing"
    )
    before = time.monotonic()
    found = list(client.list("lock*", timeout=LIMIT))
    assert time.monotonic() - before < LIMIT
    assert [lock.name for lock in found] == [f"lock{number:05}" for number in range(10_000)]
    assert [lock.holders[0].token for lock in found if lock.state == "held"] == [grant.token]


def test_a_lock_of_another_program_under_a_name_never_used_is_inspected_and_not_listed(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    with contextlib.closing(psycopg2.connect(postgres_server.url)) as other, other.cursor() as cursor:
        cursor.execute(f"select pg_advisory_lock({layout.of_name(schema + ':nightly').text})")
        (holder,) = client.inspect("nightly", timeout=LIMIT).holders
        assert (holder.owner, holder.pid, holder.user) == (None, other.info.backend_pid, postgres_server.user)
        assert list(client.list("*", timeout=LIMIT)) == []
        floor = revoke(client, holder, now=True)
        assert floor is not None
        assert take(client, claim()).token >= floor


def test_holders_of_a_shared_lock_are_all_shown(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres
) -> None:
    client = open_client(key="77,78")
    with contextlib.ExitStack() as ends:
        for _ in range(2):
            other = ends.enter_context(contextlib.closing(psycopg2.connect(postgres_server.url)))
            other.cursor().execute("select pg_advisory_lock_shared(77, 78)")
        lock = client.inspect("nightly", timeout=LIMIT)
        assert (lock.state, [holder.mode for holder in lock.holders]) == ("foreign", ["shared", "shared"])
        assert refused(client, claim())


def test_another_user_sees_who_holds_a_lock_and_is_told_what_ending_it_needs(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    name = f"reader-{schema}"
    reader = f'"{name}"'
    postgres_server.command(
        f"create role {reader} login; grant usage on schema {schema} to {reader};"
        f" alter default privileges for role {postgres_server.user} in schema {schema}"
        f" grant select, insert, update on tables to {reader}"
    )
    try:
        mine = claim()
        grant = take(open_client(), mine)
        client = open_client(user=name)
        (holder,) = client.inspect("nightly", timeout=LIMIT).holders
        assert (holder.owner, holder.host, holder.token) == (mine.owner, mine.host, grant.token)
        assert refused(client, claim())
        now = Revocation(now=True, by="ops", reason="")
        with pytest.raises(ConfigError, match=f"GRANT pg_signal_backend TO {reader}") as told:
            client.revoke("nightly", holder, now, timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).holders[0].token == grant.token
        postgres_server.command(str(told.value).partition("run: ")[2])
        assert client.revoke("nightly", holder, now, timeout=LIMIT)
    finally:
        postgres_server.command(f"drop owned by {reader} cascade; drop role {reader}")


@pytest.mark.parametrize("held_by", ["session", "transaction"])
@pytest.mark.parametrize(
    "mode", [{}, {"mode": "shared"}, {"mode": "slot", "slots": 2}], ids=["alone", "shared", "slot"]
)
def test_renewals_read_the_locks_of_others_once_and_tell_all_the_same_that_a_lock_is_gone(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, held_by: str, mode: dict[str, Any]
) -> None:
    client, other = open_client(scope=held_by), open_client()
    said = "select query from pg_stat_activity where application_name like '{}%' and query like '%backend_pid%'"
    grant = take(client, claim(**mode))
    for looks in (held_by == "session", False, False):  # in a transaction the grant has looked
        client.renew(grant, timeout=LIMIT)
        query = postgres_server.command(said.format(queue.mark(grant.claim.owner)))
        assert ("pg_lock_status" in query) == looks
    client.release(grant, timeout=LIMIT)
    grant = take(client, claim(**mode))
    for _ in range(2):
        client.renew(grant, timeout=LIMIT)
    session = client._attempts[grant.claim.owner].session
    end = "SELECT pg_advisory_unlock_all()" if held_by == "session" else "ROLLBACK TO SAVEPOINT lockctl"
    session.ask(end, Deadline(LIMIT))
    successor = take(other, claim())
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    assert other.renew(successor, timeout=LIMIT).token == successor.token


def test_a_late_answer_to_a_renewal_is_not_taken_for_that_to_a_later_one(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(postgres_server)
    client, other = open_client(proxy.address), open_client()
    grant = take(client, claim())
    proxy.mode = "delay=0.15"
    with pytest.raises(BackendUnavailable):
        client.renew(grant, timeout=0.05)
    time.sleep(0.4)  # the answer is there, and says that nobody asked for the lock
    (holder,) = other.inspect("nightly", timeout=LIMIT).holders
    other.revoke("nightly", holder, Revocation(now=False, by="ops", reason="now"), timeout=LIMIT)
    with pytest.raises(LeaseRevoked):
        client.renew(grant, timeout=LIMIT)


@pytest.mark.parametrize("said", [b"}", b"N"], ids=["no message", "no row"])
def test_an_answer_that_postgresql_does_not_give_ends_the_session_and_its_lock(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, said: bytes
) -> None:
    """The next one would be taken for the answer to another statement."""
    kind = b"D"  # of a message with a row, as it comes; then its length

    def change(data: bytes) -> bytes:
        return data.replace(b"D\0\0\0", kind + b"\0\0\0")

    with recording(postgres_server.address, [], change) as address:
        client, other = open_client(address), open_client()
        grant = take(client, claim(ttl=60.0))
        kind = said
        with pytest.raises(LeaseLost):
            client.renew(grant, timeout=LIMIT)
        eventually(lambda: other.try_acquire(claim(), timeout=LIMIT) is not None)


def test_a_claim_whose_answer_got_lost_finds_the_lock_again_instead_of_being_refused_by_itself(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(postgres_server)
    client, mine = open_client(proxy.address), claim(ttl=60.0)
    holder = open_client()
    grant = take(holder, claim())
    assert client.try_acquire(mine, timeout=LIMIT) is None
    holder.release(grant, timeout=LIMIT)
    proxy.mode = "drop_replies"
    with pytest.raises(BackendUnavailable):
        client.try_acquire(mine, timeout=0.3)
    proxy.mode = "pass"
    take(client, mine)


def test_nothing_at_the_server_ends_a_session_before_its_lease(
    open_client: Callable[..., PostgresqlBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    prepare = scope.prepare

    def watched(kind: scope.Scope, session: Any, *more: Any) -> None:
        prepare(kind, session, *more)
        opened.append(session)

    monkeypatch.setattr(scope, "prepare", watched)
    take(open_client(), claim(ttl=40.0))
    (session,) = opened

    def setting(name: str) -> int:
        sql = f"select setting::int from pg_settings where name = '{name}'"
        return int(session.ask(sql, Deadline(LIMIT))[0][0])

    assert setting("idle_session_timeout") >= 40_000
    assert setting("tcp_user_timeout") > 40_000
    assert setting("tcp_keepalives_idle") > 40
    assert setting("statement_timeout") == setting("lock_timeout") == 0
    assert setting("client_connection_check_interval") == 500


def test_a_lease_may_be_longer_than_the_kernel_waits_with_keepalives(
    open_client: Callable[..., PostgresqlBackend],
) -> None:
    client, patient = open_client(), claim(ttl=1_900_000.0)
    grant = take(client, patient)
    assert client.renew(grant, timeout=LIMIT).ttl == grant.ttl == patient.ttl
    with pytest.raises(ConfigError, match="too long: at most"):
        client.try_acquire(claim(ttl=300_000_000.0), timeout=LIMIT)


@pytest.mark.parametrize(
    ("usual", "used"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
)
def test_a_token_waits_for_the_disk_whatever_is_usual_at_the_server(
    postgres_server: Postgres, usual: str, used: str
) -> None:
    with contextlib.closing(psycopg2.connect(postgres_server.url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"set synchronous_commit = {usual}; {DURABLE} show synchronous_commit")
        assert cursor.fetchone() == (used,)


def test_a_standby_is_refused_and_passed_over_for_a_primary(
    start_server: Callable[..., Postgres], postgres_server: Postgres
) -> None:
    standby = start_server(Postgres)
    standby.stop()
    (standby.directory / "data" / "standby.signal").touch()
    standby.start()
    with pytest.raises(BackendUnavailable, match="standby"):
        PostgresqlBackend.from_url(parse_url(standby.url)).try_acquire(claim(), timeout=LIMIT)
    both = postgres_server.url.replace(postgres_server.address, f"{standby.address},{postgres_server.address}")
    client = PostgresqlBackend.from_url(parse_url(both))
    take(client, claim("passed-over"))
    client.close()


def test_a_socket_directory_can_be_the_host(postgres_server: Postgres) -> None:
    place = str(postgres_server.socket_directory).replace("/", "%2F")
    url = postgres_server.url.replace(postgres_server.address, f"{place}:{postgres_server.port}")
    client = PostgresqlBackend.from_url(parse_url(url))
    take(client, claim("socket"))
    client.close()


def test_a_pooler_that_lends_connections_is_refused_with_the_remedy(
    open_client: Callable[..., PostgresqlBackend], pgbouncer_transaction: PgBouncer
) -> None:
    with pytest.raises(ConfigError, match="scope=transaction"):
        open_client(pgbouncer_transaction.address).try_acquire(claim(), timeout=LIMIT)
    take(open_client(pgbouncer_transaction.address, scope="transaction"), claim())


def test_a_busy_pooler_that_lends_connections_is_refused_all_the_same(
    open_client: Callable[..., PostgresqlBackend],
    postgres_server: Postgres,
    start_server: Callable[..., PgBouncer],
) -> None:
    pooler = start_server(PgBouncer, postgres_server, mode="transaction", pool_size=6)
    url = postgres_server.url.replace(postgres_server.address, pooler.address)
    until = time.monotonic() + 1.5

    def work() -> None:
        with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while time.monotonic() < until:
                cursor.execute("select pg_sleep(0.001)")

    busy = [Background(work) for _ in range(4)]
    while time.monotonic() < until - 0.3:
        with pytest.raises(ConfigError, match="scope=transaction"):
            open_client(pooler.address).try_acquire(claim(), timeout=LIMIT)
    for each in busy:
        each.result()


@pytest.mark.parametrize("held_by", ["session", "transaction"])
def test_a_pooler_without_transactions_is_refused(
    open_client: Callable[..., PostgresqlBackend], pgbouncer_statement: PgBouncer, held_by: str
) -> None:
    with pytest.raises(ConfigError, match=r"statement pooling|scope=transaction"):
        open_client(pgbouncer_statement.address, scope=held_by).try_acquire(claim(), timeout=LIMIT)


def test_a_pooler_that_gives_each_client_a_connection_is_as_good_as_none(
    open_client: Callable[..., PostgresqlBackend], pgbouncer_session: PgBouncer
) -> None:
    # it has two connections: one that holds, one that is refused, and none for the look whether they are lent
    client, other = open_client(pgbouncer_session.address), open_client(pgbouncer_session.address)
    grant = take(client, claim(ttl=60.0))
    late = claim(ttl=60.0)
    assert other.try_acquire(late, timeout=2.0) is None
    other.withdraw(late, timeout=LIMIT)
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    client.release(grant, timeout=LIMIT)
    take(other, late)  # also where both have a connection left from before


def server_process(client: PostgresqlBackend, grant: Grant) -> int:
    return client._attempts[grant.claim.owner].session.pid


def test_a_release_that_is_repeated_behind_a_pooler_leaves_the_successor_its_server_process(
    open_client: Callable[..., PostgresqlBackend], pgbouncer_session: PgBouncer, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(pgbouncer_session)
    client, other = open_client(proxy.address), open_client(pgbouncer_session.address)
    grant = take(client, claim(ttl=60.0))
    before = server_process(client, grant)
    proxy.mode = "drop_replies"
    with pytest.raises(BackendUnavailable):
        client.release(grant, timeout=1.0)  # done, and the answer lost: the pooler has the process back
    late = claim(ttl=60.0)
    successor = eventually(lambda: other.try_acquire(late, timeout=LIMIT))
    assert server_process(other, successor) == before, "or this test shows nothing"
    proxy.mode = "pass"
    client.release(grant, timeout=LIMIT)
    client.withdraw(grant.claim, timeout=LIMIT)
    assert other.renew(successor, timeout=LIMIT) == successor


def test_a_program_that_was_seen_is_not_ended_in_the_name_of_an_earlier_one(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    client = open_client()
    with contextlib.closing(psycopg2.connect(postgres_server.url)) as other, other.cursor() as cursor:
        cursor.execute(f"select pg_advisory_lock({layout.of_name(schema + ':nightly').text})")
        (holder,) = client.inspect("nightly", timeout=LIMIT).holders
        assert isinstance(holder.known_by, str)
        # a number of a process is used again, and a process behind a pooler by another client
        for change in ({"known_by": str(int(holder.known_by) - 1)}, {"user": "ops"}, {"host": "192.0.2.7"}):
            earlier = replace(holder, **change)
            assert revoke(client, earlier, now=True) is None
        cursor.execute("select 1")


@pytest.mark.parametrize("held_by", ["session", "transaction"])
def test_who_waits_keeps_no_snapshot_that_vacuum_and_indexes_would_wait_for(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str, held_by: str
) -> None:
    holder, waiters = open_client(), [open_client(scope=held_by) for _ in range(3)]
    grant, claims = take(holder, claim(ttl=60.0)), [claim(ttl=60.0) for _ in waiters]

    def turn(waiter: PostgresqlBackend, mine: Claim) -> None:
        waiter.release(wait_for_turn(waiter, mine), timeout=LIMIT)

    calls = [Background(functools.partial(turn, waiter, mine)) for waiter, mine in zip(waiters, claims, strict=True)]
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) == 3)
    marks = " or ".join(f"application_name like '{queue.mark(mine.owner)}%'" for mine in claims)
    # within a short statement there is one for a moment
    pinned = f"select count(*) from pg_stat_activity where backend_xmin is not null and ({marks})"
    assert postgres_server.command(f"select count(*) from pg_stat_activity where {marks}").strip() == "3"
    eventually(lambda: postgres_server.command(pinned).strip() == "0")
    with contextlib.closing(psycopg2.connect(postgres_server.url, options="-c statement_timeout=5s")) as other:
        other.autocommit = True
        other.cursor().execute(f"create table {schema}.other (i int)")

        def makes_index() -> bool:
            try:
                other.cursor().execute(f"create index concurrently on {schema}.other (i)")
            except psycopg2.errors.QueryCanceled:
                return False
            return True

        # of a transaction that is in the middle of a short statement the server waits for the end
        assert any(makes_index() for _ in range(1 if held_by == "session" else 4))
    assert all(call.running for call in calls)
    holder.release(grant, timeout=LIMIT)
    for call in calls:
        call.result()


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("held_by", ["session", "transaction"])
def test_a_table_that_somebody_wants_to_lock_alone_costs_no_holder_its_lease(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str, held_by: str, mode: str
) -> None:
    client = open_client(scope=held_by)
    grant = take(client, replace(claim(ttl=60.0), mode=mode))
    client.renew(grant, timeout=LIMIT)
    tables = [f"{schema}.lockctl_fence"] + [f"{schema}.lockctl_holder"] * (mode == "shared")
    sessions = "select count(*) from pg_stat_activity where application_name like 'lockctl%'"
    with contextlib.closing(psycopg2.connect(postgres_server.url)) as reader, reader.cursor() as cursor:
        for table in tables:
            cursor.execute(f"select count(*) from {table}")  # a long look, such as that of pg_dump
        wanted = f"alter table {tables[-1]} add column extra int"
        altering = Background(lambda: postgres_server.command(wanted, timeout=30.0))
        locked = "select count(*) from pg_locks where not granted and mode = 'AccessExclusiveLock'"
        eventually(lambda: postgres_server.command(locked).strip() == "1")
        before = postgres_server.command(sessions)
        # more often than the time for one request allows: each has its answer, or the next
        answered = 0
        for _ in range(6):
            with contextlib.suppress(BackendUnavailable):
                answered += client.renew(grant, timeout=1.5) == grant
        assert answered >= 3
        assert postgres_server.command(sessions) == before, "no session is left behind that waits for the table"
        assert altering.running
    altering.result()
    client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    take(client, claim())


def test_programs_that_wait_in_the_queue_of_the_server_and_we_let_each_other_pass(
    open_client: Callable[..., PostgresqlBackend], postgres_server: Postgres, schema: str
) -> None:
    holder, waiter = open_client(), open_client()
    grant, mine = take(holder, claim(ttl=60.0)), claim(ttl=60.0)
    number = layout.of_name(f"{schema}:nightly").text
    with contextlib.ExitStack() as ends:
        cursors = []
        for _ in range(2):
            other = ends.enter_context(contextlib.closing(psycopg2.connect(postgres_server.url)))
            other.autocommit = True
            cursors.append(other.cursor())

        def stand(cursor: Any) -> Background:
            return Background(functools.partial(cursor.execute, f"select pg_advisory_lock({number})"))

        def queued() -> int:
            return len(holder.inspect("nightly", timeout=LIMIT).waiters or ())

        first = stand(cursors[0])
        eventually(lambda: queued() == 1)
        call = Background(lambda: waiter.wait(mine, timeout=30.0, interrupt=None))
        # it takes its place in the server's queue, behind the first
        in_line = (
            f"select count(*) from pg_locks l where not granted and {scope.is_key(layout.of_name(schema + ':nightly'))}"
        )
        eventually(lambda: postgres_server.command(in_line).strip() == "2")
        last = stand(cursors[1])
        eventually(lambda: queued() == 3)
        holder.release(grant, timeout=LIMIT)
        first.result()
        assert call.running
        cursors[0].execute(f"select pg_advisory_unlock({number})")
        call.result()
        assert last.running
        mine_now = take(waiter, mine)
        waiter.release(mine_now, timeout=LIMIT)
        last.result()


def test_who_stood_in_the_queue_of_the_server_goes_back_to_its_place_when_nobody_else_does(
    open_client: Callable[..., PostgresqlBackend],
    postgres_server: Postgres,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait, "LINE_LIMIT", 0.3)
    holder, waiter = open_client(), open_client()
    grant, mine = take(holder, claim(ttl=60.0)), claim(ttl=60.0)
    where = scope.is_key(layout.of_name(f"{schema}:nightly"))
    in_line = f"select count(*) from pg_locks l where not granted and {where}"
    with contextlib.closing(psycopg2.connect(postgres_server.url)) as other:
        stood = Background(
            lambda: other.cursor().execute(f"select pg_advisory_lock({layout.of_name(schema + ':nightly').text})")
        )
        call = Background(lambda: waiter.wait(mine, timeout=30.0, interrupt=None))
        eventually(lambda: postgres_server.command(in_line).strip() == "2")
        other.cancel()
        with pytest.raises(psycopg2.Error):
            stood.result()
    eventually(lambda: postgres_server.command(in_line).strip() == "0")
    assert call.running
    holder.release(grant, timeout=LIMIT)
    call.result()
    taken = take(waiter, mine)
    waiter.release(taken, timeout=LIMIT)
    assert holder.inspect("nightly", timeout=LIMIT).state == "free"


def test_several_locks_that_are_one_are_refused_at_once(
    lockctl: Lockctl, postgres_server: Postgres, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    words = ("run", "-b", f"{postgres_server.url}?key=4711", "-w", "forever", "-l", "a", "-l", "b", "--")
    done = lockctl(*words, "touch", str(ran))
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert "all names are the same lock" in done.stderr
    assert not ran.exists()
    assert lockctl("run", "-b", f"{postgres_server.url}?key=4711", "-l", "a", "-l", "a", "--", "true").returncode == 0
