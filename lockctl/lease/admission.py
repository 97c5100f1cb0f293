"""Whether a run that has the lock may start: not if its command succeeded before, or a resource refuses its token."""

from __future__ import annotations

from lockctl import clock as clocks
from lockctl.lease import period
from lockctl.lease.acquire import ACQUIRE_TIMEOUT, Lease
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT, MINIMUM, give_back_limit
from lockctl.lease.conclude import insist, release, remember
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.model import Outcome


def skip(
    backend: Backend, lease: Lease, outcome: Outcome, span: float, clock: clocks.Clock, note: Callable[[str, str], None]
) -> Outcome | None:
    """The outcome of a run whose command already succeeded in this period of *span* seconds; ``None``: it may run.

    Asked while the lock is held, so that nobody can succeed between the question and the run. What the store
    says in too long a time is not believed: then ``BackendUnavailable`` is raised, with nothing held.
    """
    grant = lease.grant
    timeout = min(max(lease.schedule.signal_at(lease.deadline) - clock(), MINIMUM), ACQUIRE_TIMEOUT)
    try:
        last = insist(lambda left: backend.last_success(outcome.name, timeout=left), timeout, clock)
    except BaseException:
        release(backend, grant, give_back_limit(GIVE_BACK_TIMEOUT, lease.took), 0.0, clock, note)
        raise
    if not period.is_done(last, grant.at, span):
        return None
    detail = f"skipped: the command already succeeded in the period since {clocks.utc(period.start_of(grant.at, span))}"
    outcome = replace(outcome, detail=detail)
    release(backend, grant, ACQUIRE_TIMEOUT, 0.0, clock, note)
    remember(backend, grant, outcome, note)
    return outcome


def show_token(
    backend: Backend,
    lease: Lease,
    outcome: Outcome,
    fence: Callable[[str, int, float], tuple[str, str] | None],
    clock: clocks.Clock,
    note: Callable[[str, str], None],
) -> Outcome | None:
    """The outcome of a run whose token was not accepted by the resource of --fence; ``None``: it may run.

    *fence* takes domain, token and a time limit in seconds, and gives the reason and one line about it if it failed.
    Whatever it raises is raised with nothing held.
    """
    grant = lease.grant
    timeout = min(max(lease.schedule.signal_at(lease.deadline) - clock(), MINIMUM), ACQUIRE_TIMEOUT)
    try:
        failed = fence(grant.domain, grant.token, timeout)
    except BaseException:
        release(backend, grant, give_back_limit(GIVE_BACK_TIMEOUT, lease.took), 0.0, clock, note)
        raise
    if failed is None:
        return None
    outcome = replace(outcome, kind="not_executed", token=grant.token, fence=failed[0], detail=failed[1])
    if not release(backend, grant, ACQUIRE_TIMEOUT, 0.0, clock, note):
        remember(backend, grant, outcome, note)
    return outcome
