"""A lease of the kernel on a lock file, and the removal of a file while we have it (fcntl(2), ``F_SETLEASE``)."""

from __future__ import annotations

import _signal
import fcntl
import os
import time

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.stores.file import address

LATE = 0.01  # seconds: who found a file before it was renamed has opened it by then, or waits for our lease
LOOK = 0.05  # seconds between two looks whether a file that was left behind is still in use


def take(descriptor: int, key: str) -> bool:
    """Whether nobody else has the file open, and from now on nobody opens it but :func:`_wanted` tells us.

    Raises ``ConfigError`` where the file system has no leases.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, _signal.SIGURG)  # which means nothing; SIGIO would end this process
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):  # EACCES: it is another user's
        return False
    except OSError as failure:
        raise ConfigError(
            f"file: {printable(key)} is kept: this file system has no leases ({failure.strerror}), without which"
            " nobody can tell who is about to lock a file that is removed"
        ) from failure
    return True


def _wanted(descriptor: int) -> bool:
    """Whether somebody tried to open the file since we have the lease."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK


def end(descriptor: int) -> None:
    """Give the lease back, if there is one."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return  # there is none


def remove(directory: int, file: str, descriptor: int) -> bool | None:
    """Remove the file that we have the lease on, or leave it where it is; whether it is gone.

    ``None``: it is, and another process has its lock from us, see :func:`_stand_between`.
    """
    aside = f".gone.{os.urandom(8).hex()}"
    if _wanted(descriptor):
        return False
    os.rename(file, aside, src_dir_fd=directory, dst_dir_fd=directory)
    gone = False
    try:
        if not _wanted(descriptor):
            time.sleep(LATE)
            gone = not _wanted(descriptor)
    finally:
        if not gone:
            back = _put_back(directory, aside, file)
        os.unlink(aside, dir_fd=directory)
    os.fsync(directory)
    if not gone and back:
        return False
    if _wanted(descriptor) and not _is_alone(descriptor):
        _stand_between(directory, file, descriptor)
        return None
    return True


def _put_back(directory: int, aside: str, file: str) -> bool:
    """Give a file its name again, unless there is a new one."""
    try:
        os.link(aside, file, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError:
        return False
    return True


def _is_alone(descriptor: int) -> bool:
    """Whether nobody else has, or waits to have, the file open. The lease is given back for a moment."""
    end(descriptor)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


def _stand_between(directory: int, file: str, old: int) -> None:
    """Keep those who have the old file apart from those who have the new one.

    It takes somebody who found the file a moment before it was renamed, and opened it only after somebody else had
    made a new one. The old one is locked by us still. A process of its own locks the new one, too, before it frees
    the old one, and stays until nobody has that any more.
    """
    pid = os.fork()
    if pid:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # the ends of children are ignored: that one has come, too
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        low, high = sorted((directory, old))
        os.closerange(3, low)  # pipes, of which others wait for the end
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        _stay(directory, file, old)
    finally:
        os._exit(0)


def _stay(directory: int, file: str, old: int) -> None:
    while True:
        new = address.open_file(directory, file)
        fcntl.flock(new, fcntl.LOCK_EX)
        if address.same_file(file, new, directory):
            break
        os.close(new)
    fcntl.flock(old, fcntl.LOCK_UN)
    while not _is_alone(old):
        time.sleep(LOOK)
