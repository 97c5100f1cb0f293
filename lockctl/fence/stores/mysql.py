"""Marks in a table of MySQL or MariaDB, which ``lockctl fence sql --dialect mysql`` prints.

Each step is one transaction that locks the row of the mark. Its commit is as durable as the server makes it
(``innodb_flush_log_at_trx_commit``), and its lock is that of one server: in a cluster that writes on several,
:meth:`MysqlStore.holding` holds on one of them only.
"""

# ruff: noqa: S608 - the name of the table cannot be a parameter of a statement

from __future__ import annotations

from contextlib import contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, Stale, accept
from lockctl.fence.sql import TABLE
from lockctl.fence.stores.rows import LONGEST_DOMAIN, ForeignRow, as_mark, only
from lockctl.names import printable
from lockctl.stores.mysql import address as addresses
from lockctl.stores.mysql import session as mysql
from lockctl.stores.mysql.connection import KeptSession
from lockctl.stores.mysql.session import Session, SqlError
from lockctl.wire.deadline import Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, TypeVar

    from lockctl.url import Url

    T = TypeVar("T")
    Row = tuple[Any, ...]

ENDING_LIMIT = 10.0  # seconds for the answer that the mark was held until the end of the block
SELECT = (
    f"SELECT IF(LENGTH(domain) <= {LONGEST_DOMAIN}, domain, NULL), token, resource FROM {TABLE} WHERE resource = %s"
)
RAISE = (
    f"INSERT INTO {TABLE} (resource, domain, token) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE"
    " token = IF(domain = VALUES(domain) AND token > 0 AND token < VALUES(token), VALUES(token), token)"
)
SET = (
    f"INSERT INTO {TABLE} (resource, domain, token) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE"
    " domain = VALUES(domain), token = VALUES(token)"
)
REMOVE = f"DELETE FROM {TABLE} WHERE resource = %s"
ENGINE = f"SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{TABLE}'"
WAITS_FOR_DISK = (1, 3)  # of innodb_flush_log_at_trx_commit; 3 is MariaDB's
# who holds a mark may be silent for as long as a job takes; all but the first are MariaDB's alone
UNHURRIED = (
    "SET SESSION wait_timeout = 31536000",
    "SET SESSION idle_transaction_timeout = 0",
    "SET SESSION idle_write_transaction_timeout = 0",
    "SET SESSION idle_readonly_transaction_timeout = 0",
)
ADVICE = "lockctl fence sql --dialect mysql"


class MysqlStore:
    """A ``Store`` of marks in one database."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = addresses.PARAMETERS

    def __init__(self, address: addresses.Address) -> None:
        """Connects when it is first used."""
        self._address = address
        self._kept = KeptSession(address)
        self._where = self._kept.where

    @classmethod
    def from_url(cls, url: Url) -> MysqlStore:
        """For a ``mysql`` URL; raises ``ConfigError``."""
        return cls(addresses.from_url(url))

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        deadline = Deadline(timeout)
        return self._asked(lambda session: self._advance(session, resource, mark, deadline), resource, deadline)

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        deadline = Deadline(timeout)

        def step(session: Session) -> Mark | None:
            rows = session.ask(SELECT, deadline, resource)
            session.ask("COMMIT", deadline)
            return self._mark(resource, rows[0]) if rows else None

        return self._asked(step, resource, deadline)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``. What was no mark of ours counts as none."""
        deadline = Deadline(timeout)

        def step(session: Session) -> Mark | None:
            session.limit_waits(deadline)
            rows = session.ask(f"{SELECT} FOR UPDATE", deadline, resource)
            if mark is not None:
                session.ask(SET, deadline, resource, mark.domain, mark.token)
            elif rows:
                session.ask(REMOVE, deadline, resource)
            session.ask("COMMIT", deadline)
            try:
                return as_mark(rows[0]) if rows else None
            except ForeignRow:
                return None

        self.close()  # a fresh connection: only once can it be said what was there before
        return self._asked(step, resource, deadline)

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
            ending = Deadline(ENDING_LIMIT)
            try:
                bounded(lambda: session.ask("COMMIT", ending), ending, self._where)
                ended = True
            except BackendUnavailable as failure:
                raise BackendUnavailable(f"{failure}: the mark was maybe not held until the end") from None
        finally:
            if ended:
                self._kept.keep(session)
            else:
                session.close()

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: whether a commit waits for the disk."""
        deadline = Deadline(timeout)

        def step(session: Session) -> Any:
            return session.ask("SELECT @@innodb_flush_log_at_trx_commit", deadline)

        if only(self._asked(step, TABLE, deadline)) not in WAITS_FOR_DISK:
            raise ConfigError(f"{self._where}: a crash can lose marks: set innodb_flush_log_at_trx_commit = 1")

    def close(self) -> None:
        self._kept.close()

    def _advance(self, session: Session, resource: str, mark: Mark, deadline: Deadline) -> Mark:
        """Record, and read what is there then, while the row is locked."""
        session.limit_waits(deadline)
        session.ask(RAISE, deadline, resource, mark.domain, mark.token)
        rows = session.ask(f"{SELECT} FOR UPDATE", deadline, resource)
        seen = self._mark(resource, rows[0]) if rows else None
        if accept(resource, seen, mark) or seen is None:
            raise ConfigError(f"{self._where}: {TABLE} does not keep what is written to it")
        session.ask("COMMIT", deadline)
        return seen

    def _entered(self, resource: str, mark: Mark, deadline: Deadline) -> Session:
        """A connection whose transaction has locked the row. Raises as ``Store`` says."""

        def step(session: Session) -> None:
            if session.ask(ENGINE, deadline) not in ([("InnoDB",)], []):
                raise ConfigError(f"{self._where}: {TABLE} cannot be locked: its engine must be InnoDB")
            for statement in UNHURRIED:
                try:
                    session.ask(statement, deadline)
                except SqlError as error:
                    if error.code != mysql.UNKNOWN_VARIABLE:
                        raise
            while True:
                self._advance(session, resource, mark, deadline)
                rows = session.ask(f"{SELECT} FOR UPDATE", deadline, resource)
                if rows and not accept(resource, self._mark(resource, rows[0]), mark):
                    return
                session.ask("ROLLBACK", deadline)  # somebody has reset the mark just now

        try:
            return self._kept.lend(step, deadline)[1]
        except SqlError as error:
            raise self._explained(error, resource, deadline) from None

    def _asked(self, step: Callable[[Session], T], resource: str, deadline: Deadline) -> T:
        """What *step* gives for the connection, which is kept, also after a refusal."""

        def keeping(session: Session) -> T | Stale:
            try:
                return step(session)
            except Stale as refusal:
                session.ask("ROLLBACK", deadline)
                return refusal

        try:
            given = self._kept.run(keeping, deadline)
        except SqlError as error:
            raise self._explained(error, resource, deadline) from None
        if isinstance(given, Stale):
            raise given
        return given

    def _explained(self, error: SqlError, resource: str, deadline: Deadline) -> BackendUnavailable | ConfigError:
        if error.code in mysql.NO_TABLE:
            return ConfigError(f"{error}: no table {TABLE} for marks here: {ADVICE} prints it")
        if error.code in mysql.FORBIDDEN:
            from lockctl.stores.mysql.rights import grant

            statement = grant(self._address.database, TABLE, error.account)
            return ConfigError(f"{error}: have an administrator run: {statement}")
        if error.code in mysql.READ_ONLY:
            return BackendUnavailable(f"{error}: this server is read-only, and no mark can be kept: name the primary")
        if error.code in mysql.BROKEN:
            return ConfigError(f"{error}: not a mark of lockctl: lockctl fence reset sets it anew")
        if error.code in mysql.FOREIGN:
            return ConfigError(f"{error}: {TABLE} is not the table that {ADVICE} prints")
        if error.code == mysql.LOCK_WAIT:
            return BackendUnavailable(
                f"{self._where}: the mark of {printable(resource)} is held by somebody else,"
                f" for longer than {deadline.timeout:.3g} s"
            )
        return error

    def _mark(self, resource: str, row: Row) -> Mark:
        """The mark in a row. Raises ``ConfigError``."""
        if row[2:] != (resource,):
            raise ConfigError(f"{self._where}: the name of {printable(resource)} is to MySQL the same as another one")
        try:
            return as_mark(row)
        except ForeignRow as wrong:
            raise ConfigError(
                f"{self._where}: the mark of {printable(resource)} in {TABLE} {wrong}: lockctl fence reset sets it anew"
            ) from None
