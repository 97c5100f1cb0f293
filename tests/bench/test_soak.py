"""tests/soak.py: a short one ends with nothing wrong, and what is wrong is seen."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests import soak
from tests.jobs import eventually

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


def test_a_connection_that_a_server_has_to_itself_is_none_of_a_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, subprocess.Popen(["sleep", "60"]) as another:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert soak.connections_to([SimpleNamespace(port=port, pid=os.getpid())]) == []
            assert len(soak.connections_to([SimpleNamespace(port=port, pid=another.pid)])) == 1
        eventually(lambda: soak.connections_to([SimpleNamespace(port=port, pid=another.pid)]) == [])
        another.kill()
