"""Asking the holder of a lock for it, and ending the sessions that have one."""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl.documents import describe_revocation
from lockctl.errors import ConfigError, LockctlError, another_program, only_a_hold
from lockctl.model import EXCLUSIVE, Holder, Revocation
from lockctl.names import printable
from lockctl.stores.postgresql import queue
from lockctl.stores.postgresql.layout import FORBIDDEN, FRESH, Key, quoted
from lockctl.stores.postgresql.scope import is_key
from lockctl.stores.postgresql.session import SqlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.postgresql.connection import Observer
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.session import Row
    from lockctl.wire.deadline import Deadline

PAUSE = "SELECT pg_catalog.pg_sleep(0.01)"  # the server's, while it ends a session


def revoke(observer: Observer, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend``. With ``now`` the server ends the holder's session."""
    if wanted.now:
        ended = _end(observer, name, seen, deadline)
    elif seen.owner is None:
        raise another_program(name)
    else:
        ended = _ask(observer, name, seen, wanted, deadline)
    if ended is None and seen.owner is not None:
        ended = _end_hold(observer, name, seen, now=wanted.now, deadline=deadline)
    return ended


def end_sessions(observer: Observer, owner: str, name: str, deadline: Deadline) -> None:
    """End every session of *owner* that holds the lock or waits for it; they are gone when this returns.

    The server process that the owner had may be another's by now, behind a pooler: only the owner counts.
    """
    mark = queue.mark(owner)
    keys = (observer.address.key_of(name), observer.address.queue_of(name))
    sql = (
        "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a WHERE"
        " left(a.application_name, %s) = %s AND EXISTS"
        f" (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND ({queue.is_one_of(keys)}))"
    )

    def ask(session: Opened) -> None:
        while session.ask(sql, deadline, (len(mark), mark)):
            session.ask(PAUSE, deadline)

    observer.with_session(ask, deadline)


def _ask(observer: Observer, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """Leave a request for *seen* to give the lock back; ``None`` if it is not the holder any more."""
    key = observer.address.key_of(name)
    mark = queue.mark(seen.owner or "")
    fence = observer.fence
    sql = (
        f"{FRESH}UPDATE {{}} AS h SET revocation = %s WHERE h.key = %s AND h.owner = %s AND h.token = %s AND EXISTS"
        " (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        f" WHERE {is_key(key)} AND l.granted AND left(a.application_name, %s) = %s)"
        " RETURNING GREATEST(h.token, (SELECT max(f.token) FROM {} f WHERE f.key = h.key))"
    )
    document = describe_revocation(seen.owner or "", printable(wanted.by), printable(wanted.reason)).decode()

    def ask(session: Opened) -> int | None:
        values = (document, key.text, seen.owner, seen.token, len(mark), mark)
        for table in _tables(observer, seen):
            rows = fence.select(session, sql.format(table, fence.quoted), values, deadline)
            if rows:
                return int(rows[0][0]) + 1
        return None

    return observer.with_session(ask, deadline)


def _end_hold(observer: Observer, name: str, seen: Holder, *, now: bool, deadline: Deadline) -> int | None:
    """End the hold of a lock after *seen*; ``None`` if it is not on hold after that holder.

    Raises ``LockctlError`` unless it is to end *now*: there is nobody who could be asked.
    """
    from lockctl.stores.postgresql import hold

    key = observer.address.key_of(name)

    def ask(session: Opened) -> int | None:
        if now:
            token = hold.end(observer.fence, session, key, seen, deadline)
            return None if token is None else token + 1
        entry = observer.fence.read(session, key, deadline)
        if entry is None or entry.held_for is None or (entry.owner, entry.token) != (seen.owner, seen.token):
            return None
        raise only_a_hold(name)

    return observer.with_session(ask, deadline)


def _end(observer: Observer, name: str, seen: Holder, deadline: Deadline) -> int | None:
    """End the session of *seen* if it is still the holder, and raise the token in the same step."""
    key = observer.address.key_of(name)
    if seen.owner is None and seen.pid is None:
        raise LockctlError(f"{name} is held by a prepared transaction: end it with ROLLBACK PREPARED")

    def ask(session: Opened) -> int | None:
        found = _terminate(observer, session, name, key, seen, deadline)
        if found is None:
            return None
        pid, token = found

        def stays(each: queue.LockRow) -> bool:
            if not each.granted or each.pid != pid:
                return False
            # of a session of ours its owner is known; what says whose it is may go a moment before its locks
            same = each.owner == seen.owner and seen.known_by in (None, each.session)
            return same or (each.owner, each.session) == (None, None)

        while any(stays(each) for each in queue.lock_rows(session, (key,), deadline)):
            session.ask(PAUSE, deadline)
        return token + 1

    return observer.with_session(ask, deadline)


def _terminate(
    observer: Observer, session: Opened, name: str, key: Key, seen: Holder, deadline: Deadline
) -> tuple[int, int] | None:
    if seen.owner is None:
        # the same process number can be another process by now, and the same process another client's
        who = (
            f"l.pid = %s AND {queue.SESSION} IS NOT DISTINCT FROM %s AND a.usename = %s AND"
            f" pg_catalog.host(a.client_addr) IS NOT DISTINCT FROM %s AND"
            f" left(a.application_name, {len(queue.OURS)}) <> %s"
        )
        values = [seen.pid, seen.known_by, seen.user, seen.host, queue.OURS]
    else:
        mark = queue.mark(seen.owner)
        who, values = "left(a.application_name, %s) = %s", [len(mark), mark]
    holder = (
        "SELECT l.pid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        f" WHERE {is_key(key)} AND l.granted AND {who}{{}} LIMIT 1"
    )
    written = " AND EXISTS (SELECT FROM {} h WHERE h.key = %s AND h.owner = %s AND h.token = %s)"
    conditions = [""]
    if seen.token is not None:
        conditions = [written.format(table) for table in _tables(observer, seen)]
        values += [key.text, seen.owner, seen.token]
    full_name = observer.address.full_name(name)
    try:
        rows: list[Row] = []
        for condition in conditions:
            query = holder.format(condition)
            rows = rows or observer.fence.bump(session, key, full_name, query, tuple(values), seen.owner, deadline)
    except SqlError as error:
        if error.code == FORBIDDEN:
            raise ConfigError(
                f"{error}: to end the sessions of other users, have a superuser run: GRANT pg_signal_backend"
                f" TO {printable(quoted(session.user))}"
            ) from None
        raise
    return (int(rows[0][0]), int(rows[0][1])) if rows else None


def _tables(observer: Observer, seen: Holder) -> list[str]:
    """Where a holder like *seen* may have written what it is: alone, or among several."""
    if seen.mode == EXCLUSIVE:
        return [observer.fence.quoted]
    from lockctl.stores.postgresql import share

    return [observer.fence.quoted, share.table(observer.fence)]
