"""`list` and `inspect`: what an operator and a program see."""

from __future__ import annotations

import fcntl
import json
import os
import re

import pytest

from tests.jobs import eventually

LOCK_KEYS = ["name", "backend", "key", "state", "fencing", "slots", "holders", "waiters", "last_run"]
HOLDER_KEYS = ["owner", "host", "pid", "user", "command", "token", "mode", "acquired_at", "expires_in"]
WAITER_KEYS = ["host", "pid", "user", "since"]
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def inspected(lockctl, name):
    done = lockctl("inspect", name, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert list(document) == LOCK_KEYS
    return document


def waiting(lockctl, count):
    return lambda: len(inspected(lockctl, "a")["waiters"]) == count


@pytest.mark.parametrize("used", [False, True])
def test_a_free_lock(lockctl, locks, used):
    if used:
        lockctl("run", "-l", "a", "--", "true")
    assert inspected(lockctl, "a") == {
        "name": "a",
        "backend": "file",
        "key": f"{locks}/a",
        "state": "free",
        "fencing": "strict",
        "slots": 1,
        "holders": [],
        "waiters": [],
        "last_run": None,
    }


def test_a_held_lock_with_waiters_in_their_order(lockctl):
    words = ["sh", "-c", "sleep 60 # with 'quotes'"]
    holder = lockctl.start_holding("a", "--", *words, env={"LOGNAME": "ada"})
    pids = []
    for number in (1, 2):
        pids.append(lockctl.start("run", "-l", "a", "-w", "forever", "--", "true").pid)
        eventually(waiting(lockctl, number))
    document = inspected(lockctl, "a")
    assert document["state"] == "held"
    (seen,) = document["holders"]
    assert list(seen) == HOLDER_KEYS
    assert re.fullmatch("[0-9a-f]{32}", seen["owner"])
    assert (seen["host"], seen["pid"], seen["user"]) == (os.uname().nodename, holder.pid, "ada")
    assert seen["command"][-3:] == words
    assert seen["token"] > 0
    assert seen["mode"] == "exclusive"
    assert re.fullmatch(MOMENT, seen["acquired_at"])
    assert seen["expires_in"] is None
    assert [waiter["pid"] for waiter in document["waiters"]] == pids
    for waiter in document["waiters"]:
        assert list(waiter) == WAITER_KEYS
        assert waiter["host"] == os.uname().nodename
        assert waiter["user"]
        assert re.fullmatch(MOMENT, waiter["since"])


def test_inspect_for_people_says_the_same(lockctl, locks):
    holder = lockctl.start_holding("a", env={"LOGNAME": "ada"})
    document = inspected(lockctl, "a")
    done = lockctl("inspect", "a")
    lines = dict(re.split(r":\s+", line, maxsplit=1) for line in done.stdout.splitlines())
    assert lines["name"] == "a"
    assert lines["state"] == "held"
    assert lines["key"] == f"{locks}/a"
    assert lines["holder"] == f"{os.uname().nodename} pid {holder.pid} (ada)"
    assert lines["token"] == str(document["holders"][0]["token"])
    assert lines["owner"] == document["holders"][0]["owner"]
    assert re.fullmatch(rf"{MOMENT} \(\d+s\)", lines["since"])
    assert lines["command"].endswith("sleep 60")


def test_another_programs_lock_is_foreign(lockctl, locks):
    with (locks / "a").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        document = inspected(lockctl, "a")
        assert document["state"] == "foreign"
        (seen,) = document["holders"]
        assert list(seen) == HOLDER_KEYS
        assert (seen["owner"], seen["token"], seen["acquired_at"]) == (None, None, None)
        assert seen["pid"] == os.getpid()
        done = lockctl("run", "-l", "a", "--", "true")
        assert done.returncode == 75
        assert "held by another program" in done.stderr
        assert f"pid {os.getpid()}" in done.stderr


def test_list_shows_all_locks_in_the_order_of_their_names(lockctl):
    assert lockctl("list").stdout == ""
    assert json.loads(lockctl("list", "--json").stdout) == []
    lockctl("run", "-l", "b", "--", "true")
    holder = lockctl.start_holding("a", env={"LOGNAME": "ada"})
    documents = json.loads(lockctl("list", "--json").stdout)
    assert [list(document) for document in documents] == [LOCK_KEYS, LOCK_KEYS]
    assert [(document["name"], document["state"]) for document in documents] == [("a", "held"), ("b", "free")]
    assert documents[0] == inspected(lockctl, "a")
    heading, first, second = lockctl("list").stdout.splitlines()
    assert heading.split() == ["NAME", "STATE", "HOLDER", "TOKEN", "AGE", "EXPIRES", "WAITERS"]
    token = documents[0]["holders"][0]["token"]
    place = re.escape(f"{os.uname().nodename} pid {holder.pid} (ada)")
    assert re.fullmatch(rf"a\s+held\s+{place}\s+{token}\s+\d+s\s+-\s+0", first)
    assert re.fullmatch(r"b\s+free\s+-\s+-\s+-\s+-\s+0", second)


def test_list_takes_a_pattern(lockctl):
    for name in ("nightly", "night-2", "daily"):
        lockctl("run", "-l", name, "--", "true")
    documents = json.loads(lockctl("list", "night*", "--json").stdout)
    assert [document["name"] for document in documents] == ["night-2", "nightly"]
    assert json.loads(lockctl("list", "nothing*", "--json").stdout) == []


def test_list_passes_over_what_is_no_lock(lockctl, locks):
    lockctl("run", "-l", "a", "--", "true")
    (locks / "directory").mkdir()
    os.mkfifo(locks / "pipe")
    (locks / "link").symlink_to(locks / "a")
    (locks / "bad name\x1b[31m").write_text("")
    done = lockctl("list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [document["name"] for document in json.loads(done.stdout)] == ["a"]


def test_looking_does_not_disturb_a_lock(lockctl):
    """A run that comes at the very moment of a look must not be told that the lock is held."""
    for _ in range(5):
        look = lockctl.start("inspect", "a")
        assert lockctl("run", "-l", "a", "--", "true").returncode == 0
        assert look.wait(timeout=10) == 0


def test_a_prefix_keeps_locks_apart(lockctl, locks):
    place = f"--backend={lockctl.url}?prefix=site-"
    lockctl("run", "-l", "a", "--", "true")
    assert lockctl("run", "-l", "a", place, "--", lockctl.command, "list", place).stdout.split()[7:9] == ["a", "held"]
    assert json.loads(lockctl("inspect", "a", place, "--json").stdout)["key"] == f"{locks}/site-a"
