"""When a lock file is free again: the guard frees it, and the keeper notes that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, eventually, guard_of, stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

WAITS = 'while ! test -e "$0"; do sleep 0.01; done'


def held_until(end: Path, lockctl: Lockctl, *options: str) -> subprocess.Popen[str]:
    """A run whose keeper is stopped, and whose job ends when this file is there."""
    words = ("-t", "1h", *options, "--", "sh", "-c", WAITS, str(end))
    holder = lockctl.start_holding("nightly", *words, stderr=subprocess.PIPE)
    stop(holder.pid)
    return holder


def test_a_lock_is_free_when_its_job_has_ended_also_while_the_keeper_is_stopped(
    lockctl: Lockctl, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    holder = held_until(end, lockctl)
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    guard = guard_of(holder.pid)
    end.touch()
    eventually(lambda: (tree.stat_fields(guard) or [b"Z"])[0] == b"Z")  # it has no reason to wait for its keeper
    assert lockctl("run", "-l", "nightly", "--wait", f"{LIMIT}s", "--", "true").returncode == 0
    next_one = lockctl.start_holding("nightly")
    os.kill(holder.pid, signal.SIGCONT)
    assert holder.communicate(timeout=LIMIT)[1] == ""  # not a word of a loss
    assert holder.returncode == 0
    # who comes back late takes nothing from the next holder
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    (shown,) = json.loads(lockctl("inspect", "--json", "nightly").stdout)["holders"]
    assert shown["pid"] == next_one.pid
    assert next_one.poll() is None


@pytest.mark.parametrize("options", [("--min-hold", "1h"), ("--once-per", "1h")])
def test_a_lock_that_says_something_about_its_job_is_kept_until_that_is_written(
    lockctl: Lockctl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    end = tmp_path / "end"
    holder = held_until(end, lockctl, *options)
    guard = guard_of(holder.pid)
    end.touch()
    eventually(lambda: not tree.children(guard))
    assert lockctl("run", "-l", "nightly", *options, "--", "false").returncode == 75
    os.kill(holder.pid, signal.SIGCONT)
    assert holder.wait(LIMIT) == 0
    assert lockctl("run", "-l", "nightly", *options, "--", "false").returncode == 75
