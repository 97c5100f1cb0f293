"""`flock(1)` and lockctl on the same path keep each other out."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.jobs import LIMIT, alive, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl

    Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def flock(need_tool: Callable[[str], str]) -> Iterator[Start]:
    """Start the program with some words; `cat` is what it usually runs, until its stdin is closed."""
    program = need_tool("flock")
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        let_go(process)


def let_go(process: subprocess.Popen[str]) -> None:
    """End the `cat` that runs under flock(1)."""
    if process.stdin is not None:
        process.stdin.close()
    process.wait(LIMIT)


def state(lockctl: Lockctl) -> dict[str, object]:
    answer = lockctl("inspect", "nightly", "--json")
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout)
    assert isinstance(seen, dict)
    return seen


def test_flock_is_refused_while_lockctl_holds(lockctl: Lockctl, flock: Start) -> None:
    holder = lockctl.start_holding("nightly")
    assert flock("-n", "-E", "9", state(lockctl)["key"], "true").wait(LIMIT) == 9
    holder.terminate()
    holder.wait(LIMIT)
    assert flock("-n", "-E", "9", state(lockctl)["key"], "true").wait(LIMIT) == 0


def test_lockctl_is_refused_while_flock_holds_and_shows_it_as_foreign(
    lockctl: Lockctl, flock: Start, tmp_path: Path
) -> None:
    path, mark = lockctl.directory / "nightly", tmp_path / "ran"
    other = flock(path, "cat")
    seen = eventually(lambda: (found := state(lockctl))["state"] == "foreign" and found)
    (holder,) = seen["holders"]
    assert holder["pid"] == other.pid
    assert holder["command"][1:] == [str(path), "cat"]
    assert (holder["owner"], holder["token"]) == (None, None)
    refused = lockctl("run", "-l", "nightly", "--", "touch", str(mark))
    assert refused.returncode == 75
    assert f"pid {other.pid}" in refused.stderr
    assert not mark.exists()
    let_go(other)
    assert lockctl("run", "-l", "nightly", "--", "touch", str(mark)).returncode == 0
    assert mark.exists()


def test_lockctl_waits_for_flock_and_goes_on_when_it_ends(lockctl: Lockctl, flock: Start) -> None:
    other = flock(lockctl.directory / "nightly", "cat")
    eventually(lambda: state(lockctl)["state"] == "foreign")
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", "true")
    eventually(lambda: state(lockctl)["waiters"])
    assert waiter.poll() is None
    let_go(other)
    assert waiter.wait(LIMIT) == 0


def test_flock_waits_for_lockctl_and_goes_on_when_it_ends(lockctl: Lockctl, flock: Start, tmp_path: Path) -> None:
    holder = lockctl.start_holding("nightly")
    mark = tmp_path / "ran"
    other = flock(lockctl.directory / "nightly", "touch", mark)
    waiters = eventually(lambda: state(lockctl)["waiters"])
    assert [waiter["pid"] for waiter in waiters] == [other.pid]
    assert alive(other.pid)
    assert not mark.exists()
    holder.terminate()
    holder.wait(LIMIT)
    assert other.wait(LIMIT) == 0
    assert mark.exists()


def test_a_shared_flock_keeps_an_exclusive_lockctl_out(lockctl: Lockctl, flock: Start) -> None:
    flock("--shared", lockctl.directory / "nightly", "cat")
    eventually(lambda: state(lockctl)["state"] == "foreign")
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
