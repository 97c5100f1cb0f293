"""Processes of a virtual kernel, their parents, and the signals that they are sent."""

from __future__ import annotations

import os
from _signal import SIGCHLD, SIGCONT, SIGKILL
from typing import TYPE_CHECKING, Any

from tests.simulation.system import Descriptor, Held
from tests.simulation.world import INFINITE, MOST_EVENTS, Here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.system import Signalled
    from tests.simulation.world import Clock, Thread

SLOWEST_KILL = 0.02  # seconds until a process is gone after SIGKILL
TOLD = 0.5  # of those who go on: by SIGCONT; the others were frozen, or their host slept, and nobody tells them


class Process:
    """A process of a host: a program with threads, or one of a job, which only lives and dies."""

    def __init__(self, system: System, name: str, clock: Clock, parent: Process | None) -> None:
        self.system = system
        self.name = name
        self.clock = clock
        self.parent = parent
        self.pid = system.number(self)
        self.children: list[Process] = []
        if parent is not None:
            parent.children.append(self)
        self.steps = 0
        self.faults: dict[int, Any] = {}  # by the step at which they happen
        self.heeds = MOST_EVENTS  # the first step that is not like most
        self.dead = False
        self.killed = False  # it will be dead in a moment
        self.stopped = False
        self.stopped_until = 0.0
        self.suspended_until = 0.0  # with the command on its terminal
        self.changes: list[int] = []  # statuses of stops and continuations that the parent did not hear of yet
        self.threadless_until = 0.0  # its user has as many as are allowed
        self.full_until = 0.0  # it has as many descriptors
        self.dying = 0.0  # seconds from KILL to its end that no program can change
        self.pending: list[tuple[Thread, int]] = []
        self.status = 0
        self.reaps = False  # orphans below it become its children
        self.dies_with_parent = False
        self.signals: list[Signalled] = []
        self.owned: list[Descriptor | Held] = []
        self.unable: list[tuple[float, float]] = []  # when it was stopped, or dead
        self.untold: list[float] = []  # when it went on without SIGCONT, as who was frozen does

    def forked(self, name: str) -> Process:
        """A child with the same descriptors, that does nothing yet."""
        child = Process(self.system, name, self.clock, self)
        child.inherit()
        return child

    def inherit(self) -> None:
        """Have the descriptors that the parent has."""
        for each in self.parent.owned if self.parent is not None else ():
            if isinstance(each, Held):
                self.receive(each.descriptor)

    def receive(self, descriptor: Descriptor) -> None:
        """Have a descriptor."""
        descriptor.hold(self)
        self.owned.append(Held(descriptor, self))

    def let_go(self, descriptor: Descriptor) -> None:
        """As ``os.close``."""
        held = Held(descriptor, self)
        if held in self.owned:
            self.owned.remove(held)
            held.close()
        else:  # it may have come by a channel
            for each in self.owned:
                descriptor.drop(each)

    def start(self, body: Callable[[], None]) -> None:
        """Run a program in it, whose end is its own."""

        def run() -> None:
            body()
            self.end(0)

        Here.world.start(self, run)

    def will_meet(self, fault: Any) -> None:
        """Be stopped, or ended, at a step."""
        self.faults[int(fault.at)] = fault
        self.heeds = min(self.faults)

    def meet(self, fault: Any) -> None:
        """Be stopped, or ended, by another's hand."""
        if self.dead:
            return
        if fault.value == INFINITE:
            Here.world.tell(self.name, "killed")
            self.end(int(SIGKILL))
        else:
            self.stop(fault.value)

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        world = Here.world
        world.tell(self.name, f"stopped for {seconds:.3f} s")
        self.stopped = True
        self.stopped_until = max(self.stopped_until, world.now + seconds)
        self.unable.append((world.now, world.now + seconds))
        world.at(world.now + seconds, self._go_on)

    def _go_on(self) -> None:
        world = Here.world
        if self.dead or not self.stopped or world.now < self.stopped_until - 1e-9:
            return
        world.tell(self.name, "continued")
        self.stopped = False
        if world.chance() < TOLD:
            self.take(int(SIGCONT))
        else:
            self.untold.append(world.now)
        pending, self.pending = self.pending, []
        world.resume_all(pending)

    def take(self, signum: int, code: int = 0, sender: int = 0) -> None:
        """A signal comes."""
        if self.dead:
            return
        if signum == SIGKILL:
            self.killed = True
            world = Here.world
            world.at(world.now + self.dying + world.chance() * SLOWEST_KILL, self.end, int(SIGKILL))
            return
        for each in self.signals:
            each.put(signum, code, sender)

    def end(self, status: int) -> None:
        """It is gone, with a status of ``waitpid``; its children find another parent."""
        if self.dead:
            return
        self.dead, self.status, self.heeds = True, status, 0
        self.unable.append((Here.world.now, INFINITE))
        for each in self.owned:
            each.close()
        heir = self.parent
        while heir is not None and (heir.dead or not heir.reaps):
            heir = heir.parent
        for child in self.children:
            if child.dies_with_parent and not child.dead:
                child.take(int(SIGKILL))
            child.parent = heir
            if heir is not None:
                heir.children.append(child)
                if child.dead:
                    heir.take(int(SIGCHLD))
        self.children = []
        if self.parent is not None:
            self.parent.take(int(SIGCHLD), 1, self.pid)

    def descendants(self) -> Iterable[Process]:
        """All that are below it."""
        found = list(self.children)
        for each in found:
            found += each.children
        return found

    def wait(self, pid: int, flags: int = 0) -> tuple[int, int]:
        """As ``os.waitpid(pid, WNOHANG | flags)``."""
        meant = [child for child in self.children if pid in (-1, child.pid)]
        if not meant:
            raise ChildProcessError
        for child in meant:
            if child.changes and flags & os.WUNTRACED:
                return child.pid, child.changes.pop(0)
            if child.dead:
                self.children.remove(child)
                return child.pid, child.status
        return 0, 0


def me() -> Process:
    """The process whose thread runs."""
    thread = Here.world.thread
    assert thread is not None
    process: Process = thread.process
    return process


class System:
    """The processes of all hosts."""

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}

    def alive(self, pid: int) -> Process | None:
        """The process of this pid, unless it is dead."""
        process = self.processes.get(pid)
        return None if process is None or process.dead else process

    def number(self, process: Process) -> int:
        """A pid."""
        pid = 100 + len(self.processes)
        self.processes[pid] = process
        return pid
