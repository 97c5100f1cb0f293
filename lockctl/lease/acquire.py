"""Taking the lock: the only loop that waits for one."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, Interrupted
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Claim, Grant

ACQUIRE_TIMEOUT = 10.0  # seconds for one attempt: long enough for a leader election, short for a cron job


class Lease(Value):
    """A grant with its deadline on our own clock (seconds)."""

    grant: Grant
    deadline: float


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
    Raises ``Interrupted`` (nothing is held, no queue entry is left), ``BackendUnavailable``,
    ``ConfigError``.
    """
    give_up = now() + wait
    grant = None
    try:
        while True:
            sent = now()
            grant = backend.try_acquire(claim, timeout=ACQUIRE_TIMEOUT)
            _stop_if_asked(ending_signal)
            if grant is not None:
                lease = Lease(grant, schedule.deadline(sent, grant.ttl))
                if now() < schedule.signal_at(lease.deadline):
                    return lease
                # the answer took so long that hardly anything of the lease is left: not worth starting
                backend.release(grant, timeout=ACQUIRE_TIMEOUT)
                grant = None
            left = give_up - now()
            if left <= 0:
                _give_back(backend, claim, None)
                return None
            backend.wait(claim, timeout=left, interrupt=interrupt)
            _stop_if_asked(ending_signal)
    except BaseException:
        _give_back(backend, claim, grant)
        raise


def _stop_if_asked(ending_signal: Callable[[], int | None]) -> None:
    signum = ending_signal()
    if signum is not None:
        raise Interrupted(signum)


def _give_back(backend: Backend, claim: Claim, grant: Grant | None) -> None:
    try:
        if grant is not None:
            backend.release(grant, timeout=ACQUIRE_TIMEOUT)
        backend.withdraw(claim, timeout=ACQUIRE_TIMEOUT)
    except BackendUnavailable:
        return  # out of reach: the entry ends with its own lease at the server
