"""`prune`: names that nobody uses any more are forgotten, and nothing else."""

from __future__ import annotations

import json
import os
import re
import time

import pytest

from tests.jobs import eventually

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
MONTH = 30 * 86400  # seconds


def grow_old(locks, *names):
    for name in names:
        for word in ("", ".history.", ".success."):
            if (locks / f"{word}{name}").exists():
                os.utime(locks / f"{word}{name}", (time.time() - MONTH,) * 2)


def test_what_is_old_is_forgotten_and_said_with_its_last_use(lockctl, locks):
    for name in ("build-1", "build-2", "build-3", "nightly"):
        assert lockctl("run", "-l", name, "--once-per", "1h", "--", "true").returncode == 0
    grow_old(locks, "build-1", "build-2", "nightly")
    done = lockctl("prune", "build-*", "--older-than", "7d", "--dry-run")
    assert done.returncode == 0
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["NAME", "LAST", "USED"]
    assert [line.split()[0] for line in lines] == ["build-1", "build-2"]
    assert all(re.fullmatch(MOMENT, line.split()[1]) for line in lines)
    assert "2 unused" in done.stderr
    done = lockctl("prune", "build-*", "--older-than", "7d")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [heading, *lines]
    assert "2 forgotten" in done.stderr
    assert {file.name for file in locks.iterdir() if "build-1" in file.name or "build-2" in file.name} == set()
    assert {".history.build-3", ".success.build-3", "build-3", "nightly"} <= {file.name for file in locks.iterdir()}
    done = lockctl("prune", "build-*", "--older-than", "7d")
    assert (done.returncode, done.stdout) == (0, "")


def test_json_has_every_name_and_whether_it_was_forgotten(lockctl, locks):
    assert json.loads(lockctl("prune", "--older-than", "0", "--json").stdout) == []
    lockctl("run", "-l", "a", "--", "true")
    lockctl("run", "-l", "b", "--", "true")
    grow_old(locks, "a", "b")
    with (locks / "b").open("rb"):  # as a program that is about to lock it
        done = lockctl("prune", "--older-than", "1d", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [list(each) for each in document] == [["name", "last_used", "forgotten"]] * 2
    assert [(each["name"], each["forgotten"]) for each in document] == [("a", True), ("b", False)]
    assert all(re.fullmatch(MOMENT, each["last_used"]) for each in document)
    assert "1 forgotten, 1 kept" in done.stderr
    assert (locks / "b").exists()


def test_a_lock_that_is_held_is_not_forgotten(lockctl, locks):
    holder = lockctl.start_holding("a", "--", "sleep", "60")
    grow_old(locks, "a")
    assert lockctl("prune", "--older-than", "1d").stdout == ""
    assert (locks / "a").exists()
    assert holder.poll() is None
    eventually(lambda: lockctl("run", "-n", "-l", "a", "--", "true").returncode == 75)


def test_the_token_of_a_forgotten_name_rises(lockctl, locks):
    def token():
        return int(lockctl("run", "-l", "a", "--", "sh", "-c", "echo $LOCKCTL_TOKEN").stdout)

    first = token()
    grow_old(locks, "a")
    assert "1 forgotten" in lockctl("prune", "--older-than", "1d").stderr
    assert token() > first


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 64, "--older-than"),
        (["--older-than", "soon"], 64, "--older-than"),
        (["--older-than", "1d", "-b", "redis://127.0.0.1:1/"], 69, "redis"),
        (["--older-than", "1d", "-b", "nonsense://x"], 78, "nonsense"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(lockctl, words, status, said):
    done = lockctl("prune", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
