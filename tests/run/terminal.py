"""A real terminal for tests: a pty, and a program that has it as its controlling terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

from lockctl.supervise import tree
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

TAKE_IT = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
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
