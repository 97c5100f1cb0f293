"""What else may stand in the keys of a Redis lock that several can hold: never believed, and never in the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import LeaseLost, LockctlError
from lockctl.model import EXCLUSIVE, SHARED, SLOT
from tests.contract.harness import LIMIT, claim, reader, refused, take
from tests.contract.keeping import revoke
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from lockctl.stores.redis.lock import RedisBackend

    Connect = Callable[[], RedisBackend]

MODES = [(EXCLUSIVE, 1), (SHARED, 1), (SLOT, 3)]


STRANGE: list[dict[Any, float]] = [
    {"x": 1.0},
    {"shared|1|x": float("inf")},
    {"slot|3|x": 1e300},
    {"slot|3|x": float("-inf"), "slot|2|x": 1e13},
    {"slot|0|x": 1e13},
    {"slot|-3|x": 1e13},
    {"shared|2|x": 1e13},
    {"slot|99999999999999999999999999999999999|x": 1e13},
    {"other|3|x": 1e13},
    {b"\xff\xfe" * 100_000: 1e13},
    {"shared|1|x": 1e12, "z": 1e13},
    {"shared|1|" + "x" * 100_000: 1e13, "z": 1e13},
]


def test_a_sorted_set_that_is_not_ours_is_another_programs_lock(
    backend: RedisBackend, peer: redis.Redis, key: str
) -> None:
    for members in STRANGE:
        peer.zadd(key, members)
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.slots, lock.holders[0].owner) == ("foreign", 1, None), members
        assert [each.state for each in backend.list("*", timeout=LIMIT)] == ["foreign"]
        for mode, slots in MODES:
            assert refused(backend, claim(mode=mode, slots=slots))
            backend.wait(claim(mode=mode, slots=slots), timeout=0.05, interrupt=None)
        assert peer.zcard(key) == len(members)
        with pytest.raises(LockctlError, match="another program"):
            revoke(backend, lock.holders[0])
        assert revoke(backend, lock.holders[0], now=True)
        assert not peer.exists(key)


@pytest.mark.parametrize(
    "companion",
    [b"x", {"": "x"}, {"x": "99999999999999999999|{"}, {"x": "5|"}, {"x": b"\xff" * 100_000}, {"x": '5|{"owner":"y"}'}],
    ids=range(6),
)
@pytest.mark.parametrize("member", ["slot|3|x", "shared|1|x"])
def test_holders_of_whom_nothing_can_be_read_are_shown_and_can_be_taken_away(
    backend: RedisBackend, peer: redis.Redis, key: str, member: str, companion: Any
) -> None:
    peer.zadd(key, {member: (time.time() + 30) * 1000, f"{member}y": (time.time() + 60) * 1000})
    if isinstance(companion, bytes):
        peer.set(f"{{{key}}}:holders", companion)
    else:
        peer.hset(f"{{{key}}}:holders", mapping=companion)
    lock = backend.inspect("nightly", timeout=LIMIT)
    assert (lock.state, lock.slots) == ("held", 3 if "slot" in member else 1)
    assert [(holder.owner, holder.host) for holder in lock.holders] == [("x", None), ("xy", None)]
    assert all(30 >= (holder.expires_in or 0) - 30 * place > 20 for place, holder in enumerate(lock.holders))
    assert [each.state for each in backend.list("*", timeout=LIMIT)] == ["held"]
    for holder in lock.holders:
        assert revoke(backend, holder, now=True)
    assert not peer.exists(key)
    take(backend, claim())


def test_a_set_without_anybody_alive_keeps_nobody_out_even_if_it_never_ends(
    connect: Connect, peer: redis.Redis, key: str
) -> None:
    for mode, slots in MODES:
        client = connect()
        take(client, reader(ttl=0.3))
        peer.persist(key)
        eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")  # noqa: B023
        grant = take(client, claim(mode=mode, slots=slots))
        assert 0 < peer.pttl(key) <= 30_000
        client.release(grant, timeout=LIMIT)
        assert not peer.exists(key)


def test_a_holder_whose_companion_is_gone_is_told_that_it_lost_and_can_be_removed(
    connect: Connect, peer: redis.Redis, key: str
) -> None:
    holder, operator = connect(), connect()
    grant = take(holder, reader())
    peer.delete(f"{{{key}}}:holders")
    (seen,) = operator.inspect("nightly", timeout=LIMIT).holders
    assert (seen.owner, seen.mode, seen.token, seen.host) == (grant.claim.owner, SHARED, None, None)
    assert refused(operator, claim()), "it may still run"
    with pytest.raises(LeaseLost):
        holder.renew(grant, timeout=LIMIT)
    assert revoke(operator, seen, now=True)
    assert take(operator, claim()).token > grant.token


def test_a_lock_that_says_another_mode_than_its_key_has_is_that_of_the_key(
    backend: RedisBackend, peer: redis.Redis, key: str
) -> None:
    peer.set(key, b'x|5|{"owner":"x","mode":"shared","ended_at":5}', px=30_000)
    (seen,) = backend.inspect("nightly", timeout=LIMIT).holders
    assert (seen.mode, seen.ended_at) == (EXCLUSIVE, None)
    assert refused(backend, reader())
    assert revoke(backend, seen, now=True)
    take(backend, reader())
