"""Files that lockctl is told to write: a report, a handle.

The directory may be another user's, who puts something else there at any moment. So what is written to is opened
first and looked at then; a file that is there is never written to, only replaced.
"""

from __future__ import annotations

import errno
import os
import stat
from time import monotonic, sleep

from lockctl.cli.writing import write_at_once
from lockctl.umask import open_to_owner

STREAMS = (1, 2)
STREAM_PATIENCE = 1.0  # seconds for its reader to make room
STREAM_PAUSE = 0.01  # seconds
LONGEST = 240  # bytes of a name that leave room for an ending: a name has up to 255


def can_put(path: str) -> bool:
    """Whether :func:`put` has a chance, as far as this can be known before."""
    try:
        found = _open(path)
        if found is not None:
            try:
                return found in STREAMS or os.access(f"/proc/self/fd/{found}", os.W_OK)
            finally:
                _close(found)
    except OSError:
        return False
    return takes_files(os.path.dirname(path) or ".")


def takes_files(directory: str) -> bool:
    """Whether this user can make files in a directory."""
    try:
        deleted = not os.path.isabs(directory) and os.stat(directory).st_nlink == 0  # but it is still somebody's
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK) and not deleted


def put(path: str, data: bytes, mode: int = 0o666, owner: int = -1) -> None:
    """Have *data* at *path*; raises ``OSError``.

    A regular file, or a symbolic link to one, is replaced in one step: whoever reads it finds the old text or the
    new one. The new file has the bits of *mode* that the umask leaves, is its owner's to read and write, and has this
    *owner* if one is given. What is no file, such as /dev/stderr, /dev/null or a FIFO, stays what it is and is written
    to.
    """
    found = _open(path)
    if found is None:
        _replace(path, data, mode, owner)
        return
    try:
        if found in STREAMS:
            # by the descriptor: another user's terminal, or a socket, cannot be opened again
            _write_to_stream(found, data)
        else:
            _append(found, data)
    finally:
        _close(found)


def _open(path: str) -> int | None:
    """A descriptor of what is there and is to be written to, which may be one of ``STREAMS``; ``None``: a new file is.

    It is opened without reading or writing. Raises ``OSError`` for a directory, a disk and the like.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        link = os.lstat(path)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
            return None  # a stranger does not say where we write
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    found = os.fstat(descriptor)
    for stream in STREAMS:
        if _is_open_as(stream, found):
            os.close(descriptor)
            return stream
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        return None
    raise OSError(errno.EINVAL, "neither a file nor a stream")


def _close(descriptor: int) -> None:
    if descriptor not in STREAMS:
        os.close(descriptor)


def _is_open_as(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:
        return False


def _write_to_stream(stream: int, data: bytes) -> None:
    until = monotonic() + STREAM_PATIENCE
    while data := data[write_at_once(stream, data) :]:
        if monotonic() >= until:
            raise BlockingIOError(errno.EAGAIN, "no process reads it")
        sleep(STREAM_PAUSE)


def _append(found: int, data: bytes) -> None:
    # a FIFO that nobody reads, or that is full, must not hold us up
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(f"/proc/self/fd/{found}", flags)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _replace(path: str, data: bytes, mode: int, owner: int) -> None:
    # not by our pid: in a container the next process often has the pid of one that was killed here
    place, name = os.path.split(os.fsencode(path))
    temporary = name[:LONGEST] + b".%s.tmp" % os.urandom(4).hex().encode()
    directory = os.open(place or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, mode, dir_fd=directory)
        try:
            try:
                _write_all(descriptor, data)
                open_to_owner(descriptor)
                if owner >= 0:
                    os.fchown(descriptor, owner, -1)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
    finally:
        os.close(directory)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
