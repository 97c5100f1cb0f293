"""`flock(1)` and lockctl on the same path keep each other out, and let each other in to read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually, guard_of

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
    assert answer.returncode in (0, 1), answer.stderr  # 1: not known yet
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


@pytest.mark.parametrize("options", [("--shared",), ("--slots", "3")], ids=["shared", "slots"])
def test_a_shared_flock_gets_in_beside_readers_and_slots_and_an_exclusive_one_does_not(
    lockctl: Lockctl, flock: Start, options: tuple[str, ...]
) -> None:
    holder = lockctl.start_holding("nightly", *options)
    key = state(lockctl)["key"]
    assert flock("-n", "-s", "-E", "9", key, "true").wait(LIMIT) == 0
    assert flock("-n", "-x", "-E", "9", key, "true").wait(LIMIT) == 9
    holder.terminate()
    holder.wait(LIMIT)
    assert flock("-n", "-x", "-E", "9", key, "true").wait(LIMIT) == 0


@pytest.mark.parametrize("options", [("--shared",), ("--slots", "3")], ids=["shared", "slots"])
def test_readers_and_slots_get_in_beside_a_shared_flock_and_not_beside_an_exclusive_one(
    lockctl: Lockctl, flock: Start, options: tuple[str, ...]
) -> None:
    other = flock("--shared", lockctl.directory / "nightly", "cat")
    eventually(lambda: state(lockctl)["state"] == "foreign")
    assert lockctl("run", "-l", "nightly", *options, "--", "true").returncode == 0
    let_go(other)
    other = flock("--exclusive", lockctl.directory / "nightly", "cat")
    eventually(lambda: state(lockctl)["state"] == "foreign")
    assert lockctl("run", "-l", "nightly", *options, "--", "true").returncode == 75
    waiter = lockctl.start("run", "-l", "nightly", *options, "--wait", "forever", "--", "true")
    eventually(lambda: state(lockctl)["waiters"])
    assert waiter.poll() is None
    let_go(other)
    assert waiter.wait(LIMIT) == 0


@pytest.mark.parametrize("options", [("--shared",), ("--slots", "2")], ids=["shared", "slots"])
def test_a_process_of_the_job_keeps_its_share_of_the_lock_when_all_of_lockctl_is_killed(
    lockctl: Lockctl, flock: Start, options: tuple[str, ...], tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    holder = lockctl.start_holding("nightly", *options, "--", "sh", "-c", 'cat "$0"; :', str(fifo))
    guard = guard_of(holder.pid)
    _, cat = eventually(lambda: len(found := tree.descendants(guard)) == 2 and found)
    for signum in (signal.SIGSTOP, signal.SIGKILL):  # neither has time to see the end of the other
        for pid in (guard, holder.pid):
            os.kill(pid, signum)
    holder.wait(LIMIT)
    eventually(lambda: not alive(guard))
    assert alive(cat)
    assert state(lockctl)["state"] == "held"
    assert flock("-n", "-x", "-E", "9", state(lockctl)["key"], "true").wait(LIMIT) == 9
    fifo.write_text("end\n")
    eventually(lambda: state(lockctl)["state"] == "free")


def test_a_lock_that_is_kept_after_its_job_is_free_for_flock_and_not_for_lockctl(
    lockctl: Lockctl, flock: Start
) -> None:
    assert lockctl("run", "-l", "nightly", "--min-hold", "1m", "--", "true").returncode == 0
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    seen = state(lockctl)
    assert seen["state"] == "held"
    assert flock("-n", "-x", "-E", "9", seen["key"], "true").wait(LIMIT) == 0
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
