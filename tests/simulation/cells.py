"""Stores of cells: one with an exact clock that tells of changes, and one like S3, with whole seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lockctl.errors import BackendUnavailable
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen
from lockctl.locks.objects import ObjectCells
from lockctl.stores.memory.cell import MemoryBackend
from lockctl.stores.s3.cell import S3Backend
from lockctl.wire.deadline import READABLE
from tests.simulation.network import Call, Server, ask
from tests.simulation.plan import ANSWER, REQUEST
from tests.simulation.world import Here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Capabilities
    from lockctl.wire.deadline import Deadline
    from tests.simulation.network import Host, Network

TOLD = 0.75  # the part of the clients that wait until the server tells of a change; others look again and again
APART = 0.9  # seconds between the clocks of the servers behind one name


class CellServer(Server):
    """Cells with versions. Requests are ``("read", key)`` and ``("write", key, version, data)``."""

    def __init__(self, number: int, rate: float, *, whole_seconds: bool) -> None:
        super().__init__(number, rate)
        self.cells: dict[str, tuple[bytes, int]] = {}
        self.written = 0
        self.whole_seconds = whole_seconds
        self._watches: list[tuple[str, object, Callable[[], object]]] = []  # of which key and version, and whom to tell

    def answer(self, request: Any) -> Any:
        """See ``Server``."""
        kind, key = request[:2]
        data, version = self.cells.get(key, (None, None))
        if kind == "read":
            return data, version, self._time()
        if kind == "keys":
            return [each for each in self.cells if each.startswith(key)]
        _, _, expected, new = request
        if Here.world.telling:
            done = "is done" if version == expected else f"is refused: it has {version}"
            Here.world.tell(self.name, f"a write of {key}, if it has version {expected}, {done}")
        if version != expected:
            return None
        self.written += 1
        if new is None:
            self.cells.pop(key, None)
        else:
            self.cells[key] = (new, self.written)
        if self._watches:
            self._tell(key)
        return self.written

    def drop(self, key: str) -> None:
        """Have nothing in a cell any more: somebody has removed it by hand."""
        self.cells.pop(key, None)

    def watch(self, key: str, version: object, say: Callable[[], object]) -> None:
        """Tell somebody, once, when a cell has another version."""
        if self.up:
            self._watches.append((key, version, say))
            self._tell(key)

    def _tell(self, key: str) -> None:
        version = self.cells.get(key, (None, None))[1]
        told = [each for each in self._watches if each[0] == key and each[1] != version]
        self._watches = [each for each in self._watches if each not in told]
        for _, _, say in told:
            say()

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._watches = []
        super().fail(seconds, kept, old)

    def _time(self) -> float:
        time = self.clock.wall()
        return float(int(time - APART * Here.world.chance())) if self.whole_seconds else time

    def memory(self) -> Any:
        """See ``Server``."""
        return dict(self.cells)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.cells = dict(memory or {})


class ExactCells(Cells):
    """The client of a store with an exact clock."""

    where = "exact"
    longest_look = 2.0

    def __init__(self, network: Network, host: Host, server: CellServer) -> None:
        self._to = (network, host, server)
        self.where = f"exact, as {host.name} names it"
        self._is_told = Here.world.chance() < TOLD

    def watch(self, key: str, seen: Seen, deadline: Deadline, since: float | None = None) -> None:
        """See ``Cells``. What the server tells may be lost: there is a look now and then."""
        if not self._is_told:
            super().watch(key, seen, deadline, since)
            return
        while deadline.left() > 0:
            try:
                self._wait(key, seen, deadline.sooner(self.longest_look))
            except BackendUnavailable:
                if deadline.left() > 0 and self.read(key, deadline).version == seen.version:
                    continue
            return

    def _wait(self, key: str, seen: Seen, deadline: Deadline) -> None:
        """Return when the server tells of a change."""
        network, host, server = self._to
        told = Call()
        what = ("changed", key)
        network.carry(
            host,
            REQUEST,
            ("watch", key),
            server.watch,
            key,
            seen.version,
            lambda: network.carry(host, ANSWER, what, told.come, True),
        )
        deadline.wait(told.number, READABLE, self.where)

    def read(self, key: str, deadline: Deadline) -> Seen:
        """See ``Cells``."""
        return Seen(*ask(*self._to, ("read", key), deadline, self.where))

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """See ``Cells``."""
        return ask(*self._to, ("write", key, seen.version, data), deadline, self.where) is not None

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``."""
        for key in ask(*self._to, ("keys", prefix), deadline, self.where):
            yield key, self.read(key, deadline)

    def close(self) -> None:
        """See ``Cells``."""


class WholeSecondsCells(ObjectCells):
    """The client of a store of objects."""

    where = "seconds"

    def __init__(self, network: Network, host: Host, server: CellServer) -> None:
        super().__init__("")
        self.deletes = host.number % 2 == 0  # what each finds out for itself otherwise
        self._to = (network, host, server)

    def get(self, name: str, deadline: Deadline) -> Seen:
        """See ``ObjectCells``."""
        return Seen(*ask(*self._to, ("read", name), deadline, self.where))

    def put(self, name: str, version: object, body: bytes, deadline: Deadline) -> object:
        """See ``ObjectCells``."""
        return ask(*self._to, ("write", name, version, body), deadline, self.where)

    def delete(self, name: str, version: object, deadline: Deadline) -> bool:
        """See ``ObjectCells``."""
        return ask(*self._to, ("write", name, version, None), deadline, self.where) is not None

    def names(self, beginning: str, deadline: Deadline) -> Iterator[str]:
        """See ``ObjectCells``."""
        yield from ask(*self._to, ("keys", beginning), deadline, self.where)

    def close(self) -> None:
        """See ``Cells``."""


class ExactBackend(CellBackend):
    """Locks in the one."""

    capabilities: ClassVar[Capabilities] = MemoryBackend.capabilities
    parameters: ClassVar[dict[str, str]] = {}


class WholeSecondsBackend(CellBackend):
    """Locks in the other."""

    capabilities: ClassVar[Capabilities] = S3Backend.capabilities
    parameters: ClassVar[dict[str, str]] = {}
