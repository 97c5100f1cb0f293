"""Writing to a descriptor that others have open, too, without waiting for whoever reads it."""

from __future__ import annotations

import _socket
import _thread
import os
import stat

SPLICE_F_NONBLOCK = 2  # see splice(2)
NULL = 259  # of /dev/null on Linux: devices.txt of the kernel
HELPED = 0.1  # seconds in which a thread has written what the kernel takes at once
HELPED_AT_THE_END = 2.0  # the same, when nothing is left to be done


def write_at_once(descriptor: int, data: bytes) -> int:
    """Write what is taken without waiting; the number of bytes. Raises ``OSError``.

    The open file is shared with the command and the shell, so it is not made non-blocking; and to ask with poll(2)
    before is not enough, because others may write in between. A pipe or a terminal is opened anew. Where that is not
    allowed, as for the pipe that cron made before it became this user: splice(2) has a flag for pipes, and a
    controlling terminal can be opened by its general name. A socket has a flag for each call. For everything else
    (a file, whose disk may hang; another's terminal) the thread of ``_Helper`` waits in our place.
    """
    seen = os.fstat(descriptor)
    mode = seen.st_mode
    if seen.st_rdev == NULL and stat.S_ISCHR(mode):
        return len(data)
    try:
        if stat.S_ISSOCK(mode):
            return _send(descriptor, data)
        if stat.S_ISFIFO(mode):
            return _write_to_pipe(descriptor, data)
        if stat.S_ISCHR(mode) and os.isatty(descriptor):
            own = _open_terminal(descriptor)
            if own is not None:
                return _write_and_close(own, data)
    except BlockingIOError:
        return 0
    return _helper.write(descriptor, data)


def _send(descriptor: int, data: bytes) -> int:
    end = _socket.socket(fileno=descriptor)
    try:
        return end.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
    finally:
        end.detach()


def _write_to_pipe(descriptor: int, data: bytes) -> int:
    try:
        own = _open_again(descriptor)
    except OSError:
        return _splice(descriptor, data)
    return _write_and_close(own, data)


def _open_again(descriptor: int) -> int:
    return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _open_terminal(descriptor: int) -> int | None:
    try:
        return _open_again(descriptor)
    except OSError:
        pass
    try:
        os.tcgetpgrp(descriptor)  # fails unless this is our controlling terminal
        return os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _write_and_close(own: int, data: bytes) -> int:
    try:
        return os.write(own, data)
    finally:
        os.close(own)


def _splice(descriptor: int, data: bytes) -> int:
    try:
        readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # no more descriptors
        return _helper.write(descriptor, data)
    try:
        return os.splice(readable, descriptor, os.write(writable, data), flags=SPLICE_F_NONBLOCK)
    finally:
        os.close(readable)
        os.close(writable)


class _Helper:
    """A thread for one write at a time, which may wait as long as it likes."""

    def __init__(self) -> None:
        self._free = _thread.allocate_lock()

    def write(self, descriptor: int, data: bytes) -> int:
        """The length of *data* if a thread writes it or has written it; 0 while an earlier write is stuck."""
        if not self._free.acquire(blocking=False):
            return 0
        try:
            _thread.start_new_thread(self._write, (descriptor, data))
        except RuntimeError:  # no more processes; this may be about them
            self._free.release()
            return os.write(descriptor, data) if stat.S_ISREG(os.fstat(descriptor).st_mode) else 0
        self._wait(HELPED)
        return len(data)

    def finish(self) -> None:
        """See :func:`finish`."""
        self._wait(HELPED_AT_THE_END)

    def _wait(self, limit: float) -> None:
        if self._free.acquire(timeout=limit):
            self._free.release()

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            return
        finally:
            self._free.release()


_helper = _Helper()


def finish() -> None:
    """Let a write that is under way come to its end; its thread ends with this process."""
    _helper.finish()
