"""Marks in a table of PostgreSQL, which ``lockctl fence sql --dialect postgresql`` prints.

Each step is one transaction of READ COMMITTED that locks the row of the mark. Nothing is set for longer than a
transaction, so a pooler may stand between.
"""

from __future__ import annotations

from contextlib import contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, Stale
from lockctl.fence.sql import SCHEMA
from lockctl.fence.stores.postgresql_table import MarkTable
from lockctl.fence.stores.rows import ForeignRow, as_mark, only
from lockctl.stores.postgresql.address import Address, from_url
from lockctl.stores.postgresql.protocol import Opened, Standby, connect
from lockctl.stores.postgresql.session import SessionGone
from lockctl.value import replace
from lockctl.wire import tls_settings
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar, TypeVar

    from lockctl.url import Url

    T = TypeVar("T")

APPLICATION = "lockctl fence"
PATIENCE = 30.0  # seconds without an acknowledgement, after which the kernel gives a connection up
ENDING_LIMIT = 10.0  # seconds for the answer that the mark was held until the end of the block


class PostgresqlStore:
    """A ``Store`` of marks in one table of one database."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = {
        "schema": SCHEMA,  # of the table
        "tls": "",  # yes, no; empty: yes unless the server is on this machine
        **tls_settings.PARAMETERS,
    }

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        self._address = address
        self._marks = MarkTable(address)
        self._session: Opened | None = None

    @classmethod
    def from_url(cls, url: Url) -> PostgresqlStore:
        """For a ``postgresql`` URL; raises ``ConfigError``."""
        # where locks are kept, "key" may also be an advisory key
        params = tuple(("sslkey" if name == "key" else name, content) for name, content in url.params)
        return cls(from_url(replace(url, params=params)))

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        deadline = Deadline(timeout)
        return self._asked(lambda session: self._marks.advance(session, resource, mark, deadline), deadline)

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        deadline = Deadline(timeout)
        return self._asked(lambda session: self._marks.current(session, resource, deadline), deadline)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``. What was no mark of ours counts as none."""
        deadline = Deadline(timeout)
        session = self._connect(deadline)  # a fresh one: only once can it be said what was there before
        try:
            before = self._marks.replace(session, resource, mark, deadline)
            return None if before is None else as_mark(before)
        except ForeignRow:
            return None
        finally:
            session.close()

    @contextmanager
    def holding(self, resource: str, mark: Mark, *, timeout: float) -> Iterator[None]:
        """See ``Store``: a transaction that locks the row, on a connection that nothing else uses meanwhile.

        The mark is recorded before. Raises ``BackendUnavailable`` after the block if the transaction has ended earlier.
        """
        deadline = Deadline(timeout)
        _, session = self._lent(lambda session: self._marks.enter(session, resource, mark, deadline), deadline)
        ended = False
        try:
            yield
            try:
                session.ask("COMMIT", Deadline(ENDING_LIMIT))
                ended = True
            except BackendUnavailable as failure:
                raise BackendUnavailable(f"{failure}: the mark was maybe not held until the end") from None
        finally:
            if ended and self._session is None:
                self._session = session
            else:
                session.close()

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: each step of ours waits for its commit, if the server waits for its disk."""
        deadline = Deadline(timeout)
        if only(self._asked(lambda session: session.ask("SHOW fsync", deadline), deadline)) != b"on":
            raise ConfigError(f"postgresql at {self._address}: fsync is off, so a crash can lose marks: set fsync = on")

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _asked(self, step: Callable[[Opened], T], deadline: Deadline) -> T:
        """What *step* gives for the connection, which is kept, also after a refusal."""

        def keeping(session: Opened) -> T | Stale:
            try:
                return step(session)
            except Stale as refusal:
                return refusal

        given, self._session = self._lent(keeping, deadline)
        if isinstance(given, Stale):
            raise given
        return given

    def _lent(self, step: Callable[[Opened], T], deadline: Deadline) -> tuple[T, Opened]:
        """What *step* gives, and its connection: the one that was kept, or a new one if that has ended meanwhile."""
        old, self._session = self._session, None
        for session in (old, None):
            used = session or self._connect(deadline)
            try:
                return step(used), used
            except BaseException as failure:
                used.close()
                if session is None or not isinstance(failure, SessionGone):
                    raise
        raise AssertionError

    def _connect(self, deadline: Deadline) -> Opened:
        try:
            return connect(self._address, deadline, APPLICATION, PATIENCE)
        except Standby:
            raise BackendUnavailable(
                f"postgresql at {self._address}: is a standby, where no mark can be kept: name the primary in the URL"
            ) from None
