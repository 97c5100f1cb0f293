"""A crowd of waiters: all are served, in their order where it is promised, and who leaves disturbs nobody."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.locks.machine import LONGEST_LIFE
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, claim, queue_up, refused, take, waiters
from tests.contract.waiting import start_waiting
from tests.faults.backends import PLACES, addresses_of, announced, on_backends
from tests.faults.waiting import await_waiting
from tests.jobs import eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.contract.harness import Harness
    from tests.jobs import Lockctl
    from tests.servers.process import Server

CROWD = 50
# how often the crowd may wake for as many releases: once each where the server tells the next one only
WAKES: dict[str, float] = {
    "redis": 2 * CROWD,
    "redlock": 4 * CROWD,  # a queue says only who looks first
    "etcd": CROWD,
    "consul": CROWD,
    "zookeeper": CROWD,
    "postgresql": CROWD,
}


@pytest.fixture
def connect(backend_url: str) -> Iterator[Callable[[], Backend]]:
    """A call that makes a client."""
    made: list[Backend] = []

    def new() -> Backend:
        made.append(open_backend(parse_url(backend_url)))
        return made[-1]

    yield new
    for client in made:
        client.close()


class Crowd:
    """Waiters of one lock: the order in which they were served, with which tokens, and how often each woke."""

    def __init__(self, connect: Callable[[], Backend]) -> None:
        self.connect = connect
        self.served: list[int] = []
        self.tokens: list[int] = []
        self.woken = [0] * CROWD
        self.came = [False] * CROWD
        self._inside = threading.Lock()

    def wait_for_turn(self, number: int) -> None:
        """One waiter."""
        client, mine = self.connect(), claim(ttl=60.0)
        while (grant := client.try_acquire(mine, timeout=LIMIT)) is None:
            self.came[number] = True
            client.wait(mine, timeout=60.0, interrupt=None)
            self.woken[number] += 1
        assert self._inside.acquire(blocking=False), "two holders at once"
        self.served.append(number)
        self.tokens.append(grant.token)
        self._inside.release()
        client.release(grant, timeout=LIMIT)
        client.close()


@pytest.mark.parametrize("backend_name", [pytest.param(name, marks=announced(name)) for name in WAKES])
def test_all_of_a_crowd_of_waiters_are_served_in_their_order_if_the_backend_is_fair_and_few_wake_for_each_release(
    backend_name: str, connect: Callable[[], Backend]
) -> None:
    holder = connect()
    grant = take(holder, claim(ttl=60.0))
    crowd, turns = Crowd(connect), []
    for number in range(CROWD):
        turns.append(Background(functools.partial(crowd.wait_for_turn, number)))
        if holder.capabilities.lists_waiters:
            eventually(lambda number=number: waiters(holder) == number + 1)  # type: ignore[misc]
        holder.renew(grant, timeout=LIMIT)  # not every server allows a lease of a minute
    eventually(lambda: all(crowd.came), limit=30.0)
    holder.release(grant, timeout=LIMIT)
    for turn in turns:
        turn.result(limit=90.0)
    assert sorted(crowd.served) == list(range(CROWD))
    if holder.capabilities.fair:
        assert crowd.served == list(range(CROWD))
    assert crowd.tokens == sorted(set(crowd.tokens))
    assert sum(crowd.woken) <= WAKES[backend_name]


@pytest.mark.parametrize(
    "backend_name", [*on_backends("redis", "etcd", "consul", "zookeeper", "postgresql", "mysql", "s3", "gcs"), "memory"]
)
def test_a_waiter_in_the_middle_that_gives_up_wakes_nobody_to_a_lock_that_is_held(
    harness: Harness, backend: Backend
) -> None:
    grant = take(backend, harness.claim())
    first, leaving, last = (harness.client() for _ in range(3))
    claims = [harness.claim() for _ in range(3)]
    waits = [start_waiting(first, claims[0], backend)]
    queue_up(leaving, claims[1], backend)
    waits.append(start_waiting(last, claims[2], backend, count=3))
    leaving.withdraw(claims[1], timeout=LIMIT)
    assert waiters(backend) == 2
    time.sleep(0.2)
    assert all(each.running for each in waits)
    backend.release(grant, timeout=LIMIT)
    waits[0].result()
    following = take(first, claims[0])
    assert waits[1].running
    first.release(following, timeout=LIMIT)
    waits[1].result()
    take(last, claims[2])


@pytest.mark.parametrize("backend_name", [*on_backends("s3", "gcs", "azblob"), "memory"])
def test_a_waiter_that_vanishes_keeps_a_free_lock_closed_for_no_long_lease(
    harness: Harness, backend: Backend, other: Backend
) -> None:
    grant = take(backend, harness.claim())
    gone = harness.claim(ttl=600.0)
    queue_up(other, gone, backend)
    backend.release(grant, timeout=LIMIT)
    assert refused(backend, harness.claim())
    harness.pass_time(LONGEST_LIFE + harness.clock_error + 1.0)
    take(backend, harness.claim())


@pytest.mark.parametrize(("backend_name", "kind"), [("redis", Redis), ("postgresql", Postgres)])
def test_a_waiter_outlasts_a_restart_of_a_server_that_forgets_it(
    backend_name: str, kind: type[Server], lockctl: Lockctl, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(kind)
    lockctl.url = PLACES[backend_name].url(addresses_of(server), f"t{os.urandom(6).hex()}", tmp_path)
    holder = open_backend(parse_url(lockctl.url))
    take(holder, claim(ttl=60.0))
    waiter = lockctl.start("run", "-l", "nightly", "-w", "forever", "--", "true")
    await_waiting(lockctl, "nightly", [waiter])
    server.restart()  # which frees the lock, too
    assert waiter.wait(LIMIT) == 0
    holder.close()
