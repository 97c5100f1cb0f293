"""What the guard decides, and when: events in, actions out, no process and no clock of its own.

::

    RUNNING --deadline near, revoked, max-runtime, keeper gone--> STOPPING --grace over--> KILLING
       |                                                             |                        |
       | command ended                                               | nobody left            |
       v                                                             v                        v
    SETTLING --still somebody--> STOPPING (kill) or LINGERING (wait) ------nobody left----> FINISHED

A certain loss goes to KILLING at once, unless asked otherwise. Renewals move the deadline at all
times, also while the job is being stopped: the lock is kept until nobody is left.
"""

from __future__ import annotations

from _signal import SIGCONT, SIGKILL

from lockctl import events
from lockctl.lease.schedule import HELD_UP, Schedule
from lockctl.supervise import job_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.supervise.job_events import Action, WatchEvent
    from lockctl.supervise.orders import Orders

RUNNING, SETTLING, LINGERING, STOPPING, KILLING, FINISHED = range(6)

SETTLE = 0.2  # seconds: helpers such as `> >(tee log)` end by themselves a moment after the command
REPEAT_KILL = 0.05  # seconds to the second round of SIGKILL: whoever appeared in between is caught
SLOWEST_REPEAT = 1.0  # seconds: what SIGKILL cannot end (another user's, stuck in a driver) is only waited for


class Watch:
    """The state of one job. Feed it events with the time; do what it returns; call again at :meth:`wake_at`."""

    def __init__(self, orders: Orders, schedule: Schedule, *, now: float, deadline: float) -> None:
        """The command was started at *now* under a lease with *deadline* (infinite without a lease)."""
        self._orders = orders
        self._schedule = schedule
        self._phase = RUNNING
        self._deadline = deadline
        self._kill_by = deadline
        self._settle_by = now
        self._again_at = now
        self._pause = REPEAT_KILL
        self._max_end = None if orders.max_runtime is None else now + orders.max_runtime
        self._halted = False
        self.status: int | None = None  # of the command, as from waitpid
        self.cause: str | None = None  # why the job was stopped; None: it was not

    @property
    def finished(self) -> bool:
        """Nothing more will happen."""
        return self._phase == FINISHED

    def on(self, event: WatchEvent, now: float) -> list[Action]:
        """Take one event that happened at *now*, in order; the actions it calls for, in order."""
        actions: list[Action] = []
        if self._phase == FINISHED:
            return actions
        if isinstance(event, job_events.GuardContinued) or now > self.wake_at() + HELD_UP:
            self._held_up(now)
        if isinstance(event, events.Renewed):
            self._deadline = max(self._deadline, event.deadline)
        elif isinstance(event, events.StopJob):
            actions += self._stop(event.cause, now, at_once=event.at_once)
        elif isinstance(event, job_events.KeeperGone):
            actions += self._stop(events.KEEPER_GONE, now, at_once=False)
        elif isinstance(event, job_events.PassSignal):
            actions.append(self._pass(event.signum))
        elif isinstance(event, job_events.CommandStopped):
            self._halted = True
        elif isinstance(event, job_events.CommandContinued):
            self._continued(now)
        elif isinstance(event, job_events.CommandEnded):
            actions += self._ended(event.status, now)
        elif isinstance(event, job_events.NobodyLeft) and self.status is not None:
            self._phase = FINISHED
            return [*actions, job_events.Finish()]
        return actions + self._due(now)

    def wake_at(self) -> float:
        """When time alone will call for something; infinite if never."""
        times = []
        if self._max_end is not None and self._phase in (RUNNING, SETTLING, LINGERING):
            times.append(self._max_end)
        if self._phase in (RUNNING, SETTLING, LINGERING) and not self._parked:
            times.append(self._schedule.signal_at(self._deadline))
        if self._phase == SETTLING:
            times.append(self._settle_by)
        if self._phase == STOPPING:
            times.append(min(self._kill_by, self._schedule.kill_at(self._deadline)))
        if self._phase == KILLING:
            times.append(self._again_at)
        return min(times, default=float("inf"))

    @property
    def _parked(self) -> bool:
        """Stopped by its user on a terminal, and the lock is safe in the kernel: no time passes."""
        return self._halted and self._orders.on_terminal and self._orders.kernel_held

    def _continued(self, now: float) -> None:
        if self._parked:
            self._held_up(now)
        self._halted = False

    def _held_up(self, now: float) -> None:
        """Time has passed in which the keeper was stopped, too: a lock that the kernel has was not lost by it."""
        if self._orders.kernel_held:  # the keeper gets a whole lease to be heard again
            self._deadline = max(self._deadline, self._schedule.deadline(now, self._schedule.ttl))

    def _pass(self, signum: int) -> Action:
        if self.status is not None:
            return job_events.SignalTree(signum)  # the command is gone: whoever outlived it
        return job_events.SignalCommand(signum)

    def _ended(self, status: int, now: float) -> list[Action]:
        self.status = status
        self._continued(now)
        if self._phase != RUNNING:
            return []
        if now >= self._deadline and not self._orders.kernel_held:
            self.cause = events.LOST  # all of us were paused: its last steps may have been under another's lock
        if self._orders.leftover == "leave":
            self._phase = FINISHED
            return [job_events.Finish()]
        self._phase = SETTLING
        self._settle_by = now + SETTLE
        return []

    def _stop(self, cause: str, now: float, *, at_once: bool) -> list[Action]:
        running = self.status is None or self._orders.leftover == "wait"  # then what is left is a part of the job
        if running and (self.cause is None or (cause == events.LOST and at_once)):
            self.cause = cause  # the first cause counts, unless it has become worse
        if at_once:
            return self._kill(now)
        if self._phase in (STOPPING, KILLING):
            return []
        self._continued(now)  # by the SIGCONT that follows
        told: list[Action] = [] if running or self._phase != SETTLING else [job_events.TellLeftovers()]
        self._phase = STOPPING
        self._kill_by = now + self._schedule.grace
        return [*told, job_events.SignalTree(self._orders.first_signal), job_events.SignalTree(SIGCONT)]

    def _kill(self, now: float) -> list[Action]:
        self._phase = KILLING
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, SLOWEST_REPEAT)
        return [job_events.SignalTree(SIGKILL)]

    def _due(self, now: float) -> list[Action]:
        if self._phase == KILLING:
            return self._kill(now) if now >= self._again_at else []
        if self._phase == STOPPING:
            limit = min(self._kill_by, self._schedule.kill_at(self._deadline))
            return self._kill(now) if now >= limit else []
        if self._phase == FINISHED:
            return []
        if not self._parked and now >= self._schedule.signal_at(self._deadline):
            return self._stop(events.LOST, now, at_once=now >= self._schedule.kill_at(self._deadline))
        if self._max_end is not None and now >= self._max_end:
            return self._stop(events.TIMED_OUT, now, at_once=False)
        if self._phase == SETTLING and now >= self._settle_by:
            if self._orders.leftover == "wait":
                self._phase = LINGERING
                return []
            return [job_events.TellLeftovers(), *self._stop_leftovers(now)]
        return []

    def _stop_leftovers(self, now: float) -> list[Action]:
        self._phase = STOPPING
        self._kill_by = now + self._schedule.grace
        return [job_events.SignalTree(self._orders.first_signal), job_events.SignalTree(SIGCONT)]
