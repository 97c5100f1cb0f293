"""The table of fencing tokens: one row for each key that was ever taken, with what its holder says of itself.

A token is one more than the last, and never below the server's clock in microseconds, so that it rises
also when the table was lost. It is written while the lock is held and committed to disk before the grant.
A sequence would not do: its values are drawn outside the order of the locks.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.backends.postgresql.session import SqlError
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.backends.postgresql.key import Key
    from lockctl.backends.postgresql.session import Row, Session
    from lockctl.model import Claim
    from lockctl.wire.deadline import Deadline

CLOCK = "floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
CREATE = (
    'CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, name text COLLATE "C", token bigint NOT NULL,'
    " owner text, document text, revocation text, taken_at timestamptz)"
)
# commits wait for the disk whatever is usual here; a stricter setting stays
DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')"
    " IN ('off', 'local') THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true); "
)
# a name that has the key of another would exclude it: no row comes back then
TAKE = (
    DURABLE
    + "INSERT INTO {} AS fence (key, name, token, owner, document, taken_at)"
    + f" VALUES (%s, %s, {CLOCK}, %s, %s, pg_catalog.clock_timestamp()) ON CONFLICT (key) DO UPDATE SET"
    + f" token = GREATEST(fence.token + 1, {CLOCK}), name = COALESCE(EXCLUDED.name, fence.name),"
    + " owner = EXCLUDED.owner, document = EXCLUDED.document, revocation = NULL, taken_at = EXCLUDED.taken_at"
    + " WHERE fence.name IS NULL OR EXCLUDED.name IS NULL OR fence.name = EXCLUDED.name"
    + " RETURNING token, pg_catalog.pg_backend_pid()"
)
SHORT = f"CASE WHEN octet_length({{0}}) <= {documents.LARGEST} THEN {{0}} END"
COLUMNS = (
    f"key, {SHORT.format('name')}, token, {SHORT.format('owner')}, {SHORT.format('document')},"
    " extract(epoch FROM taken_at)::float8"
)
NO_TABLE, NO_SCHEMA = "42P01", "3F000"
EXISTS = ("42P07", "42710", "23505")  # somebody else was creating it at the same time
FORBIDDEN = "42501"
WRONG_SHAPE = ("42703", "42804", "42809", "42P10", "22003")  # a column is missing or of another type; token overflow
PAGE = 2000  # rows read at once


class Entry(Value):
    """One row."""

    key: str
    name: str | None  # with prefix; None: the key was given in the URL
    token: int | None
    owner: str | None
    document: bytes | None
    taken_at: float | None  # wall clock of the server, seconds since the epoch


class Fence:
    """The statements on one table."""

    def __init__(self, schema: str | None) -> None:
        """The table in *schema*, or in the first of the connection's search_path that has one."""
        self.table = "lockctl_fence" if schema is None else '"' + schema.replace('"', '""') + '".lockctl_fence'
        self.quoted = self.table.replace("%", "%%")

    def take(
        self, session: Session, key: Key, name: str | None, claim: Claim, wall: float, deadline: Deadline
    ) -> tuple[int, int]:
        """A new token for who holds *key*, and the pid of the server process that wrote it.

        Durable when this returns. Creates the table if there is none. Raises ``ConfigError``, and as ``Session.ask``.
        """
        document = documents.describe(claim, {"name": claim.name, "acquired_at": wall}).decode()
        values = (key.text, name, claim.owner, document)
        statement = TAKE.format(self.quoted)
        try:
            rows = session.ask(statement, deadline, values)
        except SqlError as error:
            if error.code != NO_TABLE:
                raise self.explained(error, session) from None
            self._create(session, deadline)
            try:
                rows = session.ask(statement, deadline, values)
            except SqlError as again:
                raise self.explained(again, session) from None
        if not rows:
            raise ConfigError(
                f"{session.where}: another lock has the advisory key {key.text} of {claim.name!r}: rename one of them"
            )
        ((token, pid),) = rows
        return int(token), int(pid)

    def _create(self, session: Session, deadline: Deadline) -> None:
        try:
            session.ask(CREATE.format(self.table), deadline)
        except SqlError as error:
            if error.code in EXISTS:
                return
            if error.code in (FORBIDDEN, NO_SCHEMA):
                raise ConfigError(
                    f"{error}: lockctl keeps its tokens in a table that it cannot create: have its owner run: "
                    f"{CREATE.format(self.table)}; GRANT SELECT, INSERT, UPDATE ON {self.table} TO"
                    f" {getattr(session, 'user', 'lockctl')}"
                ) from None
            raise

    def read(self, session: Session, key: Key, deadline: Deadline) -> Entry | None:
        """The row of one key, if there is one."""
        rows = self._select(session, f"SELECT {COLUMNS} FROM {self.quoted} WHERE key = %s", (key.text,), deadline)
        return _entry(rows[0]) if rows else None

    def page(self, session: Session, prefix: str, after: str, deadline: Deadline) -> list[Entry]:
        """The rows whose name begins with *prefix* and follows *after*, in the order of names; some, not all."""
        sql = (
            f"SELECT {COLUMNS} FROM {self.quoted} WHERE left(name, %s) = %s"
            f' AND name COLLATE "C" > %s AND octet_length(name) < 8000 ORDER BY name COLLATE "C" LIMIT {PAGE}'
        )
        return [_entry(row) for row in self._select(session, sql, (len(prefix), prefix, after), deadline)]

    def bump(
        self, session: Session, key: Key, name: str | None, holder: str, values: tuple[Any, ...], deadline: Deadline
    ) -> list[Row]:
        """End the session that the query *holder* finds (its pid) and raise the token of *key*, both or neither.

        Pid and new token, or no row if it finds none. Raises ``SqlError`` when that session may not be ended.
        """
        sql = (
            f"{DURABLE}WITH holder AS MATERIALIZED ({holder}),"
            f" bumped AS (INSERT INTO {self.quoted} AS fence (key, name, token) SELECT %s, %s, {CLOCK}"
            " WHERE EXISTS (SELECT FROM holder) ON CONFLICT (key) DO UPDATE SET token = fence.token + 1"
            " RETURNING token)"
            " SELECT holder.pid, bumped.token, pg_catalog.pg_terminate_backend(holder.pid) FROM holder, bumped"
        )
        try:
            return session.ask(sql, deadline, (*values, key.text, name))
        except SqlError as error:
            if error.code != NO_TABLE:
                raise
        self._create(session, deadline)
        return session.ask(sql, deadline, (*values, key.text, name))

    def revocation(self, session: Session, key: Key, owner: str, deadline: Deadline) -> tuple[str, str] | None:
        """Who asked *owner* for the lock, and why."""
        sql = f"SELECT {SHORT.format('revocation')} FROM {self.quoted} WHERE key = %s AND owner = %s"
        rows = self._select(session, sql, (key.text, owner), deadline)
        return documents.read_revocation(rows[0][0], owner) if rows else None

    def revocation_column(self) -> str:
        """The same as an expression, whose two arguments are the key and the owner."""
        return f"(SELECT {SHORT.format('revocation')} FROM {self.quoted} WHERE key = %s AND owner = %s)"

    def explained(self, error: SqlError, session: Session) -> BackendUnavailable | ConfigError:
        """What a refused statement on the table means."""
        if error.code == FORBIDDEN:
            user = getattr(session, "user", "lockctl")
            return ConfigError(f"{error}: have its owner run: GRANT SELECT, INSERT, UPDATE ON {self.table} TO {user}")
        if error.code in WRONG_SHAPE:
            return ConfigError(
                f"{error}: {self.table} is not the table that lockctl made, or holds what it did not write"
            )
        return error

    def _select(self, session: Session, sql: str, values: tuple[Any, ...], deadline: Deadline) -> list[Row]:
        try:
            return session.ask(sql, deadline, values)
        except SqlError as error:
            if error.code == NO_TABLE:
                return []  # nobody ever took a lock here
            raise self.explained(error, session) from None


def _entry(row: Row) -> Entry:
    key, name, token, owner, document, taken_at = row
    return Entry(
        key=text(key) or "",
        name=text(name),
        token=token if isinstance(token, int) else None,
        owner=text(owner),
        document=bytes(document) if document is not None else None,
        taken_at=documents.seconds(taken_at),
    )


def text(data: Any) -> str | None:
    """A text as the driver gives it."""
    return None if data is None else bytes(data).decode("utf-8", "replace")
