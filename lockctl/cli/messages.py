"""Words for people on stderr.

Nothing here waits for whoever reads stderr: a full pipe or a stopped terminal must hold up neither a deadline nor a
release. What does not fit at once is dropped, and how much that was is said as soon as there is room again.
"""

from __future__ import annotations

from lockctl.cli import writing
from lockctl.cli.writing import write_at_once
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOT_EXECUTABLE, LOST = 126, 76  # as in ``exit_status``, which cannot be loaded when :func:`exhausted`
LEVELS = ("trace", "debug", "info", "warning", "error")  # "trace" is for logs that programs read
ERASE = "\x1b[K"  # from the cursor to the end of its line


def exhausted(failure: OSError, *, begun: bool = False) -> str:
    """One line about descriptors, processes or memory that are used up (one of ``EXHAUSTED``)."""
    what = "cannot go on, so the command is stopped" if begun else "cannot start"
    return f"{what}: {failure.strerror}: raise the limit (ulimit -a) or stop other processes"


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
        if as_json:
            from lockctl import json_text  # noqa: F401 - before the job starts: an upgrade may replace it later
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
        writing.finish()

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
        from lockctl import json_text
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
        return json_text.on_one_line(document)


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
