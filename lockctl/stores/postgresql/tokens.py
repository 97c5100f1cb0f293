"""The table of fencing tokens: one row for each key that was ever taken, with what its last holder says of itself.

A token is one more than the last, and never below the server's clock in microseconds, so that it rises
also when the table was lost. It is written while the lock is held and committed to disk before the grant.
A sequence would not do: its values are drawn outside the order of the locks. The row also says until when
the lock is on hold after its holder (--min-hold), and which successful run was the last (--once-per).
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql.layout import DURABLE, FRESH, NO_COLUMN, NO_TABLE, WRITES, Key, Names, raw, text
from lockctl.stores.postgresql.scope import HAS_GOT
from lockctl.stores.postgresql.session import SqlError
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim
    from lockctl.stores.postgresql.session import Request, Row, Session
    from lockctl.wire.deadline import Deadline

CLOCK = "floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
FLOOR = "floor"  # instead of a key: the row with the greatest token of all names that were forgotten
FIRST = f"GREATEST({CLOCK}, (SELECT known.token + 1 FROM {{0}} AS known WHERE known.key = '{FLOOR}'))"  # of a new row
INTO = "INSERT INTO {0} AS fence (key, name, token, owner, document, taken_at)"
ROW = f"%s, %s, {FIRST}, %s, %s, pg_catalog.clock_timestamp()"
# a name that has the key of another would exclude it, and nobody gets a lock that is on hold: no row comes back then
RAISE = (
    " ON CONFLICT (key) DO UPDATE SET"
    f" token = GREATEST(fence.token + 1, {CLOCK}), name = COALESCE(EXCLUDED.name, fence.name),"
    " owner = EXCLUDED.owner, document = EXCLUDED.document, revocation = NULL, taken_at = EXCLUDED.taken_at,"
    " rests_until = NULL WHERE (fence.name IS NULL OR EXCLUDED.name IS NULL OR fence.name = EXCLUDED.name)"
    " AND (fence.rests_until IS NULL OR fence.rests_until <= pg_catalog.clock_timestamp())"
)
UPSERT = f"{WRITES}{INTO} VALUES ({ROW}){RAISE}"
SINCE_EPOCH = "extract(epoch FROM {})::float8"
TAKE = f"{UPSERT} RETURNING token, pg_catalog.pg_backend_pid(), {SINCE_EPOCH.format('taken_at')}"
# the same if a statement before has got the lock: another one than that, so it sees what was committed until then
DRAW = (
    f"WITH drawn AS ({INTO} SELECT {ROW} WHERE {HAS_GOT}{RAISE} RETURNING token, taken_at)"
    f" SELECT pg_catalog.pg_backend_pid(), {HAS_GOT}, (SELECT token FROM drawn),"
    f" (SELECT {SINCE_EPOCH.format('taken_at')} FROM drawn)"
)
SHORT = f"CASE WHEN octet_length({{0}}) <= {documents.LARGEST} THEN {{0}} END"
# seconds for which a lock is still on hold, or NULL
RESTS_FOR = (
    "CASE WHEN rests_until > pg_catalog.clock_timestamp() THEN LEAST(1e10, "
    f"{SINCE_EPOCH.format('rests_until')} - {SINCE_EPOCH.format('pg_catalog.clock_timestamp()')}) END"
)
OLD_COLUMNS = (
    f"key, {SHORT.format('name')}, token, {SHORT.format('owner')}, {SHORT.format('document')},"
    f" {SINCE_EPOCH.format('taken_at')}"
)
COLUMNS = f"{OLD_COLUMNS}, {RESTS_FOR}"
PAGE = 2000  # rows read at once
MENDINGS = 4  # tables and columns that may be missing for one statement, and one more attempt


class Entry(Value):
    """One row."""

    key: str
    name: str | None  # with prefix; None: the key was given in the URL
    token: int | None
    owner: str | None
    document: bytes | None
    taken_at: float | None  # wall clock of the server, seconds since the epoch
    held_for: float | None  # seconds for which nobody gets the lock; None: it is not on hold


class Drawn(Value):
    """A token, and what came with it."""

    token: int
    pid: int  # of the server process that wrote it
    at: float  # wall clock of the server, seconds since the epoch


class OnHold(Exception):
    """No token: the lock is on hold for so many more *seconds* after its last holder."""

    def __init__(self, seconds: float) -> None:
        """Keep the time."""
        super().__init__(f"it is on hold for {seconds:g} s")
        self.seconds = seconds


class Fence(Names):
    """The statements on one table."""

    def take(
        self, session: Session, key: Key, name: str | None, claim: Claim, wall: float, deadline: Deadline
    ) -> Drawn:
        """A new token for who holds *key*, durable when this returns. Makes the table if there is none.

        Raises ``OnHold``, ``ConfigError``, and as ``Session.ask``.
        """
        values = _row(key, name, claim, wall)
        while True:
            rows = self.ask(session, TAKE.format(self.quoted), deadline, values)
            if rows:
                ((token, pid, at),) = rows
                return Drawn(int(token), int(pid), float(at))
            self.check_open(session, key, name, claim, deadline)

    def drawing(self, before: str, key: Key, name: str | None, claim: Claim, wall: float) -> Request:
        """A request that draws a token, durable as by :meth:`take`, if the statements *before* have got the lock.

        One row: the server process, whether the lock is ours, the token if there is one, and when it was drawn.
        """
        return DURABLE + before + DRAW.format(self.quoted), _row(key, name, claim, wall)

    def check_open(self, session: Session, key: Key, name: str | None, claim: Claim, deadline: Deadline) -> None:
        """Raise ``OnHold`` or ``ConfigError`` if *claim* cannot have a token; after a refusal it may, by now."""
        entry = self.read(session, key, deadline)
        if entry is not None and None not in (entry.name, name) and entry.name != name:
            raise ConfigError(
                f"{session.where}: another lock has the advisory key {key.text} of {claim.name!r}: rename one of them"
            )
        if entry is not None and entry.held_for is not None:
            raise OnHold(entry.held_for)

    def ask(self, session: Session, sql: str, deadline: Deadline, values: tuple[Any, ...]) -> list[Row]:
        """The answer to a statement that writes; tables and columns that it misses are made.

        Raises ``ConfigError`` that says what their owner must do where we may not, and as ``Session.ask``.
        """
        for mendings in range(MENDINGS + 1):
            try:
                return session.ask(sql, deadline, values)
            except SqlError as error:
                from lockctl.stores.postgresql import schema

                if mendings == MENDINGS:
                    raise schema.explained(self, error, session, sql) from None
                schema.mend(self, session, error, sql, deadline)
        raise AssertionError

    def read(self, session: Session, key: Key, deadline: Deadline) -> Entry | None:
        """The row of one key, if there is one."""
        rows = self._entries(session, "WHERE key = %s", (key.text,), deadline)
        return _entry(rows[0]) if rows else None

    def page(self, session: Session, prefix: str, after: str, deadline: Deadline) -> list[Entry]:
        """The rows whose name begins with *prefix* and follows *after*, in the order of names; some, not all."""
        which = (
            'WHERE left(name, %s) = %s AND name COLLATE "C" > %s AND octet_length(name) < 8000'
            f' ORDER BY name COLLATE "C" LIMIT {PAGE}'
        )
        return [_entry(row) for row in self._entries(session, which, (len(prefix), prefix, after), deadline)]

    def bump(
        self,
        session: Session,
        key: Key,
        name: str | None,
        holder: str,
        values: tuple[Any, ...],
        owner: str | None,
        deadline: Deadline,
    ) -> list[Row]:
        """End the session that the query *holder* finds (its pid) and raise the token of *key*, both or neither.

        A hold that *owner* has just begun ends with it.
        Pid and new token, or no row if it finds none. Raises ``SqlError`` when that session may not be ended, and as
        :meth:`ask`.
        """
        first = FIRST.format(self.quoted)
        sql = (
            f"{WRITES}WITH holder AS MATERIALIZED ({holder}),"
            f" bumped AS (INSERT INTO {self.quoted} AS fence (key, name, token) SELECT %s, %s, {first}"
            " WHERE EXISTS (SELECT FROM holder) ON CONFLICT (key) DO UPDATE SET token = fence.token + 1,"
            " rests_until = CASE WHEN fence.owner = %s THEN NULL ELSE fence.rests_until END RETURNING token)"
            " SELECT holder.pid, bumped.token, pg_catalog.pg_terminate_backend(holder.pid) FROM holder, bumped"
        )
        return self.ask(session, sql, deadline, (*values, key.text, name, owner))

    def know(self, session: Session, key: Key, name: str | None, deadline: Deadline) -> None:
        """Have a row of a lock that nobody has taken, so that what else is kept of it is found by its name."""
        sql = (
            f"{FRESH}INSERT INTO {self.quoted} (key, name, token) VALUES (%s, %s, {FIRST}) ON CONFLICT (key) DO NOTHING"
        )
        self.ask(session, sql.format(self.quoted), deadline, (key.text, name))

    def revocation_column(self) -> str:
        """The request to a holder to give the lock back, as an expression of two values: the key and the owner."""
        return f"(SELECT {SHORT.format('revocation')} FROM {self.quoted} WHERE key = %s AND owner = %s)"

    def explained(self, error: SqlError, session: Session, sql: str) -> BackendUnavailable | ConfigError:
        """What it means that *sql*, a statement on tables, was refused."""
        from lockctl.stores.postgresql import schema

        return schema.explained(self, error, session, sql)

    def select(
        self, session: Session, sql: str, values: tuple[Any, ...], deadline: Deadline, lacking: tuple[str, ...] = ()
    ) -> list[Row]:
        """The answer to a statement that makes no table; none where there is none. Raises as :meth:`ask`.

        *lacking*: other codes of refusals that say that nobody ever wrote there what is asked for.
        """
        try:
            return session.ask(sql, deadline, values)
        except SqlError as error:
            if error.code in (NO_TABLE, *lacking):
                return []  # nobody ever wrote anything here
            raise self.explained(error, session, sql) from None

    def _entries(self, session: Session, which: str, values: tuple[Any, ...], deadline: Deadline) -> list[Row]:
        try:
            return session.ask(f"SELECT {COLUMNS} FROM {self.quoted} {which}", deadline, values)
        except SqlError as error:
            if error.code == NO_TABLE:
                return []
            if error.code != NO_COLUMN:
                raise self.explained(error, session, self.quoted) from None
        # a table from before locks could be on hold
        return self.select(session, f"SELECT {OLD_COLUMNS}, NULL FROM {self.quoted} {which}", values, deadline)


def _row(key: Key, name: str | None, claim: Claim, wall: float) -> tuple[Any, ...]:
    """The values of a row about who has the lock since then."""
    document = documents.describe(claim, {"name": claim.name, "acquired_at": wall}).decode()
    return key.text, name, claim.owner, document


def _entry(row: Row) -> Entry:
    key, name, token, owner, document, taken_at, held_for = row
    return Entry(
        key=text(key) or "",
        name=text(name),
        token=token if isinstance(token, int) else None,
        owner=text(owner),
        document=raw(document),
        taken_at=documents.seconds(taken_at),
        held_for=documents.seconds(held_for),
    )
