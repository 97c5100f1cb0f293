"""A run, once a guard waits for its orders: prepare, acquire, admit, watch, conclude.

What is special to some runs is in ``lease/together`` (several locks), ``lease/admission`` (whether it may start) and
``lease/conclude`` (what is kept of a run when it has ended).
"""

from __future__ import annotations

import os

from lockctl import clock as clocks
from lockctl import kernel, loading, registry
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted
from lockctl.lease.acquire import Lease, acquire
from lockctl.lease.attempts import unreleased
from lockctl.lease.schedule import LONGEST_TIMEOUT, Schedule
from lockctl.model import EXCLUSIVE, LockInfo, Outcome
from lockctl.supervise.orders import Orders
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.fence.registration import Registrar
    from lockctl.lease.renew import Renewer
    from lockctl.request import Request
    from lockctl.supervise.fork import GuardProcess
    from lockctl.supervise.keeper import Keeper
    from lockctl.supervise.signals import Signals

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
    return _Run(request, guard, signals, note).go(begin_wait)


class _Run:
    """One run: prepare, acquire, admit, watch, conclude."""

    def __init__(self, request: Request, guard: GuardProcess, signals: Signals, note: Callable[..., None]) -> None:
        """Prepare everything that can be refused before the lock is taken. Raises ``ConfigError``, ``OSError``."""
        capabilities = registry.capabilities_of(request.url)
        self._fence: Registrar | None = None
        self._clock: clocks.Clock = clocks.monotonic if capabilities.kernel_held else clocks.boottime
        self._timer = kernel.timer_descriptor(self._clock.clock_id)  # who cannot have one is refused
        self._spare = [os.dup(self._timer)]  # for the files of modules that are loaded when the lock is taken
        self._request = request
        self._capabilities = capabilities
        self._guard = guard
        self._signals = signals
        self._note = note
        self._outcome = Outcome(
            "held", request.name, capabilities.scheme, request.words, request.host, 0.0, labels=request.labels
        )

    def go(self, begin_wait: Callable[[Backend], Callable[[], None]]) -> Outcome:
        """See :func:`run`."""
        request, clock = self._request, self._clock
        began = clock()
        try:
            if request.fence is not None:
                from lockctl.fence.registration import Registrar

                heard = self._signals.descriptor, self._signals.ending
                self._fence = Registrar(request.fence, *heard, correctness=request.correctness)
            _sleep(request.splay, self._signals)
            began = clock()
            backend = open_backend(request, self._signals)
            lease = self._acquire(backend, begin_wait)
            taken_at = clock()
            refused = None if lease is None else self._admit(backend, lease, taken_at - began)
            if refused is not None:
                return refused
        except Interrupted as stop:
            return replace(self._outcome, interrupted=stop.signum, waited=clock() - began, detail=str(stop))
        except BackendUnavailable as unknown:
            self._outcome = replace(self._outcome, kind="unavailable", waited=clock() - began, detail=str(unknown))
            return self._watch_unlocked() if request.run_unlocked else self._outcome
        waited = clock() - began
        if lease is None:
            self._guard.kill()  # it ends while we find out why, and takes no time from this
            loading.load(loading.REFUSED)
            seen = self._look(backend) if request.says_holder else None
            closed_by = "" if seen and seen.holders else getattr(backend, "closed_by", "")
            return replace(self._outcome, waited=waited, seen=seen, detail=closed_by)
        return self._watch(backend, lease, taken_at, waited)

    def _acquire(self, backend: Backend, begin_wait: Callable[[Backend], Callable[[], None]]) -> Lease | None:
        ends: list[Callable[[], None]] = []

        def before_wait() -> None:
            from lockctl.supervise.preload import load_rest

            load_rest()  # the wait may last longer than this program is there
            ends.append(begin_wait(backend))

        def still_held(failure: str) -> None:
            self._note("warning", unreleased(failure))
            self._outcome = replace(self._outcome, not_released=failure)

        try:
            return acquire(
                backend,
                self._request.claim(),
                schedule=self._request.schedule,
                wait=self._request.wait,
                now=self._clock,
                interrupt=self._signals.descriptor,
                ending_signal=self._signals.ending,
                before_wait=before_wait,
                still_held=still_held,
            )
        finally:
            for end in ends:
                end()

    def _look(self, backend: Backend) -> LockInfo | None:
        """Who holds the lock that was refused; ``None``: that cannot be known."""
        registry.load_more(self._capabilities.scheme, "LOOK", "locks.inspect")
        try:
            return backend.look(getattr(backend, "refused", self._request.name), timeout=LOOK_TIMEOUT)
        except (BackendUnavailable, ConfigError):
            return None

    def _admit(self, backend: Backend, lease: Lease, waited: float) -> Outcome | None:
        """The outcome of a run that may not start although it has the lock; ``None``: it may."""
        once_per, fence = self._request.once_per, self._fence
        if once_per is None and fence is None:
            return None
        self._free_spare()
        from lockctl.lease import admission

        outcome, refused = replace(self._outcome, waited=waited), None
        if once_per is not None:
            refused = admission.skip(backend, lease, outcome, once_per, self._clock, self._note)
        if refused is None and fence is not None:
            refused = admission.show_token(backend, lease, outcome, fence, self._clock, self._note)
        return refused

    def _free_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop())

    def _start(self, schedule: Schedule, added: list[str], descriptors: tuple[int, ...], token: int | None) -> Keeper:
        """Have the guard start the command; the keeper that watches over both."""
        request, kernel_held = self._request, self._capabilities.kernel_held
        orders = Orders(
            first_signal=request.first_signal,
            leftover=request.leftover,
            max_runtime=request.max_runtime,
            kernel_held=kernel_held,
            on_terminal=self._guard.on_terminal,
            kill_on_loss=request.kill_on_loss,
            contain=request.contain,
            token=token,
            unlocks=kernel_held and request.mode == EXCLUSIVE and not request.min_hold and request.once_per is None,
        )
        self._guard.start(orders, schedule, added, descriptors)
        self._free_spare()
        loading.load(loading.WATCH)
        registry.load_more(self._capabilities.scheme, "RECORDS", "locks.records")
        from lockctl.supervise.keeper import Keeper  # while the guard starts the command
        from lockctl.supervise.liveness import Liveness

        live = Liveness(schedule, kernel_held=kernel_held, kill_on_loss=request.kill_on_loss)
        return Keeper(self._guard, self._signals, self._clock, self._timer, live, self._note)

    def _watch(self, backend: Backend, lease: Lease, taken_at: float, waited: float) -> Outcome:
        """Run the command under *lease* to its end, and conclude."""
        grant, clock, note = lease.grant, self._clock, self._note
        started, started_at = clock(), clocks.wall()
        self._guard.tell_deadline(lease.deadline)
        held = [part.descriptor for part in grant.parts or (grant,)]
        descriptors = tuple([descriptor for descriptor in held if descriptor is not None])
        variables = self._request.variables(self._capabilities, grant)
        if self._fence is not None:
            variables += self._fence.variables(grant.domain, grant.token, self._request.pgoptions)
        keeper = self._start(lease.schedule, variables, descriptors, grant.token)
        acquired = f"acquired {grant.key} with token {grant.token}"
        note("debug", acquired, "acquired", token=grant.token, seconds=waited)
        from lockctl.lease import conclude  # while another processor starts the command
        from lockctl.supervise.ending import ended

        def make_renewer() -> Renewer:
            from lockctl.lease.renew import Renewer

            return Renewer(backend, lease, clock)

        connections = () if self._capabilities.kernel_held else descriptors
        ending = keeper.run(lease.deadline, make_renewer, connections)
        ran = {"waited": waited, "acquired_in": lease.took, "started_at": started_at, "duration": clock() - started}
        outcome = ended(self._outcome, ending, self._request.ends, token=grant.token, **ran)
        deadline = lease.deadline if keeper.deadline is None else keeper.deadline
        longest = max(deadline - clock(), lease.schedule.request_timeout)
        if not keeper.stop_renewing(min(longest, LONGEST_TIMEOUT) + lease.schedule.margin):
            note("warning", "a renewal is stuck: the lock was not released; it becomes free when its lease ends")
            return replace(outcome, not_released="a renewal is stuck")
        if self._request.ends:
            from lockctl.lease import last_look

            outcome = last_look.look(backend, grant, outcome)
        keep_until = taken_at + self._request.min_hold
        plan = conclude.Plan(self._request.once_per is not None, keep_until, deadline)
        outcome = replace(conclude.conclude(backend, grant, outcome, plan, clock, note), held=clock() - taken_at)
        if not outcome.not_released:
            note("debug", f"released {grant.key}", "released", seconds=outcome.held)
        return outcome

    def _watch_unlocked(self) -> Outcome:
        """Run the command without a lock, as ``on_unavailable = "run"`` wants it."""
        started, started_at = self._clock(), clocks.wall()
        keeper = self._start(self._request.schedule, [], (), None)
        self._note("warning", f"RUNNING WITHOUT A LOCK: {self._outcome.detail}")
        ending = keeper.run(None, None)
        from lockctl.supervise.ending import ended

        return ended(self._outcome, ending, started_at=started_at, duration=self._clock() - started)


def open_backend(request: Request, signals: Signals | None = None) -> Backend:
    """The backend of all its locks; it connects when it is first used. Raises as ``registry.open_backend`` does."""

    def open_one() -> Backend:
        return registry.open_backend(request.url, *(() if signals is None else (signals.descriptor, signals.ending)))

    if len(request.locks) == 1:
        return open_one()
    from lockctl.lease.together import Together

    # its capabilities are those of an instance, not of a class
    return Together(request.locks, open_one, request.schedule.interval)  # type: ignore[return-value]


def _sleep(splay: float, signals: Signals) -> None:
    signum = signals.pause(splay * int.from_bytes(os.urandom(4), "little") / 0xFFFFFFFF) if splay else None
    if signum is not None:
        raise Interrupted(signum)
