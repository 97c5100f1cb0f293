"""A virtual kernel: pipes, pairs of sockets, timers, descriptors of signals, and ``poll``.

Only what keeper, guard and clients use of the real one. Descriptors are numbers of the whole world.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.world import INFINITE, Here, Thread

if TYPE_CHECKING:
    from tests.simulation.world import Clock

READABLE = int(select.POLLIN)
WRITABLE = int(select.POLLOUT)
HUNG_UP = int(select.POLLRDHUP)
FIRST_DESCRIPTOR = 5000


class Descriptor:
    """What can be polled. It is readable while it has a *content*, and when it is *over*."""

    content: Any
    over = False
    has_alarm = False  # it must be armed for those who wait
    holders: tuple[object, ...] = ()  # processes, and channels that one was sent by, where it matters who has it

    def __init__(self) -> None:
        descriptors = Here.world.descriptors
        self.number = FIRST_DESCRIPTOR + len(descriptors)
        self.waits: list[tuple[Thread, int]] = []  # threads and the numbers of their waits, some of which may be over
        descriptors[self.number] = self

    def arm(self) -> None:
        """See that who waits is woken in time."""

    def changed(self) -> None:
        """Wake who waits for it."""
        waits = self.waits
        if waits:
            self.waits = []
            for thread, number in waits:
                if thread.number == number:
                    Here.world.wake(thread)

    def close(self) -> None:
        """Nobody uses it any more."""

    def hold(self, holder: object) -> None:
        """One more has it."""
        self.holders = (*self.holders, holder)

    def drop(self, holder: object) -> None:
        """One has it no more."""
        if holder in self.holders:
            at = self.holders.index(holder)
            self.holders = self.holders[:at] + self.holders[at + 1 :]
            self.left_by(holder)
            if not self.holders:
                self.gone()

    def left_by(self, holder: object) -> None:
        """One of those who had it has closed it."""

    def gone(self) -> None:
        """The last of them has."""

    def fileno(self) -> int:
        """Its number."""
        return self.number


class Held(NamedTuple):
    """A descriptor of a process."""

    descriptor: Descriptor
    process: object

    def close(self) -> None:
        """The process has closed it, or is gone."""
        self.descriptor.drop(self.process)


class Pipe(Descriptor):
    """One in which bytes are only counted; the reading and the writing end have one number."""

    content = 0

    def read(self, size: int) -> bytes:
        """As ``os.read`` of one that does not block."""
        if not self.content:
            if self.over:
                return b""
            raise BlockingIOError
        taken = min(size, self.content)
        self.content -= taken
        return b"." * taken

    def write(self, data: bytes) -> int:
        """As ``os.write``."""
        self.content += len(data)
        self.changed()
        return len(data)

    def finish(self) -> None:
        """The writing end is closed."""
        self.over = True
        self.changed()


class Answers(Descriptor):
    """A pipe whose bytes are read, and count."""

    content = b""

    def read(self, size: int) -> bytes:
        """As ``os.read`` of one that does not block."""
        if not (self.content or self.over):
            raise BlockingIOError
        taken, self.content = self.content[:size], self.content[size:]
        return taken

    def write(self, data: bytes) -> None:
        """As ``os.write``."""
        self.content += data
        self.changed()

    def finish(self) -> None:
        """The writing end is closed."""
        self.over = True
        self.changed()


class End(Descriptor):
    """One end of a pair of sockets that keep frames whole."""

    peer: End
    open = True
    is_reset = False  # the other end was closed with frames that it had not read, which is told once

    def __init__(self) -> None:
        super().__init__()
        self.content: deque[tuple[bytes, list[Any]]] = deque()  # frames
        self._held: list[Any] = []  # what has come beside frames

    def sendmsg(self, parts: list[bytes], beside: list[Any], flags: int) -> None:
        """As the method of a socket. Descriptors beside it are the other end's from now on."""
        Here.world.step()
        if not (self.peer.open and self.open):
            raise BrokenPipeError
        for _, _, numbers in beside:
            for start in range(0, len(numbers), 4):
                descriptor = Here.world.descriptors[int.from_bytes(numbers[start : start + 4], sys.byteorder)]
                descriptor.hold(self.peer)
                self.peer._held.append(descriptor)
        self.peer.content.append((parts[0], beside))
        self.peer.changed()

    def recv_into(self, buffer: bytearray, size: int, flags: int) -> int:
        """The length of the next frame, as with MSG_PEEK and MSG_TRUNC."""
        if self.is_reset:
            self.is_reset = False
            raise ConnectionResetError
        if self.content:
            return len(self.content[0][0])
        if self.over:
            return 0
        raise BlockingIOError

    def recvmsg(self, size: int, room: int, flags: int) -> tuple[bytes, list[Any], int, None]:
        """As the method of a socket."""
        data, beside = self.content.popleft() if self.content else (b"", [])
        return data, beside, 0, None

    def close(self) -> None:
        """The other end sees it."""
        self.open = False
        for each in self._held:
            each.drop(self)
        self._held = []
        self.peer.over = True
        self.peer.is_reset = bool(self.content)
        self.peer.changed()


class Timer(Descriptor):
    """A ``timerfd`` of the boot clock, or of one that stands still while the host *sleeps*."""

    has_alarm = True

    def __init__(self, clock: Clock, *, sleeps: bool) -> None:
        super().__init__()
        self._clock = clock
        self._sleeps = sleeps
        self._at = self._rings_at = INFINITE

    def set(self, at: float | None) -> None:
        """Readable from then on; ``None``: never."""
        self._at = INFINITE if at is None else at
        if self.waits:
            self.waits = [(thread, number) for thread, number in self.waits if thread.number == number]
            if self.waits:
                self.arm()

    def arm(self) -> None:
        """See ``Descriptor``."""
        if self._at < INFINITE and self._rings_at != self._at:
            self._rings_at = self._at
            Here.world.at(max(Here.world.now, self._clock.true(self._at + self._slept)) + 0.0001, self._ring, self._at)

    def _ring(self, at: float) -> None:
        if self._rings_at == at:
            self._rings_at = INFINITE
        if self._at == at and not self.content:
            self.arm()  # the host has slept meanwhile
        elif self._at == at:
            self.changed()

    @property
    def content(self) -> bool:
        """See ``Descriptor``."""
        clock = self._clock
        return clock.base + clock.rate * Here.world.now - self._slept >= self._at

    @property
    def _slept(self) -> float:
        return self._clock.slept if self._sleeps else 0.0


class Signalled(Descriptor):
    """A ``signalfd``."""

    def __init__(self, wanted: frozenset[int]) -> None:
        super().__init__()
        self.wanted = wanted
        self.content: list[tuple[int, int, int]] = []

    def put(self, signum: int, code: int, sender: int) -> None:
        """A signal was sent; the same one is kept once."""
        if signum in self.wanted and not any(each[0] == signum for each in self.content):
            self.content.append((signum, code, sender))
            self.changed()

    def read(self) -> list[tuple[int, int, int]]:
        """What was sent since the last call."""
        sent, self.content = self.content, []
        return sent


class Poll:
    """Stands for ``select.poll``."""

    __slots__ = ("_ends", "_watched", "_writable")

    def __init__(self) -> None:
        self._watched: dict[int, Descriptor] = {}
        self._ends: dict[int, Descriptor] | None = None
        self._writable: list[tuple[int, int]] | None = None

    def register(self, descriptor: int, events: int = READABLE) -> None:
        """As the real one; what can be written is always ready."""
        if events & READABLE:
            self._watched[descriptor] = Here.world.descriptors[descriptor]
        elif events == WRITABLE:
            self._writable = [*(self._writable or ()), (descriptor, WRITABLE)]
        else:
            self._ends = {**(self._ends or {}), descriptor: Here.world.descriptors[descriptor]}

    def unregister(self, descriptor: int) -> None:
        """As the real one."""
        del (self._ends if self._ends and descriptor in self._ends else self._watched)[descriptor]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """As the real one; *timeout* in milliseconds of the host's clock."""
        world = Here.world
        process = world.step()
        thread = world.thread
        assert thread is not None
        if self._writable:
            return self._writable
        ready = self._ready()
        if ready or timeout == 0:
            return ready
        until = INFINITE if timeout is None or timeout < 0 else world.now + timeout / 1000 / process.clock.rate
        watched = [*self._watched.values(), *(self._ends or {}).values()]
        while True:
            wait = thread, thread.number + 1
            for each in watched:
                each.waits.append(wait)
                if each.has_alarm:
                    each.arm()
            world.block(until)
            ready = self._ready()
            if ready or world.now >= until:
                return ready

    def _ready(self) -> list[tuple[int, int]]:
        ready = []
        for number, each in self._watched.items():
            if each.content or each.over:
                ready.append((number, READABLE))
        if self._ends:
            ready += [(number, HUNG_UP) for number, each in self._ends.items() if each.over]
        return ready
