"""What only the file backend has: a file, which others can change, and a lock that the kernel keeps."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.faults.waiting import await_waiting
from tests.jobs import LIMIT, Lockctl, guard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOON = 5.0  # seconds, on a busy machine; how soon it really is, is in tests/times


def remove(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    other = file.parent / ".other"
    other.write_bytes(file.read_bytes())
    other.rename(file)


def rename_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


def replace_directory(file: Path) -> None:
    rename_directory(file)
    file.parent.mkdir(mode=0o700)


def truncate(file: Path) -> None:
    os.truncate(file, 0)


CHANGES = [remove, replace, rename_directory, truncate]


@pytest.fixture
def lockctl(lockctl: Lockctl) -> Iterator[Lockctl]:
    """The locks are one directory deeper: a test may rename theirs."""
    deeper = Lockctl(lockctl.command, lockctl.directory / "locks")
    deeper.directory.mkdir(mode=0o700)
    yield deeper
    deeper.end_all()


@pytest.fixture
def backend_url(locks: Path) -> str:
    """Not parametrised here: what follows is about files."""
    return f"file://{locks}"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", [(), ("--shared",), ("--slots", "2")], ids=["alone", "shared", "slots"])
def test_the_job_is_killed_at_once(
    mode: tuple[str, ...], change: Callable[[Path], None], lockctl: Lockctl, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    job = ("sh", "-c", 'trap "echo TERM >>$0" TERM; while :; do sleep 0.05; done', str(said))
    holder = lockctl.start_holding("nightly", *mode, "--", *job)
    begun = time.monotonic()
    change(lockctl.directory / "nightly")
    assert holder.wait(LIMIT) == 76
    assert time.monotonic() - begun < SOON
    assert not said.exists()  # at once, and not asked first


@pytest.mark.parametrize("change", CHANGES)
def test_on_lost_term_gives_the_job_its_grace(change: Callable[[Path], None], lockctl: Lockctl, tmp_path: Path) -> None:
    said = tmp_path / "said"
    job = ("sh", "-c", 'trap "echo TERM >>$0; exit 3" TERM; while :; do sleep 0.05; done', str(said))
    holder = lockctl.start_holding("nightly", "--on-lost", "term", "-k", "4s", "--", *job)
    begun = time.monotonic()
    change(lockctl.directory / "nightly")
    assert holder.wait(LIMIT) == 76
    assert time.monotonic() - begun < SOON + 1
    assert said.read_text() == "TERM\n"


def test_on_lost_term_ends_a_job_that_does_not_obey_after_its_grace(lockctl: Lockctl) -> None:
    job = ("sh", "-c", 'trap "" TERM; while :; do sleep 0.05; done')
    holder = lockctl.start_holding("nightly", "--on-lost", "term", "-k", "1s", "--", *job)
    begun = time.monotonic()
    (lockctl.directory / "nightly").unlink()
    assert holder.wait(LIMIT) == 76
    assert 1 < time.monotonic() - begun < SOON + 1


@pytest.mark.parametrize("change", [replace, replace_directory])
@pytest.mark.parametrize("mode", [(), ("--shared",), ("--slots", "1")], ids=["alone", "shared", "slots"])
def test_a_waiter_notices_that_the_file_was_replaced_and_goes_to_the_new_one(
    mode: tuple[str, ...], change: Callable[[Path], None], lockctl: Lockctl
) -> None:
    lockctl.start_holding(
        "nightly", "--on-lost", "term", "-k", "4s", "--", "sh", "-c", 'trap "" TERM; sleep 60; sleep 60'
    )
    waiter = lockctl.start("run", "-l", "nightly", *mode, "--wait", "forever", "--", "true")
    await_waiting(lockctl, "nightly", [waiter])
    change(lockctl.directory / "nightly")
    assert waiter.wait(SOON) == 0


def test_tokens_rise_although_the_lock_file_is_deleted_in_between(lockctl: Lockctl) -> None:
    tokens = []
    for number in range(15):
        answer = lockctl("run", "-l", "nightly", "--", "printenv", "LOCKCTL_TOKEN")
        assert answer.returncode == 0, answer.stderr
        tokens.append(int(answer.stdout))
        if number % 3 == 0:
            (lockctl.directory / "nightly").unlink()
        elif number % 3 == 1:
            os.truncate(lockctl.directory / "nightly", 0)
    assert all(earlier < later for earlier, later in itertools.pairwise(tokens)), tokens


def test_the_lock_is_free_for_the_next_after_the_file_was_removed_and_its_holder_killed(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("nightly")
    (lockctl.directory / "nightly").unlink()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT)
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0


@pytest.mark.parametrize("first", ["keeper", "guard"])
def test_a_session_that_was_stopped_beyond_its_lease_goes_on_where_the_kernel_kept_the_lock(
    lockctl: Lockctl, tmp_path: Path, first: str
) -> None:
    """Without a terminal, where everybody is stopped by STOP; with a server the lease was over meanwhile."""
    end = tmp_path / "end"
    words = ("--", "sh", "-c", 'while ! test -e "$0"; do sleep 0.1; done; exit 7', str(end))
    holder = lockctl.start_holding("nightly", "-t", "2s", *words, start_new_session=True)
    guard = guard_of(holder.pid)
    session = [holder.pid, guard, *tree.descendants(guard)]
    for pid in session:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4)  # the length of the pause is the point
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    for pid in session if first == "keeper" else reversed(session):
        tree.send(pid, signal.SIGCONT)
        time.sleep(0.5)  # as if a person typed it
    time.sleep(2)  # longer than a lease
    assert holder.poll() is None
    end.touch()
    assert holder.wait(LIMIT) == 7
