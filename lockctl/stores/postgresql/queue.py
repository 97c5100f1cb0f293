"""Who holds an advisory lock and who waits for it, as the server knows it.

It is read from ``pg_locks``, which alone counts. A session of ours is known by its application name, which carries
the unguessable owner, and a waiter's host and user stand in a comment of its last statement: a waiter that dies
leaves nothing that somebody would have to remove.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.names import ALLOWED
from lockctl.stores.postgresql import layout
from lockctl.stores.postgresql.layout import Key, text
from lockctl.stores.postgresql.scope import IDLE_SESSION, is_key
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.postgresql.session import Row, Session
    from lockctl.wire.deadline import Deadline

ALONE, TOGETHER = "exclusive", "shared"  # modes of these locks
OURS = "lockctl:"  # the application name is this, the owner, a colon and the lock's name
LONGEST_APPLICATION = 63  # bytes that the server keeps
COMMENT = "/* lockctl "  # before a waiter's document, which is followed by " */"
ROOM = 900  # bytes of a waiter's document: the server shows the first 1024 of a statement
# when the session in row *a* of pg_stat_activity began, in microseconds
SESSION = "(extract(epoch FROM a.backend_start) * 1000000)::bigint::text"
MANY = 100_000  # rows: as many locks are no service but a fault


class LockRow(Value):
    """One session that holds an advisory lock or waits for it."""

    key: str
    queue: str | None  # the first number of a pair, as tickets have it
    granted: bool
    mode: str  # ALONE or TOGETHER
    pid: int | None  # of the server process; None: a prepared transaction
    since: float | None  # waiting since, wall clock of the server
    owner: str | None  # a session of lockctl
    user: str | None
    host: str | None
    silent_for: float | None  # seconds since its last statement ended; 0: one is under way
    document: bytes | None
    session: str | None = None  # what tells it from a later one of the same process number; None: we may not know


def mark(owner: str) -> str:
    """How the application name of every session of *owner* begins."""
    return "".join([char if char in ALLOWED else "_" for char in f"{OURS}{owner}:"])[:LONGEST_APPLICATION]


def application(claim: Claim) -> str:
    """The application name of a claim's sessions."""
    return (mark(claim.owner) + claim.name)[:LONGEST_APPLICATION]


def comment(claim: Claim, wall: float) -> str:
    """A comment that says who waits. An asterisk cannot end or nest it: JSON can write it as an escape."""
    document = documents.describe(replace(claim, command=(), labels=()), {"since": wall}, ROOM).decode()
    return COMMENT + document.replace("*", "\\u002a") + " */ "


def lock_rows(session: Session, wanted: tuple[Key, ...] | None, deadline: Deadline) -> list[LockRow]:
    """Who holds one of the *wanted* keys (or any key) and who waits for it, in the order of their service."""
    which = is_key(None) if wanted is None else is_one_of(wanted)
    since = "extract(epoch FROM l.waitstart)::float8" if session.version >= IDLE_SESSION else "NULL"
    sql = (
        "SELECT l.classid::bigint, l.objid::bigint, l.objsubid::int, l.granted, l.mode, l.pid,"
        f" {since}, a.application_name, a.usename, pg_catalog.host(a.client_addr),"
        " CASE WHEN a.state IS NULL THEN NULL WHEN a.state LIKE 'idle%' THEN"
        " extract(epoch FROM pg_catalog.clock_timestamp() - a.state_change)::float8 ELSE 0 END,"
        f" CASE WHEN left(a.query, {len(COMMENT)}) = '{COMMENT}' THEN left(a.query, {2 * ROOM}) END, {SESSION}"
        " FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        f" WHERE {which} ORDER BY 7 NULLS LAST, l.objsubid, l.objid::bigint, l.pid LIMIT {MANY}"
    )
    return [_lock_row(row) for row in session.ask(sql, deadline)]


def is_one_of(wanted: tuple[Key, ...]) -> str:
    """The condition that a row *l* of pg_locks is about one of these keys."""
    return " OR ".join([f"({is_key(key)})" for key in wanted])


def divided(rows: list[LockRow], key: Key, queue: Key, held_after: str | None) -> tuple[list[LockRow], list[LockRow]]:
    """Who of those at a *key* and its *queue* is inside, and who waits, in the order of their service.

    *held_after* is the last owner of a lock that is on hold: a claim of lockctl that has the key then only looks at
    the hold, and leaves.
    """
    at_key = [row for row in rows if row.key == key.text]
    tickets = [row for row in rows if row.queue == queue.text and row.granted and row.owner is not None]
    waiting = {row.pid for row in tickets}
    # who has a ticket and looks for a slot may have the key shared
    inside = [row for row in at_key if row.granted and (row.mode == ALONE or row.pid not in waiting)]
    if held_after is not None:
        inside = [row for row in inside if row.owner is None]
    outside = [row for row in at_key if not row.granted]
    shown = {row.pid for row in inside + outside}
    return inside, outside + [row for row in tickets if row.pid not in shown]


def _lock_row(row: Row) -> LockRow:
    (
        classid,
        objid,
        objsubid,
        granted,
        mode,
        pid,
        since,
        application_name,
        user,
        host,
        silent_for,
        statement,
        session,
    ) = row
    name = text(application_name) or ""
    key = layout.seen(int(classid), int(objid), int(objsubid))
    return LockRow(
        key=key,
        queue=key.partition(",")[0] if "," in key else None,
        granted=bool(granted),
        mode=TOGETHER if text(mode) == "ShareLock" else ALONE,
        pid=pid,
        since=documents.seconds(since),
        owner=name[len(OURS) :].partition(":")[0] or None if name.startswith(OURS) else None,
        user=text(user),
        host=text(host),
        silent_for=documents.seconds(silent_for),
        document=_document(layout.raw(statement) or b""),
        session=text(session),
    )


def _document(statement: bytes) -> bytes | None:
    if not statement.startswith(COMMENT.encode()):
        return None
    return statement[len(COMMENT) :].partition(b" */ ")[0]
