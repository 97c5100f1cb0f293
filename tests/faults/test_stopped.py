"""Processes that are stopped (SIGSTOP) and go on later: the holder's, the command's, a waiter's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.faults.backends import on_kinds, on_sample
from tests.faults.scene import GRACE
from tests.faults.waiting import await_in_queue, await_waiting
from tests.jobs import LIMIT, alive, eventually, guard_of, stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

everywhere = pytest.mark.parametrize("backend_name", on_kinds())
of_each_kind = pytest.mark.parametrize("backend_name", on_sample())


@pytest.fixture
def short(place: Place) -> tuple[str, ...]:
    """Options of a run with a short lease."""
    return ("-t", f"{place.ttl}s", "-k", f"{GRACE}s")


@of_each_kind
def test_a_keeper_that_was_stopped_for_less_than_its_lease_loses_nothing(lockctl: Lockctl, tmp_path: Path) -> None:
    end = tmp_path / "end"
    words = ("--", "sh", "-c", 'while ! test -e "$0"; do sleep 0.1; done; exit 7', str(end))
    holder = lockctl.start_holding("nightly", "-t", "5s", *words)
    stop(holder.pid)
    time.sleep(1)  # the length of the pause is the point
    os.kill(holder.pid, signal.SIGCONT)
    time.sleep(0.5)
    assert holder.poll() is None
    end.touch()
    assert holder.wait(LIMIT) == 7


@of_each_kind
def test_the_lock_is_kept_while_only_the_command_is_stopped(
    lockctl: Lockctl, place: Place, short: tuple[str, ...], tmp_path: Path
) -> None:
    pid_file, end = tmp_path / "pid", tmp_path / "end"
    script = 'echo $$ >"$0.new"; mv "$0.new" "$0"; while ! test -e "$1"; do sleep 0.1; done; exit 7'
    holder = lockctl.start_holding("nightly", *short, "--", "sh", "-c", script, str(pid_file), str(end))
    eventually(pid_file.exists)
    command = int(pid_file.read_text())
    os.kill(command, signal.SIGSTOP)
    time.sleep(2 * place.ttl)  # a lease that is not renewed would have ended
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    assert holder.poll() is None
    os.kill(command, signal.SIGCONT)
    end.touch()
    assert holder.wait(LIMIT) == 7


@everywhere
def test_a_stopped_waiter_holds_the_others_up_for_no_longer_than_its_lease(
    lockctl: Lockctl, place: Place, short: tuple[str, ...], tmp_path: Path
) -> None:
    holder = lockctl.start_holding("nightly", *short)
    mark = tmp_path / "ran"
    stopped = lockctl.start("run", "-l", "nightly", *short, "--wait", "forever", "--", "touch", str(mark))
    await_waiting(lockctl, "nightly", [stopped])
    stop(stopped.pid)
    other = lockctl.start("run", "-l", "nightly", *short, "--wait", "forever", "--", "true")
    await_in_queue(lockctl, "nightly", other)  # the place of the stopped one may have ended by then
    holder.terminate()
    holder.wait(LIMIT)
    released = time.monotonic()
    assert other.wait(LIMIT) == 0
    assert time.monotonic() - released < max(place.ttl, place.freed_within) + 5
    assert not mark.exists()
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.wait(LIMIT) == 0
    assert mark.exists()


@everywhere
def test_a_waiter_that_is_killed_leaves_nothing_behind(lockctl: Lockctl, place: Place, short: tuple[str, ...]) -> None:
    holder = lockctl.start_holding("nightly", *short)
    before = {entry.name for entry in lockctl.directory.iterdir()}
    waiter = lockctl.start("run", "-l", "nightly", *short, "--wait", "forever", "--", "true")
    await_waiting(lockctl, "nightly", [waiter])
    family = tree.descendants(waiter.pid)
    os.kill(waiter.pid, signal.SIGKILL)
    waiter.wait(LIMIT)
    eventually(lambda: not any(alive(pid) for pid in family), limit=place.ttl + 1)
    await_waiting(lockctl, "nightly", [])  # a queue entry ends with its lease
    assert {entry.name for entry in lockctl.directory.iterdir()} == before
    holder.terminate()
    holder.wait(LIMIT)
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0


@of_each_kind
def test_a_guard_that_was_stopped_before_the_command_began_does_not_keep_the_lock(
    lockctl: Lockctl, short: tuple[str, ...]
) -> None:
    holder = lockctl.start_holding("nightly")
    waiter = lockctl.start("run", "-l", "nightly", *short, "--wait", "forever", "--", "true")
    await_waiting(lockctl, "nightly", [waiter])
    guard = guard_of(waiter.pid)
    os.kill(guard, signal.SIGSTOP)
    holder.terminate()
    assert waiter.wait(LIMIT) == 76
    assert not alive(guard)
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0


@of_each_kind
def test_a_signal_that_comes_between_the_grant_and_the_start_of_the_command_is_not_lost(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("nightly")
    options = ("-l", "nightly", "-t", "5s", "-k", f"{GRACE}s", "-v", "--wait", "forever")
    waiter = lockctl.start("run", *options, "--", "sleep", "60", stderr=subprocess.PIPE)
    await_waiting(lockctl, "nightly", [waiter])
    guard = guard_of(waiter.pid)
    os.kill(guard, signal.SIGSTOP)
    holder.terminate()
    assert waiter.stderr is not None
    while "acquired" not in waiter.stderr.readline():
        assert waiter.poll() is None
    waiter.terminate()
    while "passing on signal 15" not in waiter.stderr.readline():
        assert waiter.poll() is None
    os.kill(guard, signal.SIGCONT)
    assert waiter.wait(LIMIT) == 128 + signal.SIGTERM
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0
