"""Marks in a table of a SQLite database, the one that ``lockctl fence sql --dialect sqlite`` prints.

Compare and record are one transaction that begins with ``BEGIN IMMEDIATE``: SQLite has one writer at a time. A mark
that is held keeps that place, so nobody else writes to the database meanwhile.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import LARGEST, Mark, accept, parse_domain
from lockctl.names import printable
from lockctl.stores.sqlite.protocol import Connection, identity, read_url, where
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.url import Url

ADVICE = "make the table with: lockctl fence sql --dialect sqlite"


class SqliteStore:
    """A ``Store`` of marks in a database in a file."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = {"table": "lockctl_mark"}

    def __init__(self, path: str, table: str) -> None:
        """*table* is a plain name in the database *path*. Nothing is opened yet."""
        self._path = path
        self._table = f'"{table}"'
        self._where = where(path)

    @classmethod
    def from_url(cls, url: Url) -> SqliteStore:
        """The store of ``sqlite:///PATH``; raises ``ConfigError``."""
        path, taken = read_url(url, cls.parameters, "sqlite:///srv/shop.db")
        return cls(path, taken["table"])

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        with self._writing(Deadline(timeout)) as session:
            if accept(resource, session.mark_of(resource), mark):
                session.put(resource, mark)
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        with self._session(Deadline(timeout)) as session:
            return session.mark_of(resource)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        with self._writing(Deadline(timeout)) as session:
            try:
                before = session.mark_of(resource)
            except Foreign:
                before = None
            session.put(resource, mark)
        return before

    @contextmanager
    def holding(self, resource: str, mark: Mark, *, timeout: float) -> Iterator[None]:
        """See ``Store``. It holds a transaction without writes, so the mark is on the disk before it begins.

        Raises ``BackendUnavailable`` after the block if the file is another one by then.
        """
        deadline = Deadline(timeout)
        while True:
            self.advance(resource, mark, timeout=deadline.left())
            with self._begun(deadline) as (session, file):
                if accept(resource, session.mark_of(resource), mark):
                    continue  # it was reset, or the database replaced, in between
                try:
                    yield
                finally:
                    session.rollback()
                if file != identity(self._path):
                    raise BackendUnavailable(
                        f"{self._where}: the database was replaced: the mark was not held until the end"
                    )
                return

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: ``synchronous`` is set by us, to the strictest."""
        del timeout

    def close(self) -> None:
        """See ``Store``: nothing stays open."""

    @contextmanager
    def _writing(self, deadline: Deadline) -> Iterator[Session]:
        with self._begun(deadline) as (session, _):
            try:
                yield session
                session.execute("COMMIT")
            except BaseException:
                session.rollback()
                raise

    @contextmanager
    def _begun(self, deadline: Deadline) -> Iterator[tuple[Session, tuple[int, int]]]:
        """The one writer, and the file: that which others find, which may be another one after a wait."""
        while True:
            file = identity(self._path)
            with self._session(deadline) as session:
                session.begin()
                if file is not None and file == identity(self._path):
                    yield session, file
                    return
            deadline.check(self._where)

    @contextmanager
    def _session(self, deadline: Deadline) -> Iterator[Session]:
        if not os.path.exists(self._path):
            raise ConfigError(f"{self._where}: there is no such database: it is made by the program whose data it has")
        # any thread may use it: whoever waits for this store may have another one wait for it
        with closing(Connection(self._path, "rw", ADVICE)) as connection:
            session = Session(connection, self._table, self._where, deadline)
            # in rollback mode only EXTRA has the end of a commit survive a loss of power
            session.execute("PRAGMA synchronous = EXTRA")
            yield session


class Foreign(ConfigError):
    """A row that no program of ours wrote."""


class Session:
    """One connection, whose statements all end before one deadline."""

    def __init__(self, connection: Connection, table: str, where: str, deadline: Deadline) -> None:
        """*table* is quoted; *where* begins every message."""
        self._connection = connection
        self._table = table
        self._where = where
        self._deadline = deadline

    def execute(self, statement: str, *values: str | int) -> list[tuple[object, ...]]:
        """The rows; raises ``BackendUnavailable``, ``ConfigError``."""
        return self._connection.execute(statement, self._deadline, *values)[0]

    def begin(self) -> None:
        """Become the one writer."""
        self.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        """Undo what was not committed, and let others write."""
        self._connection.rollback()

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
        raise Foreign(
            f"{self._where}: the row of {printable(resource)} in {self._table} is not a mark of lockctl: it is left as"
            " it is; if the highest token is known from elsewhere, use: lockctl fence reset"
        )

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
