"""Words for people on stderr.

Nothing here waits for whoever reads stderr: a full pipe or a stopped terminal must hold up neither a deadline nor a
release. What does not fit at once is dropped, and how much that was is said as soon as there is room again.
"""

from __future__ import annotations

import _socket
import _thread
import os
import stat

from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOT_EXECUTABLE = 126  # as in ``exit_status``, which cannot be loaded when :func:`exhausted`
LEVELS = ("trace", "debug", "info", "warning", "error")  # "trace" is for logs that programs read
SPLICE_F_NONBLOCK = 2  # see splice(2)
ERASE = "\x1b[K"  # from the cursor to the end of its line
HELPED = 0.1  # seconds in which a thread has written what the kernel takes at once
HELPED_AT_THE_END = 2.0  # the same, when nothing is left to be done


def exhausted(failure: OSError) -> str:
    """One line about descriptors, processes or memory that are used up (one of ``EXHAUSTED``)."""
    return f"cannot start: {failure.strerror}: raise the limit (ulimit -a) or stop other processes"


class Talk:
    """What stderr says. *quiet* keeps only errors, *verbose* adds what went well."""

    def __init__(self, *, as_json: bool = False, verbose: bool = False, quiet: bool = False) -> None:
        """Nothing is written yet."""
        self.lock: str | None = None
        self._token: int | None = None
        self.log: Callable[[str, str | None, str, str], None] | None = None  # level, event, text, the same as JSON
        self.configure(as_json=as_json, verbose=verbose, quiet=quiet)

    def configure(self, *, as_json: bool, verbose: bool, quiet: bool) -> None:
        """Go on in this manner."""
        self.as_json = as_json
        most = "trace" if as_json else "debug"
        self._least = LEVELS.index("error" if quiet else most if verbose else "warning")

    def tells(self, level: str) -> bool:
        """Whether lines of this level are written."""
        return LEVELS.index(level) >= self._least

    @property
    def may_rewrite(self) -> bool:
        """Whether a line may be written again and again, if stderr is a terminal that can do that."""
        return self.tells("warning") and not self.as_json

    def __call__(
        self,
        level: str,
        text: str,
        event: str | None = None,
        *,
        token: int | None = None,
        holder: dict[str, object] | None = None,
        seconds: float | None = None,
    ) -> None:
        """One line, if it can be written at once. A closed or full stderr is no reason to fail.

        What follows *text* is for programs: one of the names of events in lockctl-run(1) and what belongs to it. A
        *token* is that of all later lines, too.
        """
        self._token = token or self._token
        if self.tells(level):
            line = self._line(level, text, event, holder, seconds)
            self._say(line)
            if self.log is not None:
                about = printable(f"{self.lock}: {text}" if self.lock else text)
                self.log(level, event, about, line if self.as_json else "")

    def rewrite(self, text: str, columns: int) -> None:
        """Write the last line of the terminal again, as many words as fit; nothing of it is left without a text."""
        line = self._line("info", text) if text else ""
        if len(line) >= columns:
            line = line[: columns - 1].rpartition(" ")[0] or line[: columns - 1]
        try:
            write_at_once(2, f"\r{ERASE}{line}".encode("utf-8", "replace"))
        except OSError:
            return

    def lines(self, text: str) -> None:
        """Several lines as they are, such as the report of a bug."""
        for line in text.splitlines():
            self._say(line)

    def finish(self) -> None:
        """Call it last: what was dropped is said if there is room by now."""
        self._tell_dropped()
        _helper.finish()

    def _say(self, line: str) -> None:
        if self._tell_dropped():
            _stderr.put(line)
        else:
            _stderr.drop(line)

    def _tell_dropped(self) -> bool:
        """Whether there is room for more."""
        lines, size = _stderr.lines, _stderr.size
        if not lines:
            return True
        plural = "s" if lines > 1 else ""
        _stderr.lines = _stderr.size = 0
        if _stderr.put(self._line("warning", f"{lines} line{plural} ({size} bytes) dropped here: stderr was blocked")):
            return True
        _stderr.lines, _stderr.size = lines, size
        return False

    def _line(
        self,
        level: str,
        text: str,
        event: str | None = None,
        holder: dict[str, object] | None = None,
        seconds: float | None = None,
    ) -> str:
        clean = printable(text)
        if not self.as_json:
            return f"lockctl: {self.lock}: {clean}" if self.lock else f"lockctl: {clean}"
        import json

        from lockctl.clock import utc, wall

        document = {
            "ts": utc(wall()),
            "level": level,
            "lock": self.lock,
            "event": event,
            "message": clean,
            "token": self._token,
            "holder": holder,
            "seconds": None if seconds is None else round(seconds, 3),
        }
        return json.dumps(document)


class _Stderr:
    """The one stderr of this process, and what could not be written there since that was last said."""

    def __init__(self) -> None:
        self.lines = 0
        self.size = 0  # bytes
        self._cut = False  # the last line lacks its end

    def put(self, line: str) -> bool:
        """Write a line; whether it was not dropped, nor a part of it."""
        data = b"\n" * self._cut + _encoded(line)
        try:
            written = write_at_once(2, data)
        except OSError:
            return True  # it is closed, or its disk is full: that is not going to be better
        if written:
            self._cut = written < len(data)
        if written == len(data):
            return True
        self.lines += 1
        self.size += len(data) - written
        return False

    def drop(self, line: str) -> None:
        """There is no room for this line."""
        self.lines += 1
        self.size += len(_encoded(line))


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "replace") + b"\n"


_stderr = _Stderr()


def write_at_once(descriptor: int, data: bytes) -> int:
    """Write what is taken without waiting; the number of bytes. Raises ``OSError``.

    The open file is shared with the command and the shell, so it is not made non-blocking; and to ask with poll(2)
    before is not enough, because others may write in between. A pipe or a terminal is opened anew. Where that is not
    allowed, as for the pipe that cron made before it became this user: splice(2) has a flag for pipes, and a
    controlling terminal can be opened by its general name. A socket has a flag for each call. For everything else
    (a file, whose disk may hang; another's terminal) the thread of ``_Helper`` waits in our place.
    """
    mode = os.fstat(descriptor).st_mode
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
        """Let a write that is under way come to its end; the thread ends with this process."""
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
