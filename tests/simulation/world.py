"""Virtual time: threads of programs as greenlets, one event after another, nothing that really waits.

True time is what the world counts. Each host and each server has a clock of its own, which runs at its own rate.
A program is stopped, continued and ended at its steps: whenever it reads a clock, sends, or waits.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITE = float("inf")
TIMER_LATENESS = 0.0002  # seconds: nobody is woken exactly in time
MOST_EVENTS = 50_000  # in one history, and steps of one program: of some thousands the busiest has a seventh of that
BUSY = "never rests, and keeps a processor busy"
LONGEST_SWITCH = 0.002  # seconds until a thread that has something to do gets a processor


HUB = getcurrent()  # runs the events
SPARE: list[greenlet] = []  # greenlets that have no thread at present


class Here:
    """The world that is being run in this process of Python."""

    world: World


class Clock:
    """What a host or a server counts."""

    __slots__ = ("base", "jumped", "rate", "slept", "wall_base")

    def __init__(self, rate: float, base: float, wall_base: float) -> None:
        self.rate = rate
        self.base = base
        self.wall_base = wall_base
        self.jumped = False
        self.slept = 0.0  # seconds

    def boottime(self) -> float:
        """Never jumps."""
        return self.base + self.rate * Here.world.now

    def monotonic(self) -> float:
        """The same without the time that the host has slept."""
        return self.boottime() - self.slept

    def wall(self) -> float:
        """May jump: whoever moves it changes ``wall_base``."""
        return self.wall_base + self.rate * Here.world.now

    def true(self, boottime: float) -> float:
        """The true time at which the clock shows this."""
        return (boottime - self.base) / self.rate


class Thread:
    """One thread of a program."""

    __slots__ = ("alarm", "blocked", "body", "green", "number", "process", "prompt", "until")

    def __init__(self, process: Any, body: Callable[[], None], *, prompt: bool = False) -> None:
        self.process = process
        self.body = body
        self.prompt = prompt  # it gets a processor at once
        self.green: greenlet | None = None  # from its first step to its last one
        self.number = 0  # of the present wait: an event for an earlier one does nothing
        self.blocked = False
        self.until = INFINITE  # when the present wait ends at the latest
        self.alarm = INFINITE  # when the one event comes that looks whether this time is over


class World:
    """Events in the order of their time. *telling*: keep the story for people."""

    def __init__(self, seed: int, *, telling: bool = False) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.chance = self.random.random
        self.rarely = random.Random(~seed).random  # leaves the other chances as they are
        self.telling = telling
        self.story: list[tuple[float, str, str]] = []
        self.bugs: list[str] = []
        self.over = False
        self.thread: Thread | None = None
        self.threads: list[Thread] = []
        self.descriptors: dict[int, Any] = {}
        self.connect: Callable[..., Any]  # from the clock of a host to a server of that name
        self.files: Any  # of the host, where they are the store
        self.login = 0  # number of the credentials that are to be had now
        self.open_socket: Callable[..., Any]  # the same for a process, which has the descriptor then
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._leave = HUB.switch

    def at(self, when: float, call: Callable[..., object], *arguments: Any) -> None:
        """Have something happen at a true time."""
        self._count += 1
        heappush(self._queue, (when, self._count, call, arguments))

    def renew_login(self, number: int) -> None:
        """Have these credentials be had, or newer ones."""
        self.login = max(self.login, number)

    def run(self, until: float) -> bool:
        """Let time pass; whether nothing is left to happen."""
        queue = self._queue
        for _ in range(MOST_EVENTS):
            if not queue:
                return True
            event = heappop(queue)
            if event[0] > until:
                heappush(queue, event)
                return False
            self.now, _, call, arguments = event
            try:
                call(*arguments)
            except Exception as bug:  # of a simulated server, or of what the code had it do
                self.note_bug(bug, "an event")
        self.bugs.append(f"somebody {BUSY}")
        return False

    def end(self) -> None:
        """Nothing happens any more, and no thread is left."""
        self.over = True
        for thread in self.threads:
            thread.process.heeds = 0
            if thread.green is not None:
                self.thread = thread
                thread.green.throw(GreenletExit)
        self.thread = None
        self.threads, self.descriptors, self._queue = [], {}, []  # else all of them wait for the collector of rubbish

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        if self.telling:
            self.story.append((self.now, who, text))

    def start(self, process: Any, body: Callable[[], None], *, prompt: bool = False) -> Thread:
        """Start a thread of a program; see ``Thread``."""
        thread = Thread(process, body, prompt=prompt)
        self.threads.append(thread)
        self.wake(thread, force=True)
        return thread

    def run_thread(self, thread: Thread) -> None:
        """All that a thread does, in its greenlet."""
        process = thread.process
        try:
            thread.body()
        except GreenletExit:
            pass
        except BaseException as bug:
            if not (self.over or process.dead):
                self.note_bug(bug, process.name)
        thread.green = None

    def note_bug(self, bug: BaseException, who: str) -> None:
        """An exception that nobody expects makes a history wrong: call this where it is caught."""
        import traceback

        text = f"{who}: {type(bug).__name__}: {bug}"
        self.tell("the world", text)
        self.bugs.append(f"{text}\n{traceback.format_exc()}")

    def step(self) -> Any:
        """The present thread does something that others see, or looks at a clock: here it may be stopped or ended.

        Its process, which it still has.
        """
        thread = self.thread
        assert thread is not None
        process = thread.process
        process.steps = steps = process.steps + 1
        if steps >= process.heeds:
            self.heed(process)
        return process

    def heed(self, process: Any) -> None:
        """This step of the present thread is not like most."""
        thread = self.thread
        assert thread is not None
        if process.steps in process.faults and not self.over:
            fault = process.faults.pop(process.steps)
            process.heeds = min(process.faults, default=MOST_EVENTS)
            process.meet(fault)
            if process.stopped and not process.dead:
                thread.number += 1
                thread.blocked, thread.until = True, INFINITE
                process.pending.append((thread, thread.number))
                self._leave()
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
        thread.number += 1
        thread.blocked = True
        thread.until = until
        if until < thread.alarm:
            self._set_alarm(thread)
        self._leave()
        if thread.process.dead or self.over:
            raise GreenletExit

    def _set_alarm(self, thread: Thread) -> None:
        """Look whether a wait is over when it may be. Most end before: one alarm serves many of them."""
        thread.alarm = until = thread.until
        self._count = count = self._count + 1
        heappush(self._queue, (until + TIMER_LATENESS, count, self._ring, (thread, until)))

    def _ring(self, thread: Thread, at: float) -> None:
        if thread.alarm != at:
            return  # an earlier one was set later
        thread.alarm = INFINITE
        if not thread.blocked:
            return
        if thread.until <= at:
            self._resume(thread, thread.number)
        elif thread.until < INFINITE:
            self._set_alarm(thread)

    def wake(self, thread: Thread, *, force: bool = False) -> None:
        """Something has happened for which a thread may wait."""
        if thread.blocked or force:
            thread.blocked = False
            self._count = count = self._count + 1
            when = self.now if thread.prompt else self.now + self.chance() * LONGEST_SWITCH
            heappush(self._queue, (when, count, self._resume, (thread, thread.number)))

    def resume_all(self, pending: list[tuple[Thread, int]]) -> None:
        """The threads of a program that is continued."""
        for thread, number in pending:
            self.at(self.now + self.chance() * LONGEST_SWITCH, self._resume, thread, number)

    def _resume(self, thread: Thread, number: int) -> None:
        process = thread.process
        if thread.number != number or process.dead:
            return
        if process.stopped:
            process.pending.append((thread, number))
            return
        thread.number = number + 1
        thread.blocked = False
        self.thread = thread
        if thread.green is None:
            thread.green = SPARE.pop() if SPARE else _new_greenlet()
            thread.green.switch(self.run_thread, thread)
        else:
            thread.green.switch()
        self.thread = None


def _new_greenlet() -> greenlet:
    """One that runs threads, one after the other: to make it takes longer than most threads do."""
    green = greenlet(_run_threads, HUB)
    green.switch()
    return green


def _run_threads() -> None:
    leave, me = HUB.switch, getcurrent()
    while True:
        run, thread = leave()
        run(thread)
        SPARE.append(me)


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
        if self._taken:
            self.acquire()
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self.release()
