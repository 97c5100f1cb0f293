"""Locks on hold after their holder (--min-hold): a point of time in the fence's row, which a grant compares.

The advisory lock itself is free then, so nothing has to stay connected. Who waits and is given it keeps it as the
first position in the queue, sleeps until the hold is over, and is granted the lock only then.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.stores.postgresql.layout import NO_COLUMN, NO_TABLE, WRITES, Key
from lockctl.stores.postgresql.session import Session, SqlError
from lockctl.stores.postgresql.tokens import RESTS_FOR, Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant, Holder
    from lockctl.wire.deadline import Deadline

LONGEST = 1e9  # seconds: thirty years


def begin(
    fence: Fence, session: Session, key: Key, name: str | None, grant: Grant, hold: float, deadline: Deadline
) -> None:
    """Keep the lock on hold for *hold* seconds from now, if *grant* is its last one. Durable; the first time counts.

    Raises ``ConfigError``, and as ``Session.ask``.
    """
    extra: dict[str, int | float | str | None] = {"name": grant.claim.name, "acquired_at": grant.at, "ended_at": wall()}
    document = documents.describe(grant.claim, extra).decode()
    sql = (
        f"{WRITES}INSERT INTO {fence.quoted} AS fence (key, name, token, owner, document, taken_at, rests_until)"
        " VALUES (%s, %s, %s, %s, %s, pg_catalog.to_timestamp(%s),"
        " pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => %s))"
        " ON CONFLICT (key) DO UPDATE SET document = EXCLUDED.document, rests_until = EXCLUDED.rests_until"
        " WHERE fence.owner = EXCLUDED.owner AND fence.token = EXCLUDED.token AND fence.rests_until IS NULL"
    )
    values = (key.text, name, grant.token, grant.claim.owner, document, grant.at, min(hold, LONGEST))
    fence.ask(session, sql, deadline, values)


def end(fence: Fence, session: Session, key: Key, seen: Holder, deadline: Deadline) -> int | None:
    """End the hold after the holder that was *seen*, and raise the token; the new one, ``None`` if there is no hold."""
    sql = (
        f"{WRITES}UPDATE {fence.quoted} SET rests_until = NULL, token = token + 1 WHERE key = %s AND owner = %s"
        " AND token = %s AND rests_until > pg_catalog.clock_timestamp() RETURNING token"
    )
    rows = fence.select(session, sql, (key.text, seen.owner, seen.token), deadline, (NO_COLUMN,))
    return int(rows[0][0]) if rows else None


def still(fence: Fence, session: Session, key: Key, who: str, deadline: Deadline) -> float:
    """Seconds for which the lock is still on hold; *who* is a comment that says who asks. Raises as ``Session.ask``."""
    sql = f"{who.replace('%', '%%')}SELECT {RESTS_FOR} FROM {fence.quoted} WHERE key = %s"
    try:
        rows = session.ask(sql, deadline, (key.text,))
    except SqlError as error:
        if error.code in (NO_TABLE, NO_COLUMN):
            return 0.0
        raise
    return documents.seconds(rows[0][0]) or 0.0 if rows else 0.0
