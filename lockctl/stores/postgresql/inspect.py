"""What the server knows of its advisory locks, put together with what holders say of themselves.

Who holds and who waits is read from ``pg_locks``; it alone counts. A session of ours is known by its
application name, which carries the unguessable owner, and a waiter's host and user stand in a comment of
its last statement: a waiter that dies leaves nothing that somebody would have to remove.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.model import Holder, Waiter
from lockctl.names import ALLOWED, check_name
from lockctl.stores.postgresql import layout
from lockctl.stores.postgresql.layout import text
from lockctl.stores.postgresql.scope import IDLE_SESSION, is_key
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.postgresql.layout import Key
    from lockctl.stores.postgresql.session import Row, Session
    from lockctl.stores.postgresql.tokens import Entry
    from lockctl.wire.deadline import Deadline

ALONE, TOGETHER = "exclusive", "shared"  # modes of seats
OURS = "lockctl:"  # the application name is this, the owner, a colon and the lock's name
LONGEST_APPLICATION = 63  # bytes that the server keeps
COMMENT = "/* lockctl "  # before a waiter's document, which is followed by " */"
ROOM = 900  # bytes of a waiter's document: the server shows the first 1024 of a statement
# when the session in row *a* of pg_stat_activity began, in microseconds
SESSION = "(extract(epoch FROM a.backend_start) * 1000000)::bigint::text"
MANY = 100_000  # rows: as many locks are no service but a fault


class Seat(Value):
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
    document = documents.describe(replace(claim, command=()), {"since": wall}, ROOM).decode()
    return COMMENT + document.replace("*", "\\u002a") + " */ "


def seats(session: Session, wanted: tuple[Key, ...] | None, deadline: Deadline) -> list[Seat]:
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
    return [_seat(row) for row in session.ask(sql, deadline)]


def is_one_of(wanted: tuple[Key, ...]) -> str:
    """The condition that a row *l* of pg_locks is about one of these keys."""
    return " OR ".join([f"({is_key(key)})" for key in wanted])


def divided(seats: list[Seat], key: Key, queue: Key, resting_after: str | None) -> tuple[list[Seat], list[Seat]]:
    """Who of those at a *key* and its *queue* is inside, and who waits, in the order of their service.

    *resting_after* is the last owner of a lock that rests: who of lockctl has the key then looks at it, and goes.
    """
    at_key = [seat for seat in seats if seat.key == key.text]
    tickets = [seat for seat in seats if seat.queue == queue.text and seat.granted and seat.owner is not None]
    waiting = {seat.pid for seat in tickets}
    # who has a ticket and looks for a slot may have the key shared
    inside = [seat for seat in at_key if seat.granted and (seat.mode == ALONE or seat.pid not in waiting)]
    if resting_after is not None:
        inside = [seat for seat in inside if seat.owner is None]
    outside = [seat for seat in at_key if not seat.granted]
    shown = {seat.pid for seat in inside + outside}
    return inside, outside + [seat for seat in tickets if seat.pid not in shown]


def holder(seat: Seat, entry: Entry | None) -> Holder:
    """Who sits in a seat that was granted."""
    if seat.owner is None:
        return Holder(None, seat.host, seat.pid, seat.user, None, None, seat.mode, None, None, session=seat.session)
    document = documents.read(entry.document) if entry is not None and entry.owner == seat.owner else None
    if entry is None or document is None or document["owner"] != seat.owner:
        # the lock was taken, and the grant is not complete
        return Holder(seat.owner, None, None, seat.user, None, None, seat.mode, None, None)
    ttl = documents.seconds(document.get("ttl"))
    left = None if ttl is None or seat.silent_for is None else min(ttl, max(0.0, ttl - seat.silent_for))
    return documents.holder(document, token=entry.token, expires_in=left, acquired_at=entry.taken_at)


def rest(entry: Entry) -> Holder:
    """Who held a lock last that rests."""
    document = documents.read(entry.document)
    if document is None or document["owner"] != entry.owner:
        return Holder(entry.owner, None, None, None, None, entry.token, ALONE, entry.taken_at, entry.rests_for)
    return documents.holder(document, token=entry.token, expires_in=entry.rests_for, acquired_at=entry.taken_at)


def slots(seat: Seat, entry: Entry | None) -> int:
    """How many can be inside, as who sits in a seat that was granted said."""
    document = documents.read(entry.document) if entry is not None and entry.owner == seat.owner else None
    return 1 if document is None or seat.owner is None else documents.slots(document)


def waiter(seat: Seat) -> Waiter:
    """Who sits in a seat that was not granted."""
    document = documents.read(seat.document)
    if document is None or document["owner"] != seat.owner:
        return Waiter(seat.host, None, seat.user, seat.since)
    return documents.waiter(document, since=seat.since)


def name_in(entry: Entry | None) -> str | None:
    """The lock name under which a key was last taken that was given as a number."""
    document = documents.read(entry.document) if entry is not None else None
    name = documents.text(document.get("name")) if document is not None else None
    try:
        return None if name is None else check_name(name)
    except ValueError:
        return None


def _seat(row: Row) -> Seat:
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
    return Seat(
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
        document=_document(bytes(statement)) if statement is not None else None,
        session=text(session),
    )


def _document(statement: bytes) -> bytes | None:
    if not statement.startswith(COMMENT.encode()):
        return None
    return statement[len(COMMENT) :].partition(b" */ ")[0]
