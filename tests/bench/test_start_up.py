"""What a lock costs a cron job: not more than starting an interpreter a second time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.bench import timing

if TYPE_CHECKING:
    from tests.jobs import Lockctl

TRIES = 12  # a busy machine is slow at one thing for a while, not at all times
FACTOR = 2.0


def test_a_run_takes_at_most_twice_the_time_of_an_empty_python(lockctl: Lockctl) -> None:
    env = timing.environment({"LOCKCTL_BACKEND": lockctl.url, "XDG_CONFIG_HOME": str(lockctl.directory / ".none")})
    commands = {
        "python": ((sys.executable, "-c", "pass"), 0),
        "lockctl": ((lockctl.command, "run", "--", "true"), 0),
    }
    ratios: list[float] = []
    while len(ratios) < TRIES and (not ratios or min(ratios) > FACTOR):
        took = timing.medians(commands, env)
        ratios.append(took["lockctl"] / took["python"])
    assert min(ratios) <= FACTOR, ratios
