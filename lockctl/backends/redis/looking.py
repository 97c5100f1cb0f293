"""Looking at the locks of one server: nothing is written, and a large database is read in pieces."""

from __future__ import annotations

from lockctl.backends.redis import keys as names
from lockctl.backends.redis import record
from lockctl.backends.redis.scripts import INSPECT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from lockctl.backends.redis.record import Seen
    from lockctl.backends.redis.session import Session
    from lockctl.wire.deadline import Deadline

SCANNED = 1000  # keys of the database for one step of SCAN: less than a millisecond of the server
INSPECTED = 200  # locks for one request


def names_of(session: Session, prefix: str, pattern: str, deadline: Deadline) -> set[str]:
    """The names that match a glob, of every lock that is held, waited for, or was ever held."""
    from fnmatch import fnmatchcase

    found: set[str] = set()
    cursor: bytes = b"0"
    while True:
        reply = session.call("SCAN", cursor, "MATCH", names.match_all(prefix), "COUNT", SCANNED, deadline=deadline)
        following, keys = record.answer(reply, session.where, 2)
        if not isinstance(following, bytes) or not isinstance(keys, list):
            raise record.no_answer(session.where)
        for key in keys:
            name = names.name_in(key, prefix) if isinstance(key, bytes) else None
            if name is not None and fnmatchcase(name, pattern):
                found.add(name)
        cursor = following
        if cursor == b"0":
            return found
        deadline.check(session.where)


def look(session: Session, prefix: str, wanted: Iterable[str], deadline: Deadline) -> list[Seen]:
    """What the server says about some locks, in the order of their names as given."""
    calls: list[tuple[tuple[str, ...], list[bytes | str | int]]] = [
        (names.keys_of(prefix, name), []) for name in wanted
    ]
    found: list[Seen] = []
    for start in range(0, len(calls), INSPECTED):
        replies = session.run_many(INSPECT, calls[start : start + INSPECTED], deadline)
        found += [record.seen(reply, session.where) for reply in replies]
    return found
