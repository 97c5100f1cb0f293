"""Processes that hold lock files, as jobs do; the tests of the file backend start, stop and kill them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.contract.harness import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD = """
import os, sys, time
from lockctl.stores.file.lock import FileBackend
from lockctl.model import Claim
directory, mode, slots, rounds, ttl = sys.argv[1:]
backend = FileBackend(directory)
log = os.open(directory + "/.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for _ in range(int(rounds) or 1):
    claim = Claim("nightly", os.urandom(16).hex(), float(ttl), "web3", os.getpid(), "ops", ("x",), mode, int(slots))
    while (grant := backend.try_acquire(claim, timeout=10)) is None:
        backend.wait(claim, timeout=20, interrupt=None)
    os.write(log, b"in %s %d\\n" % (mode.encode(), grant.token))
    if rounds == "0":
        print("held", flush=True)
        sys.stdin.read()
    time.sleep(0.02)
    os.write(log, b"out %s %d\\n" % (mode.encode(), grant.token))
    backend.release(grant, timeout=10)
"""


def start(directory: Path, mode: str, slots: int = 1, rounds: int = 0, ttl: float = 30.0) -> subprocess.Popen[str]:
    """Take lock "nightly" so many times, waiting for it; 0: once, and keep it until stdin is closed."""
    words = [sys.executable, "-c", HOLD, str(directory), mode, str(slots), str(rounds), str(ttl)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def started(directory: Path, mode: str, slots: int = 1, ttl: float = 30.0) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock when it can, and keeps it until it is ended."""
    process = start(directory, mode, slots, ttl=ttl)
    try:
        yield process
    finally:
        end(process)


@contextlib.contextmanager
def holding(directory: Path, mode: str, slots: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock."""
    with started(directory, mode, slots) as process:
        await_held(process)
        yield process


def await_held(process: subprocess.Popen[str]) -> None:
    """Return when the process has said that it has the lock."""
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def end(process: subprocess.Popen[str]) -> None:
    """Kill it, also when it is stopped."""
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=LIMIT)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
