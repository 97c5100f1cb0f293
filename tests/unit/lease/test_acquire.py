"""lockctl.lease.acquire: the only loop that waits for a lock."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.backends.memory import MemoryBackend, MemoryServer
from lockctl.errors import BackendUnavailable, Interrupted
from lockctl.lease.acquire import Lease, acquire
from lockctl.lease.schedule import plan
from lockctl.model import Claim
from tests.contract.harness import Background
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Grant

SCHEDULE = plan(30.0, None, MemoryBackend.capabilities)


class SlowBackend(MemoryBackend):
    """Acquiring takes as long as the test says, on a clock of the test's."""

    def __init__(self, server: MemoryServer, *delays: float) -> None:
        super().__init__(server)
        self.now = 1000.0
        self.delays = list(delays)
        self.released: list[int] = []

    def try_acquire(self, claim: Claim, *, timeout: float) -> Grant | None:
        grant = super().try_acquire(claim, timeout=timeout)
        self.now += self.delays.pop(0) if self.delays else 0.0
        return grant

    def release(self, grant: Grant, *, timeout: float) -> None:
        self.released.append(grant.token)
        super().release(grant, timeout=timeout)


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    made = MemoryServer()
    yield made
    assert not made.bells, "a wait was left running"


@pytest.fixture
def holder(server: MemoryServer) -> Grant:
    grant = MemoryBackend(server).try_acquire(claim(), timeout=1)
    assert grant is not None
    return grant


def claim() -> Claim:
    return Claim("nightly", os.urandom(8).hex(), 30.0, "web3", os.getpid(), "ops", ("true",))


def lease_of(
    backend: MemoryBackend,
    asked: Claim,
    *,
    wait: float = 0.0,
    now: Callable[[], float] = time.monotonic,
    interrupt: int | None = None,
    ending_signal: Callable[[], int | None] = lambda: None,
) -> Lease | None:
    return acquire(
        backend, asked, schedule=SCHEDULE, wait=wait, now=now, interrupt=interrupt, ending_signal=ending_signal
    )


def untouched(server: MemoryServer) -> bool:
    """Nobody holds the lock and nobody is in its queue."""
    lock = server.lock("nightly")
    return lock.holder is None and not lock.queue


def test_a_free_lock_is_a_lease_whose_deadline_counts_from_before_the_request(server: MemoryServer) -> None:
    backend = SlowBackend(server, 7.0)
    lease = lease_of(backend, claim(), now=lambda: backend.now)
    assert lease is not None
    assert lease.deadline == SCHEDULE.deadline(1000.0, 30.0)
    assert not backend.released


@pytest.mark.usefixtures("holder")
def test_a_held_lock_is_none_at_once_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    before = time.monotonic()
    assert lease_of(MemoryBackend(server), claim()) is None
    assert time.monotonic() - before < 0.5
    assert not server.lock("nightly").queue


@pytest.mark.usefixtures("holder")
def test_the_wait_ends_when_its_time_is_over_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    before = time.monotonic()
    assert lease_of(MemoryBackend(server), claim(), wait=0.3) is None
    assert 0.3 <= time.monotonic() - before < 1.5
    assert not server.lock("nightly").queue


def test_a_lock_that_becomes_free_is_taken_and_its_lease_counts_from_then(server: MemoryServer, holder: Grant) -> None:
    waiting = Background(lambda: lease_of(MemoryBackend(server), claim(), wait=20.0))
    eventually(lambda: server.bells)
    released = time.monotonic()
    MemoryBackend(server).release(holder, timeout=1)
    lease = waiting.result()
    assert lease is not None
    assert lease.grant.token > holder.token
    assert lease.deadline >= SCHEDULE.deadline(released, 30.0)
    assert not server.lock("nightly").queue


def test_a_grant_that_came_too_late_to_start_a_job_is_given_back_and_tried_again(server: MemoryServer) -> None:
    too_slow = SCHEDULE.signal_at(SCHEDULE.deadline(0.0, 30.0)) + 0.1
    backend = SlowBackend(server, too_slow, too_slow, 0.0)
    lease = lease_of(backend, claim(), wait=600.0, now=lambda: backend.now)
    assert lease is not None
    assert len(backend.released) == 2
    assert lease.grant.token > max(backend.released)
    assert lease.deadline == SCHEDULE.deadline(1000.0 + 2 * too_slow, 30.0)


def test_a_grant_that_came_too_late_is_given_back_although_nobody_waits_longer(server: MemoryServer) -> None:
    backend = SlowBackend(server, 29.0)
    assert lease_of(backend, claim(), now=lambda: backend.now) is None
    assert untouched(server)


@pytest.mark.usefixtures("holder")
def test_a_signal_ends_the_wait_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    sent = threading.Event()

    def ending_signal() -> int | None:
        return 15 if sent.is_set() else None

    waiting = Background(
        lambda: lease_of(MemoryBackend(server), claim(), wait=20.0, interrupt=readable, ending_signal=ending_signal)
    )
    eventually(lambda: server.bells)
    sent.set()
    os.write(writable, b".")
    before = time.monotonic()
    with pytest.raises(Interrupted) as interrupted:
        waiting.result()
    assert interrupted.value.signum == 15
    assert waiting.ended_at - before < 1.0
    assert not server.lock("nightly").queue
    os.close(readable)
    os.close(writable)


def test_a_signal_that_came_with_the_grant_leaves_nothing_held(server: MemoryServer) -> None:
    with pytest.raises(Interrupted):
        lease_of(MemoryBackend(server), claim(), ending_signal=lambda: 2)
    assert untouched(server)


def test_a_backend_out_of_reach_is_said_so_and_nothing_is_held(server: MemoryServer) -> None:
    backend = MemoryBackend(server)
    backend.reachable = False
    with pytest.raises(BackendUnavailable):
        lease_of(backend, claim())
    assert untouched(server)


@pytest.mark.usefixtures("holder")
def test_a_backend_that_fails_in_the_wait_leaves_no_place_in_the_queue_when_it_can_be_reached_again(
    server: MemoryServer,
) -> None:
    class Flaky(MemoryBackend):
        def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
            super().wait(claim, timeout=0.01, interrupt=interrupt)
            raise BackendUnavailable("hiccup")

    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(Flaky(server), claim(), wait=5.0)
    assert not server.lock("nightly").queue


def test_any_other_error_after_the_grant_gives_the_lock_back(server: MemoryServer) -> None:
    def broken() -> int | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lease_of(MemoryBackend(server), claim(), ending_signal=broken)
    assert untouched(server)
