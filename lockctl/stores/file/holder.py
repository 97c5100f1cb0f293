"""Who holds a lock file, as far as the file itself tells.

A refused run asks no more. For the kernel's list of locks it would wait 10 ms and longer, in which nobody on the host
can take a lock of any file, or free one (``locks_start`` in fs/locks.c of Linux).
"""

from __future__ import annotations

import os

from lockctl import documents
from lockctl.model import Holder, LockInfo, Waiter
from lockctl.stores.file import address, layout
from lockctl.stores.file.layout import Record, boot_id
from lockctl.supervise import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.file.share import Sharing


def look(name: str, key: str) -> LockInfo | None:
    """The lock in the file *key*, see :func:`told`."""
    try:
        descriptor = address.opened(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return told(name, key, descriptor)
    except OSError:  # not a file
        return None
    finally:
        os.close(descriptor)


def told(name: str, key: str, descriptor: int) -> LockInfo | None:
    """The lock in a file that is open for reading, without waiters, if its record says who holds it, and that is so.

    ``None``: that is not certain, and only the kernel knows. Raises ``OSError``.
    """
    record = record_in(descriptor)
    if record is not None and record.document.startswith(layout.SHARING):
        found = sharers(descriptor, record)
        if found is None or not found[2]:
            return None
        holders = tuple([documents.holder(document, token=token, expires_in=None) for token, document in found[2]])
        return lock_info(name, key, "held", holders, found[0].slots)
    holder = kept_holder(record) or (own_holder(record, []) if runs(record) else None)
    return None if holder is None else lock_info(name, key, "held", (holder,))


def sharers(descriptor: int, record: Record) -> tuple[Sharing, list[int], list[tuple[int, dict[str, Any]]]] | None:
    """What the slots are good for, which are taken, and token and document of those who wrote who they are.

    ``None``: by its record and the kernel, nobody has one.
    """
    from lockctl.stores.file import share

    state, inside = share.state(record), share.slots_taken(descriptor)
    if state is None or not inside:
        return None
    found = [(number, layout.read_page(descriptor, number)) for number in inside]
    pages = sorted((page.token, number, page.holder) for number, page in found if page and page.token >= state.first)
    return state, inside, [(token, document) for token, _, document in pages if document]


def lock_info(
    name: str,
    key: str,
    state: str,
    holders: tuple[Holder, ...],
    slots: int = 1,
    waiters: tuple[Waiter, ...] = (),
) -> LockInfo:
    """A lock in a file."""
    return LockInfo(name, "file", key, state, "strict", slots, holders, waiters, None)


def record_in(descriptor: int) -> Record | None:
    """What a lock file says; ``None``: nothing, or what another program wrote."""
    try:
        return layout.read(descriptor)
    except layout.NotARecord:
        return None


def kept_holder(record: Record | None) -> Holder | None:
    """Who has ended, and keeps the lock for a while, as its record says."""
    if record is None or layout.ENDED not in record.document:
        return None
    from lockctl.stores.file import hold

    left = hold.left(record)
    return documents.holder(record.holder or {}, token=record.written, expires_in=left) if left > 0 else None


def runs(record: Record | None) -> bool:
    """Whether the recorded holder is a process that lives."""
    written = record.holder if record else None
    if not written:
        return False
    pid, started = written.get("pid"), written.get("pid_started")
    if written.get("boot_id") != boot_id() or not isinstance(pid, int) or started is None:
        return False
    return written.get("pid_ns") == tree.pid_namespace() and tree.start_time(pid) == started


def own_holder(record: Record | None, holding: list[int]) -> Holder | None:
    """The recorded holder, if it can be one of the processes that have the lock: all that are *holding* it if any."""
    written = record.holder if record else None
    if not written or record is None or "ended_at" in written:
        return None
    same_namespace = written.get("pid_ns") == tree.pid_namespace()
    if holding and same_namespace and written.get("taken_by") not in holding and written.get("helper") not in holding:
        return None  # a record that a crash left behind, and another program's lock
    return documents.holder(written, token=record.written, expires_in=None)
