"""A hundred waiters of one lock in etcd: served in order, one woken for each release, and none in the way of others."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.model import Claim
from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, take
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl
    from tests.servers.etcd import Etcd

WAITERS = 100


@pytest.fixture
def url(etcd_server: Etcd) -> Iterator[str]:
    prefix = f"t{os.urandom(6).hex()}/"
    yield f"etcd://{etcd_server.address}/?prefix={prefix}"
    etcd_server.command("del", prefix, "--prefix")


def claim(ttl: float = 60.0) -> Claim:
    return Claim("nightly", os.urandom(16).hex(), ttl, "web3", 4121, "ops", ("./nightly.sh",))


def client(url: str) -> EtcdBackend:
    made = open_backend(parse_url(url))
    assert isinstance(made, EtcdBackend)
    return made


def waiters(looking: EtcdBackend) -> int:
    seen = looking.inspect("nightly", timeout=LIMIT).waiters
    assert seen is not None
    return len(seen)


def test_a_hundred_waiters_are_served_in_order_and_each_release_wakes_one(url: str) -> None:
    looking = client(url)
    first = take(looking, claim())
    served: list[int] = []
    tries: list[int] = []

    def wait_for_turn(number: int) -> None:
        mine, own = client(url), claim()
        while (grant := mine.try_acquire(own, timeout=LIMIT)) is None:
            mine.wait(own, timeout=LIMIT * 6, interrupt=None)
            tries.append(number)
        served.append(number)
        mine.release(grant, timeout=LIMIT)
        mine.close()

    turns = []
    for number in range(WAITERS):
        turns.append(Background(functools.partial(wait_for_turn, number)))
        eventually(lambda number=number: waiters(looking) == number + 1)  # type: ignore[misc]
    assert tries == []
    looking.release(first, timeout=LIMIT)
    for turn in turns:
        turn.result(60.0)
    looking.close()
    assert served == list(range(WAITERS))
    assert len(tries) == WAITERS, "each was woken once"


def test_a_waiter_in_the_middle_that_gives_up_wakes_nobody_to_a_lock_that_is_held(url: str) -> None:
    looking = client(url)
    held = take(looking, claim())
    queue = [(client(url), claim()) for _ in range(3)]
    waits = []
    for number, (mine, own) in enumerate(queue):
        waits.append(Background(functools.partial(mine.wait, own, timeout=60.0, interrupt=None)))
        eventually(lambda number=number: waiters(looking) == number + 1)  # type: ignore[misc]
    queue[1][0].cluster.call("/v3/lease/revoke", {"ID": str(queue[1][0].lease_of(queue[1][1]))}, Deadline(LIMIT))
    eventually(lambda: waiters(looking) == 3)  # it came again, behind the others
    assert all(each.running for each in waits)
    looking.release(held, timeout=LIMIT)
    for number in (0, 2, 1):
        waits[number].result()
        mine, own = queue[number]
        mine.release(take(mine, own), timeout=LIMIT)
        mine.close()
    looking.close()


def test_a_waiter_that_is_killed_delays_the_next_by_no_more_than_its_lease(lockctl: Lockctl, url: str) -> None:
    holder = lockctl.start_holding("nightly", "-b", url)
    looking = client(url)
    dead = lockctl.start("run", "-b", url, "-l", "nightly", "-t", "2", "-w", "60", "--", "true")
    eventually(lambda: waiters(looking) == 1)
    alive = lockctl.start("run", "-b", url, "-l", "nightly", "-w", "60", "--", "true")
    eventually(lambda: waiters(looking) == 2)
    dead.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    holder.terminate()
    assert alive.wait(10.0) == 0
    assert time.monotonic() - killed < 2.0 + 0.5 + 1.0  # the lease, etcd's half a second, and a start
    looking.close()
