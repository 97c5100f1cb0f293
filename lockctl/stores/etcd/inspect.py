"""What operators see of locks: one, or all that somebody holds."""

from __future__ import annotations

from lockctl import documents, history
from lockctl.locks.inspect import lock_info, matching
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.share import group_of, holders, slots_of
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
LOCKS_AT_ONCE = 50  # in one transaction: etcd allows 128 steps


def inspect(backend: Client, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, and the last run that was remembered of it."""
    found, newest = read_queues(backend, [name], deadline, layout.newest(backend.layout.history(name, started=True), 1))
    lock = _shown(backend, name, found, deadline)
    return replace(lock, last_run=history.read(newest[0].value)) if newest else lock


def list_locks(backend: Client, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks that match and that somebody holds, in the order of their names.

    How long a holder's lease still runs is one question each: it stays unknown when time gets short.
    """
    names = matching(_names(backend, deadline), pattern)
    for start in range(0, len(names), LOCKS_AT_ONCE):
        some = names[start : start + LOCKS_AT_ONCE]
        for name, found in zip(some, in_parts(lambda part: read_queues(backend, part, deadline), some), strict=True):
            if found:
                yield _shown(backend, name, found, deadline)


def read_queues(backend: Client, names: list[str], deadline: Deadline, *more: dict[str, Any]) -> list[list[Entry]]:
    """The queue of each lock, the holders first, and what *more* reads ask for."""
    steps = [layout.get_in_order(backend.layout.directory(name), MOST_SHOWN) for name in names]
    answer = backend.cluster.call("/v3/kv/txn", {"success": [*steps, *more]}, deadline)
    return layout.steps(answer, len(names) + len(more))


def _names(backend: Client, deadline: Deadline) -> Iterator[str]:
    """What could be the name of a lock in all keys below the prefix, some of which are not ours."""
    for name, slash in names_below(backend, "", deadline):
        if slash:
            yield name


def names_below(backend: Client, folder: str, deadline: Deadline) -> Iterator[tuple[str, bool]]:
    """The first part of all keys in a folder below the prefix, and whether another part follows."""
    beginning = start = layout.as_bytes(backend.layout.prefix + folder)
    while True:
        answer = backend.cluster.call("/v3/kv/range", layout.keys_from(start, beginning, PAGE), deadline)
        found = layout.entries(answer)
        for entry in found:
            name, slash, _ = entry.key[len(beginning) :].partition(b"/")
            yield name.decode("ascii", "replace"), bool(slash)
        if answer.get("more") is not True or not found:
            return
        start = found[-1].key + b"\0"


def _shown(backend: Client, name: str, found: list[Entry], deadline: Deadline) -> LockInfo:
    """What an operator sees of a queue."""
    directory = backend.layout.directory(name)
    inside = holders(directory, found)
    shown = tuple(_holder(backend, entry, deadline) for entry in found[:inside])
    slots = slots_of(group_of(directory, found[0].key)) if found else 1
    waiters = tuple(documents.waiter(documents.read(entry.value) or {}) for entry in found[inside:])
    promised = backend.capabilities
    key = backend.layout.lock(name)
    return lock_info(promised.scheme, promised.fencing, name, key, shown, waiters, slots=slots)


def _holder(backend: Client, entry: Entry, deadline: Deadline) -> Holder:
    """A holder; how long its lease still runs is a question of its own: it stays unknown when time gets short."""
    left = None
    if entry.lease and deadline.left() >= deadline.timeout / 2:
        answer = backend.cluster.call("/v3/lease/timetolive", {"ID": str(entry.lease)}, deadline)
        left = float(max(0, layout.whole(answer.get("TTL"))))
    document = documents.read(entry.value)
    if document is None:
        return documents.foreign_holder(expires_in=left)
    return documents.holder(document, token=entry.created, expires_in=left)
