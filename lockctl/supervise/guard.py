"""The guard: parent of the command, owner of the deadline. It never touches the network.

It is forked before anything heavy is imported. When a command runs, it has left the process group of the keeper
(``kill -9 -GROUP`` does not reach it), and on a terminal its session. It is a subreaper: whatever the job's processes
do, when their parents are gone they become its children, and when ``waitpid`` says that it has none, none is left.
"""

from __future__ import annotations

import os
import select
from _signal import SIGCHLD, SIGCONT, SIGKILL

from lockctl import events, kernel
from lockctl.supervise import channel as wire
from lockctl.supervise import job_events, tree
from lockctl.supervise.signals import JOB_CONTROL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.supervise.job_events import Action, WatchEvent
    from lockctl.supervise.starting import Starting

UNENDED = 7  # rounds of SIGKILL, 2.5 seconds: whoever lives then is spoken of
AFTERWARDS = 1.0  # seconds past the deadline that a silent keeper gets before its lock is freed for it


class Guard:
    """Everything that the guard process knows."""

    def __init__(self, link: wire.Channel, starting: Starting, note: Callable[..., None], *, on_terminal: bool) -> None:
        """Become a subreaper with descriptors of its own; nothing runs yet. Raises ``OSError``, ``ConfigError``.

        *on_terminal*: the command is in the keeper's process group, where Ctrl-Z and ``fg`` reach it directly.
        """
        if not on_terminal:
            os.setpgid(0, 0)
        # not `lockctl`: who ends all of that name with KILL has ended the keeper, and the guard ends the job
        kernel.set_process_name("lease-guard", f"lease-guard of process {os.getppid()}")
        kernel.become_subreaper()
        self._link = link
        self._starting = starting
        self._job = starting.job
        self._note = note
        self._on_terminal = on_terminal
        self._changes = kernel.signal_descriptor([SIGCHLD, SIGCONT])  # of our children, and of ourselves
        self._halted = False
        self._halts = 0  # how often the command was stopped
        self._failed = False  # it could not
        self._told_start = False
        self._orphaned = False  # the keeper is gone
        self._poll = select.poll()
        self._cause: str | None = None  # what the keeper was told
        self._kills = 0  # rounds of SIGKILL
        self._unlocked = False  # the kernel's locks, by this process
        self._ended: int | None = None  # status of the command, which the keeper was not told yet

    def run(self, environment: dict[str, str]) -> None:
        """Wait for the order to start, run the command, and return when no process of it is left.

        The command's process is forked before: the next holder of a lock is then a system call away from its command.
        """
        if not self._starting.begin(environment):
            return
        self._watch_job()
        job = self._job
        if self._failed and job.pid:
            os.waitpid(job.pid, 0)
        if self._failed and job.init is not None:
            job.init.end()
        self._after()
        for descriptor in job.lock_descriptors:
            os.close(descriptor)

    def _watch_job(self) -> None:
        """Return when nothing of the job is left, or the command could not be executed."""
        poll, job = self._poll, self._job
        started = () if job.child is None else (job.child.failed,)
        for descriptor in (*started, self._link.fileno, self._changes, job.timer):
            poll.register(descriptor, select.POLLIN)
        connections = () if job.kernel_held else job.lock_descriptors
        wire.watch_ends(poll, connections)
        self._take_frames()
        watch = job.watch
        while watch is not None and not (watch.finished or self._failed):
            wake = watch.wake_at()
            kernel.set_timer(job.timer, None if wake == float("inf") else wake)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if job.timer in ready:
                kernel.clear_timer(job.timer)
            if self._changes in ready and SIGCONT in [signum for signum, _, _ in kernel.read_signals(self._changes)]:
                self._feed(job_events.GuardContinued())
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
            self._feed(job_events.Due())

    def _learn_start(self) -> None:
        """Tell whether the command was executed, as soon as it is known: a file system may hang in between."""
        child = self._job.child
        error = None if child is None else child.error()
        if child is None or error is None:
            return
        self._poll.unregister(child.failed)
        child.close()
        self._job.child = None
        if error[0]:
            self._failed = True
            self._link.send(wire.FAILED, *error)
        else:
            self._tell_start()

    def _tell_start(self) -> None:
        if not self._told_start:
            self._told_start = True
            self._link.send(wire.STARTED, self._job.pid)

    def _take_frames(self) -> None:
        frames, self._job.behind = self._job.behind, []
        for kind, values, _ in frames + self._link.receive():
            if kind == wire.DEADLINE:
                (deadline,) = values
                self._job.deadline = max(self._job.deadline, deadline)
                self._feed(events.Renewed(deadline))
                self._link.send(wire.ACK, deadline)
            elif kind == wire.STOP:
                self._feed(events.StopJob(*values))
            elif kind == wire.SIGNAL:
                self._reap()  # what the command did in the meantime decides where the signal goes
                self._pass(*values)
        if not (self._link.open or self._orphaned):
            self._orphaned = True
            self._feed(job_events.KeeperGone())
            said = "the keeper process has ended: stopping the command"
            self._note("warning", said, "stopping", token=self._job.token)

    def _lose(self) -> None:
        """A connection that held the lock has ended, so the server frees it; the keeper may be stopped just now."""
        self._link.send(wire.UNHELD)
        self._feed(events.StopJob(events.LOST, self._job.kill_on_loss))

    def _pass(self, signum: int, halts: int) -> None:
        seen = halts == self._halts  # whether the keeper knew of the last stop
        late = (signum in JOB_CONTROL and not seen) or (signum == SIGCONT and not (seen and self._halted))
        if self._on_terminal and late:
            return  # the shell's `fg`, or Ctrl-Z, has reached the command directly, and the other one perhaps since
        self._feed(job_events.PassSignal(signum))

    def _reap(self) -> None:
        """Collect every child that changed; the command's changes are events."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                self._feed(job_events.NobodyLeft())
                return
            if self._ended is not None:  # and somebody is left
                self._link.send(wire.ENDED, self._ended)
                self._ended = None
            if pid == 0:
                if self._job.init is not None:
                    self._job.init.let_end()
                return
            if pid != self._job.pid:
                continue
            self._learn_start()
            if self._failed:
                self._job.pid = 0
                return
            self._tell_start()
            if os.WIFSTOPPED(status):
                self._halted = True
                self._halts += 1
                self._link.send(wire.HALTED, os.WSTOPSIG(status), self._halts)
                self._feed(job_events.CommandStopped(os.WSTOPSIG(status)))
            elif os.WIFCONTINUED(status):
                self._halted = False
                self._feed(job_events.CommandContinued())
            else:
                self._job.pid = 0
                if self._job.init is not None:
                    self._job.init.command_ended()
                self._ended = status
                self._feed(job_events.CommandEnded(status))

    def _feed(self, event: WatchEvent) -> None:
        for action in self._decide(event):
            self._do(action)

    def _decide(self, event: WatchEvent) -> list[Action]:
        if self._job.watch is None:
            return []
        actions = self._job.watch.on(event, self._job.clock())
        cause = self._job.watch.cause
        if cause is not None and cause != self._cause:  # said before anything is done: then we may be stopped ourselves
            self._cause = cause
            self._link.send(wire.CAUSE, cause)
        return actions

    def _do(self, action: Action) -> None:
        if isinstance(action, job_events.SignalTree):
            tree.signal_all(os.getpid(), (action.signum,))
            if action.signum == SIGKILL:
                self._tell_kill()
        elif isinstance(action, job_events.SignalCommand):
            if self._job.pid:
                tree.send(self._job.pid, action.signum)
        elif isinstance(action, job_events.TellLeftovers):
            left = self._job.left()
            self._link.send(wire.LEFTOVERS, len(left), tree.named(left))
        elif isinstance(action, job_events.Finish):
            if self._job.unlocks and self._cause is None:
                self._unlocked = True
                for descriptor in self._job.lock_descriptors:
                    kernel.free(descriptor)  # before the keeper is told, which would take as long again
            self._link.send(wire.FINISHED, self._ended)
            kernel.call("sched_yield")  # the end of this process takes longer than what the keeper does now

    def _tell_kill(self) -> None:
        self._kills += 1
        if self._kills in (1, UNENDED):
            left = "" if self._kills == 1 else tree.named(self._job.left())
            self._link.send(wire.KILLED, left)
            if self._orphaned:  # else the keeper says it
                self._note(*events.told_of_kill(left), token=self._job.token)

    def _after(self) -> None:
        """The tree is gone. A keeper that is stopped cannot free a lock that lives in a descriptor."""
        job = self._job
        if self._unlocked or not (job.lock_descriptors and job.kernel_held and self._link.open):
            return
        poll = select.poll()
        poll.register(self._link.fileno, select.POLLIN)
        poll.register(job.timer, select.POLLIN)
        kernel.set_timer(job.timer, max(job.deadline, job.clock() + AFTERWARDS))
        while self._link.open:
            if job.timer in {descriptor for descriptor, _ in poll.poll()}:
                for descriptor in job.lock_descriptors:
                    kernel.unlock(descriptor)
                return
            self._link.receive()
