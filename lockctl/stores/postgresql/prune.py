"""Names that nobody uses any more: finding them, and removing their rows.

A row that is gone must not turn the tokens of its lock back: before it is deleted, the row of the floor is raised to
its token, and every row that is made anew begins above that. Whoever has begun to make one before the floor is seen
to hold the lock. Tokens are never below the server's clock, so one that is ahead of the clock is a row that was used
just now: other versions of lockctl, which do not know the floor, begin at the clock.
"""

# ruff: noqa: S608 - names of tables and numbers of keys cannot be parameters of a statement

from __future__ import annotations

from lockctl import documents
from lockctl.locks.inspect import is_match
from lockctl.stores.postgresql import inspect, queue
from lockctl.stores.postgresql.layout import FRESH, WRITES, text
from lockctl.stores.postgresql.scope import LOCKS
from lockctl.stores.postgresql.tokens import FLOOR, PAGE, SINCE_EPOCH, Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.stores.postgresql.address import Address
    from lockctl.stores.postgresql.connection import Observer
    from lockctl.stores.postgresql.session import Session
    from lockctl.wire.deadline import Deadline

NOW = SINCE_EPOCH.format("pg_catalog.clock_timestamp()")
# columns that the table of an older lockctl lacks
SUCCESS = "(pg_catalog.to_jsonb(f)->>'success')::float8"
RESTS_UNTIL = SINCE_EPOCH.format("(pg_catalog.to_jsonb(f)->>'rests_until')::timestamptz")
RECORDS = ("lockctl_history", "lockctl_holder")  # what else has rows of a key


def unused(observer: Observer, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend``; raises as ``Session.ask``, and ``ConfigError``."""
    address, fence = observer.address, observer.fence
    return iter(
        observer.with_session(lambda session: _unused(address, fence, session, pattern, older_than, deadline), deadline)
    )


def _unused(
    address: Address, fence: Fence, session: Session, pattern: str, older_than: float, deadline: Deadline
) -> list[tuple[str, float]]:
    used = _last_use(fence, _records(fence, session, deadline))
    busy = {which for each in queue.lock_rows(session, None, deadline) for which in (each.key, f"{each.queue},")}
    old = f"{used} <= {NOW} - %s"

    def is_free(name: str) -> bool:
        return address.key_of(name).text not in busy and f"{address.queue_of(name).text}," not in busy

    if address.key is not None:
        only = inspect.name_in(fence.read(session, address.key, deadline))
        sql = f"SELECT {used} FROM {fence.quoted} AS f WHERE f.key = %s AND {old}"
        rows = fence.select(session, sql, (address.key.text, older_than), deadline)
        wanted = rows and only is not None and is_match(only, pattern) and is_free(only)
        return [(str(only), float(rows[0][0]))] if wanted else []
    sql = (
        f"SELECT f.key, f.name, {used} FROM {fence.quoted} AS f WHERE left(f.name, %s) = %s"
        f' AND f.name COLLATE "C" > %s AND octet_length(f.name) < 8000 AND {old}'
        f' ORDER BY f.name COLLATE "C" LIMIT {PAGE}'
    )
    found, after = [], ""
    while rows := fence.select(session, sql, (len(address.prefix), address.prefix, after, older_than), deadline):
        for key, full_name, at in rows:
            after = text(full_name) or ""
            name = after.removeprefix(address.prefix)
            if is_match(name, pattern) and address.key_of(name).text == text(key) and is_free(name):
                found.append((name, float(at)))
    return found


def forget(observer: Observer, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend``; raises as ``Session.ask``, and ``ConfigError`` where we may not delete."""
    address, fence = observer.address, observer.fence
    return observer.with_session(lambda session: _forget(address, fence, session, name, older_than, deadline), deadline)


def _forget(address: Address, fence: Fence, session: Session, name: str, older_than: float, deadline: Deadline) -> bool:
    key, full_name = address.key_of(name), address.full_name(name)
    both = (key, address.queue_of(name))
    records = _records(fence, session, deadline)
    which = (
        "f.key = %s AND (f.name IS NULL OR %s IS NULL OR f.name = %s)"
        f" AND {_last_use(fence, records)} <= {NOW} - %s"
        f" AND NOT EXISTS (SELECT FROM {LOCKS} l WHERE {queue.is_one_of(both)})"
    )
    values = (key.text, full_name, full_name, older_than)
    raising = (
        f"{WRITES}WITH seen AS MATERIALIZED (SELECT f.token FROM {fence.quoted} AS f WHERE {which}),"
        f" raised AS (INSERT INTO {fence.quoted} AS floor (key, token) SELECT '{FLOOR}', token FROM seen"
        " ON CONFLICT (key) DO UPDATE SET token = EXCLUDED.token WHERE floor.token < EXCLUDED.token)"
        " SELECT token FROM seen"
    )
    rows = fence.select(session, raising, values, deadline)
    if not rows:
        return False
    of_key = "(SELECT key FROM gone)"
    removing = (
        f"{FRESH}WITH gone AS (DELETE FROM {fence.quoted} AS f WHERE f.token = %s AND {which} RETURNING f.key)"
        + "".join([f", {word} AS (DELETE FROM {_named(fence, word)} WHERE key IN {of_key})" for word in records])
        + " SELECT key FROM gone"
    )
    return bool(fence.select(session, removing, (rows[0][0], *values), deadline))


def _last_use(fence: Fence, records: list[str]) -> str:
    """When the name of a row *f* was used last, in seconds since the epoch; an expression."""
    uses = [
        "f.token / 1e6::float8",
        SINCE_EPOCH.format("f.taken_at"),
        RESTS_UNTIL,
        f"CASE WHEN {SUCCESS} < {documents.LATEST} THEN {SUCCESS} END",
    ]
    if RECORDS[0] in records:
        noted = SINCE_EPOCH.format("max(h.noted_at)")
        uses.append(f"(SELECT {noted} FROM {_named(fence, RECORDS[0])} h WHERE h.key = f.key)")
    return f"GREATEST({', '.join(uses)})"


def _records(fence: Fence, session: Session, deadline: Deadline) -> list[str]:
    """Those of ``RECORDS`` that there are: they are made when they are first written."""
    sql = "SELECT " + ", ".join(["pg_catalog.to_regclass(%s) IS NOT NULL" for _ in RECORDS])
    there = session.row(sql, len(RECORDS), deadline, tuple([fence.named(word) for word in RECORDS]))
    return [word for word, is_there in zip(RECORDS, there, strict=True) if is_there]


def _named(fence: Fence, word: str) -> str:
    return fence.named(word).replace("%", "%%")
