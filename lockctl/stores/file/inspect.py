"""Looking at lock files without touching their locks: ``/proc/locks`` says who holds and who waits.

A look never takes a lock, not even for a moment: a cron job that tries at that moment would be told
that the lock is held, and skip its run.
"""

from __future__ import annotations

import os
import stat
import time

from lockctl import documents
from lockctl.locks.inspect import is_match
from lockctl.model import SHARED, Claim, Holder, LockInfo, Waiter
from lockctl.stores.file import address, layout, ranges
from lockctl.stores.file.holder import kept_holder, lock_info, own_holder, record_in, runs, sharers, told
from lockctl.stores.file.queue import KernelLocks, Locks
from lockctl.supervise import tree
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lockctl.stores.file.layout import Record

INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, a fixed number of the kernel
RECORD_WITHIN = 0.05  # seconds in which a holder of ours that the kernel shows has written its record
LOOK_PAUSE = 0.01  # seconds between two looks at a record that is missing
WAITER_NAME = b"lockctl-wait"  # what the helper process of a waiting lockctl is called


def find_all(directory: str, prefix: str, pattern: str) -> Iterator[LockInfo]:
    """The locks in a directory whose names match a glob, in the order of their names."""
    descriptor = address.open_existing(directory)
    if descriptor is None:
        return
    os.close(descriptor)
    locks = KernelLocks()
    with os.scandir(directory) as entries:
        files = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    for file in files:
        name = file[len(prefix) :]
        if file.startswith(prefix) and is_match(name, pattern):
            found = find(name, f"{directory.rstrip('/')}/{file}", locks)
            if found is not None:
                yield found


def find(name: str, key: str, locks: KernelLocks) -> LockInfo | None:
    """The lock in the file *key*; ``None`` if there is no such file."""
    try:
        descriptor = address.opened(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except PermissionError:
        return look_from_outside(name, key, locks)
    except OSError as failure:
        address.refuse(key, failure)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return look(name, key, descriptor, locks)
    finally:
        os.close(descriptor)


def look(name: str, key: str, descriptor: int, locks: KernelLocks, again: int = 3) -> LockInfo:
    """One lock file, open for reading, as an operator sees it; looked at *again* so often if it is just written."""
    there = locks.of(key, os.fstat(descriptor))
    record = record_in(descriptor)
    if record is not None and record.document.startswith(layout.SHARING):
        beside = _beside(name, key, descriptor, record, there)
        if beside is not None:
            return beside
    kept = kept_holder(record)
    if kept is not None:
        return _info(name, key, "held", (kept,), there.waiting)
    if there.holding or _hidden_holder(record):
        own = own_holder(record, there.holding)
        # a holder of ours has the lock a moment before its record; of a whole list, only the first looks must wait
        while own is None and time.monotonic() < locks.taken_at + RECORD_WITHIN:
            time.sleep(LOOK_PAUSE)
            own = own_holder(record_in(descriptor), there.holding)
        if own is not None:
            return _info(name, key, "held", (own,), there.waiting)
    if again and (locks.may_be_older(os.fstat(descriptor)) if there.holding else runs(record)):
        return look(name, key, descriptor, KernelLocks(), again - 1)
    return _info(name, key, "foreign" if there.holding else "free", _strangers(there), there.waiting)


def _beside(name: str, key: str, descriptor: int, record: Record, there: Locks) -> LockInfo | None:
    """A lock whose holders are not alone; ``None`` if there are none now."""
    found = sharers(descriptor, record)
    if found is None:
        return None
    state, inside, written = found
    holders = [documents.holder(document, token=token, expires_in=None) for token, document in written]
    if not holders:
        # the first of them has not written yet who it is, or another program has taken the pages away
        holders = [replace(documents.foreign_holder(), mode=state.mode)]
    elif len(holders) == len(inside) and not ranges.is_taken(descriptor, ranges.MUTEX, ranges.MUTEX + 1):
        known = [document.get("taken_by") for _, document in written]
        if all(document.get("pid_ns") == tree.pid_namespace() for _, document in written):
            holders += _strangers(there, known)
    return _info(name, key, "held", tuple(holders), there.waiting, state.slots)


def look_from_outside(name: str, key: str, locks: KernelLocks) -> LockInfo | None:
    """A lock file that this user may not read: the kernel still says whether it is held, and by which pid."""
    try:
        there = locks.of(key, os.stat(key, follow_symlinks=False))
    except FileNotFoundError:
        return None
    except OSError as failure:
        address.refuse(key, failure)
    return _info(name, key, "held" if there.holding else "free", _strangers(there), there.waiting)


def _info(name: str, key: str, state: str, holders: tuple[Holder, ...], waiting: list[int], slots: int = 1) -> LockInfo:
    waiters = tuple(sorted(map(_waiter, waiting), key=lambda waiter: waiter.since or 0.0))
    return lock_info(name, key, state, holders, slots, waiters)


def free(name: str, key: str) -> LockInfo:
    """A lock that nobody has ever taken."""
    return lock_info(name, key, "free", ())


def _hidden_holder(record: Record | None) -> bool:
    """Whether the recorded holder lives although ``/proc/locks`` does not show it.

    In a container the kernel hides locks whose taker has died (the helper that waited for us) or is in
    another pid namespace. Outside of one it shows them all.
    """
    return tree.pid_namespace() != INITIAL_PID_NAMESPACE and runs(record)


def _strangers(there: Locks, known: Collection[object] = ()) -> tuple[Holder, ...]:
    """The other programs that hold a file: all whose pids are not *known* as ours."""
    return tuple(_stranger(pid, shared=pid in there.shared) for pid in there.holding if pid not in known)


def _stranger(pid: int, *, shared: bool) -> Holder:
    process = (pid, tree.start_time(pid))
    found = documents.foreign_holder(process, host=os.uname().nodename, pid=pid or None, user=_user_of(pid))
    return replace(found, command=_command_of(pid), mode=SHARED if shared else found.mode)


def _waiter(pid: int) -> Waiter:
    since = _since(pid)
    parent = tree.parent_of(pid)
    if parent and _name_of(pid) == WAITER_NAME:
        pid = parent
    return Waiter(host=os.uname().nodename, pid=pid or None, user=_user_of(pid), since=since)


def _since(pid: int) -> float | None:
    ticks = tree.start_time(pid)
    if ticks is None:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _user_of(pid: int) -> str | None:
    import pwd

    try:
        number = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _name_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
            return file.read().strip()
    except OSError:
        return b""


def _command_of(pid: int) -> tuple[str, ...] | None:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return None
    return tuple(word.decode("utf-8", "replace") for word in words if word) or None


def object_to(name: str, key: str, descriptor: int, claim: Claim) -> None:
    """After a refusal: raise ``ConfigError`` if those who hold the lock say another number of slots than *claim*."""
    lock = told(name, key, descriptor) or look(name, key, descriptor, KernelLocks())
    if any(holder.owner is not None for holder in lock.holders):
        documents.check_agrees(key, lock.slots, claim)
