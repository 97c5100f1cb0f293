"""Waiting at several servers without a queue: all are served, and who leaves or dies holds up nobody."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.model import Claim
from lockctl.stores.redlock.lock import RedlockBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, take
from tests.jobs import best_of_a_few, eventually

if TYPE_CHECKING:
    from tests.jobs import Lockctl
    from tests.servers.redis import Redis

WAITERS = 100


@pytest.fixture
def url(redis_five: list[Redis]) -> str:
    nodes = ",".join(server.address for server in redis_five[:3])
    return f"redlock://{nodes}/0?prefix=w{os.urandom(6).hex()}:"


def claim(ttl: float = 30.0) -> Claim:
    return Claim("nightly", os.urandom(16).hex(), ttl, "web3", os.getpid(), "ops", ("./nightly.sh",))


def test_a_hundred_waiters_are_all_served_each_alone(url: str) -> None:
    holder = RedlockBackend.from_url(parse_url(url))
    grant = take(holder, claim())
    inside: list[int] = []
    served: list[int] = []

    def wait_for_turn(number: int) -> None:
        client, mine = RedlockBackend.from_url(parse_url(url)), claim()
        while (got := client.try_acquire(mine, timeout=LIMIT)) is None:
            client.wait(mine, timeout=60.0, interrupt=None)
        inside.append(number)
        assert inside == [number], "two holders at once"
        served.append(got.token)
        inside.remove(number)
        client.release(got, timeout=LIMIT)
        client.close()

    turns = [Background(lambda number=number: wait_for_turn(number)) for number in range(WAITERS)]  # type: ignore[misc]
    time.sleep(0.5)  # there is no queue in which they could be seen
    holder.release(grant, timeout=LIMIT)
    for turn in turns:
        turn.result(limit=90.0)
    assert len(served) == WAITERS
    assert served == sorted(served)
    holder.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_waiter_that_ends_leaves_nothing_behind(lockctl: Lockctl, url: str, number: signal.Signals) -> None:
    holder = RedlockBackend.from_url(parse_url(url))

    def attempt() -> float:
        grant = take(holder, claim())
        waiter = lockctl.start("run", "-l", "nightly", "-b", url, "--wait", "forever", "--", "true")
        # it sleeps while it waits: from then on it has asked at least once
        eventually(lambda: _naps(waiter.pid))
        begin = time.monotonic()
        waiter.send_signal(number)
        assert waiter.wait(LIMIT) == (128 + number if number != signal.SIGKILL else -number)
        took = time.monotonic() - begin
        holder.release(grant, timeout=LIMIT)
        holder.release(take(holder, claim()), timeout=LIMIT)
        return took

    best_of_a_few(attempt, 0.2)
    holder.close()


def _naps(pid: int) -> bool:
    """Whether a process has opened its connections: they stay open while it waits."""
    links = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return sum(_is_socket(link) for link in links) >= 3


def _is_socket(link: str) -> bool:
    try:
        return os.readlink(link).startswith("socket:")
    except OSError:
        return False
