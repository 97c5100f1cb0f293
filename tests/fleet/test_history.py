"""What is kept of past runs, and what `history` and `inspect` show of it."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends, on_sample
from tests.fleet.hosts import history, inspect
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from tests.jobs import Lockctl

KEYS = ["name", "backend", "host", "command", "token", "started_at", "duration", "outcome", "exit_code", "labels"]
KEYS += ["user", "ended_at", "waited", "detail"]
of_each_kind = pytest.mark.parametrize("backend_name", on_sample())
on_files = pytest.mark.parametrize("backend_name", on_backends("file"))


@of_each_kind
def test_every_end_of_a_run_is_in_the_history_with_its_outcome(lockctl: Lockctl, backend_name: str) -> None:
    lockctl("run", "-l", "a", "--", "sh", "-c", "exit 3")
    lockctl("run", "-l", "a", "--", "sh", "-c", "kill -9 $$")
    lockctl("run", "-l", "a", "--max-runtime", "100ms", "--", "sleep", "60")
    lockctl("run", "-l", "a", "--", "/no/such/command")
    lockctl.start_holding("b")
    assert lockctl("run", "-l", "b", "--", "true").returncode == 75
    runs = history(lockctl, "a")
    assert [run["outcome"] for run in runs] == ["not_executed", "timed_out", "signaled", "exited"]
    assert [run["exit_code"] for run in runs][2:] == [137, 3]
    oldest = runs[-1]
    assert list(oldest) == KEYS
    assert (oldest["name"], oldest["backend"], oldest["host"]) == ("a", backend_name, os.uname().nodename)
    assert oldest["command"] == ["sh", "-c", "exit 3"]
    assert oldest["duration"] < 5
    assert oldest["started_at"] <= oldest["ended_at"]
    tokens = [run["token"] for run in runs]
    assert tokens == sorted(set(tokens), reverse=True)
    assert history(lockctl, "b") == []
    assert inspect(lockctl, "a")["last_run"] == {key: runs[1][key] for key in KEYS[2:10]}
    assert history(lockctl, "a", "--limit", "1") == runs[:1]


@of_each_kind
def test_who_took_a_lock_away_and_why_is_in_the_history(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("a")
    assert lockctl("force-release", "a", "--yes", "--reason", "rollback \N{SNOWMAN}").returncode == 0
    assert holder.wait(LIMIT) == 76
    eventually(lambda: len(history(lockctl, "a")) == 2)
    runs = history(lockctl, "a")
    assert [run["outcome"] for run in runs] == ["revoked", "revoked"]
    assert all("rollback \N{SNOWMAN}" in run["detail"] for run in runs)
    assert sorted(run["started_at"] is None for run in runs) == [False, True]
    assert len({run["token"] for run in runs}) == 1


@of_each_kind
def test_a_run_that_lost_its_lock_is_in_the_history(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("a")
    assert lockctl("force-release", "a", "--yes", "--now", "--reason", "stuck").returncode == 0
    assert holder.wait(LIMIT) == 76
    outcomes = eventually(lambda: {run["outcome"] for run in history(lockctl, "a")} == {"lost", "revoked"})
    assert outcomes


@on_files
def test_for_people_it_is_a_table_without_control_characters(lockctl: Lockctl) -> None:
    lockctl("run", "-l", "a", "--", "sh", "-c", "exit 3 # \x1b[31m\n")
    lockctl("run", "-l", "a", "--", "true")
    shown = lockctl("history", "a").stdout
    lines = shown.splitlines()
    assert len(lines) == 3
    assert lines[0].split("\t") == ["WHEN", "OUTCOME", "DURATION", "TOKEN", "WHERE", "COMMAND", "DETAIL"]
    assert re.search(r"\texited 0\t.*\ttrue\t-$", lines[1])
    assert "\texited 3\t" in lines[2]
    assert "\x1b" not in shown
    seen = lockctl("inspect", "a").stdout
    assert re.search(r"^last run: +exited 0 after .*: true$", seen, re.MULTILINE)
    assert lockctl("history", "never").stdout == ""


@on_files
@pytest.mark.parametrize("limit", ["0", "-1", "x", ""])
def test_a_limit_that_is_none_is_refused(lockctl: Lockctl, limit: str) -> None:
    done = lockctl("history", "a", f"--limit={limit}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert "--limit" in done.stderr


@on_files
def test_a_history_that_cannot_be_written_never_fails_the_job(lockctl: Lockctl) -> None:
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0
    for path in lockctl.directory.iterdir():
        if path.is_file() and path.name.startswith(".") and "a" in path.name:
            path.unlink()
            path.mkdir()  # whatever its name: nobody writes there any more
    done = lockctl("run", "-l", "a", "--", "sh", "-c", "exit 3")
    assert (done.returncode, done.stderr) == (3, "")
    done = lockctl("run", "-v", "-l", "a", "--", "true")
    assert done.returncode == 0
    assert "history" in done.stderr


@on_files
def test_a_signal_to_a_job_is_told_as_the_shell_does(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("a")
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(LIMIT) == 143
    assert [(run["outcome"], run["exit_code"]) for run in history(lockctl, "a")] == [("signaled", 143)]


@of_each_kind
def test_a_name_that_nothing_ever_used_is_not_known(lockctl: Lockctl) -> None:
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0
    assert lockctl("inspect", "a").returncode == 0
    done = lockctl("inspect", "b")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lockctl: b is not known in ")
