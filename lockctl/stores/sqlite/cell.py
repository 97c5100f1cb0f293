"""Cells in a table of a SQLite database, for programs of one host that share a directory but no lock files.

One statement writes a cell if its version is what was seen. The write-ahead log is synchronised at every commit
(``synchronous = FULL``), so that a token that was granted survives a loss of power.

The clock is the host's, and does not jump: the first who comes after a boot notes in a cell how far the time of day is
from the time since the boot, which also counts suspend. A clock that is set later changes nothing. A container may have
an id of the boot of its own, so another id alone does not tell another boot: see ``SqliteCells._judge``. What is noted
is read with each cell, and a write fails if it has changed since then: all who are there go by one clock.
"""

# ruff: noqa: S608 - the name of the table cannot be a parameter of a statement

from __future__ import annotations

import _thread
import os

from lockctl import clock
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen, TimedMutex
from lockctl.locks.lock_cells import LOCK
from lockctl.locks.machine import Lock
from lockctl.model import Capabilities
from lockctl.stores.sqlite.protocol import Connection, identity, make_file, read_url, where
from lockctl.stores.sqlite.wait import Presence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from lockctl.stores.sqlite.protocol import Result
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

CLOCK = "clock:"  # the cell of the clock: the id of a boot, and seconds since the epoch at it
STEP = 2.0  # seconds: a clock that is off by less was not set
FOLLOWED = 1.0  # seconds after which who waits for the end of another looks at the cell


class SqliteCells(Cells):
    """One connection to a database in a file."""

    longest_look = 0.25
    follows = True

    def __init__(self, path: str, table: str) -> None:
        """*table* is a plain name in the database *path*. Nothing is opened yet."""
        self.where = where(path)
        self._path = path
        self._table = f'"{table}"'
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None  # the database of the connection; None: it was made with it
        self._presence = Presence()
        self._noted = f"(SELECT data FROM {self._table} WHERE key = '{CLOCK}')"
        self._epoch = 0.0  # seconds since the epoch when the time since the boot was 0, as it was noted last
        self._ahead = 0.0  # seconds by which this process counts more since the boot than its host

    def read(self, key: str, deadline: Deadline) -> Seen:
        statement = f"SELECT data, version, {self._noted} FROM {self._table} WHERE key = ?"
        rows, _ = self._ask(statement, (key,), deadline)
        return self._seen(*rows[0]) if rows else Seen(None, None, self._now(self._epoch))

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        if data is None and seen.version is None:
            return self.read(key, deadline).version is None
        version = os.urandom(16)
        values: tuple[Any, ...]
        as_seen = f"key = ? AND version = ? AND {self._noted} IS ?"
        if data is None:
            statement, values = f"DELETE FROM {self._table} WHERE {as_seen}", (key, *seen.version)  # type: ignore[misc]
        elif seen.version is None:
            statement = f"INSERT INTO {self._table} (key, data, version) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
            values = (key, data, version)
        else:
            statement = f"UPDATE {self._table} SET data = ?, version = ? WHERE {as_seen}"
            values = (data, version, key, *seen.version)  # type: ignore[misc]
        self._presence.tidy()
        _, written = self._ask(statement, values, deadline)
        return written == 1

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        statement = f"SELECT key, data, version, {self._noted} FROM {self._table} WHERE substr(key, 1, ?) = ?"
        rows, _ = self._ask(statement, (len(prefix), prefix), deadline)
        for key, *found in rows:
            yield key, self._seen(*found)

    def attend(self, owner: str) -> None:
        self._presence.show(owner)

    def depart(self, owner: str, deadline: Deadline) -> None:
        self._presence.end(owner)

    def follow(self, before: str, deadline: Deadline) -> bool:
        return self._presence.follow(before, deadline.sooner(FOLLOWED), self.where)

    def close(self) -> None:
        self._presence.close()
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _seen(self, data: object, version: object, noted: object) -> Seen:
        """What was in a cell, and the clock as it was *noted* then."""
        epoch = _noted(noted)[1] or self._epoch
        self._epoch = epoch
        return Seen(_bytes(data), (version, noted), self._now(epoch))

    def _now(self, epoch: float) -> float:
        return epoch + clock.boottime() - self._ahead

    def _ask(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> Result:
        with TimedMutex(self._mutex, deadline, self.where):
            while True:
                if self._connection is None:
                    self._file = identity(self._path)
                    self._connection = self._opened(deadline)
                result = self._execute(self._connection, statement, deadline, *values)
                if self._file is not None and self._file == identity(self._path):
                    return result
                # in a database that was removed or replaced; what counts is in the one that others find
                self._connection.close()
                self._connection = None

    def _execute(self, connection: Connection, statement: str, deadline: Deadline, *values: Any) -> Result:
        deadline.check(self.where)
        return connection.execute(statement, deadline, *values)

    def _opened(self, deadline: Deadline) -> Connection:
        """A connection, with the table and the clock that are needed before any other statement."""
        make_file(self._path)
        made = Connection(self._path, "rwc")
        try:
            self._execute(made, "PRAGMA synchronous = FULL", deadline)
            if self._execute(made, "PRAGMA journal_mode", deadline)[0] != [("wal",)]:
                self._execute(made, "PRAGMA journal_mode = WAL", deadline)
            create = f"CREATE TABLE IF NOT EXISTS {self._table} (key TEXT PRIMARY KEY, data BLOB, version BLOB)"
            self._execute(made, create, deadline)
            self._set_clock(made, deadline)
        except BaseException:
            made.close()
            raise
        return made

    def _set_clock(self, connection: Connection, deadline: Deadline) -> None:
        """Find out when this boot was, as all who use the database agree; called once for a connection."""
        self._ahead = clock.ahead_of_host()
        noted, self._epoch = self._judge(connection, deadline)
        if noted:
            return
        self._execute(connection, "BEGIN IMMEDIATE", deadline)  # nobody is granted a lock by the clock of before
        noted, self._epoch = self._judge(connection, deadline)
        if not noted:
            put = f"INSERT OR REPLACE INTO {self._table} (key, data, version) VALUES (?, ?, ?)"
            values = CLOCK, f"{_boot_id()} {self._epoch!r}".encode(), os.urandom(16)
            self._execute(connection, put, deadline, *values)
        self._execute(connection, "COMMIT", deadline)

    def _judge(self, connection: Connection, deadline: Deadline) -> tuple[bool, float]:
        """Whether the clock is noted as it has to be, and the epoch: seconds since 1970 when this boot was.

        Where the id of the boot is another one, this may be a later boot or another container. A lock that was used
        later than it is now tells a later boot. Else the lease of a holder may be one of now, which a clock that is set
        ahead would end early: all stays as it is meanwhile. The clock never shows less than it did.
        """
        statement = f"SELECT key, data FROM {self._table} WHERE key = ? OR substr(key, 1, ?) = ?"
        rows, _ = self._execute(connection, statement, deadline, CLOCK, len(LOCK), LOCK)
        cells = {key: _bytes(data) or b"" for key, data in rows}
        boot, epoch = _noted(cells.pop(CLOCK, None))
        if boot == _boot_id():
            return True, epoch
        since_boot = self._now(0.0)
        now, today = epoch + since_boot, clock.wall() - since_boot
        locks = [lock for lock in map(Lock.read, cells.values()) if lock is not None]
        latest = max((lock.used for lock in locks), default=0.0)
        if latest > now + STEP:
            return False, max(today, latest - since_boot)
        for lock in locks:
            lock.expire(now)
        is_held = any(lock.running(owner) for lock in locks for owner in lock.holders)
        stays = is_held or today < epoch + STEP
        return stays, epoch if stays else today


class SqliteBackend(CellBackend):
    """Locks in one database."""

    parameters: ClassVar[dict[str, str]] = {"table": "lockctl_lock", "prefix": ""}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="sqlite",
        many_hosts=False,
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its lease has run out",
        token_from="a counter in the row of the lock, never below the clock in microseconds",  # noqa: S106
        survives="a loss of power: every commit is synchronised; a database that is deleted or put back does not",
        clocks="the host's time of day when it was booted; set later, it changes nothing",
        period_clock="the host's",
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - none does
        return False

    @classmethod
    def from_url(cls, url: Url) -> SqliteBackend:
        """``sqlite:///PATH?table=T&prefix=P``; raises ``ConfigError``."""
        path, taken = read_url(url, cls.parameters, "sqlite:///srv/locks.db")
        return cls(SqliteCells(path, taken["table"]), taken["prefix"])


def _bytes(data: object) -> bytes | None:
    """The content of a cell; what another program wrote as text or number is no lock."""
    return data if data is None or isinstance(data, bytes) else str(data).encode("utf-8", "replace")


def _noted(data: object) -> tuple[str, float]:
    """The boot, and when it was, of the cell of the clock."""
    boot, _, epoch = (data if isinstance(data, bytes) else b"").decode("ascii", "replace").partition(" ")
    try:
        return boot, float(epoch)
    except ValueError:
        return "", 0.0


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
        return file.read(64).strip().decode()
