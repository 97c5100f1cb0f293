"""The sentence that ``run`` is, once a guard waits for its orders: splay, take the lease, watch, release.

What is special to some runs is in ``lease/together`` (several locks) and ``lease/afterwards`` (what is kept of a
run when it has ended).
"""

from __future__ import annotations

import os

from lockctl import clock as clocks
from lockctl import kernel, loading, registry
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted
from lockctl.lease.acquire import acquire
from lockctl.lease.schedule import LONGEST_PATIENCE
from lockctl.model import Outcome
from lockctl.supervise.orders import Orders
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.clock import Clock
    from lockctl.fence.entrance import Entrance
    from lockctl.lease.acquire import Lease
    from lockctl.lease.renew import Renewer
    from lockctl.lease.schedule import Schedule
    from lockctl.model import Capabilities, LockInfo
    from lockctl.request import Request
    from lockctl.supervise.fork import GuardProcess
    from lockctl.supervise.keeper import Ending, Keeper
    from lockctl.supervise.signals import Signals

UNCONTAINED = (
    "--contain: this system allows no pid namespace with a /proc of its own ({}): start lockctl as root with"
    " CAP_SYS_ADMIN, or as another user where user namespaces are allowed"
)
LOOK_TIMEOUT = 2.0  # seconds for seeing who holds the lock: a refused run is not held up for a message


def run(
    request: Request,
    guard: GuardProcess,
    signals: Signals,
    note: Callable[..., None],
    begin_wait: Callable[[Backend], Callable[[], None]],
) -> Outcome:
    """Run the guard's command under one lock. Raises ``ConfigError``: then nothing ran.

    *begin_wait* is called when the lock is held by another and is waited for, and what it returns when that is over.
    """
    capabilities = registry.capabilities_of(request.url)
    request.check(capabilities)
    fence = None
    if request.fence is not None:
        from lockctl.fence.entrance import Entrance

        fence = Entrance(request.fence, signals.descriptor, signals.ending, correctness=request.correctness)
    clock = clocks.monotonic if capabilities.kernel_held else clocks.boottime
    timer = kernel.timer_descriptor(clock.clock_id)  # who cannot have one is refused before the command runs
    labels = request.labels
    outcome = Outcome("held", request.name, capabilities.scheme, request.words, request.host, 0.0, labels=labels)
    orders = Orders(
        first_signal=request.first_signal,
        leftover=request.leftover,
        max_runtime=request.max_runtime,
        kernel_held=capabilities.kernel_held,
        on_terminal=guard.on_terminal,
        kill_on_loss=request.kill_on_loss,
        contain=request.contain,
    )

    def start(schedule: Schedule, environment: list[str], descriptors: tuple[int, ...]) -> Keeper:
        guard.start(orders.encode(schedule), environment, descriptors)
        loading.load(loading.WATCH)
        from lockctl.supervise.keeper import Keeper  # while the guard starts the command

        return Keeper(
            guard,
            signals,
            clock,
            timer,
            schedule,
            kernel_held=capabilities.kernel_held,
            kill_on_loss=request.kill_on_loss,
            note=note,
        )

    return _under_lock(request, outcome, capabilities, clock, signals, guard, start, note, begin_wait, fence)


def _under_lock(
    request: Request,
    outcome: Outcome,
    capabilities: Capabilities,
    clock: Clock,
    signals: Signals,
    guard: GuardProcess,
    start: Callable[[Schedule, list[str], tuple[int, ...]], Keeper],
    note: Callable[..., None],
    begin_wait: Callable[[Backend], Callable[[], None]],
    fence: Entrance | None,
) -> Outcome:
    started_waiting = clock()
    lease: Lease | None = None
    try:
        _sleep(request.splay, signals)
        started_waiting = clock()
        backend = _open(request)
        lease = _acquire(request, backend, clock, signals, begin_wait)
        taken_at = clock()
        if lease is not None and request.once_per is not None:
            from lockctl.lease import afterwards

            outcome = replace(outcome, waited=taken_at - started_waiting)
            skipped = afterwards.skip(backend, lease, outcome, request.once_per, clock, note)
            if skipped is not None:
                return skipped
        if lease is not None and fence is not None:
            from lockctl.lease import afterwards

            outcome = replace(outcome, waited=taken_at - started_waiting)
            fenced_off = afterwards.show_token(backend, lease, outcome, fence, clock, note)
            if fenced_off is not None:
                return fenced_off
    except Interrupted as stop:
        return replace(outcome, interrupted=stop.signum, waited=clock() - started_waiting, detail=str(stop))
    except BackendUnavailable as unknown:
        outcome = replace(outcome, kind="unavailable", waited=clock() - started_waiting, detail=str(unknown))
        if not request.run_unlocked:
            return outcome
        return _run_unlocked(outcome, request.schedule, start, clock, note)
    outcome = replace(outcome, waited=clock() - started_waiting)
    if lease is not None:
        outcome = replace(outcome, acquired_in=lease.took)
    else:
        seen = _look(backend, getattr(backend, "refused", request.name)) if request.says_holder else None
        return replace(outcome, seen=seen, detail="" if seen and seen.holders else getattr(backend, "closed_by", ""))
    grant = lease.grant
    started, started_at = clock(), clocks.wall()
    guard.tell_deadline(lease.deadline)
    held = [part.descriptor for part in grant.parts or (grant,)]
    descriptors = tuple([descriptor for descriptor in held if descriptor is not None])
    variables = request.variables(capabilities, grant)
    if fence is not None:
        variables += fence.variables(grant.domain, grant.token, request.pgoptions)
    keeper = start(lease.schedule, variables, descriptors)
    acquired = f"acquired {grant.key} with token {grant.token}"
    note("debug", acquired, "acquired", token=grant.token, seconds=outcome.waited)
    from lockctl.lease import afterwards  # while another processor starts the command

    def make_renewer() -> Renewer:
        from lockctl.lease.renew import Renewer

        return Renewer(backend, lease, clock)

    ending = keeper.run(lease.deadline, make_renewer, () if capabilities.kernel_held else descriptors)
    duration = clock() - started
    outcome = _ended(replace(outcome, token=grant.token, started_at=started_at, duration=duration), ending)
    deadline = lease.deadline if keeper.deadline is None else keeper.deadline
    longest = max(deadline - clock(), lease.schedule.request_timeout)
    if not keeper.stop_renewing(min(longest, LONGEST_PATIENCE) + lease.schedule.margin):
        note("warning", "a renewal is stuck: the lock was not released; it becomes free when its lease ends")
        return replace(outcome, not_released="a renewal is stuck")
    plan = afterwards.Plan(request.once_per is not None, taken_at + request.min_hold, deadline, guard.released)
    outcome = replace(afterwards.conclude(backend, grant, outcome, plan, clock, note), held=clock() - taken_at)
    if not outcome.not_released:
        note("debug", f"released {grant.key}", "released", seconds=outcome.held)
    return outcome


def _acquire(
    request: Request,
    backend: Backend,
    clock: Clock,
    signals: Signals,
    begin_wait: Callable[[Backend], Callable[[], None]],
) -> Lease | None:
    ends: list[Callable[[], None]] = []

    def before_wait() -> None:
        _load_rest()
        ends.append(begin_wait(backend))

    try:
        return acquire(
            backend,
            request.claim(),
            schedule=request.schedule,
            wait=request.wait,
            now=clock,
            interrupt=signals.descriptor,
            ending_signal=signals.ending,
            before_wait=before_wait,
        )
    finally:
        for end in ends:
            end()


def _run_unlocked(
    outcome: Outcome,
    schedule: Schedule,
    start: Callable[[Schedule, list[str], tuple[int, ...]], Keeper],
    clock: Clock,
    note: Callable[..., None],
) -> Outcome:
    started, started_at = clock(), clocks.wall()
    keeper = start(schedule, [], ())
    note("warning", f"RUNNING WITHOUT A LOCK: {outcome.detail}")
    ending = keeper.run(None, None)
    return _ended(replace(outcome, started_at=started_at, duration=clock() - started), ending)


def _ended(outcome: Outcome, ending: Ending) -> Outcome:
    outcome = replace(
        outcome,
        status=ending.status,
        leftovers=ending.leftovers,
        left=ending.left,
        error=ending.error,
        asked_to_end=ending.asked_to_end,
        renewals=ending.renewals,
        renewal_failures=ending.renewal_failures,
    )
    if ending.error:
        refused = UNCONTAINED.format(os.strerror(ending.error)) if ending.uncontained else ""
        return replace(outcome, kind="not_executed", duration=None, detail=refused)
    from lockctl.events import GUARD_GONE, LOST, REVOKED, TIMED_OUT

    kinds = {LOST: "lost", REVOKED: "revoked", TIMED_OUT: "timed_out"}
    if ending.cause in kinds:
        return replace(outcome, kind=kinds[ending.cause], detail=ending.detail)
    detail = ending.detail if ending.cause == GUARD_GONE else ""
    exited = ending.status is not None and os.WIFEXITED(ending.status)
    return replace(outcome, kind="exited" if exited else "signaled", detail=detail)


def _open(request: Request) -> Backend:
    if len(request.locks) == 1:
        return registry.open_backend(request.url)
    from lockctl.lease.together import Together

    def client() -> Backend:
        return registry.open_backend(request.url)

    # its capabilities are those of an instance, not of a class
    together = Together(request.locks, client, request.schedule.interval)
    if together.capabilities.one_lock and len(set(request.locks)) > 1:
        message = "all names are the same lock with this URL: give --lock once, or remove key= from the URL"
        raise ConfigError(f"{together.capabilities.scheme}: {message}")
    return together  # type: ignore[return-value]


def _look(backend: Backend, name: str) -> LockInfo | None:
    try:
        return backend.inspect(name, timeout=LOOK_TIMEOUT)
    except (BackendUnavailable, ConfigError):
        return None


def _load_rest() -> None:
    """The wait may last longer than this program is there."""
    from lockctl.supervise.preload import load_rest

    load_rest()


def _sleep(splay: float, signals: Signals) -> None:
    if not splay:
        return
    signum = signals.pause(splay * int.from_bytes(os.urandom(4), "little") / 0xFFFFFFFF)
    if signum is not None:
        raise Interrupted(signum)
