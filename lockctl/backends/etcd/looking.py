"""What operators see and do: looking at locks, listing them, asking for them back."""

from __future__ import annotations

from lockctl import documents
from lockctl.backends.etcd import wording
from lockctl.backends.etcd.cluster import LeaseGone
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import LockInfo
from lockctl.names import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backends.etcd import EtcdBackend
    from lockctl.backends.etcd.wording import Entry
    from lockctl.model import Holder
    from lockctl.wire.deadline import Deadline

MOST_SHOWN = 1000  # holder and waiters of one lock
PAGE = 5000  # keys without values in one answer
LOCKS_AT_ONCE = 50  # in one transaction: etcd allows 128 steps


def inspect(backend: EtcdBackend, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now."""
    (found,) = _read(backend, [name], deadline)
    return _shown(backend, name, found, deadline)


def list_locks(backend: EtcdBackend, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks that match and that somebody holds, in the order of their names.

    How long a holder's lease still runs is one question each: it stays unknown when time gets short.
    """
    from fnmatch import fnmatchcase

    names = sorted(name for name in _names(backend, deadline) if fnmatchcase(name, pattern))
    for start in range(0, len(names), LOCKS_AT_ONCE):
        some = names[start : start + LOCKS_AT_ONCE]
        for name, found in zip(some, _read(backend, some, deadline), strict=True):
            if found:
                hurried = deadline.left() < deadline.timeout / 2
                yield _shown(backend, name, found, None if hurried else deadline)


def revoke(
    backend: EtcdBackend, name: str, seen: Holder, *, now: bool, by: str, reason: str, deadline: Deadline
) -> int | None:
    """See ``Backend``. What is asked of a holder is attached to its lease: it ends with the tenure."""
    (found,) = _read(backend, [name], deadline)
    if not found:
        return None
    current = found[0]
    document = documents.read(current.value)
    owner = document["owner"] if document is not None else None
    if (owner, current.created if owner else None) != (seen.owner, seen.token):
        return None
    if now:
        action = wording.delete(current.key)
    elif owner is None:
        raise LockctlError(f"{name} is held by another program, which cannot be told: end it, or use --now")
    elif not current.lease:
        raise LockctlError(f"the key of {name} was overwritten by another hand and belongs to no lease: use --now")
    else:
        told = backend.layout.revocation(name, current.lease)
        action = wording.put(told, documents.describe_revocation(owner, by, reason), current.lease)
    request = {"compare": [wording.is_created_at(current.key, current.created)], "success": [action]}
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


def _read(backend: EtcdBackend, names: list[str], deadline: Deadline) -> list[list[Entry]]:
    """The queue of each lock, the holder first."""
    steps = [wording.get_in_order(backend.layout.directory(name), MOST_SHOWN) for name in names]
    answer = backend.cluster.call("/v3/kv/txn", {"success": steps}, deadline)
    found = wording.reads(answer)
    if len(found) != len(names):
        raise BackendUnavailable(f"{backend.cluster.where}: an answer without what was asked for")
    return found


def _names(backend: EtcdBackend, deadline: Deadline) -> set[str]:
    """The names of all locks that have keys. Whatever else is below the prefix is none of ours."""
    names = set()
    beginning = wording.as_bytes(backend.layout.prefix)
    start = beginning
    while True:
        answer = backend.cluster.call("/v3/kv/range", wording.keys_from(start, beginning, PAGE), deadline)
        found = wording.entries(answer)
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


def _shown(backend: EtcdBackend, name: str, found: list[Entry], deadline: Deadline | None) -> LockInfo:
    """What an operator sees of a queue; without *deadline*, not how long the lease still runs."""
    state = "free"
    holders: tuple[Holder, ...] = ()
    if found:
        left = None
        if found[0].lease and deadline is not None:
            answer = backend.cluster.call("/v3/lease/timetolive", {"ID": str(found[0].lease)}, deadline)
            left = float(max(0, wording.whole(answer.get("TTL"))))
        document = documents.read(found[0].value)
        state = "foreign" if document is None else "held"
        if document is None:
            holders = (documents.foreign_holder(expires_in=left),)
        else:
            holders = (documents.holder(document, token=found[0].created, expires_in=left),)
    waiters = tuple(documents.waiter(documents.read(entry.value) or {}) for entry in found[1:])
    scheme, fencing = backend.capabilities.scheme, backend.capabilities.fencing
    return LockInfo(name, scheme, backend.layout.lock(name), state, fencing, 1, holders, waiters, None)
