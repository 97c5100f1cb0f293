"""Marks in a table of a SQLite database, the one that ``lockctl fence sql --dialect sqlite`` prints.

Compare and record are one transaction that begins with ``BEGIN IMMEDIATE``: SQLite has one writer at a time. A mark
that is held keeps that place, so nobody else writes to the database meanwhile.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import LARGEST, Mark, accept, parse_domain
from lockctl.names import printable
from lockctl.url import take_params
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.url import Url

TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# texts of sqlite3_errstr(3) for what may pass by itself; all others need a person
PASSING = ("locked", "is full", "disk I/O error", "out of memory", "interrupted")
LEAST = 0.001  # seconds: SQLite takes a limit of 0 for one that it must not wait for at all


class SqliteStore:
    """Marks in a database in a file, see ``lockctl.fence.store``."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = {"table": "lockctl_mark"}

    def __init__(self, path: str, table: str) -> None:
        """*table* is a plain name in the database *path*. Nothing is opened yet."""
        self._path = path
        self._table = f'"{table}"'
        self._where = f"sqlite: {printable(path)}"

    @classmethod
    def from_url(cls, url: Url) -> SqliteStore:
        """The store of ``sqlite:///PATH``; raises ``ConfigError``."""
        if url.hosts or url.user or url.password or not url.path.strip("/") or "\0" in url.path:
            message = f"sqlite: a URL has three slashes and an absolute path, such as sqlite:///srv/shop.db, not {url}"
            raise ConfigError(message)
        table = take_params(url, cls.parameters)["table"]
        if not TABLE.fullmatch(table):
            message = f"sqlite: {printable(table[:40])!r} is not a name for a table: letters, digits and _"
            raise ConfigError(message)
        return cls(url.path, table)

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        """See ``Store``."""
        with self._writing(Deadline(timeout)) as session:
            if accept(resource, session.mark_of(resource), mark):
                session.put(resource, mark)
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        """See ``Store``."""
        with self._session(Deadline(timeout)) as session:
            return session.mark_of(resource)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``."""
        with self._writing(Deadline(timeout)) as session:
            try:
                before = session.mark_of(resource)
            except Foreign:
                before = None
            session.put(resource, mark)
        return before

    @contextmanager
    def holding(self, resource: str, mark: Mark, *, timeout: float) -> Iterator[None]:
        """See ``Store``. It holds a transaction without writes, so the mark is on the disk before it begins."""
        deadline = Deadline(timeout)
        with self._session(deadline) as session:
            session.begin()
            if accept(resource, session.mark_of(resource), mark):
                session.put(resource, mark)
                session.execute("COMMIT")
                session.begin()
                accept(resource, session.mark_of(resource), mark)
            try:
                yield
            finally:
                session.rollback()

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: ``synchronous`` is set by us, to the strictest."""
        del timeout

    def close(self) -> None:
        """See ``Store``: nothing stays open."""

    @contextmanager
    def _writing(self, deadline: Deadline) -> Iterator[Session]:
        with self._session(deadline) as session:
            session.begin()
            try:
                yield session
                session.execute("COMMIT")
            except BaseException:
                session.rollback()
                raise

    @contextmanager
    def _session(self, deadline: Deadline) -> Iterator[Session]:
        name = "".join(char if char not in "?#%" else f"%{ord(char):02x}" for char in self._path)
        if not os.path.exists(self._path):
            raise ConfigError(f"{self._where}: there is no such database: it is made by the program whose data it has")
        try:
            # any thread: whoever waits for this store may have another one wait for it
            connection = sqlite3.connect(
                f"file:{name}?mode=rw", uri=True, isolation_level=None, timeout=0, check_same_thread=False
            )
        except sqlite3.Error as failure:
            raise _refusal(self._where, failure) from None
        # what is not UTF-8 becomes text that is not printable, which no mark has
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        with closing(connection):
            session = Session(connection, self._table, self._where, deadline)
            # in rollback mode only EXTRA has the end of a commit survive a loss of power
            session.execute("PRAGMA synchronous = EXTRA")
            yield session


class Foreign(ConfigError):
    """A row that no program of ours wrote."""


class Session:
    """One connection, whose statements all end before one deadline."""

    def __init__(self, connection: sqlite3.Connection, table: str, where: str, deadline: Deadline) -> None:
        """*table* is quoted; *where* begins every message."""
        self._connection = connection
        self._table = table
        self._where = where
        self._deadline = deadline

    def execute(self, statement: str, *values: str | int) -> list[tuple[object, ...]]:
        """The rows; raises ``BackendUnavailable``, ``ConfigError``."""
        milliseconds = int(max(self._deadline.left(), LEAST) * 1000)
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as failure:
            raise _refusal(self._where, failure) from None

    def begin(self) -> None:
        """Become the one writer."""
        self.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        """Undo what was not committed, and let others write."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return  # the end of the connection does the same

    def mark_of(self, resource: str) -> Mark | None:
        """The mark in the table; raises ``Foreign`` for what cannot be one."""
        rows = self.execute(f"SELECT domain, token FROM {self._table} WHERE resource = ?", resource)  # noqa: S608
        if not rows:
            return None
        domain, token = rows[0]
        try:
            if len(rows) == 1 and isinstance(domain, str) and isinstance(token, int) and 0 < token <= LARGEST:
                return Mark(parse_domain(domain), token)
        except ValueError:
            pass
        message = (
            f"{self._where}: the row of {printable(resource)} in {self._table} is not a mark of lockctl: it is left as"
            " it is; if the highest token is known from elsewhere, use: lockctl fence reset"
        )
        raise Foreign(message)

    def put(self, resource: str, mark: Mark | None) -> None:
        """Write the mark, or remove it."""
        if mark is None:
            self.execute(f"DELETE FROM {self._table} WHERE resource = ?", resource)  # noqa: S608
            return
        statement = (
            f"INSERT INTO {self._table} (resource, domain, token) VALUES (?, ?, ?)"  # noqa: S608
            " ON CONFLICT (resource) DO UPDATE SET domain = excluded.domain, token = excluded.token"
        )
        self.execute(statement, resource, mark.domain, mark.token)


def _refusal(where: str, failure: sqlite3.Error) -> ConfigError | BackendUnavailable:
    said = printable(str(failure))
    if any(text in said for text in PASSING):
        return BackendUnavailable(f"{where}: {said}")
    if "no such table" in said or "no such column" in said:
        return ConfigError(f"{where}: {said}: make the table with: lockctl fence sql --dialect sqlite")
    return ConfigError(f"{where}: {said}")
