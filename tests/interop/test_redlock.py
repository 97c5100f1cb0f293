"""A Redlock library (redlock-py) and lockctl on the same servers keep each other out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.redis import Redis

    Start = Callable[..., subprocess.Popen[str]]

# takes the lock (trying for some seconds), says so, and holds it until its stdin ends
REDLOCK_PY = """
import sys
from redlock import Redlock
tries, key, *nodes = sys.argv[1:]
servers = [dict(zip(("host", "port"), node.split(":"))) for node in nodes]
manager = Redlock(servers, retry_count=int(tries), retry_delay=0.2)
lock = manager.lock(key, 60_000)
if not lock:
    sys.exit(9)
print("held", flush=True)
sys.stdin.read()
manager.unlock(lock)
"""


@pytest.fixture
def key() -> str:
    """A key that nobody else uses."""
    return f"interop-{os.urandom(6).hex()}:nightly"


@pytest.fixture
def options(redis_five: list[Redis], key: str) -> list[str]:
    """What makes lockctl use that key."""
    nodes = ",".join(server.address for server in redis_five)
    return ["-b", f"redlock://{nodes}/0?prefix={key.removesuffix('nightly')}"]


@pytest.fixture
def redlock_py(redis_five: list[Redis], key: str) -> Iterator[Start]:
    """Start a program that locks with redlock-py, trying some times."""
    started: list[subprocess.Popen[str]] = []

    def start(tries: int = 1) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", REDLOCK_PY, str(tries), key, *[server.address for server in redis_five]]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        let_go(process)


def let_go(process: subprocess.Popen[str]) -> int:
    """End a program that holds the lock or was refused."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return process.wait(LIMIT)


def holds(process: subprocess.Popen[str]) -> bool:
    """Whether the program got the lock; waits until it says so or ends."""
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def test_redlock_py_is_refused_while_lockctl_holds_and_proceeds_when_it_ends(
    lockctl: Lockctl, options: list[str], redlock_py: Start
) -> None:
    holder = lockctl.start_holding("nightly", *options)
    assert let_go(redlock_py()) == 9
    waiting = redlock_py(100)
    holder.terminate()
    holder.wait(LIMIT)
    assert holds(waiting)


def test_lockctl_is_refused_while_redlock_py_holds_and_shows_it_as_foreign(
    lockctl: Lockctl, options: list[str], redlock_py: Start, tmp_path: Path
) -> None:
    other, mark = redlock_py(), tmp_path / "ran"
    assert holds(other)
    seen = json.loads(lockctl("inspect", "nightly", "--json", *options).stdout)
    assert seen["state"] == "foreign"
    assert 0 < seen["holders"][0]["expires_in"] <= 60
    assert lockctl("run", "-l", "nightly", *options, "--", "touch", str(mark)).returncode == 75
    assert not mark.exists()
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", *options, "--", "touch", str(mark))
    assert let_go(other) == 0
    assert waiter.wait(LIMIT) == 0
    assert mark.exists()


def test_redlock_py_is_refused_as_long_as_a_lock_is_held_after_its_job(
    lockctl: Lockctl, options: list[str], redlock_py: Start
) -> None:
    done = lockctl("run", "-l", "nightly", "--min-hold", "60s", *options, "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert let_go(redlock_py()) == 9
    assert lockctl("force-release", "nightly", "--yes", *options).returncode == 0
    assert lockctl("run", "-l", "nightly", "--min-hold", "1s", *options, "--", "true").returncode == 0
    assert holds(redlock_py(100))
