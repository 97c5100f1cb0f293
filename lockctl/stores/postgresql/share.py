"""Several holders at once: readers, and those who have one of so many slots.

Both hold the lock's own key in shared mode, so whoever takes it alone, lockctl or another program, excludes them
all and is excluded by them, and the server's queue keeps later readers behind a writer that waits. Who has a slot
also holds one of the keys of the slots; the locks of the server alone decide who holds what.

A table says who shares a lock, since one row has no room for several holders, and in how many slots: under the lock
of the fence's row everyone compares that with what it was told itself, and the first one counts.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.errors import ConfigError
from lockctl.model import SHARED, Claim
from lockctl.stores.postgresql import queue, scope
from lockctl.stores.postgresql.layout import MOST_SLOTS, Key, bigint, raw, text
from lockctl.stores.postgresql.scope import Scope, Ways, is_key
from lockctl.stores.postgresql.session import SqlError
from lockctl.stores.postgresql.tokens import SHORT, SINCE_EPOCH, UPSERT, Drawn, Entry, Fence, OnHold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.postgresql.session import Row, Session
    from lockctl.wire.deadline import Deadline


def ways(kind: Scope, key: Key, base: Key, queue: Key, claim: Claim) -> Ways:
    """The ways of a claim that shares its lock; keys of slots follow *base*. Raises ``ConfigError`` for too many."""
    room = "1"
    mark, marked = kind.mark.format("_shared", key.text), kind.marked.format("_shared", key.text)
    if claim.mode == SHARED:
        attempt = f"{kind.take}_shared({key.text})"
        line = f"SELECT pg_catalog.pg_backend_pid(), {kind.wait}_shared({key.text}) IS NOT NULL"
        undo, held = kind.undo.format("_shared", key.text), scope.holds(key)
    else:
        if claim.slots > MOST_SLOTS:
            raise ConfigError(f"postgresql: {claim.slots} slots are too many: at most {MOST_SLOTS}")
        slot = f"(SELECT i FROM generate_series(1, {claim.slots}) AS i WHERE {kind.take}({base.text} + i) LIMIT 1)"
        if kind is scope.SESSION:  # a transaction cannot give back the key alone
            slot = f"COALESCE({slot}, CASE WHEN pg_catalog.pg_advisory_unlock_shared({key.text}) THEN NULL::int END)"
        attempt, line = f"CASE WHEN {kind.take}_shared({key.text}) THEN {slot} END", ""
        undo = kind.undo.format("_shared", key.text)
        if kind is scope.SESSION:
            undo += f", pg_catalog.pg_advisory_unlock({base.text} + {{}})"
        taken = f"{is_key(None)} AND l.granted AND {is_slot(base)}"
        room = f"{claim.slots} - (SELECT count(DISTINCT l.objid) FROM {scope.LOCKS} l WHERE {taken})"
        held = (
            f"{scope.holds(key)} AND EXISTS (SELECT FROM {scope.LOCKS} l"
            f" WHERE l.pid = pg_catalog.pg_backend_pid() AND l.granted AND {is_slot(base)})"
        )
        of_slot = f"{base.text} + {{}}"
        mark += f" AND {kind.mark.format('', of_slot)}"
        marked += f" AND {kind.marked.format('', of_slot)}"
    return Ways(
        take="SELECT pg_catalog.pg_backend_pid(), s.taken, true"
        f" FROM (SELECT CASE WHEN {scope.nobody_waits(queue)} THEN {attempt} END AS taken OFFSET 0) s",
        turn=f"SELECT pg_catalog.pg_backend_pid(), {attempt}",
        line=line,
        undo=undo,
        free=kind.free,
        holds=held,
        mark=mark,
        marked=marked,
        telling=scope.telling(kind, queue),
        room=room,
    )


def is_slot(base: Key) -> str:
    """The condition that a row *l* of pg_locks is about a slot whose key follows *base*."""
    first, last = bigint(int(base.text) + 1), bigint(int(base.text) + MOST_SLOTS)
    return (
        f"l.locktype = 'advisory' AND l.classid = {first.classid} AND l.objsubid = {first.objsubid}"
        f" AND l.objid::bigint BETWEEN {first.objid} AND {last.objid}"
    )


def table(fence: Fence) -> str:
    """The table of those who share a lock, for statements with values."""
    return fence.named("lockctl_holder").replace("%", "%%")


def join(
    fence: Fence, session: Session, key: Key, name: str | None, claim: Claim, wall: float, deadline: Deadline
) -> Drawn:
    """A new token for one more who shares *key*, and a row that says so; durable when this returns.

    Raises ``OnHold``, ``ConfigError`` also when those inside say another number of slots, and as ``Session.ask``.
    """
    document = documents.describe(claim, {"name": claim.name, "acquired_at": wall}).decode()
    holders, who = table(fence), (key.text, claim.owner, claim.slots)
    alive = (
        "SELECT split_part(a.application_name, ':', 2) FROM pg_catalog.pg_locks l"
        " JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        f" WHERE {is_key(key)} AND l.granted AND left(a.application_name, {len(queue.OURS)}) = '{queue.OURS}'"
    )
    sql = (
        f"{UPSERT.format(fence.quoted)};"
        # whose session has ended, or gave it back
        f" DELETE FROM {holders} WHERE key = %s AND owner <> ALL (ARRAY({alive}));"
        # the document says whether the row is ours: if not, a name was in the way, or the lock is on hold
        f" WITH mine AS (SELECT token, taken_at FROM {fence.quoted} WHERE key = %s AND document = %s),"
        f" other AS (SELECT slots FROM {holders} WHERE key = %s AND owner <> %s AND slots <> %s LIMIT 1),"
        f" joined AS (INSERT INTO {holders} AS holder (key, owner, token, slots, document, taken_at)"
        " SELECT %s, %s, token, %s, %s, taken_at FROM mine WHERE NOT EXISTS (SELECT FROM other)"
        " ON CONFLICT (key, owner) DO UPDATE SET token = EXCLUDED.token, slots = EXCLUDED.slots,"
        " document = EXCLUDED.document, revocation = NULL, taken_at = EXCLUDED.taken_at RETURNING token)"
        f" SELECT joined.token, pg_catalog.pg_backend_pid(), {SINCE_EPOCH.format('mine.taken_at')},"
        " (SELECT slots FROM other) FROM mine LEFT JOIN joined ON true"
    )
    values = (
        *(key.text, name, None, document, key.text, key.text, document),
        *(*who, *who, document),
    )
    while True:
        rows = fence.ask(session, sql, deadline, values)
        if rows:
            ((token, pid, at, theirs),) = rows
            if token is None:
                documents.check_agrees(claim.name, int(theirs), claim)
            return Drawn(int(token), int(pid), float(at))
        try:
            fence.check_open(session, key, name, claim, deadline)
        except OnHold:
            documents.check_agrees(claim.name, 1, claim)
            raise


def leave(fence: Fence, session: Session, free: str, mine: tuple[str, str], deadline: Deadline) -> None:
    """Give a lock back with the statement *free*, and remove the row of *mine*, a key and an owner.

    A row that stays says nothing of a holder that has gone; the next who joins removes it. Raises as ``Session.ask``.
    """
    sql = f"{free}; DELETE FROM {table(fence)} WHERE key = %s AND owner = %s"
    try:
        session.ask(sql, deadline, mine)
    except SqlError:
        session.ask(free, deadline)  # it may have been done, and does no harm then


def check_agrees(fence: Fence, session: Session, key: Key, claim: Claim, deadline: Deadline) -> None:
    """Raise ``ConfigError`` if those of lockctl who hold *key* are known to say other slots than *claim*."""
    held = [each for each in queue.lock_rows(session, (key,), deadline) if each.granted and each.owner is not None]
    shared = {each.owner for each in held if each.mode == queue.TOGETHER}
    theirs = [1 for each in held if each.mode == queue.ALONE and each.owner != claim.owner]
    if shared:
        sql = f"SELECT {SHORT.format('owner')}, slots FROM {table(fence)} WHERE key = %s"
        rows = _known(session, sql, (key.text,), deadline)
        theirs += [
            slots
            for owner, slots in rows
            if isinstance(slots, int) and text(owner) in shared and text(owner) != claim.owner
        ]
    for slots in theirs:
        documents.check_agrees(claim.name, slots, claim)


def entries(fence: Fence, session: Session, keys: list[str], deadline: Deadline) -> dict[tuple[str, str], Entry]:
    """What those who share these keys say of themselves, by key and owner."""
    sql = (
        f"SELECT key, {SHORT.format('owner')}, token, {SHORT.format('document')}, {SINCE_EPOCH.format('taken_at')}"
        f" FROM {table(fence)} WHERE key = ANY (%s) LIMIT {queue.MANY}"
    )
    found: dict[tuple[str, str], Entry] = {}
    for row in _known(session, sql, (keys,), deadline):
        key, owner, token, document, taken_at = row
        if owner is not None:
            found[text(key) or "", text(owner) or ""] = Entry(
                key=text(key) or "",
                name=None,
                token=token if isinstance(token, int) else None,
                owner=text(owner),
                document=raw(document),
                taken_at=documents.seconds(taken_at),
                held_for=None,
            )
    return found


def _known(session: Session, sql: str, values: tuple[Any, ...], deadline: Deadline) -> list[Row]:
    """What a query for holders finds; nothing where there is no such table or we may not read it."""
    try:
        return session.ask(sql, deadline, values)
    except SqlError:
        return []


def revocation_column(fence: Fence) -> str:
    """The request to one of several holders as an expression, whose two arguments are the key and the owner."""
    return f"(SELECT {SHORT.format('revocation')} FROM {table(fence)} WHERE key = %s AND owner = %s)"
