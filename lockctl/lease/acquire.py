"""Taking the lock: the only loop that waits for one."""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.durations import format_duration
from lockctl.errors import (
    BackendUnavailable,
    ConfigError,
    Interrupted,
    LeaseLost,
    LeaseRevoked,
    LockctlError,
    RequestInterrupted,
)
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Claim, Grant

ACQUIRE_TIMEOUT = 10.0  # seconds for one attempt: long enough for a leader election, short for a cron job
GIVE_BACK_TIMEOUT = 1.0  # seconds for leaving no trace: what is left behind ends with a lease at the server
HURRIED_TIMEOUT = 0.5  # seconds for the same after a signal
RETRY_PAUSE = 0.2  # seconds before a backend that failed is asked again, doubled each time up to
LONGEST_PAUSE = 2.0
FRESH = 0.75  # part of the time until the first signal that a lease has left when its job starts
MINIMUM = 0.1  # seconds: an attempt with less could not succeed
MOST_UNANSWERED = 16  # claims whose give-back is repeated: what older ones may still have ends with their leases


class Lease(Value):
    """A grant with its deadline on our own clock (seconds), and the schedule for the ttl that was granted."""

    grant: Grant
    deadline: float
    schedule: Schedule


def acquire(
    backend: Backend,
    claim: Claim,
    *,
    schedule: Schedule,
    wait: float,
    now: Callable[[], float],
    interrupt: int | None,
    ending_signal: Callable[[], int | None],
    before_wait: Callable[[], None] = lambda: None,
) -> Lease | None:
    """The lease, or ``None`` when the lock was held by another until *wait* seconds had passed.

    *interrupt* is readable when a signal came; *ending_signal* then says which one ends the wait.
    *before_wait* is called once, when the lock was refused for the first time and is waited for.
    A failing backend is asked again for up to ``ACQUIRE_TIMEOUT`` seconds, if *wait* is that long.
    Raises ``Interrupted`` (nothing is held, no queue entry is left), ``BackendUnavailable``,
    ``ConfigError``.
    """
    give_up = now() + wait
    attempts = Attempts(backend, claim)
    grant = None
    complete = False
    unreachable_at: float | None = None  # when a backend that fails now has failed for too long
    pause = RETRY_PAUSE
    try:
        while True:
            sent, refused = now(), False
            if unreachable_at is None:
                unreachable_at = sent + ACQUIRE_TIMEOUT
            try:
                timeout = max(unreachable_at - sent, MINIMUM)
                grant = attempts.take(timeout, interrupt)
                _stop_if_asked(ending_signal)
                left = give_up - now()
                if grant is not None:
                    fitted = _fitted(schedule, grant)
                    lease = _fresh(backend, Lease(grant, fitted.deadline(sent, grant.ttl), fitted), now)
                    _stop_if_asked(ending_signal)
                    if now() < fitted.signal_at(lease.deadline):
                        return lease
                    # the answer took so long that hardly anything of the lease is left: not worth starting
                    if left <= 0:
                        raise BackendUnavailable("the lock was granted too late: its lease was almost over")
                    attempts.give_back(grant, GIVE_BACK_TIMEOUT)
                    grant = None
                elif left <= 0:
                    attempts.give_back(None, GIVE_BACK_TIMEOUT)
                    return None
                unreachable_at, pause, refused = None, RETRY_PAUSE, True
                if not complete:
                    before_wait()
                    complete = True
                attempts.wait(left, interrupt)
            except RequestInterrupted:
                pass  # which signal it was is asked below
            except BackendUnavailable:
                # who came to wait outlasts a server's restart or the election of a leader
                if unreachable_at is None:
                    unreachable_at = now() + ACQUIRE_TIMEOUT
                left = min(unreachable_at, give_up) - now()
                if left <= 0 and not refused:
                    raise
                _sleep(min(pause, max(left, 0.0)), interrupt)  # the last attempt is made when the time is over
                pause = min(2 * pause, LONGEST_PAUSE)
            _stop_if_asked(ending_signal)
    except BaseException as error:
        hurried = isinstance(error, Interrupted)
        attempts.give_back(grant, HURRIED_TIMEOUT if hurried else GIVE_BACK_TIMEOUT)
        raise


def _fresh(backend: Backend, lease: Lease, now: Callable[[], float]) -> Lease:
    """The lease, renewed if much of it was over when it was granted: a healthy job needs time for a late answer.

    Raises ``BackendUnavailable`` when it was lost again.
    """
    schedule, late = lease.schedule, 0
    enough = FRESH * schedule.signal_at(schedule.deadline(0.0, lease.grant.ttl))
    while schedule.request_timeout:
        sent = now()
        left = schedule.signal_at(lease.deadline) - sent
        if left <= 0 or left >= enough:
            break
        try:
            grant = backend.renew(lease.grant, timeout=schedule.patience(sent, lease.deadline, late))
        except LeaseRevoked:
            grant = lease.grant  # it was prolonged; the keeper is told again
        except LeaseLost as lost:
            raise BackendUnavailable(f"the lock was lost before the command could start: {lost}") from None
        except BackendUnavailable:
            late += 1
            _sleep(MINIMUM, None)
            continue
        return Lease(grant, schedule.deadline(sent, grant.ttl), schedule)
    return lease


class Attempts:
    """The attempts to take one lock. An owner that was given back is never used again.

    A give-back that was not answered may still arrive, and would then free what a later attempt of the same owner
    was granted. So the attempt after it has a new owner. What the old one may still have would keep the new one
    out: its give-back is repeated before each attempt until it is answered.
    """

    def __init__(self, backend: Backend, claim: Claim) -> None:
        """*claim* is the first attempt; those after it differ in their owner alone."""
        self.backend = backend
        self.claim = claim
        self._unanswered: list[Claim] = []  # given back, and no answer came

    def take(self, timeout: float, interrupt: int | None) -> Grant | None:
        """See ``Backend.try_acquire``. Whoever keeps a place in a queue keeps its owner."""
        if self._unanswered:
            until = clock.monotonic() + timeout
            self._repeat(min(timeout / 2, GIVE_BACK_TIMEOUT))
            timeout = max(until - clock.monotonic(), MINIMUM)
        promised = self.backend.capabilities
        try:
            grant = self.backend.try_acquire(self.claim, timeout=timeout, interrupt=interrupt)
        except (BackendUnavailable, RequestInterrupted) as failure:
            self._disconnected()
            if not promised.keeps_place and isinstance(failure, BackendUnavailable):
                self._begin_anew()
            raise
        if grant is None and not promised.keeps_place:
            self._begin_anew()
        return grant

    def wait(self, timeout: float, interrupt: int | None) -> None:
        """See ``Backend.wait``; returns soon when it may be an earlier attempt of ours that keeps us out."""
        if self._unanswered:
            timeout = min(timeout, LONGEST_PAUSE)
        try:
            self.backend.wait(self.claim, timeout=timeout, interrupt=interrupt)
        except BackendUnavailable:
            self._disconnected()
            raise

    def give_back(self, grant: Grant | None, timeout: float, hold: float = 0.0) -> LockctlError | None:
        """Leave nothing at the server: neither *grant* nor a place in a queue. The failure, if it is not known."""
        until = clock.monotonic() + timeout
        given = self.claim if grant is None else grant.claim
        failure = self._leave(grant, timeout, hold)
        if failure is None:
            self._unanswered = [claim for claim in self._unanswered if claim.owner != given.owner]
        elif not hold:  # a hold that did begin is not to be ended
            self._unanswered.append(given)
        self._begin_anew()
        if failure is None:
            self._repeat(until - clock.monotonic())
        return failure

    def _disconnected(self) -> None:
        """Where the lock is the connection's, a failure has cost us the place, and what is left is ended by another."""
        if self.backend.capabilities.connection_held:
            self._unanswered.append(self.claim)
            self._begin_anew()

    def _leave(self, grant: Grant | None, timeout: float, hold: float) -> LockctlError | None:
        try:
            if grant is not None:
                self.backend.release(grant, timeout=timeout, hold=hold)
            else:
                self.backend.withdraw(self.claim, timeout=timeout)
        except (BackendUnavailable, ConfigError) as failure:
            return failure
        return None

    def _begin_anew(self) -> None:
        del self._unanswered[:-MOST_UNANSWERED]
        self.claim = replace(self.claim, owner=os.urandom(16).hex())

    def _repeat(self, timeout: float) -> None:
        """Give back once more what was given back without an answer."""
        until = clock.monotonic() + timeout
        for claim in tuple(self._unanswered):
            left = until - clock.monotonic()
            if left <= 0:
                return
            try:
                self.backend.withdraw(claim, timeout=left)
            except BackendUnavailable:
                return
            except ConfigError:
                pass  # refused for good: it ends with its lease
            self._unanswered.remove(claim)


def _fitted(schedule: Schedule, grant: Grant) -> Schedule:
    """The schedule for the lease that was granted; raises ``ConfigError`` if it is too short for --kill-after."""
    try:
        return schedule.fitted(grant.ttl)
    except ValueError as wrong:
        asked = format_duration(grant.claim.ttl)
        remedy = "shorten --kill-after, or allow longer leases on the server"
        raise ConfigError(f"the server shortens the lease of {asked}: {wrong}; {remedy}") from None


def _sleep(pause: float, interrupt: int | None) -> None:
    import select  # few have to

    poll = select.poll()
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    poll.poll(pause * 1000 + 1)


def _stop_if_asked(ending_signal: Callable[[], int | None]) -> None:
    signum = ending_signal()
    if signum is not None:
        raise Interrupted(signum)
