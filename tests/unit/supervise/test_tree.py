"""lockctl.supervise.tree: real processes, wherever they hide."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.contract.harness import departed
from tests.jobs import alive, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BEGIN = """
import os, sys, time
from lockctl import kernel
def say(*words):
    os.write(1, (" ".join(str(word) for word in words) + "\\n").encode())
"""
FAMILY = """
kernel.become_subreaper()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        say("orphan", os.getpid())
        time.sleep(60)
    os._exit(0)
os.waitpid(child, 0)
stays = os.fork()
if stays == 0:
    grandchild = os.fork()
    if grandchild:
        say("grandchild", grandchild)
    time.sleep(60)
    os._exit(0)
say("child", stays)
time.sleep(60)
"""
RUNAWAY = """
kernel.become_subreaper()
def generation(number):
    if number == 150:
        time.sleep(60)
    if os.fork() == 0:
        generation(number + 1)
    os._exit(0)
if os.fork() == 0:
    generation(0)
say("started")
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(60)
"""

Started = tuple[subprocess.Popen[bytes], dict[str, int]]


@pytest.fixture
def start() -> Iterator[Callable[[str, int], Started]]:
    """Run a script that says so many lines; it and everything below it is killed afterwards."""
    started = []

    def begin(script: str, lines: int) -> Started:
        process = subprocess.Popen([sys.executable, "-c", BEGIN + script], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        said = [process.stdout.readline().split() for _ in range(lines)]
        return process, {words[0].decode(): int(words[-1]) for words in said if len(words) == 2}

    yield begin
    for process in started:
        tree.signal_all(process.pid, (signal.SIGKILL,))
        process.kill()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


def test_descendants_are_found_beyond_sessions_groups_and_dead_parents(start: Callable[[str, int], Started]) -> None:
    root, names = start(FAMILY, 3)
    found = tree.descendants(root.pid)
    assert sorted(found) == sorted(names.values())
    assert found.index(names["child"]) < found.index(names["grandchild"]), "parents come before children"
    assert sorted(tree.children(root.pid)) == sorted([names["orphan"], names["child"]])


def test_who_is_to_be_spared_is_left_out_with_all_below(start: Callable[[str, int], Started]) -> None:
    root, names = start(FAMILY, 3)
    assert tree.descendants(root.pid, frozenset([names["child"]])) == [names["orphan"]]
    assert tree.signal_all(root.pid, (signal.SIGKILL,), frozenset([names["child"]])) == 1
    eventually(lambda: not alive(names["orphan"]))
    assert alive(names["grandchild"])


def test_every_descendant_gets_every_signal_and_the_root_none(start: Callable[[str, int], Started]) -> None:
    root, names = start(FAMILY, 3)
    assert tree.signal_all(root.pid, (signal.SIGTERM, signal.SIGCONT)) == 3
    eventually(lambda: not any(alive(pid) for pid in names.values()))
    assert alive(root.pid)


def test_a_stopped_process_is_found_and_killed(start: Callable[[str, int], Started]) -> None:
    root, names = start(FAMILY, 3)
    os.kill(names["grandchild"], signal.SIGSTOP)
    eventually(lambda: (tree.stat_fields(names["grandchild"]) or [b""])[0] == b"T")
    tree.signal_all(root.pid, (signal.SIGKILL,))
    eventually(lambda: not any(alive(pid) for pid in names.values()))


def test_a_family_that_forks_on_and_on_ends_when_it_is_killed_again_and_again(
    start: Callable[[str, int], Started],
) -> None:
    root, _ = start(RUNAWAY, 1)

    def nobody() -> bool:
        tree.signal_all(root.pid, (signal.SIGKILL,))
        return not tree.descendants(root.pid)

    eventually(nobody)


def test_the_children_are_found_too_where_the_kernel_does_not_list_them(start: Callable[[str, int], Started]) -> None:
    root, names = start(FAMILY, 3)
    assert sorted(tree._children_by_scan(root.pid)) == sorted([names["orphan"], names["child"]])


def test_a_name_made_to_confuse_does_not_move_the_fields(start: Callable[[str, int], Started]) -> None:
    process, _ = start("kernel.set_process_name('a) R 1 (b')\nsay('named')\ntime.sleep(60)\n", 1)
    assert tree.parent_of(process.pid) == os.getpid()


@pytest.mark.parametrize("length", [3, 100_000])
def test_a_process_shows_another_name_in_the_room_of_its_old_one(
    start: Callable[[str, int], Started], length: int
) -> None:
    process, _ = start(f"kernel.set_process_name('other', 'x' * {length})\nsay('named')\ntime.sleep(60)\n", 1)
    shown = [Path(f"/proc/{process.pid}/{each}").read_bytes() for each in ("comm", "cmdline", "environ")]
    assert shown[0] == b"other\n"
    assert set(shown[1].rstrip(b"\0")) == {ord("x")}
    assert 3 <= len(shown[1].rstrip(b"\0")) < 10_000
    assert b"PATH=" in shown[2]


def test_a_process_that_is_gone_has_nothing() -> None:
    gone = departed()
    assert tree.children(gone) == []
    assert tree.descendants(gone) == []
    assert (tree.parent_of(gone), tree.stat_fields(gone), tree.start_time(gone)) == (None, None, None)
    assert tree.signal_all(gone, (signal.SIGKILL,)) == 0
    assert not tree.send(gone, signal.SIGKILL)


def test_a_process_is_told_from_a_later_one_of_the_same_number_by_its_start() -> None:
    ours = tree.start_time(os.getpid())
    assert ours is not None
    assert ours == tree.start_time(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as later:
        started = tree.start_time(later.pid)
        later.kill()
    assert started is not None
    assert started > ours
