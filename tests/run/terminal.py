"""A real terminal for tests: a pty, and a program that has it as its controlling terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

from lockctl.supervise import tree
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

TAKE_IT = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
HOME = "\x1b[H"
PROMPT = "ready> "
INTERRUPT, SUSPEND, QUIT, END_OF_FILE = "\x03", "\x1a", "\x1c", "\x04"


class Terminal:
    """What a person has in front of them: type, and look at what is shown."""

    def __init__(self, *words: str, env: Mapping[str, str]) -> None:
        """Start a program as the leader of a session of this terminal."""
        self._master, slave = pty.openpty()
        self._shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-ISB", "-c", TAKE_IT, *words], stdin=slave, stdout=slave, stderr=slave, env=dict(env)
        )
        os.close(slave)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def line(self, text: str) -> None:
        """Type a line and press enter."""
        self.type(text + "\n")

    def expect(self, pattern: str, limit: float = 10.0) -> str:
        """Wait until *pattern* is shown; what was shown up to its end is taken and given."""
        until = time.monotonic() + limit
        while True:
            found = re.search(pattern, self._shown)
            if found:
                taken, self._shown = self._shown[: found.end()], self._shown[found.end() :]
                return taken
            left = until - time.monotonic()
            if left <= 0:
                message = f"{pattern!r} was not shown within {limit} s, but {self._shown!r}"
                raise AssertionError(message)
            if select.select([self._master], [], [], left)[0]:
                self._shown += os.read(self._master, 65536).decode("utf-8", "replace")

    def raw(self) -> bool:
        """Whether a program has switched off line editing."""
        return not termios.tcgetattr(self._master)[3] & termios.ICANON

    def foreground(self) -> int:
        """The process group that the keys go to."""
        return os.tcgetpgrp(self._master)

    def hang_up(self) -> None:
        """Close the window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def end(self) -> None:
        """Kill whatever is still running."""
        if self.process.poll() is None:
            for pid in [self.process.pid, *tree.descendants(self.process.pid)]:
                tree.send(pid, signal.SIGKILL)
        self.process.wait(timeout=LIMIT)
        self.hang_up()


class Screen(Terminal):
    """A terminal of a known size whose pictures can be looked at."""

    def __init__(self, *words: str, env: Mapping[str, str], lines: int = 24, columns: int = 120) -> None:
        super().__init__(*words, env={"TERM": "xterm-256color", **env})
        self.resize(lines, columns)
        self.sent = ""

    def resize(self, lines: int, columns: int) -> None:
        """Drag the corner of the window."""
        self.lines = lines
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def receive(self, seconds: float = 0.0) -> None:
        """Take what the program writes."""
        with contextlib.suppress(OSError):  # the program has ended
            while select.select([self._master], [], [], seconds)[0]:
                self.sent += os.read(self._master, 65536).decode("utf-8", "replace")
                seconds = 0.0

    def drawn(self) -> list[str]:
        """The last whole picture; no lines if there is none of this size."""
        self.receive(0.02)
        for part in reversed(self.sent.split(HOME)[1:]):
            lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-ln-z]", "", part).replace("\r", "").split("\n")
            if len(lines) == self.lines:
                return lines
        return []

    def picture(self) -> list[str]:
        """The same without colours."""
        return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in self.drawn()]

    def until(self, pattern: str, limit: float = 10.0) -> list[str]:
        """The first picture one of whose lines has *pattern*."""
        found: list[str] = eventually(
            lambda: (shown := self.picture()) and any(re.search(pattern, line) for line in shown) and shown, limit
        )

        return found

    def wait(self) -> int | None:
        """The status, when the program has ended by itself."""

        def ended() -> bool:
            self.receive()  # what it writes must not hold it up
            return self.process.poll() is not None

        eventually(ended)
        self.receive(0.1)
        return self.process.returncode
