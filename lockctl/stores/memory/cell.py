"""Cells in the memory of one process: the plainest store, for tests and as an example; no URL leads here."""

from __future__ import annotations

import itertools
import os
import threading
import time

from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen
from lockctl.model import Capabilities
from lockctl.wire.deadline import READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.url import Url


class MemoryServer:
    """What all clients share. *now*, seconds since the epoch, ends leases and is the floor of tokens."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """No cells yet."""
        self.now = now
        self.mutex = threading.Lock()
        self.cells: dict[str, tuple[bytes, int]] = {}  # data and version
        self.versions = itertools.count(1)
        self.watchers: set[int] = set()  # an event descriptor for each watch that is under way

    def write(self, key: str, data: bytes | None) -> None:
        """Write a cell, or remove it, without a condition; to be used under the mutex."""
        if data is None:
            self.cells.pop(key, None)
        else:
            self.cells[key] = (data, next(self.versions))
        self.notify()

    def notify(self) -> None:
        """Have all who watch look again."""
        for watcher in self.watchers:
            os.eventfd_write(watcher, 1)


class MemoryCells(Cells):
    """One client. Without *reachable*, which tests change, no request gets an answer."""

    where = "memory"

    def __init__(self, server: MemoryServer) -> None:
        """Talk to *server*."""
        self.reachable = True
        self._server = server

    def read(self, key: str, deadline: Deadline) -> Seen:
        with self._connected().mutex:
            data, version = self._server.cells.get(key, (None, 0))
            return Seen(data, version, self._server.now())

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        with self._connected().mutex:
            if self._server.cells.get(key, (None, 0))[1] != seen.version:
                return False
            self._server.write(key, data)
            return True

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        with self._connected().mutex:
            found = [(key, Seen(*cell, self._server.now())) for key, cell in self._server.cells.items()]
        return ((key, seen) for key, seen in found if key.startswith(prefix))

    def watch(self, key: str, seen: Seen, deadline: Deadline, since: float | None = None) -> None:
        server = self._connected()
        watcher = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with server.mutex:
            server.watchers.add(watcher)
            changed = server.cells.get(key, (None, 0))[1] != seen.version
        try:
            if not changed:
                deadline.wait(watcher, READABLE, self.where)
        except BackendUnavailable:
            return  # the time is over
        finally:
            with server.mutex:
                server.watchers.remove(watcher)
            os.close(watcher)

    def close(self) -> None:
        """See ``Cells``: nothing is open."""

    def _connected(self) -> MemoryServer:
        if not self.reachable:
            raise BackendUnavailable("memory: cut off")
        return self._server


class MemoryBackend(CellBackend):
    """Locks in the memory of one process."""

    parameters: ClassVar[dict[str, str]] = {}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="memory",
        many_hosts=False,
        rate_error=0.002,
        heartbeat=5.0,
        freed_when="its lease has run out",
        token_from="a counter, never below the clock in microseconds",  # noqa: S106 - not a password
        survives="nothing",
        clocks="that of one process",
        period_clock="that of the process",
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - none does
        return False

    def __init__(self, server: MemoryServer) -> None:
        """Talk to *server*."""
        self.cells = MemoryCells(server)
        super().__init__(self.cells)
