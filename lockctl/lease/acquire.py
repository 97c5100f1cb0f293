"""Taking the lock: the only loop that waits for one."""

from __future__ import annotations

from lockctl import clock
from lockctl.durations import format_duration
from lockctl.errors import (
    BackendUnavailable,
    ConfigError,
    Interrupted,
    LeaseLost,
    LeaseRevoked,
    RequestInterrupted,
)
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT, LONGEST_PAUSE, MINIMUM, Attempts
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Claim, Grant

ACQUIRE_TIMEOUT = 10.0  # seconds for one attempt: long enough for a leader election, short for a cron job
HURRIED_TIMEOUT = 0.5  # seconds for giving it back after a signal
RETRY_PAUSE = 0.2  # seconds before a backend that failed is asked again, doubled each time up to LONGEST_PAUSE
FRESH = 0.75  # part of the time until the first signal that a lease has left when its job starts


class Lease(Value):
    """A grant with its deadline on our own clock (seconds), and the schedule for the ttl that was granted."""

    grant: Grant
    deadline: float
    schedule: Schedule
    took: float = 0.0  # seconds of the request that was granted


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
                    lease = Lease(grant, fitted.deadline(sent, grant.ttl), fitted, now() - sent)
                    lease = _fresh(backend, lease, now)
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
                clock.pause(min(pause, max(left, 0.0)), interrupt)  # the last attempt is made when the time is over
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
            clock.pause(MINIMUM)
            continue
        return Lease(grant, schedule.deadline(sent, grant.ttl), schedule, lease.took)
    return lease


def _fitted(schedule: Schedule, grant: Grant) -> Schedule:
    """The schedule for the lease that was granted; raises ``ConfigError`` if it is too short for --kill-after."""
    try:
        return schedule.fitted(grant.ttl)
    except ValueError as wrong:
        asked = format_duration(grant.claim.ttl)
        remedy = "shorten --kill-after, or allow longer leases on the server"
        raise ConfigError(f"the server shortens the lease of {asked}: {wrong}; {remedy}") from None


def _stop_if_asked(ending_signal: Callable[[], int | None]) -> None:
    signum = ending_signal()
    if signum is not None:
        raise Interrupted(signum)
