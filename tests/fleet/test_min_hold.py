"""A lock that is kept although its job has ended and no process is left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends, on_kinds, on_sample
from tests.fleet.hosts import inspect

if TYPE_CHECKING:
    from tests.jobs import Lockctl

of_each_kind = pytest.mark.parametrize("backend_name", on_sample())
HOLD = 4.0  # seconds
SLACK = 5.0  # seconds: whole seconds of a store, and a busy machine, on which three programs start
LATE = {
    "s3": 3.0,
    "gcs": 3.0,
    "azblob": 3.0,
    "dynamodb": 3.0,
    "kubernetes": 3.0,
    "nats": 1.0,
}  # seconds by which such a lease ends late, as `backends` says


def processes_of(url: str) -> list[str]:
    """Command lines of all processes that have a backend's URL in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if url.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found


@pytest.mark.parametrize("backend_name", on_kinds())
def test_the_lock_is_kept_without_a_process_and_then_free(lockctl: Lockctl, backend_name: str) -> None:
    begin = time.monotonic()
    done = lockctl("run", "-l", "a", "--min-hold", f"{HOLD}s", "--", "sh", "-c", "exit 5")
    took = time.monotonic() - begin
    assert (done.returncode, done.stderr) == (5, "")
    assert took < HOLD / 2
    assert processes_of(lockctl.url) == []
    refused = lockctl("run", "-l", "a", "--", "true")
    assert refused.returncode == 75
    assert "--min-hold" in refused.stderr
    lock = inspect(lockctl, "a")
    assert lock["state"] == "held"
    assert lock["holders"][0]["ended_at"] is not None
    assert lock["holders"][0]["command"] == ["sh", "-c", "exit 5"]
    assert lock["last_run"]["exit_code"] == 5
    waited = lockctl("run", "-l", "a", "--wait", "20s", "--", "true")
    freed = time.monotonic() - begin
    assert waited.returncode == 0
    assert HOLD - 0.1 < freed < HOLD + took + SLACK + LATE.get(backend_name, 0.0)
    assert inspect(lockctl, "a")["state"] == "free"


@of_each_kind
def test_a_job_that_takes_longer_is_not_followed_by_a_hold(lockctl: Lockctl) -> None:
    assert lockctl("run", "-l", "a", "--min-hold", "200ms", "--", "sleep", "0.5").returncode == 0
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@of_each_kind
def test_a_command_that_never_ran_leaves_no_hold(lockctl: Lockctl) -> None:
    assert lockctl("run", "-l", "a", "--min-hold", "1h", "--", "/no/such/command").returncode == 127
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@of_each_kind
def test_an_operator_ends_a_hold_at_once(lockctl: Lockctl) -> None:
    assert lockctl("run", "-l", "a", "--min-hold", "1h", "--", "true").returncode == 0
    assert lockctl("run", "-l", "a", "--", "true").returncode == 75
    begin = time.monotonic()
    assert lockctl("force-release", "a", "--yes").returncode == 0
    assert time.monotonic() - begin < 8
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize("backend_name", on_backends("file"))
@pytest.mark.parametrize("option", [("--shared",), ("--slots", "2")])
def test_only_a_lock_that_is_held_alone_is_kept(lockctl: Lockctl, option: tuple[str, ...]) -> None:
    done = lockctl("run", "-l", "a", "--min-hold", "1s", *option, "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--min-hold" in done.stderr
