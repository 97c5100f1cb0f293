"""A lock as an operator sees it, put together alike for every store."""

from __future__ import annotations

import itertools

from lockctl import documents
from lockctl.model import Capabilities, Holder, LockInfo, Run, Waiter
from lockctl.names import ALLOWED, is_name
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockctl.locks.driver import Cells, Seen
    from lockctl.locks.lock_cells import LockCells
    from lockctl.locks.machine import Lock
    from lockctl.wire.deadline import Deadline


def is_match(name: str, pattern: str) -> bool:
    """Whether *name* can name a lock and matches a glob."""
    from fnmatch import fnmatchcase  # loads `re`, which a run that reports who holds a lock does not need

    return fnmatchcase(name, pattern) and is_name(name)


def beginning(pattern: str) -> str:
    """What every name begins with that matches a glob."""
    return "".join(itertools.takewhile(ALLOWED.__contains__, pattern))


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Those that can name a lock and match a glob, in their order, each once."""
    return sorted(name for name in set(names) if is_match(name, pattern))


def in_cells(cells: Cells, start: str, pattern: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
    """The cells whose keys are *start* and the name of a lock that matches a glob, with these names."""
    for key, seen in cells.scan(start + beginning(pattern), deadline):
        name = key[len(start) :]
        if is_match(name, pattern):
            yield name, seen


def lock_info(
    scheme: str,
    fencing: str,
    name: str,
    key: str,
    holders: Sequence[Holder],
    waiters: Iterable[Waiter] | None,
    *,
    slots: int = 1,
    last_run: Run | None = None,
) -> LockInfo:
    """A lock with these holders: another program's, if lockctl does not know the owner of one of them."""
    state = "free" if not holders else "held" if all(holder.owner for holder in holders) else "foreign"
    return LockInfo(
        name=name,
        backend=scheme,
        key=key,
        state=state,
        fencing=fencing,
        slots=slots,
        holders=tuple(holders),
        waiters=None if waiters is None else tuple(waiters),
        last_run=last_run,
    )


def one(locks: LockCells, capabilities: Capabilities, name: str, deadline: Deadline) -> LockInfo:
    """See ``Backend.inspect``: a lock in cells."""
    from lockctl.locks import records

    last = records.last_started(locks.cells.read(locks.past_key(name), deadline).data)
    return replace(holders(locks, capabilities, name, deadline), last_run=last)


def holders(locks: LockCells, capabilities: Capabilities, name: str, deadline: Deadline) -> LockInfo:
    """See ``Backend.look``: one cell is read."""
    return _in_cell(locks, capabilities, name, locks.cells.read(locks.key(name), deadline))


def matching_locks(
    locks: LockCells, capabilities: Capabilities, pattern: str, deadline: Deadline
) -> Iterator[LockInfo]:
    """See ``Backend.list``: locks in cells."""
    found = dict(in_cells(locks.cells, locks.key(""), pattern, deadline))
    for name in sorted(found):
        lock = locks.lock(found[name])
        # else somebody waited once, and nobody was granted it
        if lock is None or lock.token > 0 or lock.queue:
            yield _in_cell(locks, capabilities, name, found[name])


def _in_cell(locks: LockCells, capabilities: Capabilities, name: str, seen: Seen) -> LockInfo:
    """A lock as it is in its cell; another program may have that."""
    lock: Lock | None = locks.lock(seen)
    holders = [documents.foreign_holder(locks.cells.known_by(seen))]
    members = {}
    if lock is not None:
        members = lock.holders
        holders = [
            documents.holder(each, token=each["token"], expires_in=max(each["until"] - seen.at, 0.0))
            for each in members.values()
        ]
    return lock_info(
        capabilities.scheme,
        capabilities.fencing,
        name,
        locks.full_name(name),
        holders,
        map(documents.waiter, lock.queue.values() if lock is not None else ()),
        slots=max([1, *map(documents.slots, members.values())]),
    )
