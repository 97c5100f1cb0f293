"""Marks in a table of PostgreSQL, which ``lockctl fence sql --dialect postgresql`` prints.

Each step is one transaction of READ COMMITTED that locks the row of the mark. Nothing is set for longer than a
transaction, so a pooler may stand between.
"""

# ruff: noqa: S608 - names of tables cannot be parameters of a statement

from __future__ import annotations

from contextlib import contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Stale, accept
from lockctl.fence.sql import SCHEMA, TABLE
from lockctl.fence.stores.rows import LONGEST_DOMAIN, ForeignRow, as_mark
from lockctl.names import printable
from lockctl.stores.postgresql.address import from_url
from lockctl.stores.postgresql.layout import FORBIDDEN, NO_TABLE
from lockctl.stores.postgresql.protocol import Standby, connect
from lockctl.stores.postgresql.schema import NO_SCHEMA, WRONG_SHAPE
from lockctl.stores.postgresql.session import SessionGone, SqlError
from lockctl.stores.postgresql.tokens import DURABLE
from lockctl.value import replace
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, TypeVar

    from lockctl.fence.mark import Mark
    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.session import Row
    from lockctl.url import Url

    T = TypeVar("T")

APPLICATION = "lockctl fence"
PATIENCE = 30.0  # seconds without an acknowledgement, after which the kernel gives a connection up
ENDING_LIMIT = 10.0  # seconds for the answer that the mark was held until the end of the block
READ_ONLY, BUSY = "25006", "55P03"
FOREIGN = (*WRONG_SHAPE, "23514", "22001", "22P02")  # constraints and types of columns that are not ours
# what is usual here may be stricter, and a retry would be needed; the commit waits for the disk
FRESH = f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {DURABLE}"
# a mark stays held however long its holder is silent, and not much longer than its machine lives; not every server
# knows all of them
UNHURRIED = (
    "SELECT pg_catalog.set_config(name, wanted, true) FROM pg_catalog.pg_settings JOIN (VALUES"
    " ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'), ('tcp_keepalives_idle', '5'),"
    " ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '5')) AS wish (name, wanted) USING (name)"
)


class PostgresqlStore:
    """Marks in one table of one database."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = {
        "schema": SCHEMA,  # of the table
        "tls": "",  # yes, no; empty: yes unless the server is on this machine
        "ca": "",
        "cert": "",
        "key": "",
        "tls_name": "",
        "insecure": "no",
    }

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        self._address = address
        # never by the search_path: whoever may set that, or make a schema or a temporary table, must not have two marks
        schema = '"' + (address.schema or SCHEMA).replace('"', '""') + '"'
        self._table = f"{schema}.{TABLE}".replace("%", "%%")  # in statements, which have parameters
        self._name = printable(f"{schema}.{TABLE}")  # for people
        self._session: Opened | None = None

    @classmethod
    def from_url(cls, url: Url) -> PostgresqlStore:
        """For a ``postgresql`` URL; raises ``ConfigError``."""
        # where locks are kept, "key" may also be an advisory key
        params = tuple(("sslkey" if name == "key" else name, content) for name, content in url.params)
        return cls(from_url(replace(url, params=params)))

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        """See ``Store``."""
        deadline = Deadline(timeout)
        return self._asked(lambda session: self._advance(session, resource, mark, deadline), deadline)

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        """See ``Store``."""
        deadline = Deadline(timeout)
        sql = self._selected()
        rows = self._asked(lambda session: self._ask(session, resource, sql, deadline, (resource,)), deadline)
        return self._mark(resource, rows[0]) if rows else None

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``. What was no mark of ours counts as none."""
        deadline = Deadline(timeout)
        session = self._connect(deadline)  # a fresh one: only once can it be said what was there before
        try:
            before = self._replace(session, resource, mark, deadline)
            return None if before is None else as_mark(*before)
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
        session = self._entered(resource, mark, deadline)
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
        ((fsync,),) = self._asked(lambda session: session.ask("SHOW fsync", deadline), deadline)
        if bytes(fsync) != b"on":
            raise ConfigError(f"postgresql at {self._address}: fsync is off, so a crash can lose marks: set fsync = on")

    def close(self) -> None:
        """See ``Store``."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _advance(self, session: Opened, resource: str, mark: Mark, deadline: Deadline) -> Mark:
        """Record, and read what is there then. The row is locked in any case, also where nothing is written to it."""
        sql = (
            f"{_prelude(deadline)}INSERT INTO {self._table} AS mark (resource, domain, token) VALUES (%s, %s, %s)"
            " ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token"
            " WHERE mark.domain = EXCLUDED.domain AND mark.token > 0 AND mark.token < EXCLUDED.token;"
            f" {self._selected()}"
        )
        rows = self._ask(session, resource, sql, deadline, (resource, mark.domain, mark.token, resource))
        if not rows:
            raise ConfigError(f"{session.where}: {self._name} does not keep what is written to it")
        seen = self._mark(resource, rows[0])
        if accept(resource, seen, mark):
            raise ConfigError(f"{session.where}: {self._name} does not keep what is written to it")
        return seen

    def _entered(self, resource: str, mark: Mark, deadline: Deadline) -> Opened:
        """A connection whose transaction has locked the row: the one that was kept, if it is still good."""
        old, self._session = self._session, None
        for session in (old, None):
            used = session or self._connect(deadline)
            try:
                self._enter(used, resource, mark, deadline)
            except BaseException as failure:
                used.close()
                if session is None or not isinstance(failure, SessionGone):
                    raise
            else:
                return used
        raise AssertionError

    def _enter(self, session: Opened, resource: str, mark: Mark, deadline: Deadline) -> None:
        while True:
            self._advance(session, resource, mark, deadline)
            session.ask("BEGIN", deadline)
            sql = f"{_prelude(deadline)}{UNHURRIED}; {self._selected()} FOR UPDATE"
            rows = self._ask(session, resource, sql, deadline, (resource,))
            if rows and not accept(resource, self._mark(resource, rows[0]), mark):
                return
            session.ask("ROLLBACK", deadline)  # somebody has reset the mark just now

    def _replace(self, session: Opened, resource: str, mark: Mark | None, deadline: Deadline) -> Row | None:
        """Set or remove; the row before."""
        if mark is None:
            sql = f"{_prelude(deadline)}DELETE FROM {self._table} WHERE resource = %s RETURNING {_columns('')}"
            rows = self._ask(session, resource, sql, deadline, (resource,))
            return rows[0] if rows else None
        session.ask("BEGIN", deadline)
        while True:
            sql = f"{_prelude(deadline)}{self._selected()} FOR UPDATE"
            rows = self._ask(session, resource, sql, deadline, (resource,))
            if rows:
                sql = f"UPDATE {self._table} SET domain = %s, token = %s WHERE resource = %s RETURNING 1"
            else:
                sql = (
                    f"INSERT INTO {self._table} (domain, token, resource) VALUES (%s, %s, %s)"
                    " ON CONFLICT DO NOTHING RETURNING 1"
                )
            if self._ask(session, resource, sql, deadline, (mark.domain, mark.token, resource)):
                session.ask("COMMIT", deadline)
                return rows[0] if rows else None
            deadline.check(session.where)  # somebody was first: now there is a row

    def _asked(self, step: Callable[[Opened], T], deadline: Deadline) -> T:
        """What *step* gives for the connection; once more on a new one if the old one had ended meanwhile."""
        old = self._session
        if old is not None:
            try:
                return self._kept(old, step)
            except SessionGone:
                pass
        return self._kept(self._connect(deadline), step)

    def _kept(self, session: Opened, step: Callable[[Opened], T]) -> T:
        """What *step* gives; the connection is kept for the next one if it is still good."""
        self._session = None
        try:
            given = step(session)
        except Stale:
            self._session = session
            raise
        except BaseException:
            session.close()
            raise
        self._session = session
        return given

    def _connect(self, deadline: Deadline) -> Opened:
        try:
            return connect(self._address, deadline, APPLICATION, PATIENCE)
        except Standby:
            raise ConfigError(
                f"postgresql at {self._address}: is a standby, where no mark can be kept: name the primary in the URL"
            ) from None

    def _ask(self, session: Opened, resource: str, sql: str, deadline: Deadline, values: tuple[Any, ...]) -> list[Row]:
        """The rows that the last statement gives. Raises as ``Store`` says."""
        try:
            return session.ask(sql, deadline, values)
        except SqlError as error:
            raise self._explained(error, session, resource, deadline) from None

    def _explained(
        self, error: SqlError, session: Opened, resource: str, deadline: Deadline
    ) -> BackendUnavailable | ConfigError:
        advice = "lockctl fence sql --dialect postgresql"
        if error.code in (NO_TABLE, NO_SCHEMA):
            return ConfigError(
                f"{error}: no table {self._name} for marks here: {advice} prints it; if it is in another schema,"
                " name that in the URL: ?schema=NAME"
            )
        if error.code == FORBIDDEN:
            return ConfigError(
                f"{error}: have the owner of {self._name} run: GRANT SELECT, INSERT, UPDATE, DELETE ON"
                f" {self._name} TO {printable(session.user)}"
            )
        if error.code == READ_ONLY:
            return ConfigError(f"{error}: this database is read-only, and no mark can be kept")
        if error.code in FOREIGN:
            return ConfigError(f"{error}: {self._name} is not the table that {advice} prints")
        if error.code == BUSY:
            return BackendUnavailable(
                f"{session.where}: the mark of {printable(resource)} is held by somebody else,"
                f" for longer than {deadline.timeout:.3g} s"
            )
        return error

    def _mark(self, resource: str, row: Row) -> Mark:
        """The mark in a row. Raises ``ConfigError``."""
        try:
            return as_mark(*row)
        except ForeignRow as wrong:
            raise ConfigError(
                f"postgresql at {self._address}: the mark of {printable(resource)} in {self._name} {wrong}:"
                " lockctl fence reset sets it anew"
            ) from None

    def _selected(self) -> str:
        return f"SELECT {_columns('mark.')} FROM {self._table} AS mark WHERE mark.resource = %s"


def _columns(place: str) -> str:
    return f"CASE WHEN pg_catalog.octet_length({place}domain) <= {LONGEST_DOMAIN} THEN {place}domain END, {place}token"


def _prelude(deadline: Deadline) -> str:
    """Settings of one transaction; who waits for a row gives up a little before its caller does."""
    milliseconds = max(1, int(deadline.left() * 900))
    return f"{FRESH}SET LOCAL lock_timeout = {milliseconds}; "
