"""Files that lockctl is told to write: a report, a handle."""

from __future__ import annotations

import errno
import os
import stat
from time import monotonic, sleep

from lockctl.cli.talk import write_at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STREAMS = (1, 2)
STREAM_PATIENCE = 1.0  # seconds for its reader to make room
STREAM_PAUSE = 0.01  # seconds
LONGEST = 240  # bytes of a name that leave room for an ending: a name has up to 255


def can_put(path: str) -> bool:
    """Whether :func:`put` has a chance, as far as this can be known before."""
    try:
        writer = _writer(path)
    except OSError:
        return False
    if writer is _replace:
        directory = os.path.dirname(path) or "."
        deleted = not os.path.isabs(directory) and os.stat(directory).st_nlink == 0  # but it is still somebody's
        return os.access(directory, os.W_OK | os.X_OK) and not deleted
    return writer is not _append or os.access(path, os.W_OK)


def put(path: str, data: bytes, mode: int = 0o666) -> None:
    """Have *data* at *path*; raises ``OSError``.

    A regular file, or a symbolic link to one, is replaced in one step: whoever reads it finds the old text or the
    new one. The new file has the bits of *mode* that the umask leaves. What is no file, such as /dev/stderr,
    /dev/null or a FIFO, stays what it is and is written to.
    """
    _writer(path)(path, data, mode)


def _writer(path: str) -> Callable[[str, bytes, int], None]:
    """How to write there; raises ``OSError`` for what is not to be written, such as a directory or a disk."""
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _replace
    for stream in STREAMS:
        if _is_open_as(stream, found):
            # by the descriptor: another user's terminal, or a socket, cannot be opened again
            return lambda _path, data, _mode: _write_to_stream(stream, data)
    if stat.S_ISREG(found.st_mode):
        return _replace
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
        return _append
    raise OSError(errno.EINVAL, "neither a file nor a stream")


def _is_open_as(descriptor: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), found)
    except OSError:
        return False


def _write_to_stream(stream: int, data: bytes) -> None:
    until = monotonic() + STREAM_PATIENCE
    while data := data[write_at_once(stream, data) :]:
        if monotonic() >= until:
            raise BlockingIOError(errno.EAGAIN, "nobody reads it")
        sleep(STREAM_PAUSE)


def _append(path: str, data: bytes, _mode: int) -> None:
    # a FIFO that nobody reads, or that is full, must not hold us up
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _replace(path: str, data: bytes, mode: int) -> None:
    # not by our pid: in a container the next process often has the pid of one that was killed here
    directory, name = os.path.split(os.fsencode(path))
    temporary = os.path.join(directory, name[:LONGEST] + b".%s.tmp" % os.urandom(4).hex().encode())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
