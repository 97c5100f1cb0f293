"""Readers and slots in PostgreSQL: queues, first holders that disagree, the table of holders, and what others do to it."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql import layout, share, wait
from tests.contract.harness import LIMIT, Background, claim, one_of, queue_up, reader, refused, take, wait_for_turn
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim, Grant
    from lockctl.stores.postgresql.lock import PostgresqlBackend
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.proxy import Proxy
    from tests.stores.postgresql.places import Place

ROUNDS = 12  # of a race: enough that each side wins some


def waiters(client: PostgresqlBackend) -> int:
    return len(client.inspect("nightly", timeout=LIMIT).waiters or ())


def test_the_documented_keys_of_slots_do_not_change(place: Place) -> None:
    in_sql = "('x' || left(encode(sha256('lockctl:nightly#'), 'hex'), 12) || '0000')::bit(64)::bigint"
    base = layout.slots("lockctl:nightly")
    assert base.text == "-4380560835866656768" == place.command(f"select {in_sql}")
    assert int(base.text) % (1 << 16) == 0
    address = place.client(key="42")._address
    assert address.slots_of("a") == address.slots_of("b") == layout.slots("42#")


@pytest.mark.parametrize("scope", ["session", "transaction"])
@pytest.mark.parametrize("wanted", [reader, functools.partial(one_of, 3)])
def test_nobody_overtakes_a_program_that_waits_for_the_lock_alone(
    place: Place, scope: str, wanted: Callable[[], Claim]
) -> None:
    client, other = place.client(scope=scope), place.client(scope=scope)
    grant, late = take(client, wanted()), wanted()
    with place.session() as cursor:
        turn = Background(functools.partial(cursor.execute, f"select pg_advisory_lock({place.key})"))
        eventually(lambda: waiters(client) == 1)
        assert other.try_acquire(late, timeout=LIMIT) is None
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        client.release(grant, timeout=LIMIT)
        turn.result()
        assert other.try_acquire(late, timeout=LIMIT) is None
    assert wait_for_turn(other, late).token > grant.token


def test_another_program_can_have_a_slot_and_is_waited_for(place: Place) -> None:
    client, other = place.client(), place.client()
    with place.session() as cursor:
        cursor.execute(f"select pg_advisory_lock_shared({place.key}), pg_advisory_lock({place.slots} + 2)")
        grant = take(client, one_of(2))
        late = one_of(2)
        assert other.try_acquire(late, timeout=LIMIT) is None
        turn = Background(lambda: wait_for_turn(other, late))
        eventually(lambda: waiters(client) == 1)
        lock = client.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.slots) == ("held", 2)
        assert {holder.owner for holder in lock.holders} == {None, grant.claim.owner}
        cursor.execute(f"select pg_advisory_unlock({place.slots} + 2), pg_advisory_unlock_shared({place.key})")
        assert turn.result().token > grant.token


def test_of_two_first_holders_that_disagree_one_is_granted_and_the_other_is_told(place: Place) -> None:
    clients = [place.client() for _ in range(2)]
    take(clients[0], claim("warm"))  # the tables are there
    kinds: list[tuple[Callable[[], Claim], Callable[[], Claim]]] = [
        (functools.partial(one_of, 2), functools.partial(one_of, 3)),
        (reader, functools.partial(one_of, 2)),
    ]
    for number in range(ROUNDS):
        wanted = [make() for make in kinds[number % 2]]
        calls = [
            Background(functools.partial(client.try_acquire, each, timeout=LIMIT))
            for client, each in zip(clients, wanted, strict=True)
        ]
        granted: list[tuple[PostgresqlBackend, Grant | None]] = []
        refusals = []
        for client, call in zip(clients, calls, strict=True):
            try:
                granted.append((client, call.result()))
            except ConfigError as refusal:
                refusals.append(str(refusal))
        assert ["in use with" in refusal for refusal in refusals] == [True]
        ((client, grant),) = granted
        assert grant is not None
        client.release(grant, timeout=LIMIT)
        # who was told holds nothing any more
        client.release(take(client, claim()), timeout=LIMIT)


def test_only_the_first_of_those_who_wait_looks_for_a_slot_and_all_are_served_in_their_order(place: Place) -> None:
    holder = place.client()
    grants = [take(holder, one_of(2)) for _ in range(2)]
    served: list[int] = []

    def turn(number: int) -> None:
        client = place.client()
        grant = wait_for_turn(client, one_of(2))
        served.append(number)
        client.release(grant, timeout=LIMIT)

    turns = []
    for number in range(5):
        turns.append(Background(functools.partial(turn, number)))
        eventually(lambda number=number: waiters(holder) == number + 1)  # type: ignore[misc]
    slots = f"select count(*) from pg_locks l where {share.is_slot(layout.slots(place.schema + ':nightly'))}"
    assert place.command(slots) == "2", "who waits has none"
    shown = holder.inspect("nightly", timeout=LIMIT)
    assert [waiter.host for waiter in shown.waiters or ()] == [os.uname().nodename] * 5
    assert len(shown.holders) == 2
    (listed,) = holder.list("*", timeout=LIMIT)
    assert (len(listed.holders), len(listed.waiters or ()), listed.slots) == (2, 5, 2)
    holder.release(grants[0], timeout=LIMIT)
    for each in turns:
        each.result()
    assert served == list(range(5))


@pytest.mark.parametrize("scope", ["session", "transaction"])
def test_who_does_not_wait_is_refused_a_free_slot_while_somebody_waits(place: Place, scope: str) -> None:
    client, late = place.client(scope=scope), one_of(2)
    with place.session() as cursor:
        cursor.execute(f"select pg_advisory_lock({place.queue}, 7)")
        assert client.try_acquire(late, timeout=LIMIT) is None
    assert wait_for_turn(client, late).token > 0
    other = place.client()
    eventually(lambda: waiters(other) == 0)  # who has its turn gives its ticket back without waiting for the answer
    take(other, one_of(2))


def test_who_waits_for_a_slot_and_goes_away_does_not_hold_up_the_others(place: Place) -> None:
    holder, gone, last = place.client(), place.client(), place.client()
    grants = [take(holder, one_of(2)) for _ in range(2)]
    queue_up(gone, one_of(2), holder)
    turn = Background(lambda: wait_for_turn(last, one_of(2)))
    eventually(lambda: waiters(holder) == 2)
    gone.close()
    eventually(lambda: waiters(holder) == 1)
    holder.release(grants[1], timeout=LIMIT)
    released = time.monotonic()
    turn.result()
    assert turn.ended_at - released < 5.0


@pytest.mark.parametrize("wanted", [claim, reader, functools.partial(one_of, 2)])
def test_a_waiter_whose_answer_got_lost_gives_back_what_it_was_granted(
    place: Place, start_proxy: Callable[..., Proxy], monkeypatch: pytest.MonkeyPatch, wanted: Callable[[], Claim]
) -> None:
    monkeypatch.setattr(wait, "ANSWER_LIMIT", 0.4)
    proxy = start_proxy(place.server)
    holder, waiter, mine = place.client(), place.client(proxy.address), wanted()
    with place.session() as cursor:
        cursor.execute(f"select pg_advisory_lock({place.key})")
        call = Background(lambda: waiter.wait(mine, timeout=30.0, interrupt=None))
        eventually(lambda: waiters(holder) == 1)
        proxy.mode = "drop_replies"
    with pytest.raises(BackendUnavailable, match="no answer"):
        call.result()
    proxy.mode = "pass"
    waiter.withdraw(mine, timeout=LIMIT)
    take(holder, claim())


def test_more_slots_than_there_are_keys_are_refused(place: Place) -> None:
    client = place.client()
    with pytest.raises(ConfigError, match="at most 65535"):
        client.try_acquire(one_of(65536), timeout=LIMIT)
    take(client, one_of(65535))


def test_a_single_slot_is_as_good_as_the_lock_alone(place: Place) -> None:
    client, other = place.client(), place.client()
    grant = take(client, one_of(1))
    assert [holder.mode for holder in other.inspect("nightly", timeout=LIMIT).holders] == ["slot"]
    assert refused(other, reader())
    assert refused(other, claim())
    client.release(grant, timeout=LIMIT)
    take(client, reader())
    assert refused(other, one_of(1))


@pytest.mark.parametrize("number", ["42", "8,-9"])
def test_a_key_that_is_given_can_be_shared(place: Place, number: str) -> None:
    client, other = place.client(key=number), place.client(key=number)
    for wanted in (reader, functools.partial(one_of, 2)):
        grants = [take(each, wanted(name=name)) for each, name in ((client, "a"), (other, "b"))]
        with place.session() as cursor:
            cursor.execute(f"select pg_try_advisory_lock({number})")
            assert cursor.fetchone() == (False,)
        ((name, holders),) = [(lock.name, len(lock.holders)) for lock in other.list("*", timeout=LIMIT)]
        assert (name, holders) == ("b", 2)
        client.release(grants[0], timeout=LIMIT)
        other.release(grants[1], timeout=LIMIT)


def test_rows_of_holders_go_with_them_and_those_of_the_dead_with_the_next(place: Place) -> None:
    client, dead = place.client(), place.client()
    grants = [take(client, reader()), take(client, reader())]
    take(dead, reader())
    count = f"select count(*) from {place.holder}"
    assert place.command(count) == "3"
    for grant in grants:
        client.release(grant, timeout=LIMIT)
    assert place.command(count) == "1"
    dead.close()
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")
    grant = take(client, one_of(4))  # whom a row of the dead would contradict
    assert place.command(count) == "1"
    assert client.inspect("nightly", timeout=LIMIT).holders[0].token == grant.token


@pytest.mark.parametrize("scope", ["session", "transaction"])
@pytest.mark.parametrize(
    "harm", ["drop table {}", "delete from {}", "revoke all on {} from lockctl; alter table {} owner to postgres"]
)
def test_those_who_share_a_lock_keep_it_whatever_becomes_of_their_rows(place: Place, harm: str, scope: str) -> None:
    client, other = place.client(scope=scope), place.client()
    grants = [take(client, one_of(2)) for _ in range(2)]
    place.command(harm.format(place.holder, place.holder))
    assert all(client.renew(grant, timeout=LIMIT).token == grant.token for grant in grants)
    assert {holder.owner for holder in other.inspect("nightly", timeout=LIMIT).holders} == {
        grant.claim.owner for grant in grants
    }
    assert refused(other, claim())
    assert refused(other, one_of(2))
    for grant in grants:
        client.release(grant, timeout=LIMIT)
    take(other, claim())
    if "revoke" in harm:
        with pytest.raises(ConfigError, match=r"GRANT SELECT, INSERT, UPDATE, DELETE ON .*lockctl_holder"):
            client.try_acquire(reader(name="another"), timeout=LIMIT)


STRANGE = (
    "document = 'not json'",
    "document = repeat('[', 60000)",
    "document = repeat('x', 10000000)",
    'document = \'{"owner": 1, "mode": "slot", "slots": 7}\'',
    "document = replace(document, '\"slots\":2', '\"slots\":-7')",
    "document = replace(document, '\"slots\":2', '\"slots\":1e400')",
    "document = null",
    "revocation = repeat('z', 10000000)",
    "revocation = '{\"owner\": 1}'",
    "taken_at = 'infinity'",
    "taken_at = null",
    "token = -9223372036854775808",
)


def test_what_others_write_of_holders_neither_frees_nor_breaks_anything(place: Place) -> None:
    client, other = place.client(), place.client()
    for content in STRANGE:
        grants = [take(client, one_of(2)) for _ in range(2)]
        place.command(f"update {place.holder} set {content}")
        lock = other.inspect("nightly", timeout=LIMIT)
        assert (lock.state, len(lock.holders)) == ("held", 2), content
        assert {holder.owner for holder in lock.holders} == {grant.claim.owner for grant in grants}
        assert [each.state for each in other.list("*", timeout=LIMIT)] == ["held"]
        assert refused(other, one_of(2))
        for grant in grants:
            assert client.renew(grant, timeout=LIMIT).token == grant.token
            client.release(grant, timeout=LIMIT)
        later = take(other, one_of(2))
        assert later.token > grants[1].token
        other.release(later, timeout=LIMIT)


def test_who_may_not_make_the_table_of_holders_is_told_the_statements_and_can_hold_a_lock_alone(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    place.command(f"alter schema {place.schema} owner to postgres; grant usage on schema {place.schema} to public")
    for wanted in (reader(), one_of(2)):
        with pytest.raises(
            ConfigError, match=r"CREATE TABLE .*lockctl_holder .*; GRANT .*DELETE ON .* TO \"lockctl\""
        ) as told:
            client.try_acquire(wanted, timeout=LIMIT)
    client.release(take(client, claim()), timeout=LIMIT)
    place.command(str(told.value).partition("run: ")[2])
    take(client, one_of(2))


def test_a_table_of_holders_of_another_shape_is_a_fault_of_the_configuration(place: Place) -> None:
    place.command(f"create table {place.holder} (key text, owner text, slots text)")
    place.command(f"alter table {place.holder} owner to {place.server.user}")
    client = place.client()
    with pytest.raises(ConfigError, match=r"lockctl_fence or .*lockctl_holder is not the table that lockctl made"):
        client.try_acquire(reader(), timeout=LIMIT)
    take(client, claim())


def test_another_user_shares_a_lock_and_sees_who_else_does(place: Place) -> None:
    client = place.client()
    mine = take(client, one_of(2))
    with place.user() as name:
        place.command(
            f"grant select, insert, update on {place.fence} to {name};"
            f" grant select, insert, update, delete on {place.holder} to {name}"
        )
        other = place.client(user=name)
        theirs = take(other, one_of(2))
        shown = other.inspect("nightly", timeout=LIMIT).holders
        assert {(holder.owner, holder.token, holder.host) for holder in shown} == {
            (grant.claim.owner, grant.token, grant.claim.host) for grant in (mine, theirs)
        }
        assert place.command(f"select count(*) from {place.holder}") == "2", "both are alive"
        with pytest.raises(ConfigError, match="not 3"):
            other.try_acquire(one_of(3), timeout=LIMIT)
        other.close()


def test_the_table_of_holders_is_where_the_tokens_are_and_not_where_a_user_looks_first(place: Place) -> None:
    client = place.client()
    client.release(take(client, claim()), timeout=LIMIT)
    with place.user() as name:
        place.command(
            f"create schema {name} authorization {name}; alter role {name} set search_path = {name}, {place.schema};"
            f" grant create on schema {place.schema} to {name}; grant select, insert, update on {place.fence} to {name}"
        )
        other = place.client(user=name, schema="")
        take(other, reader())
        tables = "select schemaname from pg_tables where tablename = 'lockctl_holder'"
        assert place.command(f"{tables} and schemaname in ('{name}', '{place.schema}')") == place.schema
        other.close()


def test_slots_behind_a_pooler_that_lends_connections_are_counted_with_those_past_it(
    place: Place, start_server: Callable[..., PgBouncer]
) -> None:
    from tests.servers.pgbouncer import PgBouncer

    pooler = start_server(PgBouncer, place.server, mode="transaction", pool_size=12)
    behind = [place.client(pooler.address, scope="transaction") for _ in range(3)]
    past = place.client()
    grants = [take(behind[0], one_of(2)), take(past, one_of(2))]
    assert refused(behind[1], one_of(2))
    turn = Background(lambda: wait_for_turn(behind[2], one_of(2)))
    eventually(lambda: waiters(past) == 1)
    past.release(grants[1], timeout=LIMIT)
    later = turn.result()
    assert later.token > grants[1].token
    assert refused(behind[1], one_of(2)), "there is no slot, though nobody waits"
    behind[2].release(later, timeout=LIMIT)
    behind[1].release(take(behind[1], one_of(2)), timeout=LIMIT)
    behind[0].release(grants[0], timeout=LIMIT)
    past.release(take(past, claim()), timeout=LIMIT)
    # no server process that the pooler keeps has a lock left
    eventually(lambda: place.command("select count(*) from pg_locks where locktype = 'advisory'") == "0")


def test_a_condition_for_slots_is_about_those_of_one_lock(place: Place) -> None:
    client = place.client()
    take(client, one_of(3))
    in_slots = f"select count(*) from pg_locks l where {share.is_slot(layout.slots(place.schema + ':nightly'))}"
    elsewhere = f"select count(*) from pg_locks l where {share.is_slot(layout.slots(place.schema + ':other'))}"
    with place.session() as cursor:
        counts = []
        for sql in (in_slots, elsewhere):
            cursor.execute(sql)
            counts.append(cursor.fetchone()[0])
    assert counts == [1, 0]
