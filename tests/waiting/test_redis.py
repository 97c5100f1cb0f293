"""Waiting at Redis: a hundred are served in their order, one wakes for each release, the dead hold up nobody for long."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import Claim
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, take
from tests.jobs import eventually
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tests.jobs import Lockctl

WAITERS = 100


@pytest.fixture
def url(redis_server: Redis) -> str:
    return f"{redis_server.url}/0?prefix=w{os.urandom(6).hex()}:"


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], RedisBackend]]:
    """A call that makes a client."""
    made: list[RedisBackend] = []

    def new() -> RedisBackend:
        made.append(RedisBackend.from_url(parse_url(url)))
        return made[-1]

    yield new
    for client in made:
        client.close()


def claim(ttl: float = 30.0) -> Claim:
    return Claim("nightly", os.urandom(16).hex(), ttl, "web3", os.getpid(), "ops", ("./nightly.sh",))


def queued(client: RedisBackend) -> int:
    return len(client.inspect("nightly", timeout=LIMIT).waiters or ())


def shown(lockctl: Lockctl, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lockctl("inspect", "nightly", "--json", "-b", url).stdout)["waiters"]
    return found


def test_a_hundred_waiters_are_served_in_their_order_and_one_wakes_for_each_release(
    connect: Callable[[], RedisBackend],
) -> None:
    holder = connect()
    grant = take(holder, claim())
    served: list[int] = []
    woken: list[int] = []

    def wait_for_turn(number: int) -> None:
        client, mine = connect(), claim()
        while True:
            client.wait(mine, timeout=60.0, interrupt=None)
            woken.append(number)
            got = client.try_acquire(mine, timeout=LIMIT)
            if got is not None:
                break
        served.append(number)
        client.release(got, timeout=LIMIT)
        client.close()

    turns = []
    for number in range(WAITERS):
        turns.append(Background(functools.partial(wait_for_turn, number)))
        eventually(lambda number=number: queued(holder) > number)  # type: ignore[misc]
    holder.release(grant, timeout=LIMIT)
    for turn in turns:
        turn.result(limit=60.0)
    assert served == list(range(WAITERS))
    assert len(woken) <= 2 * WAITERS


def test_a_waiter_that_was_killed_at_the_head_holds_up_the_next_for_its_lease_at_most(
    lockctl: Lockctl, url: str, connect: Callable[[], RedisBackend]
) -> None:
    holder, behind, mine = connect(), connect(), claim()
    grant = take(holder, claim())
    words = ["run", "-l", "nightly", "-b", url, "--ttl", "2s", "--wait", "forever", "--", "true"]
    first = lockctl.start(*words)
    eventually(lambda: queued(holder) == 1)
    waiting = Background(lambda: behind.wait(mine, timeout=LIMIT, interrupt=None))
    eventually(lambda: queued(holder) == 2)
    first.kill()
    first.wait(LIMIT)
    holder.release(grant, timeout=LIMIT)
    freed = time.monotonic()
    waiting.result()
    assert waiting.ended_at - freed < 2.0
    take(behind, mine)


def test_a_waiter_that_was_killed_in_the_middle_holds_up_nobody(
    lockctl: Lockctl, url: str, connect: Callable[[], RedisBackend]
) -> None:
    holder, front, back = connect(), connect(), connect()
    ours = [claim(), claim()]
    grant = take(holder, claim())
    waits = [Background(lambda: front.wait(ours[0], timeout=LIMIT, interrupt=None))]
    eventually(lambda: queued(holder) == 1)
    words = ["run", "-l", "nightly", "-b", url, "--ttl", "1s", "--wait", "forever", "--", "true"]
    middle = lockctl.start(*words)
    eventually(lambda: queued(holder) == 2)
    waits.append(Background(lambda: back.wait(ours[1], timeout=LIMIT, interrupt=None)))
    eventually(lambda: queued(holder) == 3)
    middle.kill()
    middle.wait(LIMIT)
    eventually(lambda: queued(holder) == 2)
    holder.release(grant, timeout=LIMIT)
    waits[0].result()
    got = take(front, ours[0])
    front.release(got, timeout=LIMIT)
    freed = time.monotonic()
    waits[1].result()
    assert waits[1].ended_at - freed < 5.0


def test_waiters_outlast_a_restart_of_the_server_that_forgets_them(start_server: Callable[..., Redis]) -> None:
    server = start_server(Redis)
    client, mine = RedisBackend.from_url(parse_url(server.url)), claim()
    other = RedisBackend.from_url(parse_url(server.url))
    take(other, claim(ttl=60.0))

    def wait() -> None:
        while True:
            try:
                if client.try_acquire(mine, timeout=LIMIT) is not None:
                    return
                client.wait(mine, timeout=LIMIT, interrupt=None)
            except BackendUnavailable:
                time.sleep(0.05)

    waiting = Background(wait)
    eventually(lambda: queued(other) == 1)
    server.restart()
    waiting.result()
    client.close()
    other.close()


def test_a_run_that_is_refused_for_a_waiter_that_died_is_told_who_that_is(
    lockctl: Lockctl, url: str, connect: Callable[[], RedisBackend]
) -> None:
    holder, dead = connect(), connect()
    grant = take(holder, claim())
    dead.wait(claim(), timeout=0.5, interrupt=None)  # its place outlives it
    eventually(lambda: queued(holder))
    holder.release(grant, timeout=LIMIT)
    done = lockctl("run", "-n", "-b", url, "-l", "nightly", "--", "true")
    assert done.returncode == 75
    assert f"free by now, but web3 pid {os.getpid()} (ops) waited before and comes first" in done.stderr
