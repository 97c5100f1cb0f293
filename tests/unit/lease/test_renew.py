"""lockctl.lease.renew: the only loop that renews, and what it reports."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, LeaseLost
from lockctl.events import Renewed
from lockctl.lease.acquire import Lease
from lockctl.lease.lease_events import LeaseEnded, RenewalFailed, RevocationAsked
from lockctl.lease.renew import Renewer
from lockctl.lease.schedule import plan
from lockctl.model import Claim, Revocation
from lockctl.stores.memory.cell import MemoryBackend, MemoryServer
from lockctl.value import replace
from tests.jobs import without_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.lease.lease_events import RenewalEvent
    from lockctl.model import Grant, Holder

SCHEDULE = replace(plan(30.0, None, MemoryBackend.capabilities), interval=0.02)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted(MemoryBackend):
    """Answers renewals as the test says, then as the server does."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.script: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.timeout = 0.0  # of the last one

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        self.asked += 1
        self.timeout = timeout
        assert self.gate.wait(20)
        if self.script:
            raise self.script.pop(0)
        return super().renew(grant, timeout=timeout)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def backend(server: MemoryServer) -> Scripted:
    return Scripted(server)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def renewer(backend: Scripted, clock: Clock) -> Iterator[Renewer]:
    claim = Claim("nightly", os.urandom(8).hex(), 30.0, "web3", os.getpid(), "ops", ("true",))
    grant = backend.try_acquire(claim, timeout=1)
    assert grant is not None
    made = Renewer(backend, Lease(grant, SCHEDULE.deadline(clock(), 30.0), SCHEDULE), clock)
    yield made
    backend.gate.set()
    assert made._stopped or made.stop(10.0)


def reports(renewer: Renewer, count: int = 1) -> list[RenewalEvent]:
    """At least *count* reports, waited for as the keeper does."""
    found: list[RenewalEvent] = []
    poll = select.poll()
    poll.register(renewer.readable, select.POLLIN)
    while len(found) < count:
        assert poll.poll(10_000), f"only {found}"
        found += renewer.take()
    return found


def holder(backend: MemoryBackend) -> Holder:
    return backend.inspect("nightly", timeout=1).holders[0]


def test_nothing_is_sent_before_it_is_asked_for(renewer: Renewer, backend: Scripted) -> None:
    assert renewer.take() == []
    time.sleep(3 * SCHEDULE.interval)
    assert backend.asked == 0


def test_a_renewal_reports_a_deadline_that_counts_from_its_sending(
    renewer: Renewer, clock: Clock, backend: Scripted
) -> None:
    backend.gate.clear()
    renewer.renew_now()
    sent = clock()
    while not backend.asked:
        time.sleep(0.001)
    clock.now += 12.0  # the answer is slow
    backend.gate.set()
    assert reports(renewer)[0] == Renewed(SCHEDULE.deadline(sent, 30.0))


def test_without_a_thread_each_call_renews_once(renewer: Renewer, backend: Scripted) -> None:
    backend.script = [BackendUnavailable("no route")]
    with without_threads():
        assert not renewer.renew_now()
        assert reports(renewer) == [RenewalFailed("no route")]
        assert not renewer.renew_now()
    assert isinstance(reports(renewer)[0], Renewed)
    time.sleep(3 * SCHEDULE.interval)
    assert backend.asked == 2


def test_a_later_call_tries_again_to_start_a_thread(renewer: Renewer) -> None:
    with without_threads():
        assert not renewer.renew_now()
    assert renewer.renew_now()
    assert len(reports(renewer, 4)) >= 4


def test_without_a_thread_a_request_ends_before_the_whole_tree_must(
    renewer: Renewer, backend: Scripted, clock: Clock
) -> None:
    clock.now = SCHEDULE.kill_at(SCHEDULE.deadline(clock.now, 30.0)) - 0.3
    with without_threads():
        renewer.renew_now()
    assert backend.timeout == pytest.approx(0.3)


def test_without_a_thread_nothing_is_sent_after_a_clear_no(renewer: Renewer, backend: Scripted) -> None:
    backend.script = [LeaseLost("gone")]
    with without_threads():
        assert renewer.renew_now()
        assert reports(renewer) == [LeaseEnded("gone")]
    assert renewer.renew_now()
    assert backend.asked == 1


def test_it_goes_on_renewing_by_itself(renewer: Renewer) -> None:
    renewer.renew_now()
    for report in reports(renewer, 4):
        assert isinstance(report, Renewed)


def test_no_answer_is_reported_with_its_reason_and_tried_again(renewer: Renewer, backend: Scripted) -> None:
    backend.script = [BackendUnavailable("no route"), BackendUnavailable("timed out")]
    renewer.renew_now()
    found = reports(renewer, 3)
    assert found[:2] == [RenewalFailed("no route"), RenewalFailed("timed out")]
    assert isinstance(found[2], Renewed)


@pytest.mark.slow
def test_what_failed_is_tried_again_sooner_than_what_succeeded(backend: Scripted, clock: Clock) -> None:
    claim = Claim("other", os.urandom(8).hex(), 30.0, "web3", os.getpid(), "ops", ("true",))
    grant = backend.try_acquire(claim, timeout=1)
    assert grant is not None
    slow = Renewer(backend, Lease(grant, 0.0, replace(SCHEDULE, interval=3.0)), clock)
    backend.script = [BackendUnavailable("no route")]
    begin = time.monotonic()
    slow.renew_now()
    assert [type(report) for report in reports(slow, 2)] == [RenewalFailed, Renewed]
    assert 1.3 < time.monotonic() - begin < 2.4
    assert slow.stop(10.0)


@pytest.mark.parametrize("bug", [RuntimeError("bug"), OSError(5, "io"), KeyError("x"), RecursionError(), MemoryError()])
def test_a_bug_in_a_backend_is_no_loss_and_does_not_end_the_thread(
    renewer: Renewer, backend: Scripted, bug: Exception
) -> None:
    backend.script = [bug, bug]
    renewer.renew_now()
    found = reports(renewer, 3)
    assert [type(report) for report in found[:3]] == [RenewalFailed, RenewalFailed, Renewed]
    assert isinstance(found[0], RenewalFailed)
    assert type(bug).__name__ in found[0].reason


def test_a_clear_no_is_reported_once_and_ends_the_thread(
    renewer: Renewer, backend: Scripted, server: MemoryServer
) -> None:
    with server.mutex:
        server.write("lock:nightly", None)
    renewer.renew_now()
    (report,) = reports(renewer)
    assert isinstance(report, LeaseEnded)
    assert report.reason
    asked = backend.asked
    time.sleep(5 * SCHEDULE.interval)
    assert (backend.asked, renewer.take()) == (asked, [])


def test_a_revocation_is_reported_with_who_and_why_and_renewals_go_on(
    renewer: Renewer, clock: Clock, server: MemoryServer
) -> None:
    other = MemoryBackend(server)
    other.revoke("nightly", holder(other), Revocation(now=False, by="ops@web3", reason="maintenance"), timeout=1)
    renewer.renew_now()
    asked = RevocationAsked("ops@web3", "maintenance", SCHEDULE.deadline(clock(), 30.0))
    assert reports(renewer, 3)[:3] == [asked] * 3


def test_asking_again_cuts_the_pause_short(backend: Scripted, clock: Clock) -> None:
    claim = Claim("other", os.urandom(8).hex(), 30.0, "web3", os.getpid(), "ops", ("true",))
    grant = backend.try_acquire(claim, timeout=1)
    assert grant is not None
    slow = Renewer(backend, Lease(grant, 0.0, replace(SCHEDULE, interval=60.0)), clock)
    for _ in range(3):
        slow.renew_now()
        assert isinstance(reports(slow)[0], Renewed)
    assert slow.stop(10.0)


def test_after_it_was_stopped_no_request_is_sent(renewer: Renewer, backend: Scripted) -> None:
    renewer.renew_now()
    reports(renewer)
    assert renewer.stop(10.0)
    asked = backend.asked
    time.sleep(5 * SCHEDULE.interval)
    assert backend.asked == asked


def test_stopping_says_when_a_request_is_stuck_and_does_not_wait_for_it(backend: Scripted, clock: Clock) -> None:
    claim = Claim("other", os.urandom(8).hex(), 30.0, "web3", os.getpid(), "ops", ("true",))
    grant = backend.try_acquire(claim, timeout=1)
    assert grant is not None
    stuck = Renewer(backend, Lease(grant, 0.0, SCHEDULE), clock)
    backend.gate.clear()
    stuck.renew_now()
    while not backend.asked:
        time.sleep(0.001)
    before = time.monotonic()
    assert not stuck.stop(0.2)
    assert 0.19 <= time.monotonic() - before < 5.0
    backend.gate.set()
    assert stuck.stop(10.0)
