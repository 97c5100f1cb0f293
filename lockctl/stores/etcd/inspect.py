"""What operators see of locks: one, or all that somebody holds."""

from __future__ import annotations

from itertools import groupby

from lockctl import documents, history
from lockctl.locks.inspect import is_match, lock_info
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.share import check_is_of_lock, group_of, holders, is_of_lock, slots_of
from lockctl.value import replace
from lockctl.wire.stream import in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.model import Holder, LockInfo
    from lockctl.stores.etcd.layout import Entry
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

MOST_SHOWN = 1000  # holder and waiters of one lock
PAGE = 5000  # keys without values in one answer
KEYS_AT_ONCE = 500  # of several locks in one answer
MOST_ASKED = 500  # locks in a list whose leases are asked for: the question takes etcd longer than the lock itself


def inspect(backend: Client, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, and the last run that was remembered of it."""
    found, newest = read_queue(backend, name, deadline, layout.newest(backend.layout.history(name, started=True), 1))
    lock = _shown(backend, name, found, deadline)
    return replace(lock, last_run=history.read(newest[0].value)) if newest else lock


def look(backend: Client, name: str, deadline: Deadline) -> LockInfo:
    """The same in one round trip: without its last run, and how long its leases still run."""
    (found,) = read_queue(backend, name, deadline)
    return _shown(backend, name, found, deadline, asked=False)


def list_locks(backend: Client, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks that match and that somebody holds, in the order of their names.

    How long a holder's lease still runs is one question each: of many locks it stays unknown.
    """
    found: dict[str, list[Entry]] = {}
    skipped = len(layout.as_bytes(backend.layout.prefix))
    for names in _neighbours(backend, pattern, deadline):
        for entry in _read_neighbours(backend, names, deadline):
            found.setdefault(entry.key[skipped:].partition(b"/")[0].decode("ascii", "replace"), []).append(entry)
    asked = len(found) <= MOST_ASKED
    for name in sorted(found):
        if is_of_lock(backend.layout.directory(name), found[name][0].key):  # else nobody can have it
            yield _shown(backend, name, found[name], deadline, asked=asked)


def _neighbours(backend: Client, pattern: str, deadline: Deadline) -> Iterator[list[str]]:
    """The locks that match, in lists of those between whose keys are no other ones, and no more than fit an answer."""
    prefix = layout.as_bytes(backend.layout.prefix)
    # what is kept of all names that were ever used begins with a dot, and is not read
    for start, end in ((prefix, prefix + b"."), (prefix + b"/", layout.after(prefix))):
        names: list[str] = []
        keys = 0
        for (name, slash), group in groupby(_names_between(backend, prefix, start, end, deadline)):
            count = sum(1 for _ in group)
            wanted = slash and is_match(name, pattern)
            if names and (not wanted or keys + count > KEYS_AT_ONCE):
                yield names
                names, keys = [], 0
            if wanted:
                names.append(name)
                keys += count
        if names:
            yield names


def _read_neighbours(backend: Client, names: list[str], deadline: Deadline) -> list[Entry]:
    """The keys of such locks, those of each lock in the order of its queue."""

    def ask(some: list[str]) -> list[Entry]:
        first, last = backend.layout.directory(some[0]), backend.layout.directory(some[-1])
        among = {"key": layout.coded(first), "range_end": layout.coded(layout.after(last))}
        return layout.entries(backend.cluster.call("/v3/kv/range", layout.in_order(among, MOST_SHOWN), deadline))

    return in_parts(ask, names)


def read_queue(backend: Client, name: str, deadline: Deadline, *more: dict[str, Any]) -> list[list[Entry]]:
    """The queue of a lock, the holders first, and what *more* reads ask for.

    Raises ``ConfigError`` if the first key there is not one of this lock.
    """
    line = layout.get_in_order(backend.layout.directory(name), MOST_SHOWN)
    found = layout.steps(backend.cluster.call("/v3/kv/txn", {"success": [line, *more]}, deadline), 1 + len(more))
    for entry in found[0][:1]:
        check_is_of_lock(backend.layout, name, entry.key)
    return found


def names_below(backend: Client, folder: str, deadline: Deadline) -> Iterator[tuple[str, bool]]:
    """The first part of all keys in a folder below the prefix, and whether another part follows."""
    beginning = layout.as_bytes(backend.layout.prefix + folder)
    return _names_between(backend, beginning, beginning, layout.after(beginning), deadline)


def _names_between(
    backend: Client, beginning: bytes, start: bytes, end: bytes, deadline: Deadline
) -> Iterator[tuple[str, bool]]:
    """The same of the keys from *start* to *end*, which have this *beginning*."""
    while True:
        among = {"key": layout.coded(start or b"\0"), "range_end": layout.coded(end)}
        answer = backend.cluster.call("/v3/kv/range", {**among, "limit": str(PAGE), "keys_only": True}, deadline)
        found = layout.entries(answer)
        for entry in found:
            name, slash, _ = entry.key[len(beginning) :].partition(b"/")
            yield name.decode("ascii", "replace"), bool(slash)
        if answer.get("more") is not True or not found:
            return
        start = found[-1].key + b"\0"


def _shown(backend: Client, name: str, found: list[Entry], deadline: Deadline, *, asked: bool = True) -> LockInfo:
    """What an operator sees of a queue; how long its leases still run, too, if *asked*."""
    directory = backend.layout.directory(name)
    inside = holders(directory, found)
    of_lock = [entry for entry in found[:inside] if is_of_lock(directory, entry.key)]
    shown = tuple(holder(entry, _left(backend, entry, deadline) if asked else None) for entry in of_lock)
    slots = slots_of(group_of(directory, found[0].key)) if found else 1
    line = [entry for entry in found[inside:] if is_of_lock(directory, entry.key)]
    waiters = tuple(documents.waiter(documents.read(entry.value) or {}) for entry in line)
    promised = backend.capabilities
    key = backend.layout.lock(name)
    return lock_info(promised.scheme, promised.fencing, name, key, shown, waiters, slots=slots)


def _left(backend: Client, entry: Entry, deadline: Deadline) -> float | None:
    """How many seconds the lease of a key still runs; not asked when time gets short."""
    if not entry.lease or deadline.left() < deadline.timeout / 2:
        return None
    answer = backend.cluster.call("/v3/lease/timetolive", {"ID": str(entry.lease)}, deadline)
    return float(max(0, layout.whole(answer.get("TTL"))))


def holder(entry: Entry, left: float | None = None) -> Holder:
    """Who has a key at the head of a queue; *left*: how many seconds its lease still runs, if that was asked."""
    document = documents.read(entry.value)
    if document is None:
        return documents.foreign_holder(entry.created, expires_in=left)
    return documents.holder(document, token=token_of(entry, document), expires_in=left)


def token_of(entry: Entry, document: dict[str, Any]) -> int | None:
    """The token of the holder that has a key; of one that did not write it down, as of lockctl 0.1, the old one.

    ``None``: it is the first in the queue, and was not granted the lock yet.
    """
    return tokens.in_document(document) or (entry.created if documents.was_granted(document) else None)
