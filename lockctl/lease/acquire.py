"""Taking the lock: the only loop that waits for one."""

from __future__ import annotations

from lockctl import loading
from lockctl.durations import format_duration
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, RequestInterrupted
from lockctl.value import Value

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
MINIMUM = 0.1  # seconds: an attempt with less could not succeed


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
) -> Lease | None:
    """The lease, or ``None`` when the lock was held by another until *wait* seconds had passed.

    *interrupt* is readable when a signal came; *ending_signal* then says which one ends the wait.
    A failing backend is asked again for up to ``ACQUIRE_TIMEOUT`` seconds, if *wait* is that long.
    Raises ``Interrupted`` (nothing is held, no queue entry is left), ``BackendUnavailable``,
    ``ConfigError``.
    """
    give_up = now() + wait
    grant = None
    complete = False
    unreachable_at: float | None = None  # when a backend that fails now has failed for too long
    pause = RETRY_PAUSE
    try:
        while True:
            sent = now()
            if unreachable_at is None:
                unreachable_at = sent + ACQUIRE_TIMEOUT
            try:
                timeout = max(unreachable_at - sent, MINIMUM)
                grant = backend.try_acquire(claim, timeout=timeout, interrupt=interrupt)
                _stop_if_asked(ending_signal)
                left = give_up - now()
                if grant is not None:
                    fitted = _fitted(schedule, grant)
                    lease = Lease(grant, fitted.deadline(sent, grant.ttl), fitted)
                    if now() < fitted.signal_at(lease.deadline):
                        return lease
                    # the answer took so long that hardly anything of the lease is left: not worth starting
                    if left <= 0:
                        raise BackendUnavailable("the lock was granted too late: hardly anything of the lease was left")
                    backend.release(grant, timeout=GIVE_BACK_TIMEOUT)
                    grant = None
                elif left <= 0:
                    _give_back(backend, claim, None, GIVE_BACK_TIMEOUT)
                    return None
                unreachable_at, pause = None, RETRY_PAUSE
                if not complete:
                    loading.load_rest()  # the wait may last longer than this program is there
                    complete = True
                backend.wait(claim, timeout=left, interrupt=interrupt)
            except RequestInterrupted:
                pass  # which signal it was is asked below
            except BackendUnavailable:
                # who came to wait outlasts a server's restart or the election of a leader
                if unreachable_at is None:
                    unreachable_at = now() + ACQUIRE_TIMEOUT
                if min(unreachable_at, give_up) - now() <= pause:
                    raise
                _sleep(pause, interrupt)
                pause = min(2 * pause, LONGEST_PAUSE)
            _stop_if_asked(ending_signal)
    except BaseException as error:
        hurried = isinstance(error, Interrupted)
        _give_back(backend, claim, grant, HURRIED_TIMEOUT if hurried else GIVE_BACK_TIMEOUT)
        raise


def _fitted(schedule: Schedule, grant: Grant) -> Schedule:
    """The schedule for the lease that was granted; raises ``ConfigError`` if it is too short for --kill-after."""
    try:
        return schedule.fitted(grant.ttl)
    except ValueError as wrong:
        asked = format_duration(grant.claim.ttl)
        raise ConfigError(f"the server cuts the lease of {asked} short: {wrong}") from None


def _sleep(pause: float, interrupt: int | None) -> None:
    import select  # few have to

    poll = select.poll()
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    poll.poll(pause * 1000)


def _stop_if_asked(ending_signal: Callable[[], int | None]) -> None:
    signum = ending_signal()
    if signum is not None:
        raise Interrupted(signum)


def _give_back(backend: Backend, claim: Claim, grant: Grant | None, timeout: float) -> None:
    try:
        if grant is not None:
            backend.release(grant, timeout=timeout)
        backend.withdraw(claim, timeout=timeout)
    except (BackendUnavailable, ConfigError):
        return  # out of reach: what is left there ends with its own lease
