"""What kazoo finds instead of threads, queues, sockets and chance: all of them are of the world.

Nothing is switched between two steps, so what only protects data from other threads protects nothing here.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lockctl.errors import BackendUnavailable
from lockctl.wire.deadline import Deadline
from lockctl.wire.stream import Closed
from tests.simulation.system import Pipe
from tests.simulation.world import INFINITE, Here, Mutex

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.streams import Link
    from tests.simulation.world import Thread as Green


class Waiting:
    """Threads that wait for something."""

    def __init__(self) -> None:
        self._waiters: list[Green] = []

    def wait_until(self, happened: Callable[[], object], timeout: float | None = None) -> bool:
        """Whether it has happened within so many seconds of the host's clock."""
        world = Here.world
        thread = world.thread
        assert thread is not None
        until = INFINITE if timeout is None else world.now + timeout / thread.process.clock.rate
        while not happened():
            if world.now >= until:
                return False
            self._waiters.append(thread)
            world.block(until)
            if thread in self._waiters:
                self._waiters.remove(thread)
        return True

    def wake(self) -> None:
        """It may have happened."""
        for thread in self._waiters:
            Here.world.wake(thread)


class Event(Waiting):
    """As ``threading.Event``."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False

    def is_set(self) -> bool:
        """As the real one."""
        return self._is_set

    def set(self) -> None:
        """As the real one."""
        self._is_set = True
        self.wake()

    def clear(self) -> None:
        """As the real one."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As the real one."""
        return self.wait_until(self.is_set, timeout)


class Condition(Waiting):
    """As ``threading.Condition``; its lock is never held when another thread runs."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        """As the real one."""
        before = self._count
        return self.wait_until(lambda: self._count > before, timeout)

    def notify_all(self) -> None:
        """As the real one."""
        self._count += 1
        self.wake()


class Queue(Waiting):
    """As ``queue.Queue``."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """As the real one."""
        self._items.append(item)
        self.wake()

    def get(self) -> Any:
        """As the real one."""
        self.wait_until(lambda: self._items)
        return self._items.popleft()

    def task_done(self) -> None:
        """As the real one."""


class Thread:
    """As ``threading.Thread``."""

    def __init__(self, target: Callable[[], None], *, daemon: bool) -> None:
        self._target = target
        self._ended = Event()

    def start(self) -> None:
        """As the real one."""
        world = Here.world
        assert world.thread is not None
        world.start(world.thread.process, self._run)

    def _run(self) -> None:
        self._target()
        self._ended.set()

    def join(self) -> None:
        """As the real one."""
        self._ended.wait()


class PairEnd:
    """An end of a pair of sockets: bytes are only counted."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def fileno(self) -> int:
        """As of a socket."""
        return self._pipe.number

    def send(self, data: bytes) -> int:
        """As of a socket."""
        return self._pipe.write(data)

    def recv(self, size: int) -> bytes:
        """As of a socket."""
        return self._pipe.read(size)

    def close(self) -> None:
        """As of a socket."""


class Socket:
    """One that is connected and does not block."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._closed = False

    def fileno(self) -> int:
        """As of a socket."""
        return -1 if self._closed else self._link.number

    def setblocking(self, wanted: object) -> None:
        """Never."""

    def setsockopt(self, *_: object) -> None:
        """Of no consequence here."""

    def send(self, data: bytes | memoryview) -> int:
        """As of a socket."""
        try:
            self._link.send(bytes(data))
        except Closed as failure:
            raise ConnectionResetError(str(failure)) from None
        return len(data)

    def recv(self, size: int) -> bytes:
        """As of a socket."""
        return self._link.read(size)

    def shutdown(self, _: int) -> None:
        """As of a socket, in both directions."""
        self._link.shut()

    def close(self) -> None:
        """As of a socket."""
        self._closed = True
        self._link.close()


def _create_connection(address: tuple[str, int], timeout: float) -> Socket:
    world = Here.world
    assert world.thread is not None
    try:
        return Socket(world.connect(world.thread.process.clock, address[0], Deadline(timeout), address[0]))
    except BackendUnavailable:
        raise TimeoutError("timed out") from None


def _socketpair() -> tuple[PairEnd, PairEnd]:
    pipe = Pipe()
    return PairEnd(pipe), PairEnd(pipe)


def _getaddrinfo(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


SOCKET = SimpleNamespace(
    **{
        **vars(socket),
        "socket": Socket,
        "create_connection": _create_connection,
        "socketpair": _socketpair,
        "getaddrinfo": _getaddrinfo,
    }
)
THREADING = SimpleNamespace(Condition=Condition, Event=Event, Lock=Mutex, RLock=Condition, Thread=Thread)


def _randint(least: int, most: int) -> int:
    return Here.world.random.randint(least, most)


def _uniform(least: float, most: float) -> float:
    return Here.world.random.uniform(least, most)


RANDOM = SimpleNamespace(
    **{**vars(random), "SystemRandom": lambda: Here.world.random, "randint": _randint, "uniform": _uniform}
)
