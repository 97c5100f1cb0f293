"""`flock(1)` and lockctl on the same path keep each other out, and let each other in to read."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.contract.harness import claim, one_of, reader, refused, take
from tests.contract.keeping import holder_of
from tests.contract.waiting import start_waiting
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.stores.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.jobs import Lockctl

    Start = Callable[..., subprocess.Popen[str]]

__all__ = ["opened"]  # a fixture


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


@pytest.fixture
def client(lockctl: Lockctl, opened: Callable[[str], Backend]) -> Backend:
    """Its own view of the lock."""
    return opened(lockctl.url)


def state(client: Backend) -> str:
    return client.inspect("nightly", timeout=LIMIT).state


def test_flock_is_refused_while_lockctl_holds_and_waits_for_its_end(
    lockctl: Lockctl, client: Backend, flock: Start, tmp_path: Path
) -> None:
    holder, mark = lockctl.start_holding("nightly"), tmp_path / "ran"
    key = client.inspect("nightly", timeout=LIMIT).key
    assert flock("-n", "-E", "9", key, "true").wait(LIMIT) == 9
    other = flock(key, "touch", mark)
    waiters = eventually(lambda: client.inspect("nightly", timeout=LIMIT).waiters)
    assert [waiter.pid for waiter in waiters] == [other.pid]
    assert alive(other.pid)
    assert not mark.exists()
    holder.terminate()
    holder.wait(LIMIT)
    assert other.wait(LIMIT) == 0
    assert mark.exists()


def test_lockctl_is_refused_while_flock_holds_and_waits_for_its_end(
    lockctl: Lockctl, client: Backend, flock: Start, tmp_path: Path
) -> None:
    path, mark = lockctl.directory / "nightly", tmp_path / "ran"
    other = flock(path, "cat")
    eventually(lambda: state(client) == "foreign")
    holder = holder_of(client)
    assert holder.pid == other.pid
    assert (holder.command or ())[1:] == (str(path), "cat")
    assert (holder.owner, holder.token) == (None, None)
    done = lockctl("run", "-l", "nightly", "--", "touch", str(mark))
    assert done.returncode == 75
    assert f"pid {other.pid}" in done.stderr
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", "touch", str(mark))
    eventually(lambda: client.inspect("nightly", timeout=LIMIT).waiters)
    assert waiter.poll() is None
    assert not mark.exists()
    let_go(other)
    assert waiter.wait(LIMIT) == 0
    assert mark.exists()


@pytest.mark.parametrize("wanted", [reader, functools.partial(one_of, 3)], ids=["shared", "slots"])
def test_readers_and_slots_and_a_shared_flock_get_in_beside_each_other_and_an_exclusive_one_does_not(
    lockctl: Lockctl, client: Backend, opened: Callable[[str], Backend], flock: Start, wanted: Callable[[], Claim]
) -> None:
    path, waiter, mine = lockctl.directory / "nightly", opened(lockctl.url), wanted()
    grant = take(client, wanted())
    assert flock("-n", "-s", "-E", "9", path, "true").wait(LIMIT) == 0
    assert flock("-n", "-x", "-E", "9", path, "true").wait(LIMIT) == 9
    client.release(grant, timeout=LIMIT)
    assert flock("-n", "-x", "-E", "9", path, "true").wait(LIMIT) == 0
    other = flock("--shared", path, "cat")
    eventually(lambda: state(client) == "foreign")
    assert refused(client, claim())
    assert not refused(client, wanted())
    let_go(other)
    other = flock("--exclusive", path, "cat")
    eventually(lambda: state(client) == "foreign")
    assert refused(client, wanted())
    waiting = start_waiting(waiter, mine, client)
    assert waiting.running
    let_go(other)
    waiting.result()
    take(waiter, mine)


@pytest.mark.parametrize("options", [("--shared",), ("--slots", "2")], ids=["shared", "slots"])
def test_a_process_of_the_job_keeps_its_share_of_the_lock_when_all_of_lockctl_is_killed(
    lockctl: Lockctl, client: Backend, flock: Start, options: tuple[str, ...], tmp_path: Path
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
    assert state(client) == "held"
    assert flock("-n", "-x", "-E", "9", lockctl.directory / "nightly", "true").wait(LIMIT) == 9
    fifo.write_text("end\n")
    eventually(lambda: state(client) == "free")


def test_a_lock_that_is_kept_after_its_job_is_free_for_flock_and_not_for_lockctl(
    lockctl: Lockctl, client: Backend, flock: Start
) -> None:
    client.release(take(client, claim()), timeout=LIMIT, hold=60.0)
    assert refused(client, claim())
    assert state(client) == "held"
    assert flock("-n", "-x", "-E", "9", lockctl.directory / "nightly", "true").wait(LIMIT) == 0
    assert refused(client, claim())
