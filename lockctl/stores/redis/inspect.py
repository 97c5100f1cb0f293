"""The locks of one server as an operator sees them: nothing is written, and a large database is read in pieces."""

from __future__ import annotations

from lockctl import documents, history
from lockctl.locks.inspect import lock_info, matching
from lockctl.model import EXCLUSIVE, Holder, LockInfo
from lockctl.stores.redis import layout
from lockctl.stores.redis.scripts import READ, script
from lockctl.wire.stream import in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lockctl.stores.redis.session import Session, Words
    from lockctl.wire.deadline import Deadline, Steps
    from lockctl.wire.resp import Reply

SCANNED = 1000  # keys of the database for one step of SCAN: less than a millisecond of the server
INSPECTED = 200  # locks for one request
READ_OF_WAITER = 2048  # bytes of a waiter's document
LONGEST_QUEUE_SHOWN = 1000  # waiters
NO_WAITERS = "no-waiters"  # for who wants to know who has the lock, and not to read the queue
MOST_HOLDERS_SHOWN = 1000

# KEYS has the runs of the lock as a ninth, if the last one is wanted; no ARGV ->
# ARGV: nothing, or NO_WAITERS
# {what holds the lock or nil, its PTTL, documents of the waiters in their order, the last run or nil,
# kind of those who share it or nil, of each its owner, the ms it has left, and its "token|document"}
INSPECT = script(f"""
local waiters, queue = {{}}, {{}}
if ARGV[1] ~= '{NO_WAITERS}' then queue = redis.pcall('ZRANGE', QUEUE, 0, {LONGEST_QUEUE_SHOWN - 1}) end
for _, owner in ipairs(queue) do
  local alive = redis.pcall('ZSCORE', LIVE, owner)
  if type(alive) == 'string' and tonumber(alive) >= now then
    local document = redis.pcall('HGET', WHO, owner)
    if type(document) == 'string' then waiters[#waiters + 1] = string.sub(document, 1, {READ_OF_WAITER}) end
  end
end
local value, kind = held()
local holders, members = {{}}, {{}}
if kind then
  local after = string.format('(%.0f', now)
  members = redis.call('ZRANGEBYSCORE', LOCK, after, '+inf', 'WITHSCORES', 'LIMIT', 0, {MOST_HOLDERS_SHOWN})
end
for i = 1, #members, 2 do
  local owner = string.sub(members[i], #kind + 2)
  local document = redis.pcall('HGET', HOLDERS, owner)
  document = type(document) == 'string' and string.sub(document, 1, {READ}) or ''
  holders[#holders + 1] = {{owner, members[i + 1] - now, document}}
end
local run = KEYS[9] and redis.pcall('LINDEX', KEYS[9], 0)
if type(run) ~= 'string' or #run > {READ} then run = false end
return {{value or false, redis.call('PTTL', LOCK), waiters, run, kind or false, holders}}
""")


def inspect(session: Session, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    (seen,) = read_locks(session, [name], deadline, with_run=True)
    return shown("redis", session.prefix + name, name, seen)


def look(session: Session, name: str, deadline: Deadline) -> LockInfo:
    """The same without its last run."""
    (seen,) = read_locks(session, [name], deadline)
    return shown("redis", session.prefix + name, name, seen)


def list_locks(session: Session, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """All locks that match, by SCAN, so that those of other programs under our prefix are found, too."""
    found = names_of(session, pattern, deadline)
    for start in range(0, len(found), INSPECTED):
        part = found[start : start + INSPECTED]
        for name, seen in zip(part, read_locks(session, part, deadline), strict=True):
            yield shown("redis", session.prefix + name, name, seen)


def names_of(session: Session, pattern: str, deadline: Deadline, words: tuple[str, ...] = layout.SHOWN_BY) -> list[str]:
    """The names that match a glob, in order, of all locks that are held, waited for, or have one of these companions.

    By default: that were ever held.
    """
    found: set[str] = set()
    cursor: bytes = b"0"
    while True:
        reply = session.call(
            "SCAN", cursor, "MATCH", layout.match_all(session.prefix), "COUNT", SCANNED, deadline=deadline
        )
        following, keys = layout.answer(reply, session.where, 2)
        if not isinstance(following, bytes) or not isinstance(keys, list):
            raise layout.no_answer(session.where)
        for key in keys:
            name = layout.name_in(key, session.prefix, words) if isinstance(key, bytes) else None
            if name is not None:
                found.add(name)
        cursor = following
        if cursor == b"0":
            return matching(found, pattern)
        deadline.check(session.where)


def read_locks(
    session: Session, wanted: Iterable[str], deadline: Deadline, *, with_run: bool = False, with_waiters: bool = True
) -> list[layout.Seen]:
    """What the server says about some locks, in the order of their names as given; with their last runs if asked."""
    words: Words = [] if with_waiters else [NO_WAITERS]
    calls: list[tuple[tuple[str, ...], Words]] = []
    for name in wanted:
        keys = layout.keys_of(session.prefix, name)
        calls.append(((*keys, layout.remembered(session.prefix, name, layout.RUNS)) if with_run else keys, words))
    found: list[layout.Seen] = []
    for start in range(0, len(calls), INSPECTED):
        piece = calls[start : start + INSPECTED]
        replies = in_parts(lambda some: session.run_many(INSPECT, some, deadline), piece)
        found += [_seen(reply, session.where) for reply in replies]
    return found


def looking(session: Session, name: str, deadline: Deadline) -> Steps[layout.Seen]:
    """The steps of reading one lock without its waiters, see ``Deadline.drive``."""
    (reply,), _ = yield from session.running(
        INSPECT, [(layout.keys_of(session.prefix, name), [NO_WAITERS])], [], deadline
    )
    return _seen(reply, session.where)


def _seen(reply: Reply, where: str) -> layout.Seen:
    """The answer of ``INSPECT``; raises ``BackendUnavailable`` if it is none."""
    value, left, waiting, run, kind, sharing = layout.answer(reply, where, 6)
    texts = all(text is None or isinstance(text, bytes) for text in (value, run, kind))
    if not texts or not isinstance(left, int) or not isinstance(waiting, list) or not isinstance(sharing, list):
        raise layout.no_answer(where)
    waiters = []
    for text in waiting:
        document = documents.read(text if isinstance(text, bytes) else None)
        if document is not None:
            waiters.append(documents.waiter(document))
    sharers = sorted((_sharer(each, kind, where) for each in sharing), key=lambda holder: holder.token or 0)
    return layout.Seen(value, left / 1000 if left >= 0 else None, tuple(waiters), run, kind, tuple(sharers))


def _sharer(said: Reply, kind: bytes | None, where: str) -> Holder:
    """One of several holders; of one whose document cannot be read, what the server itself knows."""
    owner, left, text = layout.answer(said, where, 3)
    if not isinstance(owner, bytes) or not isinstance(left, int) or not isinstance(text, bytes):
        raise layout.no_answer(where)
    found = layout.read(owner + b"|" + text)
    mode = (kind or b"").partition(b"|")[0].decode("ascii", "replace")
    document = {**(found.document if found else {}), "owner": owner.decode("utf-8", "replace"), "mode": mode}
    return documents.holder(document, token=found.token if found else None, expires_in=left / 1000)


def holders(seen: layout.Seen) -> tuple[Holder, ...]:
    """Who holds the lock."""
    if seen.value is None:
        return ()
    if seen.kind is not None:
        return seen.sharers
    found = seen.record
    if found is None:
        return (documents.foreign_holder(seen.value, expires_in=seen.left),)
    document = {**found.document, "mode": EXCLUSIVE}  # that of the key, whatever is written in it
    if not seen.value.startswith(layout.ENDED):
        document.pop("ended_at", None)
    return (documents.holder(document, token=found.token, expires_in=seen.left),)


def shown(scheme: str, key: str, name: str, seen: layout.Seen) -> LockInfo:
    """One lock as an operator sees it."""
    slots, last_run = layout.slots_of(seen.kind), history.read(seen.last_run)
    return lock_info(scheme, "durable-storage", name, key, holders(seen), seen.waiters, slots=slots, last_run=last_run)
