"""Locks as an operator sees them: what the server knows of them, with what holders say of themselves."""

from __future__ import annotations

from lockctl import documents
from lockctl.locks.inspect import is_match, lock_info
from lockctl.model import Holder, LockInfo, Waiter
from lockctl.names import is_name
from lockctl.stores.postgresql import queue as queues
from lockctl.stores.postgresql import records
from lockctl.stores.postgresql.queue import ALONE, TOGETHER, LockRow
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.stores.postgresql.connection import Observer
    from lockctl.stores.postgresql.layout import Key
    from lockctl.stores.postgresql.protocol import Opened
    from lockctl.stores.postgresql.tokens import Entry
    from lockctl.wire.deadline import Deadline

TRIES = 3  # between two statements the holder may change; hardly ever three times in a row


def inspect(observer: Observer, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    key = observer.address.key_of(name)

    def ask(session: Opened) -> LockInfo:
        lock = _look(observer, session, name, deadline)
        return replace(lock, last_run=records.last_run(observer.fence, session, key, deadline))

    return observer.with_session(ask, deadline)


def look(observer: Observer, name: str, deadline: Deadline) -> LockInfo:
    """The same without its last run."""
    return observer.with_session(lambda session: _look(observer, session, name, deadline), deadline)


def _look(observer: Observer, session: Opened, name: str, deadline: Deadline) -> LockInfo:
    key, queue = observer.address.key_of(name), observer.address.queue_of(name)
    for _ in range(TRIES):
        entry = observer.fence.read(session, key, deadline)
        rows = queues.lock_rows(session, (key, queue), deadline)
        sharers = _sharers(observer, session, rows, deadline)
        at_key = [row for row in rows if row.key == key.text]
        owners = {row.owner for row in at_key if row.granted and row.mode == ALONE}
        if owners <= {None} or (entry is not None and (entry.owner in owners or entry.held_for is not None)):
            break
    return _info(name, key, queues.divided(rows, key, queue, _last_owner(entry)), entry, sharers)


def list_locks(observer: Observer, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """All locks that lockctl ever took and whose name matches, in the order of their names."""

    def ask(session: Opened) -> list[LockInfo]:
        entries = _entries(observer, session, deadline)
        rows = queues.lock_rows(session, None, deadline)
        sharers = _sharers(observer, session, rows, deadline)
        by_key: dict[str, list[LockRow]] = {}
        by_queue: dict[str, list[LockRow]] = {}
        for row in rows:
            by_key.setdefault(row.key, []).append(row)
            if row.queue is not None:
                by_queue.setdefault(row.queue, []).append(row)
        found = []
        for name, key, entry in entries:
            if is_match(name, pattern):
                queue = observer.address.queue_of(name)
                here = by_key.get(key.text, []) + by_queue.get(queue.text, [])
                if not here and entry.owner is None and entry.taken_at is None:
                    continue  # only the history of a lock that nobody ever took
                divided = queues.divided(here, key, queue, _last_owner(entry))
                found.append(_info(name, key, divided, entry, sharers))
        return found

    return iter(observer.with_session(ask, deadline))


def _sharers(
    observer: Observer, session: Opened, rows: list[LockRow], deadline: Deadline
) -> dict[tuple[str, str], Entry]:
    """What is known of those in *rows* who share a lock."""
    keys = {row.key for row in rows if row.granted and row.mode == TOGETHER and row.owner is not None}
    if not keys:
        return {}
    from lockctl.stores.postgresql import share

    return share.entries(observer.fence, session, sorted(keys), deadline)


def _entries(observer: Observer, session: Opened, deadline: Deadline) -> list[tuple[str, Key, Entry]]:
    address = observer.address
    if address.key is not None:
        entry = observer.fence.read(session, address.key, deadline)
        name = name_in(entry)
        return [(name, address.key, entry)] if entry is not None and name is not None else []
    found: list[tuple[str, Key, Entry]] = []
    after = ""
    while page := observer.fence.page(session, address.prefix, after, deadline):
        for entry in page:
            after = entry.name or ""
            name = after.removeprefix(address.prefix)
            # who can write the table could give a name the key of another
            if is_name(name) and address.key_of(name).text == entry.key:
                found.append((name, address.key_of(name), entry))
    return found


def _info(
    name: str,
    key: Key,
    divided: tuple[list[LockRow], list[LockRow]],
    entry: Entry | None,
    sharers: dict[tuple[str, str], Entry],
) -> LockInfo:
    inside, outside = divided
    known = [(row, sharers.get((row.key, row.owner or "")) or entry) for row in inside]
    holders = [holder(row, written) for row, written in known]
    if entry is not None and _last_owner(entry) is not None:
        holders.insert(0, on_hold(entry))
    waiters = [waiter(row) for row in outside]
    inside_at_once = max([1, *(slots(row, written) for row, written in known)])
    lock = lock_info("postgresql", "strict", name, key.text, holders, waiters, slots=inside_at_once)
    # readers of another program may be beside ours
    return replace(lock, state="held") if any(holder.owner for holder in holders) else lock


def _last_owner(entry: Entry | None) -> str | None:
    """The last holder of a lock that is on hold."""
    return None if entry is None or entry.held_for is None else entry.owner


def holder(row: LockRow, entry: Entry | None) -> Holder:
    """Who holds the lock by a row."""
    if row.owner is None:
        return Holder(
            None,
            row.host,
            row.pid,
            row.user,
            None,
            None,
            row.mode,
            None,
            None,
            known_by=row.session,
        )
    document = documents.read(entry.document) if entry is not None and entry.owner == row.owner else None
    if entry is None or document is None or document["owner"] != row.owner:
        # the lock was taken, and the grant is not complete
        return Holder(row.owner, None, None, row.user, None, None, row.mode, None, None)
    ttl = documents.seconds(document.get("ttl"))
    left = None if ttl is None or row.silent_for is None else min(ttl, max(0.0, ttl - row.silent_for))
    return documents.holder(document, token=entry.token, expires_in=left, acquired_at=entry.taken_at)


def on_hold(entry: Entry) -> Holder:
    """Who held a lock last that is on hold."""
    document = documents.read(entry.document)
    if document is None or document["owner"] != entry.owner:
        return Holder(entry.owner, None, None, None, None, entry.token, ALONE, entry.taken_at, entry.held_for)
    return documents.holder(document, token=entry.token, expires_in=entry.held_for, acquired_at=entry.taken_at)


def slots(row: LockRow, entry: Entry | None) -> int:
    """How many can be inside, as the holder by a row said."""
    document = documents.read(entry.document) if entry is not None and entry.owner == row.owner else None
    return 1 if document is None or row.owner is None else documents.slots(document)


def waiter(row: LockRow) -> Waiter:
    """Who waits by a row."""
    document = documents.read(row.document)
    if document is None or document["owner"] != row.owner:
        return Waiter(row.host, None, row.user, row.since)
    return documents.waiter(document, since=row.since)


def name_in(entry: Entry | None) -> str | None:
    """The lock name under which a key was last taken that was given as a number."""
    document = documents.read(entry.document) if entry is not None else None
    name = documents.text(document.get("name")) if document is not None else None
    return name if name is not None and is_name(name) else None
