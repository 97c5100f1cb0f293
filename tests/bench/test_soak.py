"""tests/soak.py: a short one ends with nothing wrong, and what is wrong is seen."""

from __future__ import annotations

import fcntl
import subprocess
from typing import TYPE_CHECKING

from tests import soak

if TYPE_CHECKING:
    from pathlib import Path


def test_a_short_one_with_files_grants_kills_and_finds_nothing() -> None:
    seen = soak.soak("file", 8, 4.0, seed=1)
    assert seen.wrong == []
    assert seen.grants > 0
    assert seen.kills > 0


def test_two_at_once_and_tokens_that_do_not_rise_are_seen(tmp_path: Path) -> None:
    job = ["sh", "-c", soak.JOB, str(tmp_path / "3")]
    for token in ("7", "9", "9", "8"):
        subprocess.run(job, env={"LOCKCTL_TOKEN": token, "PATH": "/usr/bin:/bin"}, check=True)
    assert soak.judge(tmp_path) == ["lock 3: token 9 after 9", "lock 3: token 8 after 9"]
    with (tmp_path / "3.inside").open("w") as inside:
        fcntl.flock(inside, fcntl.LOCK_EX)
        subprocess.run(job, env={"LOCKCTL_TOKEN": "10", "PATH": "/usr/bin:/bin"}, check=True)
    assert soak.judge(tmp_path)[0] == "two at once: 10"
