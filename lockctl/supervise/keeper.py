"""The keeper's part of a run: it receives signals, renews the leases, and watches over the guard.

The guard owns the deadline. If the guard is killed, or does not answer when the last deadline that it
confirmed has come near, the keeper ends the guard (the kernel then kills the command) and the rest of
the tree itself, whose orphans become its children.
"""

from __future__ import annotations

import gc
import os
import select
from _signal import SIGCHLD, SIGCONT, SIGHUP, SIGKILL

from lockctl import events, kernel
from lockctl.errors import GUARD_KILLED, BackendUnavailable
from lockctl.lease import lease_events
from lockctl.lease.schedule import HELD_UP
from lockctl.supervise import channel as wire
from lockctl.supervise import tree
from lockctl.supervise.ending import Ending
from lockctl.supervise.fork import OVER, WAITING, GuardProcess
from lockctl.supervise.liveness import NEVER, Liveness
from lockctl.supervise.signals import ENDS_A_PROGRAM, FATAL_TO_SELF, JOB_CONTROL, Signals, suspend
from lockctl.supervise.tree import SWEEP_PAUSE, UNENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.clock import Clock
    from lockctl.lease.renew import Renewer

CONTINUED_WITHIN = 0.05  # seconds in which a shell's SIGCONT has reached every process of the group
LOAD_AFTER = 0.5  # seconds: who runs longer may see this program replaced or removed
UNHELD = "the connection that held the lock has ended"
UNTOLD = "the guard process could not be told to stop the command"


class Keeper:
    """Watches over one job from the moment it may start."""

    def __init__(
        self,
        guard: GuardProcess,
        signals: Signals,
        clock: Clock,
        timer: int,
        live: Liveness,
        note: Callable[..., None],
    ) -> None:
        """*timer*: a descriptor, of the same *clock*; *note* takes a level, a line and an event."""
        self._guard = guard
        self._link = guard.link
        self._signals = signals
        self._clock = clock
        self._live = live
        self._on_terminal = guard.on_terminal
        self._note = note
        self._make_renewer: Callable[[], Renewer] | None = None
        self._renewer: Renewer | None = None
        self._poll = select.poll()
        self._timer = timer
        self._load_at = NEVER  # when the modules are loaded that are not needed yet
        self._command = 0
        self._status: int | None = None
        self._cause: str | None = None  # as the guard says
        self._error = 0
        self._refused = ""
        self._leftovers = 0
        self._left = ""
        self._asked_to_end = False
        self._halts = 0
        self._finished = False
        self._connections: tuple[int, ...] = ()

    @property
    def deadline(self) -> float | None:
        """What the guard was last told, in seconds on its clock."""
        return self._live.deadline

    @property
    def _strangers(self) -> frozenset[int]:
        return self._guard.strangers

    def run(
        self,
        deadline: float | None,
        make_renewer: Callable[[], Renewer] | None,
        connections: tuple[int, ...] = (),
    ) -> Ending:
        """Watch from the moment when the guard was told to start, until no process of the job is left.

        *deadline* is what the guard was told, ``None`` without a lease. *make_renewer* is called when the
        first renewal is due: most jobs end before. ``BackendUnavailable`` and ``OSError`` from it, which may load
        modules, count as a renewal that failed.
        The lock ends with any of *connections*; the guard watches them, too, but may be stopped just now.
        """
        self._signals.watch_children()
        self._guard.learn_strangers()  # some may have ended in the wait
        for descriptor in (self._signals.descriptor, self._link.fileno, self._timer):
            self._poll.register(descriptor, select.POLLIN)
        self._connections = connections
        wire.watch_ends(self._poll, connections)
        self._load_at = self._clock() + LOAD_AFTER
        if deadline is not None:
            self._make_renewer = make_renewer
            self._live.begin(self._clock(), deadline)
        gc.freeze()  # what is here already stays, and stays shared with the guard's memory
        gc.enable()
        self._error, self._refused = self._guard.unordered
        self._finished = self._error != 0
        while not self._finished:
            late = self._sleep()
            self._take_frames()
            if self._take_signals() or late:
                self._live.held_up(self._clock())
            self._take_reports()
            self._due()
        self._guard.job = WAITING if self._status is None else OVER
        return Ending(
            self._status,
            self._cause,
            self._live.detail,
            self._error,
            self._refused,
            self._leftovers,
            self._left,
            self._asked_to_end,
            self._live.renewals,
            self._live.failures,
        )

    def _sleep(self) -> bool:
        """Wait until there is something to do; whether we were held up beyond the time that was meant."""
        wake = min(self._load_at, self._live.wake_at())
        kernel.set_timer(self._timer, None if wake == NEVER else wake)
        ready = [descriptor for descriptor, _ in self._poll.poll()]
        kernel.clear_timer(self._timer)
        if not set(self._connections).isdisjoint(ready):
            for descriptor in self._connections:
                self._poll.unregister(descriptor)
            self._connections = ()
            self._do(self._live.lose(self._clock(), UNHELD))
        return self._clock() > wake + HELD_UP

    def _take_frames(self) -> None:
        halted = 0
        for kind, values, _ in self._link.receive():
            self._live.heard(self._clock())
            if kind == wire.ACK:
                self._live.confirmed(self._clock(), *values)
            elif kind == wire.STARTED:
                if self._take_signals():  # while it counts that they may have come before the command was there
                    self._live.held_up(self._clock())
                (self._command,) = values
                self._note("debug", f"started as pid {self._command}", "started")
            elif kind == wire.FAILED:
                self._error, self._refused = values
                self._finished = True
            elif kind == wire.HALTED:
                halted, self._halts = values
            elif kind in (wire.CAUSE, wire.KILLED, wire.LEFTOVERS):
                self._learn_stop(kind, values)
            elif kind == wire.UNHELD:
                self._do(self._live.lose(self._clock(), UNHELD))
            elif kind == wire.ENDED:
                (self._status,) = values
            elif kind == wire.FINISHED:
                (status,) = values
                self._status = self._status if status is None else status
                self._finished = True
        if not (self._link.open or self._finished or self._guard.ordered):
            self._error, self._finished = GUARD_KILLED, True  # in the wait for the lock: nothing runs
        elif not (self._link.open or self._finished):
            self._take_over(events.GUARD_GONE, "the guard process was killed")
        elif halted and self._on_terminal:
            self._follow(halted)

    def _learn_stop(self, kind: str, values: tuple[Any, ...]) -> None:
        """What the guard says of stopping processes."""
        if kind == wire.LEFTOVERS:
            self._leftovers, self._left = values
        elif kind == wire.KILLED:
            self._note(*events.told_of_kill(*values))
        else:
            (self._cause,) = values
            if self._live.ordered is None:  # else it was said when it was ordered
                self._note("info", f"stopping the command: {self._cause}", "stopping")

    def _follow(self, signum: int) -> None:
        """The command was stopped on its terminal: stop too, so that the shell gets its prompt back."""
        if self._take_signals():  # we were stopped, too: whoever continued us is just continuing the command
            select.poll().poll(CONTINUED_WITHIN * 1000)
        state = tree.stat_fields(self._command)
        if state is None or state[0] not in (b"T", b"t"):
            return
        suspend(signum)
        self._take_signals()
        self._live.heard(self._clock())
        self._renew_now()

    def _take_signals(self) -> bool:
        """Pass on what was sent to us; whether we were continued (``SIGCONT``) in the meantime."""
        continued = False
        for signum, code, sender in self._signals.read():
            continued = continued or signum == SIGCONT
            if signum in ENDS_A_PROGRAM and sender != os.getpid():
                self._asked_to_end = True
            if signum == SIGCHLD:
                self._reap()
            elif self._is_ours_alone(signum, code, sender):
                continue
            elif self._link.send(wire.SIGNAL, signum, self._halts):
                self._note("debug", f"passing on signal {signum}", "signal")
        return continued

    def _is_ours_alone(self, signum: int, code: int, sender: int) -> bool:
        """Whether a signal is not to be passed on: our own doing, or the command has it already."""
        from_kernel = code == kernel.SI_KERNEL
        if sender == os.getpid() or (from_kernel and signum in FATAL_TO_SELF):
            return True
        if not self._command:
            return False  # it may not have been in our process group yet: better twice, in its first moment, than never
        if from_kernel and signum in JOB_CONTROL:
            return True  # the terminal stopped the whole group; when the command obeys, so shall we
        if not self._on_terminal:
            return False
        # the command shares our process group: what was sent to the group is not passed on again
        if from_kernel:
            hangup_for_leader = signum in (SIGHUP, SIGCONT) and os.getsid(0) == os.getpid()  # told to the leader alone
            return not hangup_for_leader
        return sender != 0 and sender in tree.descendants(self._guard.pid)

    def _take_reports(self) -> None:
        reports = [] if self._renewer is None else self._renewer.take()
        if reports:
            self._take_frames()  # the job may be over, and its lock given back by the guard: that is no loss
        for report in () if self._finished else reports:
            self._do(self._live.report(self._clock(), report))

    def _due(self) -> None:
        if self._finished:
            return
        now = self._clock()
        if now >= self._load_at:
            self._load_at = NEVER
            try:
                from lockctl.supervise.preload import load_rest

                load_rest()
            except OSError:
                pass  # no descriptor is free: the job lives on, and what is needed later is loaded then
        self._do(self._live.due(now))

    def _do(self, actions: list[lease_events.KeeperAction]) -> None:
        for action in actions:
            if isinstance(action, lease_events.TellDeadline):
                self._guard.tell_deadline(action.deadline)
            elif isinstance(action, events.StopJob):
                if not self._link.send(wire.STOP, action.cause, action.at_once) and self._link.failure:
                    self._take_over(action.cause, UNTOLD)
            elif isinstance(action, lease_events.RenewNow):
                self._renew_now()
            elif isinstance(action, lease_events.TakeOver):
                self._take_over(action.cause, action.detail)
            else:
                self._note(action.level, action.text, action.event, seconds=action.seconds)

    def _renew_now(self) -> None:
        if self._make_renewer is None:
            return
        try:
            if self._renewer is None:
                self._renewer = self._make_renewer()
                self._poll.register(self._renewer.readable, select.POLLIN)
            if not self._renewer.renew_now():
                self._live.renew_again(self._clock())
        except (BackendUnavailable, OSError) as unknown:
            self._do(self._live.not_started(self._clock(), str(getattr(unknown, "strerror", None) or unknown)))

    def stop_renewing(self, timeout: float) -> bool:
        """No request is sent after this. ``False``: one is still under way after *timeout* seconds."""
        return self._renewer is None or self._renewer.stop(timeout)

    def _reap(self) -> bool:
        """As the first process of a container, or after the guard's end, orphans come to us; whether one is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                self._guard.learn_strangers()
                return True
            if pid == self._command:
                self._status = status
            elif pid == self._guard.pid:
                self._guard.ended = True

    def _take_over(self, cause: str, detail: str) -> None:
        """End the guard, if it still lives, and every process of the job; return when none is left."""
        if self._status is None or self._guard.waits_for_rest:  # else what the guard said counts
            ordered = self._live.ordered or (cause if self._status is None else events.LOST)
            self._cause = ordered if self._live.is_lost else self._cause or ordered
        self._live.detail = self._live.detail or detail
        self._guard.kill()
        tree.signal_all(os.getpid(), (int(SIGKILL),), self._strangers)
        self._note("warning", f"{detail}: killing the command", "killed")
        poll = select.poll()
        poll.register(self._signals.descriptor, select.POLLIN)
        speak_at = self._clock() + UNENDED
        while self._reap() and not self._only_strangers():
            tree.signal_all(os.getpid(), (int(SIGKILL),), self._strangers)
            if self._clock() >= speak_at:
                speak_at = NEVER
                self._note(*events.told_of_kill(tree.named(tree.descendants(os.getpid(), self._strangers))))
            poll.poll(SWEEP_PAUSE * 1000)
            self._take_signals()
        had_ended = self._status is not None and os.WIFEXITED(self._status)  # by itself, and the guard did not say it
        if self._cause == events.GUARD_GONE and had_ended and self._guard.waits_for_rest:
            self._cause = events.LOST
        self._finished = True

    def _only_strangers(self) -> bool:
        """Whether every child that is left was here before the job: of those, ``waitpid`` says nothing."""
        left = frozenset(tree.children(os.getpid())) if self._strangers else frozenset()
        return bool(left) and left <= self._strangers
