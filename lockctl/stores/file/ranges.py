"""Locks of single bytes of a lock file, far behind all that is ever written there.

Locks of an open file description (``F_OFD_SETLK``, fcntl(2)) are owned as flock(2)'s are: by all processes
that have inherited the descriptor, and freed by the kernel with the last of them. So one descriptor carries both.
"""

from __future__ import annotations

import fcntl
import os
import struct

from lockctl import clock, mounts
from lockctl.errors import BackendUnavailable, ConfigError, RequestInterrupted
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline

FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid
START = 1 << 40  # bytes: no lock file is ever so long

# Processes that wait own these in the traditional way, as processes: freed when they die, whoever has their descriptors
WAITERS = START  # every process that waits reads it, and is found in /proc/locks by that
TURN = START + 1  # the first in line of those who wait
GATE = START + 2  # read by those who wait to be alone: nobody else goes in meanwhile

MUTEX = START + 3  # who changes the record beside others
# START + 4 is ``address.REVOKING``, which is looked at without this module
SEATS = START + 16  # one byte for each holder that is not alone


PAUSE = 0.002  # seconds: who has such a lock writes a page or two to the disk


def has_ranges(path: str, directory: int) -> bool:
    """Whether byte ranges of the files there can be locked beside flock(2), which network file systems turn into one.

    Such a file system is in use only where any will do.
    """
    return not mounts.filesystem(path, os.fstat(directory).st_dev).startswith(mounts.SHARED)


def check_ranges(path: str, directory: int, key: str) -> None:
    """Raise ``ConfigError`` where locks can only be for one holder alone."""
    if not has_ranges(path, directory):
        raise ConfigError(
            f"file: {printable(key)} can be held by one at a time only: readers and slots need a local file system"
        )


def take(descriptor: int, start: int) -> bool:
    """Lock one byte for this open file, unless another has it; again is as good as once."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, 0, start, 1, 0))
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows
        return False
    return True


def free(descriptor: int, start: int) -> None:
    """Give one byte back; it need not be ours."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, 0, start, 1, 0))


def taken(descriptor: int, start: int, end: int) -> list[int]:
    """The bytes from *start* up to *end* that others have locked, in order. Takes nothing, not even for a moment."""
    found: list[int] = []
    unknown = [(start, end)]
    while unknown:
        start, end = unknown.pop()
        first, last = _conflict(descriptor, start, end)
        if first < last:
            found.extend(range(first, last))
            unknown += [part for part in ((start, first), (last, end)) if part[0] < part[1]]
    return sorted(found)


def is_taken(descriptor: int, start: int, end: int) -> bool:
    """Whether others have locked any byte from *start* up to *end*."""
    first, last = _conflict(descriptor, start, end)
    return first < last


def _conflict(descriptor: int, start: int, end: int) -> tuple[int, int]:
    """One lock of others between *start* and *end*, not necessarily the first, as (start, end); empty if none."""
    asked = FLOCK.pack(fcntl.F_WRLCK, 0, start, end - start, 0)
    kind, _, found, length, _ = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return end, end
    return max(start, found), min(end, found + length if length else end)


def tried_until(attempt: Callable[[], bool], key: str, deadline: Deadline) -> None:
    """Return when *attempt*, of a lock that is held for a moment only, succeeded.

    Never waited for in the kernel: who is stopped while it has one would stop everybody else without end.
    Raises ``BackendUnavailable``, ``RequestInterrupted``, ``OSError``.
    """
    while not attempt():
        if deadline.left() <= 0:
            message = f"file: another process did not free {printable(key)} within {deadline.timeout:.3g} s"
            raise BackendUnavailable(message)
        if clock.pause(PAUSE, deadline.interrupt):
            raise RequestInterrupted(f"file: {printable(key)}: interrupted")
