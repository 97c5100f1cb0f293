"""Asking a holder for its lock, and taking it away."""

from __future__ import annotations

import fcntl
import os
from errno import ENOSPC

from lockctl import documents
from lockctl.backends.file import place, trying
from lockctl.backends.file import record as records
from lockctl.backends.file.record import Record
from lockctl.errors import LockctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Holder
    from lockctl.wire.deadline import Deadline

NOBODY = b"null"


def ask(directory: int, file: str, key: str, name: str, seen: Holder, by: str, reason: str) -> None:
    """Leave a request beside the lock, whole or not at all; its holder looks for it at every heartbeat.

    Raises ``LockctlError`` for a holder that nobody can ask for anything, and ``OSError``.
    """
    if seen.owner is None:
        who = f"pid {seen.pid}" if seen.pid else "its process is not known"
        message = f"{name} is held by another program ({who}), which cannot be told: end it, or use --now"
        raise LockctlError(message)
    if seen.ended_at is not None:
        message = f"{name} is kept after a job that has ended, and nobody is there to be told: wait, or use --now"
        raise LockctlError(message)
    request = place.request_file(file, _seat_of(key, seen))
    _put(directory, request, documents.describe_revocation(seen.owner, by, reason))


def _seat_of(key: str, seen: Holder) -> int | None:
    """In which seat of a lock file this holder is, if it is not alone."""
    from lockctl.backends.file import sharing

    descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return sharing.find(descriptor, seen.owner, seen.token)
    finally:
        os.close(descriptor)


def end_hold(directory: int, file: str, key: str, seen: Holder, floor: int, deadline: Deadline) -> int | None:
    """Free a lock that nobody has any more; the smallest token to come, ``None`` if it is no more that hold.

    The file stays: another program, which does not see holds, may have it by now, and does not lose it.
    """
    descriptor = place.open_file(directory, file)
    try:
        trying.until(lambda: place.try_flock(descriptor), key, deadline)
        before = records.read_ours(descriptor, key)
        present = before.holder or {}
        if (present.get("owner"), before.token) != (seen.owner, seen.token) or "ended_at" not in present:
            return None
        records.write(descriptor, Record(before.sequence + 1, floor, NOBODY), durable=True)
        return floor + 1
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def replace_file(directory: int, file: str, floor: int) -> int:
    """Put a new lock file, whose tokens begin above *floor*, in the place of the held one.

    No call of the kernel takes a flock away. Who comes now locks the new file; the old holder sees at
    its next heartbeat that the path is not its file any more. Returns the smallest token to come.
    """

    def write(descriptor: int) -> None:
        records.write(descriptor, Record(1, floor, NOBODY), durable=True)

    _replace(directory, file, write)
    return floor + 1


def _put(directory: int, file: str, content: bytes) -> None:
    def write(descriptor: int) -> None:
        if os.write(descriptor, content) < len(content):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        os.fsync(descriptor)

    _replace(directory, file, write)


def _replace(directory: int, file: str, write: Callable[[int], None]) -> None:
    """Put a new file, filled by *write*, in the place of *file*, whole or not at all. Raises ``OSError``."""
    # not by our pid: in a container the next process often has the pid of one that was killed here
    temporary = f".new.{os.urandom(4).hex()}.{file}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(descriptor, place.mode_for_files(directory))
        write(descriptor)
        os.rename(temporary, file, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
    os.fsync(directory)
