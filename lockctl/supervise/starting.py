"""The guard until its job runs: it forks the command's process, waits for the order to start, and has it executed."""

from __future__ import annotations

import errno
import os
import select

from lockctl import clock as clocks
from lockctl import events, kernel
from lockctl.errors import ConfigError
from lockctl.supervise import channel as wire
from lockctl.supervise import tree
from lockctl.supervise.child import Child, wait_for
from lockctl.supervise.loop import Watch
from lockctl.supervise.orders import decode_orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.supervise.contain import Init
    from lockctl.supervise.signals import Signals


class Job:
    """The command, what watches over it, and what the guard was told of its locks."""

    def __init__(self) -> None:
        """Nothing runs, and nothing is known."""
        self.child: Child | None = None  # until it is known whether the command could be executed
        self.pid = 0  # of the command while it runs
        self.init: Init | None = None  # of the job's pid namespace, if it has one
        self.lock_descriptors: tuple[int, ...] = ()
        self.kernel_held = False
        self.unlocks = False
        self.kill_on_loss = False
        self.token: int | None = None
        self.clock: clocks.Clock = clocks.monotonic
        self.timer = -1  # a descriptor, of that clock
        self.deadline = 0.0
        self.behind: list[wire.Frame] = []  # frames that came with the order to start
        self.watch: Watch | None = None

    def left(self) -> list[int]:
        """The pids of all processes of the job that are found, in the guard."""
        return [pid for pid in tree.descendants(os.getpid()) if self.init is None or pid != self.init.pid]


class Starting:
    """Everything that the guard does before the job is watched."""

    def __init__(
        self,
        link: wire.Channel,
        signals: Signals,
        words: tuple[str, ...],
        set_manner: Callable[[bool, bool, bool, str | None], None] | None,
        *,
        on_terminal: bool,
    ) -> None:
        """Nothing is forked yet. *on_terminal*: the command gets the process group that this process is in now."""
        self._link = link
        self._signals = signals
        self._words = words
        self._set_manner = set_manner
        self._on_terminal = on_terminal
        self.job = Job()

    def begin(self, environment: dict[str, str]) -> bool:
        """Whether the job's command is being executed; else nothing is to run, and the keeper was told why.

        The command's process is forked before the order comes.
        """
        try:
            self.job.child = self._fork_child(environment)
        except OSError:
            self.job.child = None  # no more processes: tried again, and reported, when the order comes
        try:
            if self.await_start(environment):
                return True
        except OSError as failure:  # no more processes or descriptors
            self._link.send(wire.FAILED, failure.errno or errno.EAGAIN, "")
        except ConfigError as refused:
            self._link.send(wire.FAILED, errno.EPERM, str(refused))
        if self.job.child is not None:
            self.job.child.drop()
        return False

    def _fork_child(self, environment: dict[str, str]) -> Child:
        contained = self.job.init is not None
        return Child(self._words, environment, self._signals, own_group=not self._on_terminal, contained=contained)

    def await_start(self, environment: dict[str, str]) -> bool:
        """The same, with the process that is there. Raises ``ConfigError``, ``OSError``: nothing is to run."""
        poll = select.poll()
        poll.register(self._link.fileno, select.POLLIN)
        deadline = float("inf")
        while self._link.open:
            wait_for(poll, "of_guard", type(self))
            frames, before = self._link.receive(), deadline
            for position, (kind, values, descriptors) in enumerate(frames):
                if kind == wire.DEADLINE:
                    (deadline,) = values
                elif kind == wire.MANNER and self._set_manner is not None:
                    self._set_manner(*values)
                elif kind == wire.START:
                    self.job.lock_descriptors = descriptors
                    self.job.deadline = deadline
                    self.job.behind = frames[position + 1 :]
                    is_started = self._is_wanted() and self._start(environment, *values)
                    self._confirm(before, deadline)  # this late, because it wakes the keeper
                    return is_started
            self._confirm(before, deadline)
        return False

    def _confirm(self, before: float, deadline: float) -> None:
        if deadline != before:
            self._link.send(wire.ACK, deadline)

    def _is_wanted(self) -> bool:
        """Whether the keeper is there, and did not take the order to start back meanwhile."""
        for kind, values, _ in self.job.behind:
            if kind == wire.STOP:
                cause, _ = values
                self._link.send(wire.CAUSE, cause)
                self._link.send(wire.FINISHED, None)
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
        self.job.token = orders.token
        self.job.kernel_held = orders.kernel_held
        self.job.unlocks = orders.unlocks
        self.job.kill_on_loss = orders.kill_on_loss
        self.job.clock = clocks.monotonic if orders.kernel_held else clocks.boottime
        if orders.contain != "no" and not self._contain(orders.contain):
            return False
        child = self._waiting_child(environment)
        if self._on_terminal:
            self._leave_terminal()
        now = self.job.clock()
        if now >= schedule.signal_at(self.job.deadline):
            self._link.send(wire.CAUSE, events.LOST)
            self._link.send(wire.FINISHED, None)
            return False
        self.job.timer = kernel.timer_descriptor(self.job.clock.clock_id)
        # a lock file is the command's too; a connection is kept open here, until the job is gone, and no more
        descriptors = self.job.lock_descriptors if orders.kernel_held else ()
        if not child.go(variables, descriptors):
            number, refused = child.error() or (0, "")
            raise ConfigError(refused) if refused else OSError(number or errno.EAGAIN, "not told")
        self.job.pid = child.pid
        self.job.watch = Watch(orders, schedule, now=now, deadline=self.job.deadline)
        return True

    def _contain(self, wanted: str) -> bool:
        """Give the job a pid namespace, in which its command is forked anew; ``False``: it is required and refused."""
        from lockctl.supervise import contain

        try:
            self.job.init = contain.enter(wanted, self.job.lock_descriptors)
        except OSError as refused:
            self._link.send(wire.FAILED, *contain.told(refused))
            return False
        if self.job.init is not None and self.job.child is not None:
            self.job.child.drop()
            self.job.child = None
        return True

    def _waiting_child(self, environment: dict[str, str]) -> Child:
        """The process that is to become the command. Raises ``OSError``."""
        if self.job.child is not None and not self.job.child.waits():
            self.job.child.drop()
            self.job.child = None
        if self.job.child is None:
            self.job.child = self._fork_child(environment)
        return self.job.child

    @staticmethod
    def _leave_terminal() -> None:
        """Be out of reach of what is sent to the keeper's process group, which the command's process is in by now."""
        # Until then nothing runs that would have to be watched, and a fork is the only way into a group that may have
        # no number in this pid namespace. Called before the last look at the clock: STOP may have been sent to the
        # group. A session of its own: in that of the command, its parent would be taken for a shell that continues it,
        # and the kernel would let it stop where nobody does, and not end it with the terminal.
        os.setsid()
