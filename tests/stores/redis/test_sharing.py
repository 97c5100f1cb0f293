"""Readers and slots in Redis: the key that other programs see, the queue they share, and a server that is full."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import EXCLUSIVE, SHARED, SLOT, Claim, Revocation
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, claim, one_of, queue_up, reader, refused, take
from tests.contract.keeping import revoke
from tests.jobs import best_of_a_few, eventually
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from lockctl.model import Grant

    StartServer = Callable[..., Any]
    Connect = Callable[[], RedisBackend]

AT_ONCE = 0.9  # seconds: sooner than a waiter looks by itself
MODES = [(EXCLUSIVE, 1), (SHARED, 1), (SLOT, 3)]


def waiting(client: RedisBackend, mine: Claim, observer: RedisBackend) -> Background:
    """Wait in the background; when this returns, the place in the queue is taken."""
    before = queued(observer)
    wait = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
    eventually(lambda: queued(observer) > before)
    return wait


def queued(client: RedisBackend) -> int:
    return len(client.inspect("nightly", timeout=LIMIT).waiters or ())


@pytest.mark.parametrize("wanted", [reader, functools.partial(one_of, 2)], ids=["readers", "slots"])
def test_other_programs_find_the_key_taken_until_the_last_holder_has_left(
    connect: Connect, peer: redis.Redis, key: str, wanted: Callable[..., Claim]
) -> None:
    long, short = connect(), connect()
    first, second = take(long, wanted(ttl=60.0)), take(short, wanted(ttl=20.0))
    seen = short.inspect("nightly", timeout=LIMIT)
    assert (seen.state, len(seen.holders)) == ("held", 2)
    assert peer.set(key, "theirs", nx=True, px=1000) is None
    assert not peer.lock(key, timeout=1.0).acquire(blocking=False)
    assert peer.type(key) == b"zset"
    assert 55_000 < peer.pttl(key) <= 60_000
    long.release(first, timeout=LIMIT)
    assert 15_000 < peer.pttl(key) <= 20_000, "the key ends with the last lease"
    assert peer.set(key, "theirs", nx=True, px=1000) is None
    assert not peer.lock(key, timeout=1.0).acquire(blocking=False)
    short.renew(second, timeout=LIMIT)
    short.release(second, timeout=LIMIT)
    assert not peer.exists(key, f"{{{key}}}:holders")
    assert peer.lock(key, timeout=1.0).acquire(blocking=False)


def test_each_lease_ends_for_itself(connect: Connect) -> None:
    silent, busy, writer = connect(), connect(), connect()
    lost, kept = take(silent, reader(ttl=0.5)), take(busy, reader(ttl=30.0))
    eventually(lambda: len(writer.inspect("nightly", timeout=LIMIT).holders) == 1)
    with pytest.raises(LeaseLost):
        silent.renew(lost, timeout=LIMIT)
    assert busy.renew(kept, timeout=LIMIT)
    assert refused(writer, claim())
    silent.release(lost, timeout=LIMIT)
    busy.release(kept, timeout=LIMIT)
    take(writer, claim())


def test_a_slot_ends_for_itself_and_goes_to_who_waits(connect: Connect) -> None:
    clients = [connect() for _ in range(3)]
    take(clients[0], one_of(2, ttl=1.5))
    take(clients[1], one_of(2, ttl=30.0))
    mine = one_of(2)
    before = time.monotonic()
    wait = waiting(clients[2], mine, clients[0])
    wait.result()
    assert 1.0 < wait.ended_at - before < 5.0
    take(clients[2], mine)


def test_many_readers_behind_a_writer_get_in_one_after_the_other_without_looking_by_themselves(
    connect: Connect,
) -> None:
    writer = connect()
    grant = take(writer, claim())
    claims = [reader() for _ in range(12)]
    clients = [connect() for _ in claims]
    woken: list[int] = []
    inside: list[int] = []

    def read(number: int) -> None:
        while True:
            clients[number].wait(claims[number], timeout=20.0, interrupt=None)
            woken.append(number)
            if clients[number].try_acquire(claims[number], timeout=LIMIT) is not None:
                break
        inside.append(number)

    readers = []
    for number in range(len(claims)):
        readers.append(Background(functools.partial(read, number)))
        eventually(lambda number=number: queued(writer) == number + 1)  # type: ignore[misc]
    writer.release(grant, timeout=LIMIT)
    released = time.monotonic()
    for each in readers:
        each.result()
    assert max(each.ended_at for each in readers) - released < AT_ONCE
    assert sorted(inside) == list(range(len(claims)))
    assert len(woken) <= 2 * len(claims)
    assert len(writer.inspect("nightly", timeout=LIMIT).holders) == len(claims)


def test_when_a_writer_gives_up_its_place_the_readers_behind_it_go_in_at_once(connect: Connect) -> None:
    inside, writer, beside = connect(), connect(), connect()
    take(inside, reader())
    patient, late = claim(), reader()
    queue_up(writer, patient, inside)
    assert queued(inside) == 1
    wait = waiting(beside, late, inside)
    assert wait.running
    left = time.monotonic()
    writer.withdraw(patient, timeout=LIMIT)
    wait.result()
    assert wait.ended_at - left < AT_ONCE
    take(beside, late)


def test_nobody_overtakes_who_could_not_be_let_in_beside_the_newcomer(connect: Connect) -> None:
    holder, waiter, newcomer = connect(), connect(), connect()
    grant, mine = take(holder, claim()), one_of(1)
    wait = waiting(waiter, mine, holder)
    holder.release(grant, timeout=LIMIT)
    wait.result()
    for mode, slots in (*MODES, (SLOT, 2)):
        assert refused(newcomer, claim(mode=mode, slots=slots))
    got = take(waiter, mine)
    waiter.release(got, timeout=LIMIT)
    take(newcomer, one_of(2))


def test_a_newcomer_takes_a_slot_that_is_left_when_all_who_wait_have_theirs(connect: Connect) -> None:
    holder, waiter, newcomer = connect(), connect(), connect()
    grant, mine = take(holder, claim()), one_of(2)
    wait = waiting(waiter, mine, holder)
    holder.release(grant, timeout=LIMIT)
    wait.result()
    take(newcomer, one_of(2))
    assert refused(connect(), one_of(2)), "the other one is for who waits"
    take(waiter, mine)


def test_who_waits_dead_keeps_nobody_out(connect: Connect) -> None:
    holder, dead, alive = connect(), connect(), connect()
    grant = take(holder, reader())
    queue_up(dead, claim(ttl=0.5), holder)
    eventually(lambda: not queued(holder))
    take(alive, reader())
    holder.release(grant, timeout=LIMIT)


@pytest.mark.parametrize(("mode", "slots"), MODES)
def test_a_server_whose_memory_is_full_keeps_renews_and_frees_what_is_held_and_grants_nothing(
    start_server: StartServer, mode: str, slots: int
) -> None:
    server = start_server(Redis)
    holder, other = (RedisBackend.from_url(parse_url(server.url)) for _ in range(2))
    grant = take(holder, claim(mode=mode, slots=slots, ttl=5.0))
    server.ask("PEXPIRE", grant.key, "1000")
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        assert holder.renew(grant, timeout=LIMIT)
        assert server.ask("PTTL", grant.key) > 4000, "it was prolonged, and not only found"
        for each in (claim(mode=mode, slots=slots), reader(), claim()):
            with contextlib.suppress(BackendUnavailable, ConfigError):
                assert other.try_acquire(each, timeout=LIMIT) is None
        holder._doubted.add(grant.claim.owner)  # as if a request of it could still be on its way
        holder.release(grant, timeout=LIMIT)
        assert server.ask("EXISTS", grant.key) == 0
        assert holder.try_acquire(grant.claim, timeout=LIMIT) is None, "what comes late is refused"
        with pytest.raises(BackendUnavailable, match="OOM"):
            other.try_acquire(claim(mode=mode, slots=slots), timeout=LIMIT)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    take(other, claim(mode=mode, slots=slots))
    holder.close()
    other.close()


def test_what_a_waiter_calls_itself_does_not_change_what_it_waits_for(connect: Connect) -> None:
    inside, waiter, beside = connect(), connect(), connect()
    take(inside, reader())
    sly = claim(user='","mode":"shared","slots":1,"x":"')
    queue_up(waiter, sly, inside)
    assert queued(inside) == 1
    assert refused(beside, reader()), "a writer waits"
    waiter.withdraw(sly, timeout=LIMIT)
    take(beside, reader())


def test_a_revocation_is_for_one_tenure_and_not_for_the_next_of_anybody(connect: Connect) -> None:
    first, second, operator = connect(), connect(), connect()
    grant, other = take(first, reader()), take(second, reader())
    seen = {holder.owner: holder for holder in operator.inspect("nightly", timeout=LIMIT).holders}
    asked = seen[grant.claim.owner]
    assert operator.revoke("nightly", asked, Revocation(now=False, by="ops@web1", reason="\x1b[2J"), timeout=LIMIT)
    with pytest.raises(LeaseRevoked, match="ops@web1") as told:
        first.renew(grant, timeout=LIMIT)
    assert "\x1b" not in str(told.value)
    first.release(grant, timeout=LIMIT)
    for now in (False, True):
        assert revoke(operator, asked, now=now) is None
    assert second.renew(other, timeout=LIMIT)
    again = take(first, reader())
    assert first.renew(again, timeout=LIMIT)


def test_five_hundred_readers_are_renewed_and_shown_in_time(connect: Connect) -> None:
    client = connect()
    grants: list[Grant] = [take(client, reader(ttl=60.0)) for _ in range(500)]

    def renewals() -> float:
        before = time.monotonic()
        for grant in grants:
            client.renew(grant, timeout=LIMIT)
        return time.monotonic() - before

    best_of_a_few(renewals, 2.0)
    lock = client.inspect("nightly", timeout=LIMIT)
    assert [holder.token for holder in lock.holders] == [grant.token for grant in grants]
    for grant in grants:
        client.release(grant, timeout=LIMIT)
    take(client, claim())


@pytest.mark.parametrize(("mode", "slots"), MODES)
def test_a_replica_that_lacks_the_lock_does_not_say_that_it_is_lost(
    start_server: StartServer, mode: str, slots: int
) -> None:
    server = start_server(Redis)
    holder = RedisBackend.from_url(parse_url(server.url))
    grant = take(holder, claim(mode=mode, slots=slots))
    server.ask("DEL", grant.key)
    server.ask("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(BackendUnavailable, match="name the primary"):
        holder.renew(grant, timeout=LIMIT)
    server.ask("REPLICAOF", "NO", "ONE")
    with pytest.raises(LeaseLost):
        holder.renew(grant, timeout=LIMIT)
    holder.close()
