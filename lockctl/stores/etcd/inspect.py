"""What operators see and do: looking at locks, listing them, asking for them back."""

from __future__ import annotations

from lockctl import documents, history
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import LockInfo
from lockctl.names import check_name
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.protocol import LeaseGone
from lockctl.stores.etcd.share import holders, room_of, slots_of
from lockctl.value import replace
from lockctl.wire.stream import in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.model import Holder
    from lockctl.stores.etcd.layout import Entry
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

MOST_SHOWN = 1000  # holder and waiters of one lock
PAGE = 5000  # keys without values in one answer
LOCKS_AT_ONCE = 50  # in one transaction: etcd allows 128 steps


def inspect(backend: Client, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, and the last run that was remembered of it."""
    found, newest = _read(backend, [name], deadline, layout.newest(backend.layout.history(name, started=True), 1))
    lock = _shown(backend, name, found, deadline)
    return replace(lock, last_run=history.read(newest[0].value)) if newest else lock


def list_locks(backend: Client, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks that match and that somebody holds, in the order of their names.

    How long a holder's lease still runs is one question each: it stays unknown when time gets short.
    """
    from fnmatch import fnmatchcase

    names = sorted(name for name in _names(backend, deadline) if fnmatchcase(name, pattern))
    for start in range(0, len(names), LOCKS_AT_ONCE):
        some = names[start : start + LOCKS_AT_ONCE]
        for name, found in zip(some, in_parts(lambda part: _read(backend, part, deadline), some), strict=True):
            if found:
                yield _shown(backend, name, found, deadline)


def revoke(
    backend: Client, name: str, seen: Holder, *, now: bool, by: str, reason: str, deadline: Deadline
) -> int | None:
    """See ``Backend``. What is asked of a holder is attached to its lease: it ends with the tenure."""
    (found,) = _read(backend, [name], deadline)
    for current in found[: holders(backend.layout.directory(name), found)]:
        document = documents.read(current.value)
        owner = document["owner"] if document is not None else None
        if (owner, current.created if owner else None) == (seen.owner, seen.token):
            break
    else:
        return None
    if now:
        action = layout.delete(current.key)
    elif owner is None:
        raise LockctlError(f"{name} is held by another program, which cannot be told: end it, or use --now")
    elif documents.seconds((document or {}).get("ended_at")) is not None:
        raise LockctlError(f"the job that held {name} has ended, only a hold is left: wait for its end, or use --now")
    elif not current.lease:
        raise LockctlError(f"the key of {name} was overwritten by another hand and belongs to no lease: use --now")
    else:
        told = backend.layout.revocation(name, current.lease)
        action = layout.put(told, documents.describe_revocation(owner, by, reason), current.lease)
    request = {"compare": [layout.is_created_at(current.key, current.created)], "success": [action]}
    try:
        answer = backend.cluster.call("/v3/kv/txn", request, deadline)
        if answer.get("succeeded") is not True:
            return None
    except LeaseGone:
        return None  # it has left in this moment
    if now and owner is not None and current.lease:
        # the lock is free already; without its lease the holder learns of it by one request less. That of
        # another program may keep more than this lock alive, and is left to it.
        try:
            backend.cluster.call("/v3/lease/revoke", {"ID": str(current.lease)}, deadline)
        except (LeaseGone, BackendUnavailable):
            pass
    return current.created + 1


def _read(backend: Client, names: list[str], deadline: Deadline, *more: dict[str, Any]) -> list[list[Entry]]:
    """The queue of each lock, the holders first, and what *more* reads ask for."""
    steps = [layout.get_in_order(backend.layout.directory(name), MOST_SHOWN) for name in names]
    answer = backend.cluster.call("/v3/kv/txn", {"success": [*steps, *more]}, deadline)
    return layout.steps(answer, len(names) + len(more))


def _names(backend: Client, deadline: Deadline) -> set[str]:
    """The names of all locks that have keys. Whatever else is below the prefix is none of ours."""
    names = set()
    beginning = layout.as_bytes(backend.layout.prefix)
    start = beginning
    while True:
        answer = backend.cluster.call("/v3/kv/range", layout.keys_from(start, beginning, PAGE), deadline)
        found = layout.entries(answer)
        for entry in found:
            name, slash, _ = entry.key[len(beginning) :].partition(b"/")
            try:
                if slash:
                    names.add(check_name(name.decode("ascii")))
            except ValueError:
                continue
        if answer.get("more") is not True or not found:
            return names
        start = found[-1].key + b"\0"


def _shown(backend: Client, name: str, found: list[Entry], deadline: Deadline) -> LockInfo:
    """What an operator sees of a queue."""
    directory = backend.layout.directory(name)
    inside = holders(directory, found)
    shown = tuple(_holder(backend, entry, deadline) for entry in found[:inside])
    state = "free" if not shown else "held" if all(holder.owner for holder in shown) else "foreign"
    slots = slots_of(room_of(directory, found[0].key)) if found else 1
    waiters = tuple(documents.waiter(documents.read(entry.value) or {}) for entry in found[inside:])
    scheme, fencing = backend.capabilities.scheme, backend.capabilities.fencing
    return LockInfo(name, scheme, backend.layout.lock(name), state, fencing, slots, shown, waiters, None)


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
