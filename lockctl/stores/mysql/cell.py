"""Cells in a table of MySQL or MariaDB.

A row and not ``GET_LOCK``: that lock is bound to a connection, which poolers and proxies share and idle limits end; it
is not replicated, so a failover lets two in; and it has neither a token nor a lease that ends when the holder is
stopped. A row survives all of it, and can be looked at with SQL.

``GET_LOCK`` only tells: each who takes or waits has one that is named after it, and who is behind it in the queue asks
for that one. A hand-off so wakes one waiter.

One statement writes a row if its version is what was seen. It is as durable as the server makes a commit
(``innodb_flush_log_at_trx_commit``). The clock is that of the server when it began the statement.
"""

# ruff: noqa: S608 - the name of the table cannot be a parameter of a statement

from __future__ import annotations

import _thread
import os
from contextlib import suppress

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError, RequestInterrupted
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Cells, Seen, TimedMutex
from lockctl.model import Capabilities
from lockctl.names import printable
from lockctl.stores.mysql import address as addresses
from lockctl.stores.mysql import session as mysql
from lockctl.stores.mysql.connection import KeptSession
from lockctl.stores.mysql.session import Session, SqlError
from lockctl.url import Url, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, ClassVar, TypeVar

    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")
    Answer = tuple[list[tuple[Any, ...]], int]

TABLE = "lockctl_lock"
COLUMNS = "(id VARBINARY(700) PRIMARY KEY, data MEDIUMBLOB NOT NULL, version BINARY(16) NOT NULL) ENGINE=InnoDB"
CREATE = f"CREATE TABLE {TABLE} {COLUMNS}"
EXISTS = 1050
# rows are locked for the moment of a commit; what is late does no harm. UTC: of local time an hour may come twice
EACH_STATEMENT = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 5, lock_wait_timeout = 5, time_zone = '+00:00'"
NOW = "UNIX_TIMESTAMP(NOW(6))"
PRESENT = "lockctl:"  # stands before an owner in the name of its lock by GET_LOCK
FOLLOWED = 2  # seconds, whole ones, after which who waits by GET_LOCK looks at the row
SPARE = 0.5  # seconds for the answer to come in, when that time is over
PAGE = 30  # rows of one answer: a history may have 200 kB


class MysqlCells(Cells):
    """One connection to a database."""

    longest_look = 0.5
    follows = True

    def __init__(self, address: addresses.Address) -> None:
        """Connects when it is first used."""
        self._address = address
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time
        self._kept = KeptSession(address, EACH_STATEMENT)
        self._has_table = False  # as far as is known: who may not read it is not told
        self._owners: set[str] = set()  # those who take or wait
        self.where = self._kept.where

    def read(self, key: str, deadline: Deadline) -> Seen:
        """See ``Cells``. A row of its own has the time, whether the cell is there or not."""
        statement = f"SELECT c.data, c.version, {NOW} FROM (SELECT 1) AS one LEFT JOIN {TABLE} AS c ON c.id = %s"
        rows, _ = self._ask(statement, deadline, key.encode(), shows=True)
        return self._seen(rows[0] if rows else ())

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        if data is None and seen.version is None:
            return self.read(key, deadline).version is None
        name, version = key.encode(), os.urandom(16)
        if data is None:
            _, written = self._ask(f"DELETE FROM {TABLE} WHERE id = %s AND version = %s", deadline, name, seen.version)
        elif seen.version is None:
            statement = f"INSERT IGNORE INTO {TABLE} (id, data, version) VALUES (%s, %s, %s)"
            _, written = self._ask(statement, deadline, name, data, version)
        else:
            statement = f"UPDATE {TABLE} SET data = %s, version = %s WHERE id = %s AND version = %s"
            _, written = self._ask(statement, deadline, data, version, name, seen.version)
        return written == 1

    def attend(self, owner: str) -> None:
        """See ``Cells``. It is asked for before the next look, and again on each new connection."""
        self._owners.add(owner)

    def depart(self, owner: str, deadline: Deadline) -> None:
        if owner in self._owners:
            self._owners.discard(owner)
            with suppress(LockctlError):  # it ends with the connection
                self._ask("SELECT RELEASE_LOCK(%s)", deadline, PRESENT + owner)

    def follow(self, before: str, deadline: Deadline) -> bool:
        """See ``Cells``. ``False``, too, if *before* has lost its connection, or there are no such locks."""
        name = PRESENT + before
        statement = "SELECT IF(IS_FREE_LOCK(%s) = 0, GET_LOCK(%s, %s) AND RELEASE_LOCK(%s), NULL)"

        def step(session: Session) -> bool:
            self._show_presence(session, deadline)
            seconds = min(FOLLOWED, int(deadline.left() - SPARE))
            if seconds < 1:
                return False
            try:
                rows = session.ask(statement, deadline, name, name, seconds, name)
            except SqlError:
                return False  # ended by an administrator, or it would wait for itself
            return rows[:1] not in ([], [(None,)])

        return deadline.left() >= 1 + SPARE and self._run(step, deadline)

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        beginning = start = prefix.encode()
        while True:
            statement = f"SELECT id, data, version, {NOW} FROM {TABLE} WHERE id >= %s AND LEFT(id, %s) = %s ORDER BY id"
            rows, _ = self._ask(f"{statement} LIMIT {PAGE}", deadline, start, len(beginning), beginning)
            for name, *cell in rows:
                if not isinstance(name, bytes) or name < start:
                    raise self._strange()
                yield name.decode("utf-8", "surrogateescape"), self._seen(cell)
                start = name + b"\0"
            if len(rows) < PAGE:
                return

    def confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        """See ``Cells``: a replica, which may be behind, refuses to write."""
        self.write(key, Seen(None, os.urandom(16), 0.0), None, deadline)
        return self.read(key, deadline).version == seen.version

    def _seen(self, row: Sequence[Any]) -> Seen:
        """What a row says; raises ``BackendUnavailable`` if it is none of ours."""
        try:
            data, version, at = row
            seen = Seen(data, version, float(at))
        except (TypeError, ValueError):
            raise self._strange() from None
        if not isinstance(data, (bytes, type(None))) or not isinstance(version, (bytes, type(None))):
            raise self._strange()
        return seen

    def _strange(self) -> BackendUnavailable:
        self.close()  # what comes next there would be as strange
        return BackendUnavailable(f"{self.where}: not an answer to what was asked")

    def close(self) -> None:
        with self._mutex:
            self._kept.close()

    def _ask(self, statement: str, deadline: Deadline, *values: Any, shows: bool = False) -> Answer:
        """The rows of a statement, and how many it has written; *shows*: who takes or waits is shown before.

        A write that was sent twice does no harm: its condition is not met any more.
        """

        def step(session: Session) -> Answer:
            if shows:
                self._show_presence(session, deadline)
            try:
                rows = session.ask(statement, deadline, *values)
            except SqlError as error:
                if error.code not in mysql.NO_TABLE[:1]:
                    raise
                self._has_table = False
                self._make_table(session, deadline)
                rows = session.ask(statement, deadline, *values)
            self._has_table = True
            return rows, session.written

        return self._run(step, deadline)

    def _run(self, step: Callable[[Session], T], deadline: Deadline) -> T:
        with TimedMutex(self._mutex, deadline, self.where):
            try:
                return self._kept.run(step, deadline)
            except SqlError as error:
                raise self._explained(error) from None
            except RequestInterrupted:
                self._owners.clear()  # who leaves now leaves quickly, and who goes on attends again
                raise

    def _show_presence(self, session: Session, deadline: Deadline) -> None:
        """Again where another connection of ours has the lock, until the server has seen its end."""
        for owner in self._owners - session.locks if self.follows else ():
            try:
                if session.ask("SELECT GET_LOCK(%s, 0)", deadline, PRESENT + owner) == [(1,)]:
                    session.locks.add(owner)
            except SqlError:
                self.follows = False  # there are no such locks, as in some clusters: who waits looks for itself

    def _make_table(self, session: Session, deadline: Deadline) -> None:
        try:
            session.ask(CREATE, deadline)
        except SqlError as error:
            if error.code != EXISTS:
                raise

    def _explained(self, error: SqlError) -> BackendUnavailable | ConfigError:
        database = self._address.database
        if error.code in mysql.FORBIDDEN:
            from lockctl.stores.mysql.rights import grant, quoted

            make = "" if self._has_table else f"CREATE TABLE IF NOT EXISTS {quoted(database)}.{TABLE} {COLUMNS}; "
            statements = make + grant(database, TABLE, error.account)
            return ConfigError(f"{error}: have an administrator run: {statements}")
        if error.code in mysql.NO_TABLE:
            return ConfigError(f"{error}: make the database first")
        if error.code in mysql.READ_ONLY:
            return BackendUnavailable(f"{error}: this server is read-only: name the primary")
        if error.code in mysql.FOREIGN:
            place = f"{printable(database)}.{TABLE}"
            return ConfigError(f"{error}: {place} is not the table that lockctl makes: {CREATE}")
        return error


class MysqlBackend(CellBackend):
    """Locks in one database."""

    parameters: ClassVar[dict[str, str]] = {**addresses.PARAMETERS, "prefix": ""}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="mysql",
        rate_error=0.01,
        heartbeat=0.9,
        freed_when="its lease has run out on the server's clock",
        token_from="a counter in the row of the lock, never below the server's clock in microseconds; breaks if"  # noqa: S106
        " commits are lost (innodb_flush_log_at_trx_commit is not 1, failover to a replica that lags) while that clock"
        " goes back",
        survives="restarts and failovers that lose no commit, for as long as a lease lasts",
        clocks="the server's wall clock must not jump: it ends the leases",
        period_clock="the server's",
    )

    @classmethod
    def from_url(cls, url: Url) -> MysqlBackend:
        """``mysql://USER@HOST/DATABASE?prefix=P``; raises ``ConfigError``."""
        mysql.driver()  # now: loading it takes a part of a short lease that would else be counted
        prefix = take_params(url, cls.parameters)["prefix"]
        if len(prefix.encode()) > 300:
            raise ConfigError("mysql: a prefix has at most 300 bytes")
        return cls(MysqlCells(addresses.from_url(url, {"prefix": ""})), prefix)
