"""A long queue at a ZooKeeper lock: its order, whom a release wakes, and who leaves it in an ugly way."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lockctl.model import Claim
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, queue_up
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl
    from tests.servers.zookeeper import ZooKeeper

WAITERS = 100


@pytest.fixture
def url(zookeeper_server: ZooKeeper) -> str:
    return f"zookeeper://{zookeeper_server.address}/waiting-{os.urandom(6).hex()}"


@pytest.fixture
def queued(zookeeper_server: ZooKeeper, url: str) -> Iterator[Callable[[], int]]:
    """How many nodes the lock has: holder and waiters."""
    admin = KazooClient(hosts=zookeeper_server.address)
    admin.start()
    path = f"/{url.rpartition('/')[2]}/nightly"

    def count() -> int:
        try:
            return len(admin.get_children(path))
        except NoNodeError:
            return 0

    yield count
    admin.stop()
    admin.close()


def claim(ttl: float = 5.0) -> Claim:
    return Claim("nightly", os.urandom(16).hex(), ttl, "web3", os.getpid(), "ops", ("./nightly.sh",))


def watches(server: ZooKeeper) -> int:
    """How many events the server owes to its clients."""
    line = next(line for line in server.four_letters("mntr").splitlines() if line.startswith("zk_watch_count"))
    return int(line.split()[1])


def test_a_hundred_waiters_are_served_in_their_order_and_a_release_wakes_only_the_next(
    zookeeper_server: ZooKeeper, url: str, queued: Callable[[], int]
) -> None:
    holder = ZooKeeperBackend.from_url(parse_url(url))
    grant = holder.try_acquire(claim(), timeout=LIMIT)
    assert grant is not None
    served: list[int] = []
    tries = [0] * WAITERS

    def wait_for_turn(number: int) -> None:
        client, mine = ZooKeeperBackend.from_url(parse_url(url)), claim()
        while (got := client.try_acquire(mine, timeout=LIMIT)) is None:
            tries[number] += 1
            client.wait(mine, timeout=60.0, interrupt=None)
        served.append(number)
        client.release(got, timeout=LIMIT)

    before = watches(zookeeper_server)
    turns = []
    for number in range(WAITERS):
        turns.append(Background(functools.partial(wait_for_turn, number)))
        eventually(lambda number=number: queued() == number + 2)  # type: ignore[misc]
        holder.renew(grant, timeout=LIMIT)
    eventually(lambda: watches(zookeeper_server) - before == WAITERS)  # each watches one node and no other
    holder.release(grant, timeout=LIMIT)
    for turn in turns:
        turn.result(limit=60.0)
    assert served == list(range(WAITERS))
    assert tries == [1] * WAITERS, "each was refused once, when it came, and woken once, for its turn"


def test_a_killed_waiter_delays_the_next_by_no_more_than_its_lease(
    lockctl: Lockctl, url: str, queued: Callable[[], int]
) -> None:
    holder = lockctl.start_holding("nightly", "-b", url, "-t", "3s")
    words = ("run", "-b", url, "-l", "nightly", "-t", "3s", "-w", "60s", "--", "true")
    killed = lockctl.start(*words)
    eventually(lambda: queued() == 2)
    following = lockctl.start(*words)
    eventually(lambda: queued() == 3)
    killed.send_signal(signal.SIGKILL)
    killed.wait(LIMIT)
    holder.terminate()
    began = time.monotonic()
    assert following.wait(LIMIT) == 0
    assert time.monotonic() - began < 3.0 + 0.5 + 1.5  # the ttl, a tick, and the time that processes take
    eventually(lambda: queued() == 0)


def test_a_waiter_in_the_middle_that_gives_up_wakes_nobody_to_a_lock_that_is_held(
    url: str, queued: Callable[[], int]
) -> None:
    holder, leaving, staying = (ZooKeeperBackend.from_url(parse_url(url)) for _ in range(3))
    grant = holder.try_acquire(claim(), timeout=LIMIT)
    assert grant is not None
    first, second = claim(), claim()
    queue_up(leaving, first, holder)
    stayer = Background(lambda: staying.wait(second, timeout=60.0, interrupt=None))
    eventually(lambda: queued() == 3)
    leaving.withdraw(first, timeout=LIMIT)
    assert queued() == 2
    time.sleep(0.2)
    assert stayer.running
    holder.release(grant, timeout=LIMIT)
    stayer.result()
    assert staying.try_acquire(second, timeout=LIMIT) is not None
    for client in (holder, leaving, staying):
        client.close()
