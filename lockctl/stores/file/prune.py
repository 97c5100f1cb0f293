"""Lock files that nobody uses any more: finding them, and removing them safely.

Whoever opened a file before it was removed, flock(1) for one, would lock it beside the one that locks the new file of
the same name. So a file is removed only while the kernel grants us a lease on it (fcntl(2), ``F_SETLEASE``), which it
does while nobody else has it open; who opens it then is kept waiting, and we are told. It is renamed first, so
that nobody who comes later can find it, and put back if somebody had found it before.

What a new lock file starts from is kept for the directory: the greatest token of all that were removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from lockctl.locks.inspect import is_match
from lockctl.stores.file import address, hold, inspect, layout, lease, records
from lockctl.stores.file.holder import record_in
from lockctl.stores.file.layout import Record
from lockctl.stores.file.queue import KernelLocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

BESIDE = (records.SUCCESS, records.HISTORY, address.REQUEST)


def find(path: str, prefix: str, pattern: str, older_than: float) -> Iterator[tuple[str, float]]:
    """See ``Backend.unused``."""
    directory = address.open_existing(path)
    if directory is None:
        return
    os.close(directory)
    try:
        with os.scandir(path) as entries:
            files = {_lock_of(entry.name) for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError as failure:
        address.refuse(path, failure)
    locks = KernelLocks()
    now = time.time()
    for file in sorted(files):
        name = file[len(prefix) :]
        at = _last_use(path, file) if file.startswith(prefix) and is_match(name, pattern) else None
        if at is None or now - at < older_than:
            continue
        key = f"{path.rstrip('/')}/{file}"
        lock = inspect.find(name, key, locks)
        if lock is None or (lock.state == "free" and not lock.waiters and _is_ours(key)):
            yield name, at


def forget(directory: int, path: str, file: str, older_than: float, timeout: float) -> bool:
    """See ``Backend.forget``."""
    before = time.time() - older_than
    try:
        key = f"{path.rstrip('/')}/{file}"
        if not _may_remove(directory):
            return False  # in a sticky directory, where what we remember would not be believed either
        there = address.exists(directory, file)
        if there and not _remove_lock(directory, path, file, key, before, timeout):
            return False
        gone = [_remove(directory, word + file, before) for word in BESIDE]
        return there or any(gone)
    except OSError as failure:
        address.refuse(path, failure)


def _lock_of(entry: str) -> str:
    """The lock file that a file of the directory belongs to."""
    for word in BESIDE:
        if entry.startswith(word):
            return entry[len(word) :]
    return entry


def _last_use(path: str, file: str) -> float | None:
    """When a lock or what is beside it was written last; ``None``: there is nothing."""
    times = []
    for word in ("", *BESIDE):
        try:
            found = os.stat(f"{path.rstrip('/')}/{word}{file}", follow_symlinks=False)
        except OSError:
            continue
        times.append(found.st_mtime)
    return max(times, default=None)


def _is_ours(key: str) -> bool:
    """Whether lockctl ever took the lock in this file."""
    try:
        descriptor = address.opened(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return record_in(descriptor) is not None
    finally:
        os.close(descriptor)


def _may_remove(directory: int) -> bool:
    found = os.fstat(directory)
    return not found.st_mode & stat.S_ISVTX or os.geteuid() in (0, found.st_uid)


def _remove_lock(directory: int, path: str, file: str, key: str, before: float, timeout: float) -> bool:
    """Remove a lock file that nobody has open and that was not written after *before*; whether it is gone."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(file, flags, dir_fd=directory)
    except FileNotFoundError:
        return True
    except (BlockingIOError, PermissionError):
        return False
    gone: bool | None = False
    try:
        if not address.try_flock(descriptor) or not address.same_file(file, descriptor, directory):
            return False
        if not lease.take(descriptor, key):
            return False
        record = record_in(descriptor)
        used = _last_use(path, file)
        if record is None or hold.left(record) > 0 or used is None or used > before:
            return False
        _raise_floor(directory, path, record.token, timeout)
        gone = lease.remove(directory, file, descriptor)
        return bool(gone)
    finally:
        if gone is not None:
            # explicitly: a process that was forked meanwhile may have a copy
            lease.end(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _remove(directory: int, file: str, before: float) -> bool:
    """Remove what is kept beside a lock, unless it was written after *before* or is being written; whether it was."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(file, flags, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError as failure:
        if failure.errno in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return False
        raise
    try:
        if not address.try_flock(descriptor) or not address.same_file(file, descriptor, directory):
            return False
        if os.fstat(descriptor).st_mtime > before:
            return False
        os.unlink(file, dir_fd=directory)
        return True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _raise_floor(directory: int, path: str, token: int, timeout: float) -> None:
    """Have every lock file that is made from now on begin after *token*; it has reached the disk when this returns."""
    key = f"{path.rstrip('/')}/{address.FLOOR}"

    def write(descriptor: int) -> None:
        before = layout.read_ours(descriptor, key)
        if before.token < token:
            layout.write(descriptor, Record(before.sequence + 1, token, b"null"), durable=True)

    records.change(directory, address.FLOOR, key, timeout, write)
