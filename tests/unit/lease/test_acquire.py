"""lockctl.lease.acquire: the only loop that waits for a lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, LeaseLost, LockctlError, RequestInterrupted
from lockctl.lease.acquire import ACQUIRE_TIMEOUT, HURRIED_TIMEOUT, Lease, acquire
from lockctl.lease.attempts import LONGEST_GIVE_BACK, MINIMUM, Attempts
from lockctl.lease.schedule import plan
from lockctl.locks.machine import Lock
from lockctl.stores.memory.cell import MemoryBackend, MemoryServer
from lockctl.value import replace
from tests.contract.harness import Background, claim
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.lease.schedule import Schedule
    from lockctl.model import Claim, Grant

SCHEDULE = plan(30.0, None, MemoryBackend.capabilities)


class SlowBackend(MemoryBackend):
    """Acquiring takes as long as the test says, on a clock of the test's."""

    def __init__(self, server: MemoryServer, *delays: float) -> None:
        super().__init__(server)
        self.now = 1000.0
        self.delays = list(delays)
        self.released: list[int] = []

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        grant = super().try_acquire(claim, timeout=timeout, interrupt=interrupt)
        self.now += self.delays.pop(0) if self.delays else 0.0
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        self.released.append(grant.token)
        super().release(grant, timeout=timeout, hold=hold)


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    made = MemoryServer()
    yield made
    assert not made.watchers, "a wait was left running"


@pytest.fixture
def holder(server: MemoryServer) -> Grant:
    grant = MemoryBackend(server).try_acquire(claim(), timeout=1)
    assert grant is not None
    return grant


def lease_of(
    backend: MemoryBackend,
    asked: Claim,
    *,
    wait: float = 0.0,
    now: Callable[[], float] = time.monotonic,
    interrupt: int | None = None,
    ending_signal: Callable[[], int | None] = lambda: None,
    schedule: Schedule = SCHEDULE,
) -> Lease | None:
    return acquire(
        backend, asked, schedule=schedule, wait=wait, now=now, interrupt=interrupt, ending_signal=ending_signal
    )


def untouched(server: MemoryServer) -> bool:
    """Nobody holds the lock and nobody is in its queue."""
    return not lock_in(server).is_in_use()


def lock_in(server: MemoryServer) -> Lock:
    """The lock as the server has it."""
    data, _ = server.cells.get("lock:nightly", (Lock().written(), 0))
    lock = Lock.read(data)
    assert lock is not None
    return lock


def test_a_free_lock_is_a_lease_whose_deadline_counts_from_before_the_request(server: MemoryServer) -> None:
    backend = SlowBackend(server, 3.0)
    lease = lease_of(backend, claim(), now=lambda: backend.now)
    assert lease is not None
    assert lease.deadline == SCHEDULE.deadline(1000.0, 30.0)
    assert not backend.released


class AskedBefore(SlowBackend):
    """Whose lease has run for four seconds when it is asked for."""

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        grant = super().try_acquire(claim, timeout=timeout, interrupt=interrupt)
        return grant and replace(grant, age=4.0)


def test_the_deadline_of_a_lease_that_was_asked_for_before_counts_from_then(server: MemoryServer) -> None:
    backend = AskedBefore(server, 0.5)
    lease = lease_of(backend, claim(), now=lambda: backend.now)
    assert lease is not None
    assert lease.deadline == SCHEDULE.deadline(996.0, 30.0)


class FailsOnce(SlowBackend):
    """Whose first renewal fails."""

    failure: LockctlError | None = BackendUnavailable("no answer")

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        self.now += 1.0
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().renew(grant, timeout=timeout)


@pytest.mark.parametrize("failure", [BackendUnavailable("no answer"), ConfigError("a right is missing")])
def test_a_lease_that_took_long_to_get_is_renewed_before_the_job_starts(
    server: MemoryServer, failure: LockctlError
) -> None:
    """Else a late answer to the first renewal of the job would end it."""
    backend = FailsOnce(server, 12.0)
    backend.failure = failure
    lease = lease_of(backend, claim(), now=lambda: backend.now)
    assert lease is not None
    assert lease.deadline == SCHEDULE.deadline(1000.0 + 12.0 + 1.0, 30.0)
    assert not backend.released


def test_a_signal_ends_the_tries_to_renew_a_lease_that_took_long_to_get(server: MemoryServer) -> None:
    class Silent(SlowBackend):
        tries = 0

        def renew(self, grant: Grant, *, timeout: float) -> Grant:
            self.now += 1.0
            self.tries += 1
            raise BackendUnavailable("no answer")

    backend = Silent(server, 12.0)
    with pytest.raises(Interrupted):
        lease_of(
            backend, claim(), now=lambda: backend.now, ending_signal=lambda: signal.SIGTERM if backend.tries else None
        )
    assert backend.tries == 1
    assert untouched(server)


def test_a_lock_that_was_lost_while_it_was_got_is_not_started_with(server: MemoryServer) -> None:
    class Lost(SlowBackend):
        def renew(self, grant: Grant, *, timeout: float) -> Grant:
            raise LeaseLost("it ran out")

    backend = Lost(server, 12.0)
    with pytest.raises(BackendUnavailable, match="lost before the command could start: it ran out"):
        lease_of(backend, claim(), now=lambda: backend.now)
    assert untouched(server)


@pytest.mark.usefixtures("holder")
def test_a_held_lock_is_none_at_once_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    before = time.monotonic()
    assert lease_of(MemoryBackend(server), claim()) is None
    assert time.monotonic() - before < 5.0
    assert not lock_in(server).queue


@pytest.mark.usefixtures("holder")
def test_the_wait_ends_when_its_time_is_over_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    before = time.monotonic()
    assert lease_of(MemoryBackend(server), claim(), wait=0.3) is None
    assert 0.3 <= time.monotonic() - before < 5.0
    assert not lock_in(server).queue


def test_a_lock_that_becomes_free_is_taken_and_its_lease_counts_from_then(server: MemoryServer, holder: Grant) -> None:
    waiting = Background(lambda: lease_of(MemoryBackend(server), claim(), wait=20.0))
    eventually(lambda: server.watchers)
    released = time.monotonic()
    MemoryBackend(server).release(holder, timeout=1)
    lease = waiting.result()
    assert lease is not None
    assert lease.grant.token > holder.token
    assert lease.deadline >= SCHEDULE.deadline(released, 30.0)
    assert not lock_in(server).queue


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
    with pytest.raises(BackendUnavailable, match="too late"):
        lease_of(backend, claim(), now=lambda: backend.now)
    assert untouched(server)


def test_a_lease_that_the_server_cuts_short_has_a_schedule_of_its_own_or_is_refused(server: MemoryServer) -> None:
    class Stingy(MemoryBackend):
        def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
            grant = super().try_acquire(claim, timeout=timeout)
            return grant and replace(grant, ttl=4.0)

    lease = lease_of(Stingy(server), claim(), wait=20.0)
    assert lease is not None
    assert lease.schedule == plan(4.0, None, MemoryBackend.capabilities)
    Stingy(server).release(lease.grant, timeout=1)
    with pytest.raises(ConfigError, match=r"shortens the lease of 30s: kill-after"):
        lease_of(Stingy(server), claim(), wait=20.0, schedule=plan(30.0, 4.5, MemoryBackend.capabilities))
    with pytest.raises(ConfigError, match="shorten --kill-after, or allow longer leases on the server") as wrong:
        lease_of(Stingy(server), claim(), schedule=plan(30.0, 3.5, MemoryBackend.capabilities))
    assert "or a longer ttl" not in str(wrong.value)
    assert untouched(server)


class Speechless(MemoryBackend):
    """Some give-backs are not answered and not carried out, as often as the test says."""

    def __init__(self, server: MemoryServer, unanswered: int) -> None:
        super().__init__(server)
        self.unanswered = unanswered
        self.withdrawn: list[str] = []

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        self._hear()
        super().release(grant, timeout=timeout, hold=hold)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self._hear()
        self.withdrawn.append(claim.owner)
        super().withdraw(claim, timeout=timeout)

    def _hear(self) -> None:
        self.unanswered -= 1
        if self.unanswered >= 0:
            raise BackendUnavailable("no answer")


@pytest.mark.parametrize("unanswered", [0, 1, 2])
def test_an_owner_that_was_given_back_is_never_used_again_and_keeps_nobody_out(
    server: MemoryServer, unanswered: int
) -> None:
    backend = Speechless(server, unanswered)
    attempts = Attempts(backend, claim())
    first = attempts.take(1.0, None)
    assert first is not None
    assert (attempts.give_back(first, 1.0) is not None) is (unanswered > 0)
    for _ in range(unanswered - 1):
        assert attempts.take(1.0, None) is None
    second = attempts.take(1.0, None)
    assert second is not None
    assert second.claim.owner != first.claim.owner
    assert backend.withdrawn == [first.claim.owner] * bool(unanswered)


@pytest.mark.slow
def test_a_wait_beside_a_give_back_that_was_not_answered_returns_soon(server: MemoryServer) -> None:
    attempts = Attempts(Speechless(server, 2), claim())
    first = attempts.take(1.0, None)
    attempts.give_back(first, 1.0)
    assert attempts.take(1.0, None) is None
    Background(lambda: attempts.wait(600.0, None)).result()
    assert attempts.take(1.0, None) is not None


@pytest.mark.usefixtures("holder")
def test_a_signal_ends_the_wait_and_leaves_no_place_in_the_queue(server: MemoryServer) -> None:
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    sent = threading.Event()

    def ending_signal() -> int | None:
        return 15 if sent.is_set() else None

    waiting = Background(
        lambda: lease_of(MemoryBackend(server), claim(), wait=20.0, interrupt=readable, ending_signal=ending_signal)
    )
    eventually(lambda: server.watchers)
    sent.set()
    os.write(writable, b".")
    before = time.monotonic()
    with pytest.raises(Interrupted) as interrupted:
        waiting.result()
    assert interrupted.value.signum == 15
    assert waiting.ended_at - before < 3.0
    assert not lock_in(server).queue
    os.close(readable)
    os.close(writable)


class FarAway(MemoryBackend):
    """Whose attempts take some seconds, on a clock of the test's, and may be broken off then."""

    now, took, broken_off = 0.0, 0.0, False

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        self.now += self.took
        if self.broken_off:
            raise RequestInterrupted("interrupted")
        return super().try_acquire(claim, timeout=timeout, interrupt=interrupt)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self.left_in = timeout
        super().withdraw(claim, timeout=timeout)


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize(
    ("took", "broken_off", "limit"),
    [
        (0.01, False, HURRIED_TIMEOUT),
        (0.7, False, 1.4),
        (9.0, False, LONGEST_GIVE_BACK),
        (0.4, True, 0.8),
        (9.0, True, 1.0),  # it may be a server that hangs
    ],
)
def test_a_signal_leaves_as_much_time_to_leave_as_a_server_far_away_needs(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch, took: float, limit: float, *, broken_off: bool
) -> None:
    backend = FarAway(server)
    backend.took, backend.broken_off = took, broken_off
    monkeypatch.setattr(clock, "monotonic", lambda: backend.now)
    with pytest.raises(Interrupted):
        lease_of(backend, claim(), wait=20.0, ending_signal=lambda: signal.SIGTERM)
    assert backend.left_in == pytest.approx(limit)


@pytest.mark.parametrize("is_granted", [False, True])
def test_what_was_granted_and_cannot_be_given_back_is_told(server: MemoryServer, *, is_granted: bool) -> None:
    held = None if is_granted else MemoryBackend(server).try_acquire(claim(), timeout=1)
    backend, told = MemoryBackend(server), list[str]()

    def ending_signal() -> int | None:
        backend.cells.reachable = False
        return signal.SIGTERM

    with pytest.raises(Interrupted):
        acquire(
            backend,
            claim(),
            schedule=SCHEDULE,
            wait=0.0,
            now=time.monotonic,
            interrupt=None,
            ending_signal=ending_signal,
            still_held=told.append,
        )
    assert len(told) == is_granted
    backend.cells.reachable = True
    if held is not None:
        backend.release(held, timeout=1)


def test_a_signal_that_came_with_the_grant_leaves_nothing_held(server: MemoryServer) -> None:
    with pytest.raises(Interrupted):
        lease_of(MemoryBackend(server), claim(), ending_signal=lambda: 2)
    assert untouched(server)


def test_a_backend_out_of_reach_is_said_so_and_nothing_is_held(server: MemoryServer) -> None:
    backend = MemoryBackend(server)
    backend.cells.reachable = False
    with pytest.raises(BackendUnavailable):
        lease_of(backend, claim())
    assert untouched(server)


class Flaky(MemoryBackend):
    """Fails as often as the test says, then works."""

    def __init__(
        self, server: MemoryServer, *, tries: int = 0, waits: int = 0, failure: type[LockctlError] = BackendUnavailable
    ) -> None:
        super().__init__(server)
        self.tries, self.waits, self.failure = tries, waits, failure
        self.asked: list[float] = []

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        self.asked.append(timeout)
        self.tries -= 1
        if self.tries >= 0:
            raise self.failure("hiccup")
        return super().try_acquire(claim, timeout=timeout, interrupt=interrupt)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        self.waits -= 1
        if self.waits >= 0:
            super().wait(claim, timeout=0.01, interrupt=interrupt)
            raise self.failure("hiccup")
        super().wait(claim, timeout=timeout, interrupt=interrupt)


class Lost(Flaky):
    """Answers once, and fails from then on."""

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        grant = super().try_acquire(claim, timeout=timeout, interrupt=interrupt)
        self.tries = self.waits = 100
        return grant


def test_who_came_to_wait_outlasts_a_backend_that_fails_for_a_moment(server: MemoryServer, holder: Grant) -> None:
    waiting = Background(lambda: lease_of(Flaky(server, tries=2, waits=2), claim(), wait=20.0))
    eventually(lambda: lock_in(server).queue)
    MemoryBackend(server).release(holder, timeout=1)
    assert waiting.result() is not None


def test_who_waits_outlasts_a_store_that_is_set_up_anew(server: MemoryServer, holder: Grant) -> None:
    """Its bucket, table or rights are away for a moment."""
    waiting = Background(lambda: lease_of(Flaky(server, waits=2, failure=ConfigError), claim(), wait=20.0))
    eventually(lambda: lock_in(server).queue)
    MemoryBackend(server).release(holder, timeout=1)
    assert waiting.result() is not None


@pytest.mark.slow
@pytest.mark.usefixtures("holder")
def test_what_a_person_must_change_is_said_at_once_at_the_start_and_in_the_end_of_a_wait(server: MemoryServer) -> None:
    backend = Flaky(server, tries=1, failure=ConfigError)
    with pytest.raises(ConfigError, match="hiccup"):
        lease_of(backend, claim(), wait=600.0)
    assert len(backend.asked) == 1
    began = clock.monotonic()
    with pytest.raises(ConfigError, match="hiccup"):
        lease_of(
            Lost(server, failure=ConfigError),
            claim(),
            wait=600.0,
            now=lambda: began + 8 * (clock.monotonic() - began),
        )
    assert ACQUIRE_TIMEOUT / 8 <= clock.monotonic() - began < ACQUIRE_TIMEOUT


@pytest.mark.slow
def test_a_backend_that_fails_is_asked_again_until_the_time_of_the_wait_is_over(server: MemoryServer) -> None:
    backend = Flaky(server, tries=100)
    before = time.monotonic()
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(backend, claim(), wait=1.0)
    assert 1.0 <= time.monotonic() - before < 4.0
    assert 3 <= len(backend.asked) <= 5


@pytest.mark.slow
def test_a_wait_that_is_longer_ends_when_the_backend_has_failed_for_its_whole_time(server: MemoryServer) -> None:
    backend = Flaky(server, tries=100)
    began = clock.monotonic()
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(backend, claim(), wait=600.0, now=lambda: began + 8 * (clock.monotonic() - began))
    assert ACQUIRE_TIMEOUT / 8 <= clock.monotonic() - began < ACQUIRE_TIMEOUT


def test_who_did_not_come_to_wait_is_told_of_the_first_failure(server: MemoryServer) -> None:
    backend = Flaky(server, tries=1)
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(backend, claim())
    assert len(backend.asked) == 1


@pytest.mark.slow
def test_a_backend_that_fails_for_too_long_ends_the_wait_and_no_attempt_has_more_time_than_is_left(
    server: MemoryServer,
) -> None:
    backend = Flaky(server, tries=100)
    seconds = iter(range(100))
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(backend, claim(), wait=3600.0, now=lambda: float(next(seconds)))
    assert backend.asked[0] == ACQUIRE_TIMEOUT
    assert backend.asked == sorted(backend.asked, reverse=True)
    assert 3 <= len(backend.asked) <= 6


class Silent(Flaky):
    """Gives no answer in the time that it has."""

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        self.asked.append(timeout)
        raise BackendUnavailable(f"no answer within {timeout:g} s")


@pytest.mark.slow
def test_the_reason_of_an_outage_is_not_that_its_last_moment_was_too_short(server: MemoryServer) -> None:
    backend = Silent(server)
    seconds = iter(range(0, 1000, 3))
    with pytest.raises(BackendUnavailable) as told:
        lease_of(backend, claim(), wait=3600.0, now=lambda: float(next(seconds)))
    assert backend.asked[-1] == MINIMUM
    assert str(told.value) == f"no answer within {backend.asked[-2]:g} s"


@pytest.mark.slow
@pytest.mark.usefixtures("holder")
def test_a_wait_whose_time_is_over_while_the_backend_fails_ends_with_its_last_answer_and_leaves_no_place(
    server: MemoryServer,
) -> None:
    before = time.monotonic()
    assert lease_of(Flaky(server, waits=100), claim(), wait=0.5) is None
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(Flaky(server, tries=100, waits=100), claim(), wait=0.5)
    assert 1.0 <= time.monotonic() - before < 5.0
    assert not lock_in(server).queue


@pytest.mark.slow
@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("failure", [BackendUnavailable, ConfigError])
def test_a_backend_that_only_tells_who_has_the_lock_has_failed_and_is_not_asked_without_a_pause(
    server: MemoryServer, failure: type[LockctlError]
) -> None:
    """Such as a replica, or a user who may not write: a place in the queue is not to be had."""
    backend = Flaky(server, waits=10_000, failure=failure)
    began = clock.monotonic()
    with pytest.raises(failure, match="hiccup"):
        lease_of(backend, claim(), wait=600.0, now=lambda: began + 8 * (clock.monotonic() - began))
    assert ACQUIRE_TIMEOUT / 8 <= clock.monotonic() - began < ACQUIRE_TIMEOUT
    assert len(backend.asked) < 8


class BrokenOff(Flaky):
    """Its waits fail when they have lasted for a while."""

    now = 1000.0
    lasting = 0.0  # seconds

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        self.now += self.lasting
        super().wait(claim, timeout=timeout, interrupt=interrupt)


@pytest.mark.parametrize("lasting", [60.0, 6.0, 3.0])
def test_a_wait_that_goes_well_and_is_broken_off_again_and_again_goes_on(
    server: MemoryServer, holder: Grant, lasting: float
) -> None:
    """As by what lies between and ends what is quiet for long, or by a few short outages."""
    backend = BrokenOff(server, waits=5)
    backend.lasting = lasting
    waiting = Background(lambda: lease_of(backend, claim(), wait=3600.0, now=lambda: backend.now))
    eventually(lambda: backend.waits < 0)
    MemoryBackend(server).release(holder, timeout=1)
    assert waiting.result() is not None


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("lasting", [60.0, 6.0, 3.0])
def test_a_wait_that_gets_no_position_in_the_queue_fails_however_long_that_takes(
    server: MemoryServer, lasting: float
) -> None:
    """Such as with a server whose disk hangs: it tells who has the lock, and answers no write."""

    class Hanging(BrokenOff):
        lined_up = property(lambda _: False, lambda *_: None)

    backend = Hanging(server, waits=50)
    backend.lasting = lasting
    with pytest.raises(BackendUnavailable, match="hiccup"):
        lease_of(backend, claim(), wait=3600.0, now=lambda: backend.now)
    assert len(backend.asked) <= 2 + ACQUIRE_TIMEOUT / lasting


def test_a_request_that_a_signal_interrupts_ends_the_attempt_and_leaves_nothing_held(server: MemoryServer) -> None:
    class Interruptible(MemoryBackend):
        def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
            super().try_acquire(claim, timeout=timeout)
            raise RequestInterrupted("the answer had not come yet")

    with pytest.raises(Interrupted):
        lease_of(Interruptible(server), claim(), ending_signal=lambda: 15)
    assert untouched(server)


def test_a_silent_backend_is_given_up_also_if_signals_interrupt_each_request(server: MemoryServer) -> None:
    class Silent(SlowBackend):
        def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
            self.now += min(timeout, 0.05)
            assert self.now < 1000.0 + 2 * ACQUIRE_TIMEOUT
            raise RequestInterrupted("the window has another size")

    backend = Silent(server)
    with pytest.raises(BackendUnavailable, match="no answer within 10 s: signals interrupt each request"):
        lease_of(backend, claim(), wait=60.0, now=lambda: backend.now)
    assert backend.now >= 1000.0 + ACQUIRE_TIMEOUT
    assert untouched(server)


def test_interruptions_before_an_answer_do_not_count_in_the_next_silence(server: MemoryServer) -> None:
    class Silent(SlowBackend):
        """Silent twice for a little longer than it is asked; its answer between is that another one has the lock."""

        def __init__(self) -> None:
            super().__init__(server)
            self.ends = [1000.0 + ACQUIRE_TIMEOUT + 0.4, 1000.0 + 2 * ACQUIRE_TIMEOUT + 0.9]

        def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
            self.now += min(timeout, 0.05)
            if self.now < self.ends[0]:
                raise RequestInterrupted("the window has another size")
            del self.ends[0]
            return None if self.ends else super().try_acquire(claim, timeout=timeout)

        def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
            """The lock is free at once."""

    backend = Silent()
    assert lease_of(backend, claim(), wait=60.0, now=lambda: backend.now) is not None


def test_any_other_error_after_the_grant_gives_the_lock_back(server: MemoryServer) -> None:
    def broken() -> int | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lease_of(MemoryBackend(server), claim(), ending_signal=broken)
    assert untouched(server)
