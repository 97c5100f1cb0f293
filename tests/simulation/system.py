"""A virtual kernel: pipes, pairs of sockets, timers, descriptors of signals, and ``poll``.

Only what keeper, guard and clients use of the real one. Descriptors are numbers of the whole world.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.world import INFINITE, Here, Thread

if TYPE_CHECKING:
    from tests.simulation.world import Clock

READABLE = int(select.POLLIN)
WRITABLE = int(select.POLLOUT)
HUNG_UP = int(select.POLLRDHUP)
FIRST_DESCRIPTOR = 5000


class Descriptor:
    """What can be polled. Subclasses say when it is readable."""

    def __init__(self) -> None:
        descriptors = Here.world.descriptors
        self.number = FIRST_DESCRIPTOR + len(descriptors)
        self.waiters: dict[Thread, None] = {}  # in the order in which they came
        descriptors[self.number] = self

    def ready(self) -> bool:
        """Whether it is readable."""
        raise NotImplementedError

    def hung_up(self) -> bool:
        """Whether the other side of a connection sends no more."""
        return False

    def changed(self) -> None:
        """Wake who waits for it."""
        for thread in self.waiters:
            Here.world.wake(thread)

    def close(self) -> None:
        """Nobody uses it any more."""

    def fileno(self) -> int:
        """Its number."""
        return self.number


class Pipe(Descriptor):
    """One in which bytes are only counted; the reading and the writing end have one number."""

    def __init__(self) -> None:
        super().__init__()
        self.filled = 0
        self.ended = False

    def ready(self) -> bool:
        """See ``Descriptor``."""
        return self.filled > 0 or self.ended

    def read(self, size: int) -> bytes:
        """As ``os.read`` of one that does not block."""
        if not self.filled:
            if self.ended:
                return b""
            raise BlockingIOError
        taken, self.filled = min(size, self.filled), max(0, self.filled - size)
        return b"." * taken

    def write(self, data: bytes) -> int:
        """As ``os.write``."""
        self.filled += len(data)
        self.changed()
        return len(data)

    def finish(self) -> None:
        """The writing end is closed."""
        self.ended = True
        self.changed()


class End(Descriptor):
    """One end of a pair of sockets that keep frames whole."""

    peer: End

    def __init__(self) -> None:
        super().__init__()
        self.frames: deque[tuple[bytes, list[Any]]] = deque()
        self.open = True
        self._held: list[Any] = []  # what has come beside frames

    def ready(self) -> bool:
        """See ``Descriptor``."""
        return bool(self.frames) or not self.peer.open

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
        self.peer.frames.append((parts[0], beside))
        self.peer.changed()

    def recv_into(self, buffer: bytearray, size: int, flags: int) -> int:
        """The length of the next frame, as with MSG_PEEK and MSG_TRUNC."""
        if self.frames:
            return len(self.frames[0][0])
        if not self.peer.open:
            return 0
        raise BlockingIOError

    def recvmsg(self, size: int, room: int, flags: int) -> tuple[bytes, list[Any], int, None]:
        """As the method of a socket."""
        data, beside = self.frames.popleft() if self.frames else (b"", [])
        return data, beside, 0, None

    def close(self) -> None:
        """The other end sees it."""
        self.open = False
        for each in self._held:
            each.drop(self)
        self._held = []
        self.peer.changed()


class Timer(Descriptor):
    """A ``timerfd`` of the boot clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._at = INFINITE

    def set(self, at: float | None) -> None:
        """Readable from then on; ``None``: never."""
        self._at = INFINITE if at is None else at
        if self._at < INFINITE and self.waiters:
            self.arm()

    def arm(self) -> None:
        """See that who waits is woken."""
        if self._at < INFINITE:
            Here.world.at(max(Here.world.now, self._clock.true(self._at)) + 0.0001, self._ring, self._at)

    def _ring(self, at: float) -> None:
        if self._at == at:
            self.changed()

    def ready(self) -> bool:
        """See ``Descriptor``."""
        return self._clock.boottime() >= self._at


class Signalled(Descriptor):
    """A ``signalfd``."""

    def __init__(self, wanted: frozenset[int]) -> None:
        super().__init__()
        self._wanted = wanted
        self._sent: list[tuple[int, int, int]] = []

    def put(self, signum: int, code: int, sender: int) -> None:
        """A signal was sent; the same one is kept once."""
        if signum in self._wanted and not any(each[0] == signum for each in self._sent):
            self._sent.append((signum, code, sender))
            self.changed()

    def ready(self) -> bool:
        """See ``Descriptor``."""
        return bool(self._sent)

    def read(self) -> list[tuple[int, int, int]]:
        """What was sent since the last call."""
        sent, self._sent = self._sent, []
        return sent


class Poll:
    """Stands for ``select.poll``."""

    def __init__(self) -> None:
        self._watched: list[int] = []
        self._ends: list[int] = []
        self._writable: list[tuple[int, int]] = []

    def register(self, descriptor: int, events: int = READABLE) -> None:
        """As the real one; what can be written is always ready."""
        if events == WRITABLE:
            self._writable.append((descriptor, WRITABLE))
        elif not events & READABLE:
            self._ends.append(descriptor)
        elif descriptor not in self._watched:
            self._watched.append(descriptor)

    def unregister(self, descriptor: int) -> None:
        """As the real one."""
        (self._ends if descriptor in self._ends else self._watched).remove(descriptor)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """As the real one; *timeout* in milliseconds of the host's clock."""
        world = Here.world
        world.step()
        thread = world.thread
        assert thread is not None
        until = INFINITE if timeout is None or timeout < 0 else world.now + timeout / 1000 / thread.process.clock.rate
        descriptors = world.descriptors
        readable = [descriptors[number] for number in self._watched]
        ends = [descriptors[number] for number in self._ends]
        watched = readable + ends
        while True:
            ready = self._writable or [(each.number, READABLE) for each in readable if each.ready()]
            ready = ready + [(each.number, HUNG_UP) for each in ends if each.hung_up()]
            if ready or world.now >= until:
                return ready
            for each in watched:
                each.waiters[thread] = None
                if isinstance(each, Timer):
                    each.arm()
            world.block(until)
            for each in watched:
                each.waiters.pop(thread, None)
