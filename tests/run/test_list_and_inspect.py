"""`list` and `inspect`: what an operator and a program see."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import struct
import termios

import pytest

from tests.jobs import eventually

LOCK_KEYS = ["name", "backend", "key", "state", "fencing", "slots", "holders", "waiters", "last_run"]
HOLDER_KEYS = ["owner", "host", "pid", "user", "command", "token", "mode", "acquired_at", "expires_in", "ended_at"]
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
    document = inspected(lockctl, "a")
    last_run = document.pop("last_run")
    assert (last_run["command"], last_run["outcome"]) == (["true"], "exited") if used else last_run is None
    assert document == {
        "name": "a",
        "backend": "file",
        "key": f"{locks}/a",
        "state": "free",
        "fencing": "strict",
        "slots": 1,
        "holders": [],
        "waiters": [],
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


@pytest.fixture
def on_terminal(lockctl):
    """What `lockctl` prints on a terminal; it must succeed."""

    def run(*words, columns=120, **env):
        leader, follower = os.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = lockctl.start(*words, stdout=follower, stderr=follower, env={"TERM": "xterm-256color", **env})
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # the last program has closed it
            while data := os.read(leader, 65536):
                shown += data
        os.close(leader)
        assert process.wait(timeout=10) == 0, shown
        return shown.decode().replace("\r\n", "\n")

    return run


def without_colours(text):
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def test_on_a_terminal_the_table_names_waiters_in_their_order(lockctl, locks, on_terminal):
    lockctl.start_holding("a", env={"LOGNAME": "ada"})
    pids = []
    for number in (1, 2, 3, 4):
        pids.append(lockctl.start("run", "-l", "a", "-w", "forever", "--", "true").pid)
        eventually(waiting(lockctl, number))
    lockctl("run", "-l", "b", "--", "true")
    with (locks / "c").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = on_terminal("list", columns=300)
        assert re.search(r"\x1b\[[0-9;]*33m *foreign", shown)
        heading, first, second, third = without_colours(shown)
        assert heading.split() == ["NAME", "STATE", "HOLDER", "TOKEN", "AGE", "EXPIRES", "WAITERS"]
        queue = ", ".join(rf"\S+ pid {pid} \(\S+\)" for pid in pids[:3])
        assert re.fullmatch(rf"a +held +\S+ pid \d+ \(ada\) +\d+ +\d+s +- +4: {queue}, \.\.\.", first)
        assert re.fullmatch("b +free +- +- +- +- +0", second)
        assert re.fullmatch(rf"c +foreign +\S+ pid {os.getpid()}\D.*", third)
    inspected_ = without_colours(on_terminal("inspect", "a", columns=200))
    plain = lockctl("inspect", "a").stdout.splitlines()
    facts = [line for line in plain if not line.startswith(("waiter", "since:"))]
    assert [
        " ".join(line.split()) for line in inspected_ if re.match("[a-z]", line) and not line.startswith("since ")
    ] == [" ".join(line.replace(":", " ", 1).split()) for line in facts]
    assert re.fullmatch(
        "\n".join(rf"{number} +\S+ pid {pid} \(\S+\) +{MOMENT} +\d+s" for number, pid in enumerate(pids, 1)),
        "\n".join(line for line in inspected_ if re.match(r"\d", line)),
    )


def test_a_narrow_terminal_leaves_nothing_out(lockctl, on_terminal):
    name = "a-rather-long-name-of-a-lock." * 4
    lockctl("run", "-l", name, "--", "true")
    lines = without_colours(on_terminal("list", columns=60))
    assert max(map(len, lines)) <= 60
    assert "".join(line.split(" ")[0] for line in lines[1:]) == name
    assert on_terminal("list", columns=1)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_without_colours_shows_what_a_pipe_gets(lockctl, on_terminal, env):
    lockctl("run", "-l", "a", "--", "true")
    assert on_terminal("list", **env) == lockctl("list").stdout
    assert on_terminal("inspect", "a", **env) == lockctl("inspect", "a").stdout


def test_a_very_long_table_is_plain_on_a_terminal_too(lockctl, locks, on_terminal):
    for number in range(501):
        (locks / f"lock-{number:03}").touch()
    assert on_terminal("list") == lockctl("list").stdout
    (locks / "lock-000").unlink()
    assert "\x1b[" in on_terminal("list")
    assert on_terminal("list", "--json") == lockctl("list", "--json").stdout


def test_rich_is_loaded_only_for_a_terminal(lockctl, on_terminal):
    lockctl("run", "-l", "a", "--", "true")
    tracing = {"PYTHONPROFILEIMPORTTIME": "1"}
    for words in (["list"], ["inspect", "a"], ["list", "--json"], ["backends"]):
        loaded = lockctl(*words, env=tracing).stderr
        assert " click" in loaded
        assert " rich" not in loaded
    assert " rich" in on_terminal("list", **tracing)
    assert " rich" not in on_terminal("list", NO_COLOR="1", **tracing)


def test_what_strangers_wrote_is_no_markup_on_a_terminal(on_terminal, redis_server):
    prefix, owner, host = f"l{os.urandom(6).hex()}:", "0" * 32, "[bold red]x[/] :smile: \x1b[2J[/nothing]"
    document = {"owner": owner, "host": host, "user": "u", "pid": 1, "mode": "exclusive", "ttl": 5.0, "command": [host]}
    redis_server.ask("SET", f"{prefix}a", f"{owner}|7|{json.dumps(document)}", "PX", 60000)
    place = f"--backend={redis_server.url}/0?prefix={prefix}"
    for words in (["list"], ["inspect", "a"]):
        shown = on_terminal(*words, place, columns=200)
        assert "[bold red]x[/] :smile: \ufffd[2J[/nothing] pid 1 (u)" in "".join(without_colours(shown))
        assert "\x1b[2J" not in shown


def test_an_encoding_without_the_character_is_no_bug(lockctl, redis_server):
    prefix, owner = f"l{os.urandom(6).hex()}:", "0" * 32
    document = {
        "owner": owner,
        "host": "h\u00f6st",
        "user": "u",
        "pid": 1,
        "mode": "exclusive",
        "ttl": 5.0,
        "command": ["c"],
    }
    redis_server.ask("SET", f"{prefix}a", f"{owner}|7|{json.dumps(document)}", "PX", 60000)
    done = lockctl("list", f"--backend={redis_server.url}/0?prefix={prefix}", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "h?st pid 1" in done.stdout


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["inspect", "a"], ["backends"]])
def test_data_that_cannot_be_written_is_an_error(lockctl, words):
    lockctl("run", "-l", "a", "--", "true")
    with open("/dev/full", "w") as full:
        done = lockctl(*words, stdout=full)
    assert (done.returncode, done.stderr) == (69, "lockctl: cannot write to stdout: No space left on device\n")
    script = 'LOCKCTL_BACKEND=$0 exec "$@" >&-'
    closed = lockctl("run", "-l", "b", "--", "sh", "-c", script, lockctl.url, lockctl.command, *words)
    assert closed.returncode == 64
    assert closed.stderr == "lockctl: there is no stdout to write to: it was closed before lockctl started\n"
