"""The guard: parent of the command, owner of the deadline. It never touches the network.

It is forked before anything heavy is imported, lives in a process group of its own (Ctrl-C, Ctrl-Z and
``kill -9 -GROUP`` do not reach it), and is a subreaper: whatever the job's processes do, when their
parents are gone they become its children, and when ``waitpid`` says that there is no child, none is left.
"""

from __future__ import annotations

import errno
import os
import select
from _signal import SIGCHLD, SIGCONT, SIGKILL

from lockctl import clock as clocks
from lockctl import events, kernel
from lockctl.supervise import channel as wire
from lockctl.supervise import tree
from lockctl.supervise.child import Child
from lockctl.supervise.loop import Watch
from lockctl.supervise.orders import decode_orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.clock import Clock
    from lockctl.events import Action, WatchEvent
    from lockctl.supervise.channel import Channel, Frame
    from lockctl.supervise.contain import Init
    from lockctl.supervise.signals import Signals

AFTERWARDS = 1.0  # seconds past the deadline that a silent keeper gets before its lock is freed for it


class Guard:
    """Everything that the guard process knows."""

    def __init__(
        self,
        link: Channel,
        signals: Signals,
        words: tuple[str, ...],
        group: int,
        note: Callable[..., None],
        set_manner: Callable[[bool, bool, bool, str | None], None] | None,
    ) -> None:
        """Become a subreaper with descriptors of its own; nothing runs yet. Raises ``OSError``, ``ConfigError``.

        *group* is the keeper's process group, which the command joins on a terminal; 0: there is no terminal.
        """
        os.setpgid(0, 0)
        # not `lockctl`: who ends all of that name with KILL has ended the keeper, and the guard ends the job
        kernel.set_process_name("lease-guard", f"lease-guard of process {os.getppid()}")
        kernel.become_subreaper()
        self._link = link
        self._signals = signals
        self._clock: Clock = clocks.monotonic
        self._words = words
        self._note = note
        self._set_manner = set_manner
        self._group = group
        self._changes = kernel.signal_descriptor([SIGCHLD, SIGCONT])  # of our children, and of ourselves
        self._timer = -1
        self._lock_descriptors: tuple[int, ...] = ()
        self._kernel_held = False
        self._kill_on_loss = False
        self._pid = 0
        self._halted = False
        self._halts = 0  # how often the command was stopped
        self._child: Child | None = None  # until it is known whether the command could be executed
        self._failed = False  # it could not
        self._init: Init | None = None  # of the job's pid namespace, if it has one
        self._told_start = False
        self._behind: list[Frame] = []  # frames that came with the order to start
        self._orphaned = False  # the keeper is gone
        self._poll = select.poll()
        self._deadline = 0.0
        self._watch: Watch | None = None
        self._cause: str | None = None  # what the keeper was told
        self._killed = False

    def run(self, environment: dict[str, str]) -> None:
        """Wait for the order to start, run the command, and return when no process of it is left.

        The command's process is forked before: the next holder of a lock is then a system call away from its command.
        """
        try:
            self._child = self._fork_child(environment)
        except OSError:
            self._child = None  # no more processes: tried again, and reported, when the order comes
        if not self._await_start(environment):
            if self._child is not None:
                self._child.drop()
            return
        self._watch_job()
        if self._failed and self._pid:
            os.waitpid(self._pid, 0)
        if self._failed and self._init is not None:
            self._init.end()
        self._after()
        for descriptor in self._lock_descriptors:
            os.close(descriptor)

    def _watch_job(self) -> None:
        """Return when nothing of the job is left, or the command could not be executed."""
        poll = self._poll
        for descriptor in (self._link.fileno, self._changes, self._timer):
            poll.register(descriptor, select.POLLIN)
        connections = () if self._kernel_held else self._lock_descriptors
        wire.watch_ends(poll, connections)
        self._take_frames()
        watch = self._watch
        while watch is not None and not (watch.finished or self._failed):
            wake = watch.wake_at()
            kernel.set_timer(self._timer, None if wake == float("inf") else wake)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._timer in ready:
                kernel.clear_timer(self._timer)
            if self._changes in ready and SIGCONT in [signum for signum, _, _ in kernel.read_signals(self._changes)]:
                self._feed(events.GuardContinued())
            self._learn_start()
            self._take_frames()
            if not ready.isdisjoint(connections):
                for descriptor in connections:
                    poll.unregister(descriptor)
                connections = ()
                self._lose()
            if not self._link.open and self._link.fileno in ready:
                poll.unregister(self._link.fileno)
            self._reap()
            self._feed(events.Due())

    def _fork_child(self, environment: dict[str, str]) -> Child:
        contained = self._init is not None
        return Child(self._words, environment, self._signals, group=self._group, contained=contained)

    def _await_start(self, environment: dict[str, str]) -> bool:
        poll = select.poll()
        poll.register(self._link.fileno, select.POLLIN)
        deadline = float("inf")
        while self._link.open:
            poll.poll()
            frames = self._link.receive()
            for position, (kind, values, descriptors) in enumerate(frames):
                if kind == wire.DEADLINE:
                    (deadline,) = values
                    self._link.send(wire.ACK, deadline)
                elif kind == wire.MANNER and self._set_manner is not None:
                    self._set_manner(*values)
                elif kind == wire.START:
                    self._lock_descriptors = descriptors
                    self._deadline = deadline
                    self._behind = frames[position + 1 :]
                    return self._is_wanted() and self._start(environment, *values)
        return False

    def _is_wanted(self) -> bool:
        """Whether the keeper is there, and did not take the order to start back meanwhile."""
        for kind, values, _ in self._behind:
            if kind == wire.STOP:
                cause, _ = values
                self._link.send(wire.CAUSE, cause)
                self._link.send(wire.FINISHED)
                return False
        return self._link.open

    def _start(
        self,
        environment: dict[str, str],
        ordered: tuple[Any, ...],
        spans: tuple[float, ...],
        variables: tuple[bytes, ...],
    ) -> bool:
        orders, schedule = decode_orders(ordered, spans)
        self._kernel_held = orders.kernel_held
        self._kill_on_loss = orders.kill_on_loss
        self._clock = clocks.monotonic if orders.kernel_held else clocks.boottime
        now = self._clock()
        if now >= schedule.signal_at(self._deadline):
            self._link.send(wire.CAUSE, events.LOST)
            self._link.send(wire.FINISHED)
            return False
        try:
            self._timer = kernel.timer_descriptor(self._clock.clock_id)
            # a lock file is the command's too; a connection is kept open here, until the job is gone, and no more
            descriptors = self._lock_descriptors if orders.kernel_held else ()
            if orders.contain != "no" and not self._contain(orders.contain, descriptors):
                return False
            child = self._ordered_child(environment, variables, descriptors)
        except OSError as failure:  # no more processes or descriptors
            self._link.send(wire.FAILED, failure.errno or errno.EAGAIN, False)
            return False
        self._poll.register(child.failed, select.POLLIN)
        self._pid = child.pid
        self._watch = Watch(orders, schedule, now=now, deadline=self._deadline)
        return True

    def _contain(self, wanted: str, descriptors: tuple[int, ...]) -> bool:
        """Give the job a pid namespace, in which its command is forked anew; ``False``: it is required and refused."""
        from lockctl.supervise import contain

        try:
            self._init = contain.enter(wanted, descriptors)
        except OSError as refused:
            self._link.send(wire.FAILED, refused.errno or errno.EPERM, True)
            return False
        if self._init is not None and self._child is not None:
            self._child.drop()
            self._child = None
        return True

    def _ordered_child(
        self, environment: dict[str, str], variables: tuple[bytes, ...], descriptors: tuple[int, ...]
    ) -> Child:
        """The process that becomes the command now. Raises ``OSError``."""
        if self._child is not None and not self._child.go(variables, descriptors):
            self._child.drop()  # it was killed during a long wait
            self._child = None
        if self._child is None:
            self._child = self._fork_child(environment)
            if not self._child.go(variables, descriptors):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._child

    def _learn_start(self) -> None:
        """Tell whether the command was executed, as soon as it is known: a file system may hang in between."""
        error = None if self._child is None else self._child.error()
        if self._child is None or error is None:
            return
        self._poll.unregister(self._child.failed)
        self._child.close()
        self._child = None
        if error:
            self._failed = True
            self._link.send(wire.FAILED, error, False)
        else:
            self._tell_start()

    def _tell_start(self) -> None:
        if not self._told_start:
            self._told_start = True
            self._link.send(wire.STARTED, self._pid)

    def _take_frames(self) -> None:
        frames, self._behind = self._behind, []
        for kind, values, _ in frames + self._link.receive():
            if kind == wire.DEADLINE:
                (deadline,) = values
                self._deadline = max(self._deadline, deadline)
                self._feed(events.Renewed(deadline))
                self._link.send(wire.ACK, deadline)
            elif kind == wire.STOP:
                self._feed(events.StopJob(*values))
            elif kind == wire.SIGNAL:
                self._reap()  # what the command did in the meantime decides where the signal goes
                self._pass(*values)
        if not (self._link.open or self._orphaned):
            self._orphaned = True
            self._feed(events.KeeperGone())
            self._note("warning", "the process that renews the lease has ended: stopping the command", "stopping")

    def _lose(self) -> None:
        """A connection that held the lock has ended, so the server frees it; the keeper may be stopped just now."""
        self._link.send(wire.UNHELD)
        self._feed(events.StopJob(events.LOST, self._kill_on_loss))

    def _pass(self, signum: int, halts: int) -> None:
        if signum == SIGCONT and self._group and not (self._halted and halts == self._halts):
            return  # the shell's `fg` reached the command directly, and Ctrl-Z may have stopped it again since
        self._feed(events.PassSignal(signum))

    def _reap(self) -> None:
        """Collect every child that changed; the command's changes are events."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                self._feed(events.NobodyLeft())
                return
            if pid == 0:
                return
            if pid != self._pid:
                continue
            self._learn_start()
            if self._failed:
                self._pid = 0
                return
            self._tell_start()
            if os.WIFSTOPPED(status):
                self._halted = True
                self._halts += 1
                self._link.send(wire.HALTED, os.WSTOPSIG(status), self._halts)
                self._feed(events.CommandStopped(os.WSTOPSIG(status)))
            elif os.WIFCONTINUED(status):
                self._halted = False
                self._feed(events.CommandContinued())
            else:
                self._pid = 0
                if self._init is not None:
                    self._init.command_ended()
                actions = self._decide(events.CommandEnded(status))
                self._link.send(wire.ENDED, status)
                self._act(actions)

    def _feed(self, event: WatchEvent) -> None:
        self._act(self._decide(event))

    def _decide(self, event: WatchEvent) -> list[Action]:
        if self._watch is None:
            return []
        actions = self._watch.on(event, self._clock())
        cause = self._watch.cause
        if cause is not None and cause != self._cause:  # said before anything is done: then we may be stopped ourselves
            self._cause = cause
            self._link.send(wire.CAUSE, cause)
        return actions

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, events.SignalTree):
            tree.signal_all(os.getpid(), (action.signum,))
            if action.signum == SIGKILL and not self._killed:
                self._killed = True
                self._link.send(wire.KILLED)
                if self._orphaned:  # else the keeper says it
                    self._note("info", "sent KILL to all processes of the job", "killed")
        elif isinstance(action, events.SignalCommand):
            if self._pid:
                tree.send(self._pid, action.signum)
        elif isinstance(action, events.TellLeftovers):
            init = None if self._init is None else self._init.pid
            left = [pid for pid in tree.descendants(os.getpid()) if pid != init]
            self._link.send(wire.LEFTOVERS, len(left), tree.named(left))
        elif isinstance(action, events.Finish):
            self._link.send(wire.FINISHED)

    def _after(self) -> None:
        """The tree is gone. A keeper that is stopped cannot free a lock that lives in a descriptor."""
        if not self._lock_descriptors or not self._kernel_held or not self._link.open:
            return
        poll = select.poll()
        poll.register(self._link.fileno, select.POLLIN)
        poll.register(self._timer, select.POLLIN)
        kernel.set_timer(self._timer, max(self._deadline, self._clock() + AFTERWARDS))
        while self._link.open:
            if self._timer in {descriptor for descriptor, _ in poll.poll()}:
                for descriptor in self._lock_descriptors:
                    kernel.unlock(descriptor)
                return
            if any(kind == wire.DISMISSED for kind, _, _ in self._link.receive()):
                return
