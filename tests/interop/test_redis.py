"""redis-py's ``Lock`` and lockctl under the same key keep each other out, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.redis import Redis

    Start = Callable[..., subprocess.Popen[str]]

# takes the lock (at once, or when it is free), says so, and holds it until its stdin ends
REDIS_PY = """
import sys
import redis
host, port, key, wait = sys.argv[1:]
lock = redis.Redis(host, int(port)).lock(key, timeout=60)
if not lock.acquire(blocking_timeout=float(wait)):
    sys.exit(9)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def key() -> str:
    """A key that nobody else uses."""
    return f"interop-{os.urandom(6).hex()}:nightly"


@pytest.fixture
def options(redis_server: Redis, key: str) -> list[str]:
    """What makes lockctl use that key."""
    return ["-b", f"{redis_server.url}/0?prefix={key.removesuffix('nightly')}"]


@pytest.fixture
def redis_py(redis_server: Redis, key: str) -> Iterator[Start]:
    """Start a program that locks with redis-py, waiting some seconds."""
    started: list[subprocess.Popen[str]] = []

    def start(wait: float = 0) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", REDIS_PY, redis_server.host, str(redis_server.port), key, str(wait)]
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


def state(lockctl: Lockctl, options: list[str]) -> dict[str, object]:
    answer = lockctl("inspect", "nightly", "--json", *options)
    assert answer.returncode in (0, 1), answer.stderr  # 1: not known yet
    seen = json.loads(answer.stdout)
    assert isinstance(seen, dict)
    return seen


def test_redis_py_is_refused_while_lockctl_holds_and_proceeds_when_it_ends(
    lockctl: Lockctl, options: list[str], redis_py: Start, key: str
) -> None:
    holder = lockctl.start_holding("nightly", *options)
    assert state(lockctl, options)["key"] == key
    assert let_go(redis_py()) == 9
    waiting = redis_py(LIMIT)
    holder.terminate()
    holder.wait(LIMIT)
    assert holds(waiting)


def test_lockctl_is_refused_while_redis_py_holds_and_shows_it_as_foreign(
    lockctl: Lockctl, options: list[str], redis_py: Start, tmp_path: Path
) -> None:
    other, mark = redis_py(), tmp_path / "ran"
    assert holds(other)
    seen = state(lockctl, options)
    assert seen["state"] == "foreign"
    (holder,) = seen["holders"]  # type: ignore[misc]
    assert (holder["owner"], holder["token"]) == (None, None)  # type: ignore[has-type]
    assert 0 < holder["expires_in"] <= 60  # type: ignore[has-type]
    assert lockctl("run", "-l", "nightly", *options, "--", "touch", str(mark)).returncode == 75
    assert not mark.exists()
    assert let_go(other) == 0
    assert lockctl("run", "-l", "nightly", *options, "--", "touch", str(mark)).returncode == 0
    assert mark.exists()


def test_lockctl_waits_for_redis_py_and_goes_on_when_it_ends(
    lockctl: Lockctl, options: list[str], redis_py: Start
) -> None:
    other = redis_py()
    assert holds(other)
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", *options, "--", "true")
    eventually(lambda: state(lockctl, options)["waiters"])
    assert waiter.poll() is None
    assert let_go(other) == 0
    assert waiter.wait(LIMIT) == 0


@pytest.mark.parametrize("mode", [["--shared"], ["--slots", "2"]])
def test_redis_py_is_refused_until_the_last_of_several_has_ended(
    lockctl: Lockctl, options: list[str], redis_py: Start, redis_server: Redis, key: str, mode: list[str]
) -> None:
    holders = [lockctl.start_holding("nightly", *mode, *options) for _ in range(2)]
    seen = state(lockctl, options)
    assert (seen["state"], len(seen["holders"])) == ("held", 2)  # type: ignore[arg-type]
    assert let_go(redis_py()) == 9
    assert redis_server.ask("TYPE", key) == b"zset"
    waiting = redis_py(LIMIT)
    holders[0].terminate()
    holders[0].wait(LIMIT)
    assert let_go(redis_py()) == 9
    assert waiting.poll() is None
    holders[1].terminate()
    holders[1].wait(LIMIT)
    assert holds(waiting)


@pytest.mark.parametrize("mode", [["--shared"], ["--slots", "2"]])
def test_readers_and_slots_wait_for_redis_py(
    lockctl: Lockctl, options: list[str], redis_py: Start, mode: list[str]
) -> None:
    other = redis_py()
    assert holds(other)
    assert lockctl("run", "-l", "nightly", *mode, *options, "--", "true").returncode == 75
    waiter = lockctl.start("run", "-l", "nightly", *mode, "--wait", "forever", *options, "--", "true")
    eventually(lambda: state(lockctl, options)["waiters"])
    assert waiter.poll() is None
    assert let_go(other) == 0
    assert waiter.wait(LIMIT) == 0


def test_redis_py_is_refused_as_long_as_a_lock_is_held_after_its_job(
    lockctl: Lockctl, options: list[str], redis_py: Start
) -> None:
    done = lockctl("run", "-l", "nightly", "--min-hold", "60s", *options, "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert let_go(redis_py()) == 9
    assert lockctl("force-release", "nightly", "--yes", *options).returncode == 0
    assert lockctl("run", "-l", "nightly", "--min-hold", "1s", *options, "--", "true").returncode == 0
    assert holds(redis_py(LIMIT))
