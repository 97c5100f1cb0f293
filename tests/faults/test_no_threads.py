"""A job whose user may start no more threads keeps its lock."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends
from tests.jobs import LIMIT

if TYPE_CHECKING:
    from tests.jobs import Lockctl

# a stack would have more KiB than a process has addresses; too many processes, or too little memory, fail it the same way
THREADLESS = ("sh", "-c", f'ulimit -S -s {1 << 37}; exec "$@"', "sh")
TTL = 4.0  # seconds
LENGTH = 1.2 * TTL  # of a job: longer than its lease lasts without a renewal


@pytest.mark.parametrize("backend_name", on_backends())
def test_it_renews_between_its_other_work(lockctl: Lockctl) -> None:
    done = subprocess.run(
        [*THREADLESS, lockctl.command, "run", "-l", "nightly", "-t", f"{TTL}s", "--", "sleep", str(LENGTH)],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
