"""lockctl.supervise.fork: where the guard runs, and how its end is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl import kernel
from lockctl.supervise import tree
from lockctl.supervise.fork import put_beside
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl

FORKS = 20
PROCESSOR = 36  # of the fields behind the state in /proc/PID/stat, proc(5)


def processors_of_a_fork() -> tuple[int, int]:
    """Of this process until the child was there, and of the child."""
    while True:
        here = kernel.call("sched_getcpu")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        put_beside(pid)
        fields = tree.stat_fields(pid)
        stayed = kernel.call("sched_getcpu") == here
        os.waitpid(pid, 0)
        if stayed and fields is not None:
            return here, int(fields[PROCESSOR])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_a_fork_is_put_on_another_processor() -> None:
    places = [processors_of_a_fork() for _ in range(FORKS)]
    assert len([1 for parent, child in places if parent != child]) > FORKS * 3 // 4, places


@pytest.mark.parametrize("processors", ["one", "all"])
def test_a_command_may_use_the_processors_that_lockctl_may_use(lockctl: Lockctl, processors: str) -> None:
    every = os.sched_getaffinity(0)
    given = every if processors == "all" else {max(every)}
    tell = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]

    def limit() -> None:
        os.sched_setaffinity(0, given)

    done = lockctl("run", "-l", "a", "--", *tell, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (0, f"{sorted(given)}\n")


def test_a_run_that_has_ended_does_not_sleep_until_its_guard_has(
    lockctl: Lockctl, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    trace = tmp_path / "trace"
    for _ in range(3):
        traced = (need_tool("strace"), "-f", "-e", "trace=clock_nanosleep,pidfd_open", "-o", str(trace))
        words = (*traced, lockctl.command, "run", "--", "true")
        subprocess.run(words, env=lockctl.environment(), timeout=LIMIT, check=True)
        assert "pidfd_open" in trace.read_text()
        assert "clock_nanosleep" not in trace.read_text()
