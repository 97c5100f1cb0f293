"""What PostgreSQL keeps of a lock: holds, successes and runs, in tables that may be old, forbidden, full or forged."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable, ConfigError, LeaseRevoked
from lockctl.model import Revocation
from lockctl.stores.postgresql.queue import mark
from lockctl.stores.postgresql.session import Session
from lockctl.value import replace
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, claim, one_of, reader, refused, take, wait_for_turn
from tests.contract.keeping import revoke
from tests.contract.remembering import a_run
from tests.jobs import eventually
from tests.servers.postgres import Postgres
from tests.stores.postgresql.places import OLD_TABLE, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Claim, Holder
    from lockctl.stores.postgresql.lock import PostgresqlBackend
    from tests.servers.proxy import Proxy

SCOPES = pytest.mark.parametrize("scope", ["session", "transaction"])


def held_by(client: PostgresqlBackend) -> Holder:
    (holder,) = client.inspect("nightly", timeout=LIMIT).holders
    return holder


@contextlib.contextmanager
def reading(place: Place) -> Iterator[str]:
    """A user whose transactions only read, and see one state of the data, unless they say otherwise."""
    with place.user() as user:
        place.command(f"grant create on schema {place.schema} to {user}")
        for name, usual in (("read_only", "on"), ("isolation", "serializable")):
            place.command(f"alter role {user} set default_transaction_{name} = {usual}")
        yield user


def end_rest(client: PostgresqlBackend) -> int | None:
    return revoke(client, held_by(client), now=True)


@contextlib.contextmanager
def forbidden(place: Place, table: str) -> Iterator[None]:
    """The table is another's, who grants nothing but reading."""
    place.command(f"alter table {table} owner to postgres; grant select on {table} to public")
    yield
    place.command(f"alter table {table} owner to {place.server.user}")


def test_the_plain_path_asks_no_more_than_it_did(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    client, mine = place.client(), claim()
    client.wait(mine, timeout=LIMIT, interrupt=None)  # connected, with the lock
    grant = take(client, mine)
    sent: list[str] = []
    send = Session.send

    def counted(session: Session, sql: str, args: tuple[object, ...] | None = None) -> None:
        sent.append(sql)
        send(session, sql, args)

    monkeypatch.setattr(Session, "send", counted)
    client.renew(grant, timeout=LIMIT)
    assert len(sent) == 1
    client.release(grant, timeout=LIMIT)
    assert len(sent) == 2
    other, late = place.client(), claim()
    assert refused(other, claim("warm")) is False
    grant = take(client, claim())
    assert other.try_acquire(late, timeout=LIMIT) is None
    client.release(grant, timeout=LIMIT)
    sent.clear()
    take(other, late)
    assert len(sent) == 2, "the lock, and its token"


@SCOPES
def test_times_have_all_digits_whatever_is_usual_for_the_user(place: Place, scope: str) -> None:
    with place.user() as user:
        place.command(f"grant create on schema {place.schema} to {user}")
        place.command(f"alter role {user} set extra_float_digits = -15")
        holder, other = place.client(user=user, scope=scope), place.client(user=user)
        grant = take(holder, claim())
        assert abs(grant.at - time.time()) < 60
        other.note_success(grant, timeout=LIMIT)
        assert other.last_success("nightly", timeout=LIMIT) == grant.at
        for client in (holder, other):
            client.close()


@SCOPES
def test_all_is_kept_for_a_user_whose_transactions_usually_only_read(place: Place, scope: str) -> None:
    with reading(place) as user:
        holder, other = place.client(user=user, scope=scope), place.client(user=user)
        grant = take(holder, claim(command=("make",)))
        other.note_success(grant, timeout=LIMIT)
        other.remember("nightly", a_run(), timeout=LIMIT)
        assert other.last_success("nightly", timeout=LIMIT) == grant.at
        assert len(other.history("nightly", timeout=LIMIT)) == 1
        revoke(other, held_by(other))
        with pytest.raises(LeaseRevoked):
            holder.renew(grant, timeout=LIMIT)
        holder.release(grant, timeout=LIMIT, hold=60.0)
        assert end_rest(other)
        later = take(holder, claim())
        assert end_rest(other)
        assert later.token > grant.token


@SCOPES
def test_who_waits_keeps_the_order_over_a_hold_and_is_listed_as_waiting(place: Place, scope: str) -> None:
    holder = place.client()
    grant = take(holder, claim())
    asked, served = time.monotonic(), []  # the hold begins while it is being asked for
    holder.release(grant, timeout=LIMIT, hold=4.0)

    def turn(number: int) -> None:
        client = place.client(scope=scope)
        grant = wait_for_turn(client, claim())
        served.append((number, time.monotonic() - asked))
        client.release(grant, timeout=LIMIT)

    def known() -> list[str | None]:
        return [each.host for each in holder.inspect("nightly", timeout=LIMIT).waiters or ()]

    turns: list[Background] = []
    while len(turns) < 3:
        turns.append(Background(functools.partial(turn, len(turns))))
        # who only looks whether the lock rests is at its place for a moment, too; who waits there says who it is
        eventually(lambda: known() == [os.uname().nodename] * len(turns))
    lock = holder.inspect("nightly", timeout=LIMIT)
    assert lock.state == "held"
    assert lock.holders[0].ended_at is not None
    assert len(lock.holders) == 1
    assert [len(each.waiters or ()) for each in holder.list("*", timeout=LIMIT)] == [3]
    for each in turns:
        each.result()
    assert [number for number, _ in served] == [0, 1, 2]
    assert all(4.0 <= after < 8.0 for _, after in served)


@SCOPES
def test_who_waits_goes_on_within_a_moment_when_an_operator_ends_a_hold(place: Place, scope: str) -> None:
    holder, waiter = place.client(), place.client(scope=scope)
    holder.release(take(holder, claim()), timeout=LIMIT, hold=600.0)
    waiting = Background(lambda: wait_for_turn(waiter, claim()))
    eventually(lambda: holder.inspect("nightly", timeout=LIMIT).waiters)
    floor = end_rest(holder)
    ended = time.monotonic()
    grant = waiting.result()
    assert waiting.ended_at - ended < 5.0
    assert floor is not None
    assert grant.token >= floor


@SCOPES
def test_who_got_no_answer_about_a_hold_in_time_keeps_its_place_in_the_queue(
    place: Place, start_proxy: Callable[..., Proxy], scope: str
) -> None:
    holder, proxy, mine = place.client(), start_proxy(place.server), claim()
    holder.release(take(holder, claim()), timeout=LIMIT, hold=600.0)
    waiter = place.client(proxy.address, scope=scope)
    assert waiter.try_acquire(mine, timeout=LIMIT) is None
    waiter.wait(mine, timeout=1.0, interrupt=None)  # in the queue
    for _ in range(2):
        proxy.mode = "delay=0.7"
        waiter.wait(mine, timeout=0.3, interrupt=None)
        proxy.mode = "pass"
        assert waiter.try_acquire(mine, timeout=LIMIT) is None
    proxy.mode = "delay=0.7"
    waiter.wait(mine, timeout=0.3, interrupt=None)
    proxy.mode = "pass"
    end_rest(holder)
    wait_for_turn(waiter, mine)


@SCOPES
def test_a_short_lease_does_not_end_the_wait_for_a_long_hold(place: Place, scope: str) -> None:
    holder, waiter = place.client(), place.client(scope=scope)
    holder.release(take(holder, claim()), timeout=LIMIT, hold=2.5)
    mine = claim(ttl=0.8)
    assert waiter.try_acquire(mine, timeout=LIMIT) is None
    waiter.wait(mine, timeout=1.0, interrupt=None)  # in the queue
    assert waiter.try_acquire(mine, timeout=LIMIT) is None
    in_queue = waiter._attempts[mine.owner].session.pid
    waiter.wait(mine, timeout=LIMIT, interrupt=None)
    take(waiter, mine)
    assert waiter._attempts[mine.owner].session.pid == in_queue


@SCOPES
def test_who_does_not_wait_leaves_a_lock_that_rests_to_other_programs(place: Place, scope: str) -> None:
    holder, client = place.client(scope=scope), place.client(scope=scope)
    holder.release(take(holder, claim()), timeout=LIMIT, hold=60.0)
    late = claim()
    for wanted in (late, late, reader()):
        assert client.try_acquire(wanted, timeout=LIMIT) is None
    with pytest.raises(ConfigError, match="one holder"):
        client.try_acquire(one_of(3), timeout=LIMIT)
    with place.session() as cursor:
        cursor.execute(f"select pg_try_advisory_lock({place.key})")
        assert cursor.fetchone() == (True,)
        lock = holder.inspect("nightly", timeout=LIMIT)
        assert (lock.state, len(lock.holders)) == ("held", 2)
        assert refused(client, claim())


def test_readers_wait_for_the_end_of_a_hold_together(place: Place) -> None:
    holder = place.client()
    holder.release(take(holder, claim()), timeout=LIMIT, hold=1.5)
    clients = [place.client() for _ in range(2)]
    calls = [Background(functools.partial(wait_for_turn, client, reader())) for client in clients]
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) == 2)
    tokens = {call.result().token for call in calls}
    assert len(tokens) == 2
    # who was granted the lock gives its ticket back without waiting for the answer
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).holders) == 2)


def test_a_hold_outlasts_a_restart_of_the_server(start_server: Callable[..., Postgres]) -> None:
    place = Place(start_server(Postgres))
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT, hold=60.0)
    place.server.restart()
    assert refused(place.client(), claim())
    assert held_by(place.client()).ended_at is not None


@SCOPES
def test_a_release_with_a_hold_that_gets_no_answer_says_so_and_can_be_repeated(
    place: Place, start_proxy: Callable[..., Proxy], scope: str
) -> None:
    proxy = start_proxy(place.server)
    client = place.client(proxy.address, scope=scope)
    grant = take(client, claim())
    proxy.mode = "delay=0.7"
    with pytest.raises(BackendUnavailable):
        client.release(grant, timeout=0.5, hold=60.0)
    proxy.mode = "pass"
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert held_by(place.client()).ended_at is not None
    assert refused(place.client(), claim())


@SCOPES
def test_a_hold_that_may_not_be_written_is_said_and_the_lock_is_held_until_it_may(place: Place, scope: str) -> None:
    client = place.client(scope=scope)
    grant = take(client, claim())
    with forbidden(place, place.fence):
        for _ in range(2):  # as a run that gives its lock back tries it again
            with pytest.raises(ConfigError, match="GRANT SELECT, INSERT, UPDATE ON"):
                client.release(grant, timeout=LIMIT, hold=60.0)
    assert held_by(client).ended_at is None
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert held_by(client).ended_at is not None


@SCOPES
def test_a_lock_whose_hold_may_never_be_written_is_free_when_its_run_has_ended(place: Place, scope: str) -> None:
    client, other = place.client(scope=scope), place.client()
    grant = take(client, claim())
    with forbidden(place, place.fence):
        with pytest.raises(ConfigError, match="GRANT SELECT, INSERT, UPDATE ON"):
            client.release(grant, timeout=LIMIT, hold=60.0)
        client.close()
        eventually(lambda: other.inspect("nightly", timeout=LIMIT).state == "free")


@SCOPES
def test_a_hold_that_cannot_be_written_now_is_said_and_the_lock_is_held_until_it_can(place: Place, scope: str) -> None:
    client = place.client(scope=scope)
    grant = take(client, claim())
    full = "begin raise exception 'full' using errcode = 'disk_full'; end"
    place.command(f"create function {place.schema}.refuse() returns trigger language plpgsql as $${full}$$")
    place.command(
        f"create trigger refuse before update of rests_until on {place.fence}"
        f" for each row execute function {place.schema}.refuse()"
    )
    for _ in range(2):  # as a run that gives its lock back tries it again
        with pytest.raises(BackendUnavailable, match="full"):
            client.release(grant, timeout=LIMIT, hold=60.0)
    assert refused(place.client(), claim())
    place.command(f"drop trigger refuse on {place.fence}")
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert held_by(place.client()).ended_at is not None
    assert refused(place.client(), claim())


def test_a_holder_that_is_ended_as_it_begins_a_hold_does_not_leave_one(place: Place) -> None:
    client = place.client()
    grant = take(client, claim())
    seen = held_by(client)
    client._attempts[grant.claim.owner].begin_hold(grant, 60.0, Deadline(LIMIT))
    other = place.client()
    assert revoke(other, seen, now=True) is not None
    take(other, claim())


@pytest.mark.parametrize("until", ["infinity", "4713-01-01 BC", "-infinity", "294276-12-31"])
def test_a_forged_hold_is_shown_and_can_be_ended(place: Place, until: str) -> None:
    client, other = place.client(), place.client()
    grant = take(client, claim())
    place.command(f"update {place.fence} set rests_until = '{until}', success = 'nan'")
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert held_by(other).owner == grant.claim.owner
    assert other.last_success("nightly", timeout=LIMIT) is None
    client.release(grant, timeout=LIMIT)
    late = claim()
    if until.startswith(("inf", "2")):
        before = time.process_time()
        assert other.try_acquire(late, timeout=LIMIT) is None
        other.wait(late, timeout=0.1, interrupt=None)
        assert other.try_acquire(late, timeout=LIMIT) is None
        other.wait(late, timeout=0.5, interrupt=None)
        assert time.process_time() - before < 0.2
        assert end_rest(client) is not None
    take(other, late)


def test_a_table_of_an_older_lockctl_is_given_the_new_columns(place: Place) -> None:
    place.command(OLD_TABLE.format(place.fence))
    place.command(f"alter table {place.fence} owner to {place.server.user}")
    client = place.client()
    row = f"'{place.key}', '{place.schema}:nightly', 7, 'owner', '', NULL, now()"
    place.command(f"insert into {place.fence} values ({row})")
    assert client.inspect("nightly", timeout=LIMIT).state == "free"
    assert client.last_success("nightly", timeout=LIMIT) is None
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]
    clients = [place.client() for _ in range(4)]
    calls = [
        Background(functools.partial(wait_for_turn, each, claim(f"lock{number % 2}" if number else "nightly")))
        for number, each in enumerate(clients[:3])
    ]
    assert all(call.result().token > 7 for call in calls)
    clients[0].note_success(calls[0].result(), timeout=LIMIT)
    assert client.last_success("nightly", timeout=LIMIT) == calls[0].result().at


@pytest.mark.parametrize("wanted", [claim, reader, functools.partial(one_of, 2)])
def test_who_may_not_change_an_old_table_is_told_the_statement(place: Place, wanted: Callable[[], Claim]) -> None:
    place.command(OLD_TABLE.format(place.fence))
    place.command(f"grant select, insert, update on {place.fence} to {place.server.user}")
    client = place.client()
    with pytest.raises(ConfigError, match="older lockctl: have its owner run: ALTER TABLE") as told:
        client.try_acquire(wanted(), timeout=LIMIT)
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")
    place.command(str(told.value).partition("run: ")[2])
    take(client, wanted())


def test_a_history_that_may_not_be_written_is_said_and_no_lock_suffers(place: Place) -> None:
    client = place.client()
    grant = take(client, claim())
    place.command(f"alter schema {place.schema} owner to postgres; grant usage on schema {place.schema} to public")
    with pytest.raises(
        ConfigError, match=r"CREATE TABLE .*lockctl_history .*; GRANT SELECT, INSERT, UPDATE, DELETE"
    ) as told:
        client.remember("nightly", a_run(), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == ()
    assert client.inspect("nightly", timeout=LIMIT).last_run is None
    client.release(grant, timeout=LIMIT)
    place.command(str(told.value).partition("run: ")[2])
    client.remember("nightly", a_run(), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (a_run(),)
    place.command(f"revoke insert on {place.history} from {place.server.user}")
    with pytest.raises(ConfigError, match=r"GRANT SELECT, INSERT, UPDATE, DELETE ON .*lockctl_history"):
        client.remember("nightly", a_run(), timeout=LIMIT)
    place.command(f"revoke select on {place.history} from {place.server.user}")
    with pytest.raises(ConfigError, match="lockctl_history"):
        client.history("nightly", timeout=LIMIT)
    assert client.inspect("nightly", timeout=LIMIT).last_run is None
    client.release(take(client, claim()), timeout=LIMIT)


def test_a_full_store_forgets_the_run_and_keeps_the_locks(place: Place) -> None:
    client = place.client()
    client.remember("nightly", a_run(), timeout=LIMIT)
    place.command(
        f"create function {place.schema}.full() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$;"
        f" create trigger too_full before insert on {place.history} for each row execute function {place.schema}.full()"
    )
    grant = take(client, claim())
    with pytest.raises(BackendUnavailable, match="could not extend file"):
        client.remember("nightly", a_run(1), timeout=LIMIT)
    client.release(grant, timeout=LIMIT, hold=0.1)
    assert client.history("nightly", timeout=LIMIT) == (a_run(),)


def test_what_others_write_into_the_history_is_passed_over(place: Place) -> None:
    client, runs = place.client(), [a_run()]
    client.remember("nightly", runs[0], timeout=LIMIT)
    for content in ("null", "'x'", "'[]'", "repeat('[', 60000)", "repeat('x', 10000000)", "'{\"outcome\": 7}'"):
        for started in (True, False):
            row = f"'{place.key}', {started}, {content}"
            place.command(f"insert into {place.history} (key, started, document) values ({row})")
        assert client.history("nightly", timeout=LIMIT) == tuple(runs), content
        assert client.inspect("nightly", timeout=LIMIT).last_run is None
        runs.insert(0, a_run(len(runs)))
        client.remember("nightly", runs[0], timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).last_run == runs[0]


def test_four_who_remember_at_the_same_time_keep_the_table_small_and_never_wait_for_each_other(place: Place) -> None:
    refusal = a_run(0, outcome="held", started_at=None, duration=None)

    def busy(number: int) -> None:
        client = place.client()
        for count in range(60):
            run = replace(refusal if count % 2 else a_run(0), token=1000 * number + count)
            client.remember("nightly", run, timeout=LIMIT)

    for each in [Background(functools.partial(busy, number)) for number in range(4)]:
        each.result(30.0)
    client = place.client()
    client.remember("nightly", refusal, timeout=LIMIT)
    client.remember("nightly", a_run(0), timeout=LIMIT)
    counted = place.command(f"select count(*) from {place.history} group by started")
    assert counted.split() == [str(history.KEPT)] * 2
    assert len(client.history("nightly", timeout=LIMIT)) == 2 * history.KEPT


def test_a_run_costs_no_second_connection_for_its_history(place: Place) -> None:
    client = place.client()
    grant = take(client, claim())
    pid = client._attempts[grant.claim.owner].session.pid
    client.release(grant, timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    assert client._observer._session is not None
    assert client._observer._session.pid == pid
    client.close()
    eventually(lambda: place.command(f"select count(*) from pg_stat_activity where pid = {pid}") == "0")


def test_a_connection_that_ended_after_its_lease_is_replaced_for_the_history(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim(ttl=0.5)), timeout=LIMIT)
    assert client._observer._session is not None
    pid = client._observer._session.pid
    eventually(lambda: place.command(f"select count(*) from pg_stat_activity where pid = {pid}") == "0")
    client.remember("nightly", a_run(), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (a_run(),)


def names(client: PostgresqlBackend, older_than: float = 0.0) -> list[str]:
    return [name for name, _ in client.unused("*", older_than=older_than, timeout=LIMIT)]


def forget(client: PostgresqlBackend, name: str = "nightly", older_than: float = 0.0) -> bool:
    return client.forget(name, older_than=older_than, timeout=LIMIT)


@pytest.mark.parametrize("wanted", [claim, reader], ids=["alone", "shared"])
def test_tokens_rise_although_the_clock_was_set_back_after_a_name_was_forgotten(
    place: Place, wanted: Callable[[], Claim]
) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    assert forget(client)
    floor = int(place.command(f"select token from {place.fence} where key = 'floor'"))
    hour = 3600 * 1_000_000  # the same as a clock that is an hour behind now
    place.command(f"update {place.fence} set token = token + {hour}")
    assert take(client, wanted()).token == floor + hour + 1
    client.remember("never-held", a_run(), timeout=LIMIT)
    assert take(client, claim("never-held")).token > floor + hour
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["never-held", "nightly"]


def test_a_token_that_is_ahead_of_the_clock_is_kept_for_programs_that_know_no_floor(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    place.command(f"update {place.fence} set token = 9223372036854775800, taken_at = now() - interval '1 year'")
    assert names(client) == []
    assert not forget(client)


@pytest.mark.parametrize("use", ["a run", "a success", "a holder", "a holder that has gone"])
def test_a_use_between_the_look_and_the_removal_keeps_all_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    client, other = place.client(), place.client()
    grant = take(other, claim())
    other.release(grant, timeout=LIMIT)
    other.remember("nightly", a_run(), timeout=LIMIT)
    past = "now() - interval '1 year'"
    place.command(f"update {place.fence} set taken_at = {past}, token = extract(epoch from {past}) * 1e6")
    place.command(f"update {place.history} set noted_at = {past}")
    select, uses = client._fence.select, []

    def late(session: Session, sql: str, values: tuple[Any, ...], deadline: Deadline) -> Any:
        if "DELETE" in sql:
            uses.append(use)
            if use == "a run":
                other.remember("nightly", a_run(1), timeout=LIMIT)
            elif use == "a success":
                other.note_success(grant, timeout=LIMIT)
            else:
                held = take(other, claim())
                if use != "a holder":
                    other.release(held, timeout=LIMIT)
        return select(session, sql, values, deadline)

    monkeypatch.setattr(client._fence, "select", late)
    assert names(client, 86400.0) == ["nightly"]
    assert not forget(client, older_than=86400.0)
    assert uses
    assert a_run() in other.history("nightly", timeout=LIMIT)
    monkeypatch.undo()
    if use != "a holder":
        assert forget(client)
        assert place.command(f"select count(*) from {place.history}") == "0"


def test_who_may_not_delete_is_told_the_right(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    missing = r"GRANT SELECT, INSERT, UPDATE, DELETE ON .*{}"
    with forbidden(place, place.history), pytest.raises(ConfigError, match=missing.format("lockctl_history")):
        forget(client)
    with forbidden(place, place.fence):
        place.command(f"grant insert, update on {place.fence} to public")
        client.release(take(client, claim("hourly")), timeout=LIMIT)
        assert names(client) == ["hourly", "nightly"]
        with pytest.raises(ConfigError, match=missing.format("lockctl_fence")):
            forget(client)
        place.command(f"grant delete on {place.fence} to public")
        assert forget(client)


def test_names_are_forgotten_from_the_table_of_an_older_lockctl(place: Place) -> None:
    client = place.client()
    assert names(client) == []
    assert not forget(client)
    place.command(OLD_TABLE.format(place.fence))
    place.command(f"alter table {place.fence} owner to {place.server.user}")
    place.command(
        f"insert into {place.fence} values ('{place.key}', '{place.schema}:nightly', 5, null, null, null, 'epoch')"
    )
    assert client.last_success("nightly", timeout=LIMIT) is None
    assert names(client, 86400.0) == ["nightly"]
    assert forget(client, older_than=86400.0)
    assert names(client) == []


@pytest.mark.parametrize("number", ["42", "42,7"])
def test_a_lock_whose_key_is_given_is_forgotten_as_one(place: Place, number: str) -> None:
    client = place.client(key=number)
    client.release(take(client, claim()), timeout=LIMIT)
    assert names(client) == ["nightly"]
    grant = take(client, claim())
    assert names(client) == []
    assert not forget(client)
    client.release(grant, timeout=LIMIT)
    assert forget(client)
    assert names(client) == []


def test_ten_thousand_names_are_found_in_seconds(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    full = f"'{place.schema}:job-' || n"
    place.command(
        f"insert into {place.fence} (key, name, token, taken_at) select ('x' || left(encode(sha256(({full})::bytea),"
        f" 'hex'), 16))::bit(64)::bigint, {full}, n, 'epoch' from generate_series(1, 10000) n"
    )
    started = time.monotonic()
    assert len(names(client, 86400.0)) == 10_000
    assert time.monotonic() - started < 10.0, "a second, or two"


def end_sessions(place: Place, owner: str) -> None:
    its = f"from pg_stat_activity where application_name like '{mark(owner)}%'"
    place.command(f"select pg_terminate_backend(pid) {its}")
    eventually(lambda: place.command(f"select count(*) {its}") == "0")


@SCOPES
def test_a_lock_whose_session_ends_before_it_is_given_back_is_kept_closed_all_the_same(
    place: Place, scope: str
) -> None:
    client, other = place.client(scope=scope), place.client()
    grant = take(client, claim())
    end_sessions(place, grant.claim.owner)
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert other.try_acquire(claim(), timeout=LIMIT) is None
    (holder,) = other.inspect("nightly", timeout=LIMIT).holders
    assert (holder.owner, holder.ended_at is None) == (grant.claim.owner, False)


def test_over_a_slow_network_a_transaction_is_told_that_its_lock_is_asked_for(
    place: Place, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(place.server)
    client, other = place.client(proxy.address, scope="transaction"), place.client()
    grant = take(client, claim())
    (holder,) = other.inspect("nightly", timeout=LIMIT).holders
    other.revoke("nightly", holder, Revocation(now=False, by="ops", reason="now"), timeout=LIMIT)
    proxy.mode = "delay=0.2"

    def is_told() -> bool:
        try:
            client.renew(grant, timeout=0.6)  # enough to ask whether the lock is ours, and not for another question
        except LeaseRevoked:
            return True
        except BackendUnavailable:
            pass
        return False

    eventually(is_told)
