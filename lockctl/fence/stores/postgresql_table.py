"""The table of marks in PostgreSQL: its statements, and what an error of them means.

Nothing is set for longer than a transaction, so a pooler may stand between.
"""

# ruff: noqa: S608 - names of tables cannot be parameters of a statement

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, accept
from lockctl.fence.sql import SCHEMA, TABLE
from lockctl.fence.stores.rows import LONGEST_DOMAIN, ForeignRow, as_mark
from lockctl.names import printable
from lockctl.stores.postgresql.layout import DURABLE, FORBIDDEN, NO_TABLE, quoted
from lockctl.stores.postgresql.schema import NO_SCHEMA, WRONG_SHAPE
from lockctl.stores.postgresql.session import SqlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.session import Row
    from lockctl.wire.deadline import Deadline

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


class MarkTable:
    """One table of one database. All of it raises as ``Store`` says."""

    def __init__(self, address: Address) -> None:
        """The table that *address* names."""
        self._address = address
        # never by the search_path: whoever may set that, or make a schema or a temporary table, must not have two marks
        schema = quoted(address.schema or SCHEMA)
        self._table = f"{schema}.{TABLE}".replace("%", "%%")  # in statements, which have parameters
        self._name = printable(f"{schema}.{TABLE}")  # for people

    def current(self, session: Opened, resource: str, deadline: Deadline) -> Mark | None:
        """What is there now."""
        rows = self._ask(session, resource, self._selected(), deadline, (resource,))
        return self._mark(resource, rows[0]) if rows else None

    def advance(self, session: Opened, resource: str, mark: Mark, deadline: Deadline) -> Mark:
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

    def enter(self, session: Opened, resource: str, mark: Mark, deadline: Deadline) -> None:
        """Record, and begin a transaction that has the row locked."""
        while True:
            self.advance(session, resource, mark, deadline)
            session.ask("BEGIN", deadline)
            sql = f"{_prelude(deadline)}{UNHURRIED}; {self._selected()} FOR UPDATE"
            rows = self._ask(session, resource, sql, deadline, (resource,))
            if rows and not accept(resource, self._mark(resource, rows[0]), mark):
                return
            session.ask("ROLLBACK", deadline)  # somebody has reset the mark just now

    def replace(self, session: Opened, resource: str, mark: Mark | None, deadline: Deadline) -> Row | None:
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
                f" {self._name} TO {printable(quoted(session.user))}"
            )
        if error.code == READ_ONLY:
            return BackendUnavailable(f"{error}: this database is read-only, and no mark can be kept")
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
            return as_mark(row)
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
