"""What becomes of a lock when the job has ended: successes, holds, the release, and the history.

Loaded beside the start of the command, or before it when a run may be refused.
"""

from __future__ import annotations

import os
import time

from lockctl import clock as clocks
from lockctl import history  # noqa: F401 - backends need it afterwards, and now nobody waits
from lockctl.errors import BackendUnavailable, ConfigError, limit_reached
from lockctl.lease.acquire import ACQUIRE_TIMEOUT, RETRY_PAUSE
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT, LONGEST_PAUSE, MINIMUM, unreleased
from lockctl.model import Grant, Outcome, Run
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.backend import Backend
    from lockctl.clock import Clock

    T = TypeVar("T")

REMEMBER_TIMEOUT = 1.0  # seconds: a history is worth no more
GONE = ("lost", "revoked")  # outcomes after which the lock is another's, or was asked for by one


class Plan(Value):
    """What was asked for; points of time in seconds on the clock of the run."""

    note_success: bool  # for --once-per
    keep_until: float  # by --min-hold
    deadline: float  # of the lease


def conclude(
    backend: Backend, grant: Grant, outcome: Outcome, plan: Plan, clock: Clock, note: Callable[[str, str], None]
) -> Outcome:
    """Note a success, give the lock back or keep it by --min-hold, and add the run to the history."""

    def time_limit() -> float:
        # past its deadline the lease ends by itself: then it is not worth a long wait for the answer
        return min(max(plan.deadline - clock(), GIVE_BACK_TIMEOUT), ACQUIRE_TIMEOUT)

    if plan.note_success and outcome.kind == "exited" and outcome.status == 0:
        try:
            insist(lambda left: backend.note_success(grant, timeout=left), time_limit(), clock)
        except (BackendUnavailable, ConfigError) as failure:
            note("warning", f"could not record the success; the command may run again in this period: {failure}")
    hold = max(plan.keep_until - clock(), 0.0)
    if outcome.kind in GONE or outcome.error:
        hold = 0.0
    if hold or not hasattr(backend, "release_with_run"):
        not_released = release(backend, grant, time_limit(), hold, clock, note)
        added = False
    else:
        run, answers = _run(grant, outcome), [False]
        not_released = _give_back(
            lambda left: answers.append(backend.release_with_run(grant, run, timeout=left)), time_limit(), clock, note
        )
        added = answers[-1]
    if not_released:
        return replace(outcome, not_released=not_released)
    if not added:
        remember(backend, grant, outcome, note)
    return outcome


def release(
    backend: Backend, grant: Grant, timeout: float, hold: float, clock: Clock, note: Callable[[str, str], None]
) -> str:
    """Why the lock was not given back; empty if it was."""
    return _give_back(lambda left: backend.release(grant, timeout=left, hold=hold), timeout, clock, note)


def _give_back(request: Callable[[float], None], timeout: float, clock: Clock, note: Callable[[str, str], None]) -> str:
    try:
        insist(request, timeout, clock)
    except (BackendUnavailable, ConfigError) as failure:
        note("warning", unreleased(str(failure)))
        return str(failure)
    return ""


def insist(request: Callable[[float], T], timeout: float, clock: Clock) -> T:
    """The answer to a request that may be repeated until *timeout* seconds are over; each try has a limit.

    A server that restarts, or a connection that is reset, fails at once: without another try the end of a run would
    get lost in a moment for which a running job only waits. So it is where a right or a password is refused that was
    good when the lock was taken. A connection that has died silently never answers: so one try does not get all the
    time. Raises what the last try raised.
    """
    give_up, pause = clock() + timeout, RETRY_PAUSE
    while True:
        left = give_up - clock()
        try:
            return _asked(request, left / 2 if left > 2 * GIVE_BACK_TIMEOUT else max(left, MINIMUM))
        except (BackendUnavailable, ConfigError):
            if give_up - clock() <= pause:
                raise
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _asked(request: Callable[[float], T], timeout: float) -> T:
    """The answer. Where a limit of this host refuses the request, it is none: the run has come to what it has."""
    try:
        return request(timeout)
    except (OSError, MemoryError) as failure:
        limit = limit_reached(failure)
        if limit is None:
            raise
        raise BackendUnavailable(str(limit.strerror)) from None


def _run(grant: Grant, outcome: Outcome) -> Run:
    return Run(
        host=outcome.host,
        user=grant.claim.user,
        command=outcome.words,
        token=outcome.token,
        started_at=outcome.started_at,
        ended_at=clocks.wall(),
        duration=outcome.duration,
        waited=outcome.waited,
        outcome=outcome.kind,
        exit_code=None if outcome.status is None else _exit_code(outcome.status),
        detail=outcome.detail or None,
        labels=outcome.labels,
    )


def remember(backend: Backend, grant: Grant, outcome: Outcome, note: Callable[[str, str], None]) -> None:
    """Add the run to the history of each of its locks."""
    run = _run(grant, outcome)

    def add(timeout: float) -> None:
        for part in grant.parts or (grant,):
            own = run if run.token is None else replace(run, token=part.token)
            backend.remember(part.claim.name, own, timeout=timeout)

    try:
        _asked(add, REMEMBER_TIMEOUT)
    except (BackendUnavailable, ConfigError) as failure:
        note("info", f"the run was not recorded in the history: {failure}")


def _exit_code(status: int) -> int:
    """As a shell has it: 128+N for a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
