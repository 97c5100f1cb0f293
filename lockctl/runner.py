"""The sentence that ``run`` is, once a guard waits for its orders: splay, take the lease, watch, release."""

from __future__ import annotations

import os
import select

from lockctl import clock as clocks
from lockctl import registry
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted
from lockctl.lease.acquire import ACQUIRE_TIMEOUT, GIVE_BACK_TIMEOUT, acquire
from lockctl.model import Claim
from lockctl.supervise.fork import Orders
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.clock import Clock
    from lockctl.lease.acquire import Lease
    from lockctl.lease.renew import Renewer
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Capabilities, LockInfo
    from lockctl.supervise.fork import GuardProcess
    from lockctl.supervise.keeper import Ending, Keeper
    from lockctl.supervise.signals import Signals
    from lockctl.url import Url

LOOK_TIMEOUT = 2.0  # seconds for seeing who holds the lock: a refused run is not held up for a message


class Request(Value):
    """One run, as the command line and the configuration want it. Spans in seconds."""

    name: str
    words: tuple[str, ...]
    url: Url
    host: str
    user: str
    schedule: Schedule
    wait: float
    splay: float
    first_signal: int
    leftover: str
    kill_on_loss: bool
    max_runtime: float | None
    correctness: bool
    run_unlocked: bool  # when the backend is out of reach


class Outcome(Value):
    """What became of a run. *kind* is one of the words of ``--report``."""

    kind: str
    name: str
    backend: str
    words: tuple[str, ...]
    host: str
    waited: float
    status: int | None = None  # of the command, as from waitpid
    error: int = 0  # errno of an exec that failed
    interrupted: int | None = None  # the signal that ended the wait
    token: int | None = None
    started_at: float | None = None  # wall clock
    duration: float | None = None
    seen: LockInfo | None = None  # who held it
    detail: str = ""
    leftovers: int = 0


def run(request: Request, guard: GuardProcess, signals: Signals, note: Callable[[str, str], None]) -> Outcome:
    """Run the guard's command under one lock. Raises ``ConfigError``: then nothing ran."""
    capabilities = registry.capabilities_of(request.url)
    _check_guarantee(request, capabilities)
    clock = clocks.monotonic if capabilities.kernel_held else clocks.boottime
    outcome = Outcome("held", request.name, capabilities.scheme, request.words, request.host, 0.0)
    orders = Orders(
        first_signal=request.first_signal,
        leftover=request.leftover,
        max_runtime=request.max_runtime,
        kernel_held=capabilities.kernel_held,
        on_terminal=guard.on_terminal,
    )

    def start(schedule: Schedule, environment: list[str], descriptor: int | None) -> Keeper:
        guard.start(orders.encode(schedule), environment, descriptor)
        from lockctl.supervise.keeper import Keeper  # while the guard starts the command

        return Keeper(
            guard,
            signals,
            clock,
            schedule,
            kill_on_loss=request.kill_on_loss,
            note=note,
        )

    return _under_lock(request, outcome, capabilities, clock, signals, guard, start, note)


def _under_lock(
    request: Request,
    outcome: Outcome,
    capabilities: Capabilities,
    clock: Clock,
    signals: Signals,
    guard: GuardProcess,
    start: Callable[[Schedule, list[str], int | None], Keeper],
    note: Callable[[str, str], None],
) -> Outcome:
    started_waiting = clock()
    lease: Lease | None = None
    try:
        _sleep(request.splay, signals)
        started_waiting = clock()
        backend = registry.open_backend(request.url)
        claim = _claim(request)
        lease = acquire(
            backend,
            claim,
            schedule=request.schedule,
            wait=request.wait,
            now=clock,
            interrupt=signals.descriptor,
            ending_signal=signals.ending,
        )
    except Interrupted as stop:
        return replace(outcome, interrupted=stop.signum, waited=clock() - started_waiting, detail=str(stop))
    except BackendUnavailable as unknown:
        outcome = replace(outcome, kind="unavailable", waited=clock() - started_waiting, detail=str(unknown))
        if not request.run_unlocked:
            return outcome
        note("warning", f"RUNNING WITHOUT A LOCK: {unknown}")
        return _run_unlocked(outcome, request.schedule, start, clock)
    outcome = replace(outcome, waited=clock() - started_waiting)
    if lease is None:
        return replace(outcome, seen=_look(backend, request.name))
    grant = lease.grant
    note("debug", f"acquired {grant.key} with token {grant.token}")
    environment = [
        f"LOCKCTL_LOCK={request.name}",
        f"LOCKCTL_TOKEN={grant.token}",
        f"LOCKCTL_FENCING={capabilities.fencing}",
        f"LOCKCTL_TOKEN_DOMAIN={grant.domain}",
        f"LOCKCTL_OWNER={claim.owner}",
        f"LOCKCTL_BACKEND={capabilities.scheme}",
        f"LOCKCTL_TTL={grant.ttl:g}",
    ]
    started, started_at = clock(), clocks.wall()
    guard.tell_deadline(lease.deadline)
    keeper = start(lease.schedule, environment, grant.descriptor)

    def make_renewer() -> Renewer:
        from lockctl.lease.renew import Renewer

        return Renewer(backend, lease, clock)

    ending = keeper.run(lease.deadline, make_renewer)
    duration = clock() - started
    if keeper.stop_renewing(lease.schedule.request_timeout + lease.schedule.margin):
        try:
            # past its deadline the lease ends by itself: then it is not worth a long wait for the answer
            left = lease.deadline if keeper.deadline is None else keeper.deadline
            backend.release(grant, timeout=min(max(left - clock(), GIVE_BACK_TIMEOUT), ACQUIRE_TIMEOUT))
        except (BackendUnavailable, ConfigError) as failure:
            note("warning", f"could not release the lock, it ends with its lease: {failure}")
    else:
        note("warning", "a renewal is stuck: the lock was not released, it ends with its lease")
    return _ended(replace(outcome, token=grant.token, started_at=started_at, duration=duration), ending)


def _run_unlocked(
    outcome: Outcome, schedule: Schedule, start: Callable[[Schedule, list[str], int | None], Keeper], clock: Clock
) -> Outcome:
    started, started_at = clock(), clocks.wall()
    ending = start(schedule, [], None).run(None, None)
    return _ended(replace(outcome, started_at=started_at, duration=clock() - started), ending)


def _ended(outcome: Outcome, ending: Ending) -> Outcome:
    outcome = replace(outcome, status=ending.status, leftovers=ending.leftovers, error=ending.error)
    if ending.error:
        return replace(outcome, kind="not_executed", duration=None)
    from lockctl.events import GUARD_GONE, LOST, REVOKED, TIMED_OUT

    kinds = {LOST: "lost", REVOKED: "revoked", TIMED_OUT: "timed_out"}
    if ending.cause in kinds:
        return replace(outcome, kind=kinds[ending.cause], detail=ending.detail)
    detail = ending.detail if ending.cause == GUARD_GONE else ""
    exited = ending.status is not None and os.WIFEXITED(ending.status)
    return replace(outcome, kind="exited" if exited else "signaled", detail=detail)


def _check_guarantee(request: Request, capabilities: Capabilities) -> None:
    if request.correctness:
        refusals = {
            f"the tokens of {capabilities.scheme} are not a promise ({capabilities.fencing})": (
                capabilities.fencing != "strict"
            ),
            "--leftover leave lets processes run on outside the lock": request.leftover == "leave",
            "--on-unavailable run runs without a lock": request.run_unlocked,
        }
        for reason, applies in refusals.items():
            if applies:
                message = f"--guarantee correctness is not met: {reason}"
                raise ConfigError(message)


def _claim(request: Request) -> Claim:
    return Claim(
        name=request.name,
        owner=os.urandom(16).hex(),
        ttl=request.schedule.ttl,
        host=request.host,
        pid=os.getpid(),
        user=request.user,
        command=request.words,
    )


def _look(backend: Backend, name: str) -> LockInfo | None:
    try:
        return backend.inspect(name, timeout=LOOK_TIMEOUT)
    except (BackendUnavailable, ConfigError):
        return None


def _sleep(splay: float, signals: Signals) -> None:
    if not splay:
        return
    until = clocks.boottime() + splay * int.from_bytes(os.urandom(4), "little") / 0xFFFFFFFF
    poll = select.poll()
    poll.register(signals.descriptor, select.POLLIN)
    while (left := until - clocks.boottime()) > 0:
        poll.poll(min(left, 1.0) * 1000 + 1)
        signum = signals.ending()
        if signum is not None:
            raise Interrupted(signum)
