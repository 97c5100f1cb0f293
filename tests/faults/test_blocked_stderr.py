"""A stderr that takes nothing (a pipe that nobody reads, Ctrl-S on a terminal) holds up neither a loss nor a job."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.faults.backends import on_backends
from tests.jobs import LIMIT, alive, eventually, guard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

STOP_OUTPUT, GO_ON = b"\x13", b"\x11"
DROPPED = "dropped here: stderr was blocked"


class Stream:
    """A descriptor that takes nothing more, and its other end."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == "pipe":
            self.read_end, self.descriptor = os.pipe()
        elif kind == "terminal":
            self.read_end, self.descriptor = pty.openpty()
        else:
            ends = socket.socketpair()
            self.read_end, self.descriptor = (end.detach() for end in ends)

    def block(self) -> None:
        """From here on a write that waits would wait for ever."""
        if self.kind == "terminal":
            os.write(self.read_end, STOP_OUTPUT)
            eventually(lambda: not select.select([], [self.descriptor], [], 0)[1])
            return
        for size in (4096, 1):
            try:
                while True:
                    self._write(b"x" * size)
            except BlockingIOError:
                pass

    def _write(self, data: bytes) -> None:
        if self.kind == "socket":
            with socket.socket(fileno=os.dup(self.descriptor)) as end:
                end.send(data, socket.MSG_DONTWAIT)
            return
        again = os.open(f"/proc/self/fd/{self.descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(again, data)
        finally:
            os.close(again)

    def is_blocking(self) -> bool:
        """The flag is one of the open file: the command and the shell have the same."""
        return not fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & os.O_NONBLOCK

    def take(self) -> str:
        """Make room; what was written."""
        if self.kind == "terminal":
            os.write(self.read_end, GO_ON)
        taken = b""
        while select.select([self.read_end], [], [], 0)[0]:
            taken += os.read(self.read_end, 1 << 16)
        return taken.decode().lstrip("x")

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.descriptor)


@pytest.fixture
def stream() -> Iterator[Callable[[str], Stream]]:
    made: list[Stream] = []

    def make(kind: str) -> Stream:
        made.append(Stream(kind))
        return made[-1]

    yield make
    for each in made:
        each.close()


KINDS = pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
QUIET = 'exec 2>/dev/null; : >"$0"; (setsid sleep 61 &); exec sleep 60'


@KINDS
@pytest.mark.parametrize("backend_name", on_backends("file", "redis"))
def test_the_job_of_a_killed_keeper_ends_although_nobody_can_be_told(
    lockctl: Lockctl, place: Place, kind: str, stream: Callable[[str], Stream], tmp_path: Path
) -> None:
    stderr = stream(kind)
    stderr.block()
    words = ("-t", f"{place.ttl}s", "-k", "250ms", "--", "sh", "-c", QUIET, str(tmp_path / "up"))
    holder = lockctl.start("run", "-l", "nightly", *words, stderr=stderr.descriptor)
    eventually((tmp_path / "up").exists)
    guard = guard_of(holder.pid)
    family = eventually(lambda: len(found := tree.descendants(guard)) > 1 and found)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT)
    eventually(lambda: not any(map(alive, [guard, *family])))
    again = lockctl("run", "-l", "nightly", "--wait", f"{place.ttl + place.freed_within + 5}s", "--", "true")
    assert (again.returncode, stderr.is_blocking()) == (0, True)


@KINDS
@pytest.mark.parametrize("backend_name", on_backends("redis"))
def test_a_healthy_job_outlives_its_first_lease_while_nobody_reads_what_is_said(
    lockctl: Lockctl, place: Place, kind: str, stream: Callable[[str], Stream], tmp_path: Path
) -> None:
    stderr, end = stream(kind), tmp_path / "end"
    job = 'exec 2>/dev/null; trap : WINCH; : >"$0"; while ! test -e "$1"; do sleep 0.1; done; exit 7'
    words = ("-v", "-t", f"{place.ttl}s", "-k", "250ms", "--", "sh", "-c", job, str(tmp_path / "up"), str(end))
    holder = lockctl.start("run", "-l", "nightly", *words, stderr=stderr.descriptor)
    eventually((tmp_path / "up").exists)
    stderr.block()
    until = time.monotonic() + 2 * place.ttl  # the first lease is over, and so is the next
    while time.monotonic() < until:
        tree.send(holder.pid, signal.SIGWINCH)
        time.sleep(0.05)
    assert holder.poll() is None
    end.touch()
    assert holder.wait(LIMIT) == 7
    assert stderr.is_blocking()


def test_what_was_dropped_is_told_as_soon_as_there_is_room(
    lockctl: Lockctl, stream: Callable[[str], Stream], tmp_path: Path
) -> None:
    stderr = stream("pipe")
    # it waits with the signal blocked: one that comes just before the wait is not missed
    recorder = (
        "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [30]); open(sys.argv[1], 'w')\n"
        "while signal.sigwait([30]): open(sys.argv[2], 'a').write('.')"
    )
    words = ("-v", "--log-format", "json", "--", sys.executable, "-c", recorder)
    got = tmp_path / "got"
    holder = lockctl.start("run", *words, str(tmp_path / "up"), str(got), stderr=stderr.descriptor)
    eventually((tmp_path / "up").exists)

    def passed_on(count: int) -> None:
        tree.send(holder.pid, signal.Signals(30))
        eventually(lambda: got.exists() and len(got.read_text()) == count)

    stderr.block()
    passed_on(1)
    passed_on(2)
    stderr.take()
    passed_on(3)
    said: list[str] = []

    def told() -> list[dict[str, str]]:
        """The whole lines from the notice on, once there is one behind it."""
        said.append(stderr.take())
        lines = [json.loads(line) for line in "".join(said).splitlines(keepends=True) if line.endswith("\n")]
        later = [number for number, line in enumerate(lines[:-1]) if DROPPED in line["message"]]
        return lines[later[0] :] if later else []

    notice, line, *_ = eventually(told)
    count, unit = notice["message"].partition(" (")[0].split()
    # what is said of the start may come only now, on a busy machine
    assert (notice["level"], unit) == ("warning", "line" if count == "1" else "lines")
    assert 1 <= int(count) <= 4
    assert line["message"] == "passing on signal 30"


def test_a_run_ends_although_neither_its_report_nor_its_last_words_can_be_written(
    lockctl: Lockctl, stream: Callable[[str], Stream]
) -> None:
    stderr = stream("pipe")
    stderr.block()
    words = ("-v", "--report", "/dev/stderr", "--", "sh", "-c", "exit 7")
    assert lockctl("run", "-l", "nightly", *words, stderr=stderr.descriptor, limit=LIMIT).returncode == 7


def test_acquire_hands_out_its_handle_although_nobody_reads_what_is_said(
    lockctl: Lockctl, stream: Callable[[str], Stream], tmp_path: Path
) -> None:
    stderr = stream("pipe")
    stderr.block()
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    words = ("acquire", "nightly", "--for", "60s", "-v", "--handle", str(tmp_path / "handle"))
    assert lockctl(*words, stderr=stderr.descriptor, env=env).returncode == 0
    assert lockctl("release", "--handle", str(tmp_path / "handle"), env=env).returncode == 0
