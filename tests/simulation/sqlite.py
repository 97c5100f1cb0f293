"""A database of SQLite in a file of one host, and the sockets by which its programs see each other.

Statements are executed by SQLite, in memory; others may go on before each of them.
"""

from __future__ import annotations

import _socket
import sqlite3
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lockctl.errors import BackendUnavailable
from tests.simulation.files import call
from tests.simulation.network import Server
from tests.simulation.processes import me
from tests.simulation.system import Descriptor
from tests.simulation.world import Here

if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline
    from tests.simulation.processes import Process
    from tests.simulation.world import Clock

PATH, TABLE, CLOCK = "/locks.db", "lockctl_lock", "clock:"
BEGIN, COMMIT = "BEGIN IMMEDIATE", "COMMIT"
BUSY = 0.1  # part of the statements that have to wait for others, or for the disk
LONGEST_BUSY = 0.05  # seconds
SLOWEST_COMMIT = 0.005  # seconds until the log has reached the disk


class Database(Server):
    """It stands for the server, and all of the host's programs see it."""

    def __init__(self, rate: float) -> None:
        super().__init__(0, rate)
        Here.world.files = self
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None)
        self.file = 1  # what tells it from others that had its path
        self.asked: list[tuple[Process, float]] = []  # who has executed a statement, and when
        self.boots = 1  # of its host
        self.writer: Connection | None = None  # in a transaction
        # seconds for which somebody has waited for the transactions of others
        self.waited: defaultdict[Process, float] = defaultdict(float)
        self._on_disk: sqlite3.Connection | None = (
            None  # what is there of commits that were not waited for; None: there are none
        )
        self.listening: dict[bytes, Socket] = {}
        self.host: Clock = self.clock  # that of its host, as soon as somebody has asked

    def cell(self, key: str) -> bytes | None:
        """What is in a cell."""
        try:
            rows = self.sqlite.execute(f"SELECT data FROM {TABLE} WHERE key = ?", (key,)).fetchall()
        except sqlite3.OperationalError:
            return None  # there is no table yet
        return rows[0][0] if rows else None

    def replace(self) -> None:
        """Have another file at the path, in which nothing is: who has this one open goes on with it."""
        Here.world.tell("the database", "is removed")
        self.ever_forgot.append(Here.world.now)
        self.sqlite, self.file = sqlite3.connect(":memory:", isolation_level=None), self.file + 1

    def commit(self, *, waits: bool) -> None:
        """Somebody is about to write, and *waits* until that has reached the disk, and with it all before."""
        if waits:
            self._on_disk = None
        elif self._on_disk is None:
            self._on_disk = sqlite3.connect(":memory:", isolation_level=None)
            self.sqlite.backup(self._on_disk)

    def lose_power(self, boots: int) -> None:
        """The host starts again, so often, with what has reached the disk; all its processes are gone already."""
        self.boots += boots
        if self._on_disk is not None:
            self.sqlite, self._on_disk = self._on_disk, None

    def now(self) -> float:
        """The clock of the store."""
        _, _, epoch = (self.cell(CLOCK) or b"- 0").partition(b" ")
        return float(epoch) + self.host.boottime()


class Connection:
    """Stands for ``stores.sqlite.protocol.Connection``."""

    def __init__(self, path: str, mode: str, advice: str = "") -> None:
        call()
        self._sqlite: sqlite3.Connection = Here.world.files.sqlite
        self._waits = False  # for the disk
        self._process = me()

    def execute(self, statement: str, deadline: Deadline, *values: Any) -> tuple[list[tuple[Any, ...]], int]:
        """See the real one."""
        world = Here.world
        database: Database = world.files
        database.host = me().clock
        call()
        if statement.startswith("PRAGMA"):
            self._waits = self._waits or statement == "PRAGMA synchronous = FULL"
            return [("wal",)], -1
        if world.chance() < BUSY:
            world.block(world.now + LONGEST_BUSY * world.chance())
        database.asked.append((me(), world.now))
        if not statement.startswith("SELECT"):
            self._write(database, deadline)
            if statement in (BEGIN, COMMIT):
                database.writer = self if statement == BEGIN else None
                return [], -1
        cursor = self._sqlite.execute(statement, values)
        found = cursor.fetchall(), cursor.rowcount
        if found[1] > 0:
            world.block(world.now + SLOWEST_COMMIT * world.chance())
        return found

    def _write(self, database: Database, deadline: Deadline) -> None:
        """Wait for another one's transaction, which ends with its process, until the deadline."""
        while (writer := database.writer) is not None and writer is not self and not writer._process.dead:
            Here.world.block(Here.world.now + LONGEST_BUSY)
            database.waited[self._process] += LONGEST_BUSY
            if deadline.left() <= 0:
                raise BackendUnavailable(f"sqlite: {PATH}: database is locked")
        database.commit(waits=self._waits)

    def close(self) -> None:
        """See the real one."""
        if Here.world.files.writer is self:
            Here.world.files.writer = None


def identity(_: str) -> tuple[int, int]:
    """Stands for ``stores.sqlite.protocol.identity``."""
    return 1, Here.world.files.file


class Socket(Descriptor):
    """One of the domain of a host, with an abstract name if it listens, else with a peer."""

    content = None

    def __init__(self, family: int = 0, kind: int = 0) -> None:
        super().__init__()
        self._name = b""
        self._waiting: list[Socket] = []  # ends of connections that are not accepted
        self._peer: Socket | None = None
        me().receive(self)

    def bind(self, name: bytes) -> None:
        """See that of ``_socket``."""
        call()
        self._name = name

    def listen(self, most: int) -> None:
        """See that of ``_socket``."""
        if self._name in Here.world.files.listening:
            raise OSError
        Here.world.files.listening[self._name] = self

    def connect(self, name: bytes) -> None:
        """See that of ``_socket``."""
        call()
        listening: Socket | None = Here.world.files.listening.get(name)
        if listening is None:
            raise ConnectionRefusedError
        other = End()
        self._peer, other._peer = other, self
        listening._waiting.append(other)

    def _accept(self) -> tuple[int, object]:
        if not self._waiting:
            raise BlockingIOError
        accepted = self._waiting.pop(0)
        me().receive(accepted)
        return accepted.number, None

    def recv(self, size: int, flags: int) -> bytes:
        """See that of ``_socket``."""
        if not self.over:
            raise BlockingIOError
        return b""

    def close(self) -> None:
        """See that of ``_socket``."""
        me().let_go(self)

    def gone(self) -> None:
        """See ``Descriptor``: those who are connected see it."""
        listening = Here.world.files.listening
        if listening.get(self._name) is self:
            del listening[self._name]
        for each in (self, *self._waiting):
            if each._peer is not None:
                each._peer.over = True
                each._peer.changed()


class End(Socket):
    """The end of a connection at who listens, which no program has before it is accepted."""

    def __init__(self) -> None:
        Descriptor.__init__(self)
        self._name, self._waiting, self._peer = b"", [], None


def _socket_of(family: int = 0, kind: int = 0, *, fileno: int = -1) -> Socket:
    if fileno < 0:
        return Socket(family, kind)
    found: Socket = Here.world.descriptors[fileno]
    return found


SOCKET = SimpleNamespace(**{**vars(_socket), "socket": _socket_of})
