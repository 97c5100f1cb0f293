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
    LockctlError,
    RequestInterrupted,
)
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT, LONGEST_PAUSE, MINIMUM, Attempts, StillHeld
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Claim, Grant

ACQUIRE_TIMEOUT = 10.0  # seconds for one attempt: long enough for a leader election, short for a cron job
HURRIED_TIMEOUT = 0.5  # seconds for giving it back after a signal, unless the server's answers take long
RETRY_PAUSE = 0.2  # seconds before a backend that failed is asked again, doubled each time up to LONGEST_PAUSE
FRESH = 0.75  # part of the time until the first signal that a lease has left when its job starts
MOST_INTERRUPTED = 10  # attempts, in a row, after the time for them was over


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
    still_held: Callable[[str], None] = lambda _: None,
) -> Lease | None:
    """The lease, or ``None`` when the lock was held by another until *wait* seconds had passed.

    *interrupt* is readable when a signal came; *ending_signal* then says which one ends the wait.
    *before_wait* is called once, when the lock was refused for the first time and is waited for, and *still_held* with
    the reason when something was granted in the end and could not be given back.
    A failing backend is asked again for up to ``ACQUIRE_TIMEOUT`` seconds, if *wait* is that long. So is one that
    has answered before and now lacks what a person must change: it may just be set up anew. One where no wait
    goes well does fail, although it tells who has the lock.
    Raises ``Interrupted`` (nothing is held, no queue entry is left, if the server still answers),
    ``BackendUnavailable``, ``ConfigError``.
    """
    give_up = now() + wait
    attempts, outage, waits = Attempts(backend, claim), _Outage(now, give_up), _Outage(now, give_up)
    grant, told = None, False
    try:
        while True:
            refused = False
            try:
                sent = now()
                grant = attempts.take(outage.begin(sent), interrupt)
                _stop_if_asked(ending_signal)
                left = give_up - now()
                if grant is not None:
                    lease = _fresh(backend, _begun(schedule, grant, sent, now), now, ending_signal)
                    _stop_if_asked(ending_signal)
                    if now() < lease.schedule.signal_at(lease.deadline):
                        return lease
                    # the answer took so long that hardly anything of the lease is left: not worth starting
                    if left <= 0:
                        raise BackendUnavailable("the lock was granted too late: its lease was almost over")
                    attempts.give_back(grant, attempts.give_back_limit(GIVE_BACK_TIMEOUT))
                    grant = None
                elif left <= 0:
                    _leave(attempts, None, GIVE_BACK_TIMEOUT, still_held)
                    return None
                outage.end()
                refused = True
                if not told:
                    before_wait()
                    told = True
                sent = now()
                attempts.wait(left, interrupt)
                waits.end()
            except RequestInterrupted:
                _stop_if_asked(ending_signal)
                outage.interrupted()
            except (BackendUnavailable, ConfigError) as failure:
                if isinstance(failure, ConfigError) and (grant is not None or not told):
                    raise
                if refused and backend.lined_up and now() - sent > LONGEST_PAUSE:
                    waits.end()  # it went well, and such waits ask no oftener than those that fail
                failing = waits if refused else outage
                left = failing.left(failure)
                if left <= 0 and (not refused or now() < give_up):
                    raise (failing.reason or failure) from None
                failing.pause(left, interrupt)
            _stop_if_asked(ending_signal)
    except BaseException as error:
        _leave(attempts, grant, HURRIED_TIMEOUT if isinstance(error, Interrupted) else GIVE_BACK_TIMEOUT, still_held)
        raise


def _leave(attempts: Attempts, grant: Grant | None, least: float, still_held: Callable[[str], None]) -> None:
    failure = attempts.give_back(grant, attempts.give_back_limit(least))
    if isinstance(failure, StillHeld):
        still_held(str(failure))


class _Outage:
    """How long a backend that fails is asked again: who came to wait outlasts a restart or the election of a leader."""

    def __init__(self, now: Callable[[], float], give_up: float) -> None:
        self._give_up = give_up  # when the wait for the lock is over in any case
        self._now = now
        self._until: float | None = None  # when a backend that fails now has failed for too long; None: it answers
        self._pause = RETRY_PAUSE
        self._interrupted = 0  # attempts that were, after that time
        self._is_last = False  # whether the attempt has no more time than to show whether the backend answers again
        self.reason: LockctlError | None = None  # of the failure

    def begin(self, sent: float) -> float:
        """An attempt is made at this time; how many seconds it may take."""
        if self._until is None:
            self._until = sent + ACQUIRE_TIMEOUT
        self._is_last = self._until - sent <= MINIMUM
        return max(self._until - sent, MINIMUM)

    def end(self) -> None:
        """The backend has answered."""
        self._until, self._pause, self._interrupted, self.reason = None, RETRY_PAUSE, 0, None

    def interrupted(self) -> None:
        """A signal that ends nothing broke an attempt off. Raises ``BackendUnavailable`` if it goes on for too long."""
        if self._until is not None and self._now() >= self._until:
            self._interrupted += 1
            if self._interrupted > MOST_INTERRUPTED:
                raise BackendUnavailable(f"no answer within {ACQUIRE_TIMEOUT:g} s: signals interrupt each request")

    def left(self, failure: LockctlError) -> float:
        """The backend has failed; for how many seconds it is asked again."""
        if self.reason is None or not self._is_last:
            self.reason = failure  # else it would be that a moment was too short
        if self._until is None:
            self._until = self._now() + ACQUIRE_TIMEOUT
        return min(self._until, self._give_up) - self._now()

    def pause(self, left: float, interrupt: int | None) -> None:
        """Before the next attempt: the last one is made when the time is over."""
        clock.pause(min(self._pause, max(left, 0.0)), interrupt)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _begun(schedule: Schedule, grant: Grant, sent: float, now: Callable[[], float]) -> Lease:
    """The lease by a request that was *sent* then. Raises ``ConfigError`` if it is too short."""
    fitted = _fitted(schedule, grant)
    return Lease(grant, fitted.deadline(sent - grant.age, grant.ttl), fitted, now() - sent)


def _fresh(backend: Backend, lease: Lease, now: Callable[[], float], ending_signal: Callable[[], int | None]) -> Lease:
    """The lease, renewed if much of it was over when it was granted: a healthy job needs time for a late answer.

    Raises ``BackendUnavailable`` when it was lost again, and ``Interrupted``.
    """
    schedule, late = lease.schedule, 0
    enough = FRESH * schedule.signal_at(schedule.deadline(0.0, lease.grant.ttl))
    while schedule.request_timeout:
        sent = now()
        left = schedule.signal_at(lease.deadline) - sent
        if left <= 0 or left >= enough:
            break
        try:
            grant = backend.renew(lease.grant, timeout=schedule.renewal_timeout(sent, lease.deadline, late))
        except LeaseRevoked:
            grant = lease.grant  # it was prolonged; the keeper is told again
        except LeaseLost as lost:
            raise BackendUnavailable(f"the lock was lost before the command could start: {lost}") from None
        except (BackendUnavailable, ConfigError):
            _stop_if_asked(ending_signal)
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
