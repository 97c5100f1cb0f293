"""Virtual time: threads of programs as greenlets, one event after another, nothing that really waits.

True time is what the world counts. Each host and each server has a clock of its own, which runs at its own rate.
A program is stopped, continued and ended at its steps: whenever it reads a clock, sends, or waits.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITE = float("inf")
TIMER_LATENESS = 0.0002  # seconds: nobody is woken exactly in time
MOST_EVENTS = 50_000  # in one history, and steps of one program: of some thousands the busiest has a seventh of that
BUSY = "never rests, and keeps a processor busy"
LONGEST_SWITCH = 0.002  # seconds until a thread that has something to do gets a processor


class Here:
    """The world that is being run in this process of Python."""

    world: World


class Clock:
    """What a host or a server counts."""

    __slots__ = ("base", "jumped", "rate", "wall_base")

    def __init__(self, rate: float, base: float, wall_base: float) -> None:
        self.rate = rate
        self.base = base
        self.wall_base = wall_base
        self.jumped = False

    def boottime(self) -> float:
        """Never jumps."""
        return self.base + self.rate * Here.world.now

    def wall(self) -> float:
        """May jump: whoever moves it changes ``wall_base``."""
        return self.wall_base + self.rate * Here.world.now

    def true(self, boottime: float) -> float:
        """The true time at which the clock shows this."""
        return (boottime - self.base) / self.rate


class Thread:
    """One greenlet of a program."""

    __slots__ = ("blocked", "green", "number", "process")

    def __init__(self, process: Any, green: greenlet) -> None:
        self.process = process
        self.green = green
        self.number = 0  # of the present wait: an event for an earlier one does nothing
        self.blocked = False


class World:
    """Events in the order of their time. *telling*: keep the story for people."""

    def __init__(self, seed: int, *, telling: bool = False) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.chance = self.random.random
        self.telling = telling
        self.story: list[tuple[float, str, str]] = []
        self.bugs: list[str] = []
        self.over = False
        self.thread: Thread | None = None
        self.threads: list[Thread] = []
        self.descriptors: dict[int, Any] = {}
        self.connect: Callable[..., Any]  # from the clock of a host to a server of that name
        self.open_socket: Callable[..., Any]  # the same for a process, which has the descriptor then
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._hub = getcurrent()

    def at(self, when: float, call: Callable[..., object], *arguments: Any) -> None:
        """Have something happen at a true time."""
        self._count += 1
        heapq.heappush(self._queue, (when, self._count, call, arguments))

    def run(self, until: float) -> bool:
        """Let time pass; whether nothing is left to happen."""
        queue, pop = self._queue, heapq.heappop
        for _ in range(MOST_EVENTS):
            if not queue:
                return True
            if queue[0][0] > until:
                return False
            self.now, _, call, arguments = pop(queue)
            call(*arguments)
        self.bugs.append(f"somebody {BUSY}")
        return False

    def end(self) -> None:
        """Nothing happens any more, and no thread is left."""
        self.over = True
        for thread in self.threads:
            if thread.green:
                self.thread = thread
                thread.green.throw(GreenletExit)
        self.thread = None

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        if self.telling:
            self.story.append((self.now, who, text))

    def start(self, process: Any, body: Callable[[], None]) -> Thread:
        """Start a thread of a program."""

        def run() -> None:
            try:
                body()
            except GreenletExit:
                pass
            except BaseException as bug:
                if not (self.over or process.dead):
                    import traceback

                    self.bugs.append(f"{process.name}: {type(bug).__name__}: {bug}\n{traceback.format_exc()}")

        thread = Thread(process, greenlet(run, self._hub))
        self.threads.append(thread)
        self.wake(thread, force=True)
        return thread

    def step(self) -> None:
        """The present thread does something that others see, or looks at a clock: here it may be stopped or ended."""
        thread = self.thread
        assert thread is not None
        process = thread.process
        process.steps += 1
        if process.steps in process.faults and not self.over:
            process.meet(process.faults.pop(process.steps))
            if process.stopped and not process.dead:
                self._leave(thread)
                process.pending.append((thread, thread.number))
                self._hub.switch()
        if process.steps == MOST_EVENTS:
            self.bugs.append(f"{process.name} {BUSY}")
        if process.dead or self.over or process.steps >= MOST_EVENTS:
            raise GreenletExit

    def block(self, until: float) -> None:
        """The present thread waits until a true time, or until it is woken."""
        if self.over:
            raise GreenletExit
        thread = self.thread
        assert thread is not None
        self._leave(thread)
        if until < INFINITE:
            self.at(until + TIMER_LATENESS, self._resume, thread, thread.number)
        self._hub.switch()
        if thread.process.dead or self.over:
            raise GreenletExit

    def wake(self, thread: Thread, *, force: bool = False) -> None:
        """Something has happened for which a thread may wait."""
        if thread.blocked or force:
            thread.blocked = False
            self.at(self.now + self.chance() * LONGEST_SWITCH, self._resume, thread, thread.number)

    def resume_all(self, pending: list[tuple[Thread, int]]) -> None:
        """The threads of a program that is continued."""
        for thread, number in pending:
            self.at(self.now + self.chance() * LONGEST_SWITCH, self._resume, thread, number)

    @staticmethod
    def _leave(thread: Thread) -> None:
        thread.number += 1
        thread.blocked = True

    def _resume(self, thread: Thread, number: int) -> None:
        process = thread.process
        if thread.number != number or process.dead:
            return
        if process.stopped:
            process.pending.append((thread, number))
            return
        thread.number += 1
        thread.blocked = False
        self.thread = thread
        thread.green.switch()
        self.thread = None


class Mutex:
    """Stands for a lock of ``_thread``."""

    def __init__(self) -> None:
        self._taken = False
        self._waiters: list[Thread] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as the real one
        """As the real one, on the clock of the host."""
        world = Here.world
        thread = world.thread
        assert thread is not None
        until = INFINITE if timeout < 0 else world.now + timeout / thread.process.clock.rate
        while self._taken:
            if not blocking or world.now >= until:
                return False
            self._waiters.append(thread)
            world.block(until)
            if thread in self._waiters:
                self._waiters.remove(thread)
        self._taken = True
        return True

    def release(self) -> None:
        """As the real one."""
        self._taken = False
        for thread in self._waiters:
            Here.world.wake(thread)

    def locked(self) -> bool:
        """As the real one."""
        return self._taken

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
