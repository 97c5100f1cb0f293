"""`list` and `inspect`: what an operator and a program see."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import struct
import subprocess
import termios

import pytest
import yaml

from tests.fleet.hosts import inspect
from tests.jobs import eventually

LOCK_KEYS = ["name", "backend", "key", "state", "fencing", "slots", "holders", "waiters", "last_run"]
HOLDER_KEYS = ["owner", "host", "pid", "user", "command", "token", "mode", "acquired_at", "expires_in", "ended_at"]
HOLDER_KEYS.append("labels")
WAITER_KEYS = ["host", "pid", "user", "since"]
HEADING = ["NAME", "STATE", "HOLDER", "TOKEN", "AGE", "EXPIRES", "WAITERS", "COMMAND"]
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def inspected(lockctl, name, status=0):
    done = lockctl("inspect", name, "--json")
    assert (done.returncode, done.stderr == "") == (status, status == 0)
    document = json.loads(done.stdout)
    assert list(document) == LOCK_KEYS
    return document


def waiting(lockctl, count):
    return lambda: len(inspect(lockctl, "a")["waiters"]) == count


@pytest.mark.parametrize("used", [False, True])
def test_a_free_lock(lockctl, locks, used):
    if used:
        lockctl("run", "-l", "a", "--", "true")
    document = inspected(lockctl, "a", status=0 if used else 1)
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


def test_list_shows_what_is_held_and_with_all_the_rest_in_the_order_of_their_names(lockctl):
    nothing = lockctl("list")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == f"lockctl: no lock in {lockctl.url}\n"
    assert json.loads(lockctl("list", "--json").stdout) == []
    lockctl("run", "-l", "b", "--", "true")
    holder = lockctl.start_holding("a", env={"LOGNAME": "ada"})
    documents = json.loads(lockctl("list", "--all", "--json").stdout)
    assert [list(document) for document in documents] == [LOCK_KEYS, LOCK_KEYS]
    assert [(document["name"], document["state"]) for document in documents] == [("a", "held"), ("b", "free")]
    assert documents[0] == inspected(lockctl, "a")
    assert json.loads(lockctl("list", "-o", "json").stdout) == documents[:1]
    done = lockctl("list")
    assert done.stderr == f"lockctl: 1 lock in {lockctl.url}, 1 more not shown (--all shows them)\n"
    heading, first = done.stdout.splitlines()
    assert heading.split("\t") == HEADING
    name, state, place, token, age, *rest = first.split("\t")
    assert (name, state, place) == ("a", "held", f"{os.uname().nodename} pid {holder.pid} (ada)")
    assert int(token) == documents[0]["holders"][0]["token"]
    assert re.fullmatch(r"\d+s", age)
    assert rest[:2] == ["-", "0"]
    assert rest[2].endswith("sleep 60")
    assert lockctl("list", "--all").stdout.splitlines()[2].split("\t") == ["b", "free", *"-----"[:4], "0", "-"]


def test_list_takes_a_pattern_states_an_order_and_a_form(lockctl):
    for name in ("nightly", "night-2", "daily"):
        lockctl("run", "-l", name, "--", "true")
    lockctl.start_holding("night-3")

    def names(*words):
        return lockctl("list", *words, "-o", "name").stdout.split()

    assert names("night*") == ["night-3"]
    assert names("night*", "--all") == ["night-2", "night-3", "nightly"]
    assert names("--state", "free") == ["daily", "night-2", "nightly"]
    assert names("--state", "free,held", "--sort", "state") == ["night-3", "daily", "night-2", "nightly"]
    assert names("nothing*", "--all") == []
    assert yaml.safe_load(lockctl("list", "-o", "yaml").stdout) == json.loads(lockctl("list", "--json").stdout)
    for words in (["-o", "xml"], ["--state", "busy"], ["--sort", "size"]):
        done = lockctl("list", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
        assert f"{words[1]!r} is none of: " in done.stderr


@pytest.mark.parametrize(
    "words", [["list", "--all"], ["inspect", "a"], ["history", "a"], ["backends"]], ids=lambda words: words[0]
)
def test_into_a_pipe_nothing_is_loaded_that_draws_on_terminals(lockctl, words):
    lockctl("run", "-l", "a", "--", "true")
    done = lockctl(*words, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert (done.returncode, bool(done.stdout)) == (0, True)
    assert "lockctl.cli.screen" in done.stderr
    assert "rich.console" not in done.stderr


def test_list_passes_over_what_is_no_lock(lockctl, locks):
    lockctl("run", "-l", "a", "--", "true")
    (locks / "directory").mkdir()
    os.mkfifo(locks / "pipe")
    (locks / "link").symlink_to(locks / "a")
    (locks / "bad name\x1b[31m").write_text("")
    done = lockctl("list", "--all", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [document["name"] for document in json.loads(done.stdout)] == ["a"]


def test_looking_does_not_disturb_a_lock(lockctl):
    """A run that comes at the very moment of a look must not be told that the lock is held."""
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0  # the first look knows the lock, however early
    for _ in range(5):
        look = lockctl.start("inspect", "a")
        assert lockctl("run", "-l", "a", "--", "true").returncode == 0
        assert look.wait(timeout=10) == 0


def test_a_prefix_keeps_locks_apart(lockctl, locks):
    place = f"--backend={lockctl.url}?prefix=site-"
    lockctl("run", "-l", "a", "--", "true")
    assert lockctl("run", "-l", "a", place, "--", lockctl.command, "list", place).stdout.splitlines()[1].split("\t")[
        :2
    ] == ["a", "held"]
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


def test_on_a_terminal_the_table_is_aligned_and_in_colours_and_wide_names_all(lockctl, locks, on_terminal):
    lockctl.start_holding("a", env={"LOGNAME": "ada"})
    pids = []
    for number in (1, 2):
        pids.append(lockctl.start("run", "-l", "a", "-w", "forever", "--", "true").pid)
        eventually(waiting(lockctl, number))
    lockctl("run", "-l", "b", "--", "true")
    with (locks / "c").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = on_terminal("list", "--all", columns=200)
        assert re.search(r"\x1b\[[0-9;]*33m *foreign", shown)
        heading, first, second, third, said = without_colours(shown)
        assert heading.split() == HEADING
        assert re.fullmatch(r"a +held +\S+ pid \d+ \(ada\) +\d+ +\d+s +- +2 +\S.*", first)
        assert re.fullmatch("b +free +- +- +- +- +0 +-", second)
        assert re.fullmatch(rf"c +foreign +\S+ pid {os.getpid()}\D.*", third)
        assert {line.index(word) for line, word in ((heading, "STATE"), (first, "held"), (third, "foreign"))} == {6}
        assert said == f"lockctl: 3 locks in {lockctl.url}"
        wide = without_colours(on_terminal("list", "-o", "wide", columns=60))
        assert ", ".join(f"{os.uname().nodename} pid {pid}" for pid in pids) in wide[1].replace(" (root)", "")
    assert wide[1].split()[-2:] == [f"{locks}/a", "-"]
    for shown in (on_terminal("inspect", "a", columns=200), lockctl("inspect", "a").stdout):
        queue = "\n".join(line for line in without_colours(shown) if line.startswith("waiter"))
        one = r"waiter \d: +\S+ pid %d \(\S+\), since " + MOMENT + r" \(\d+s\)"
        assert re.fullmatch("\n".join(one % pid for pid in pids), queue)


def test_a_narrow_terminal_leaves_no_name_out(lockctl, on_terminal):
    name = "a-rather-long-name-of-a-lock." * 4
    lockctl.start_holding(name)
    heading, alone, rest, *_ = without_colours(on_terminal("list", columns=60))
    assert max(len(heading), len(rest)) <= 60
    assert alone == name
    assert rest.split()[0] == "held"
    assert on_terminal("list", columns=1)
    facts = without_colours(on_terminal("inspect", name, columns=60))
    assert max(map(len, facts)) <= 60
    assert name in "".join(line.strip() for line in facts)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_without_colours_shows_the_same_table_without_them(lockctl, on_terminal, env):
    lockctl("run", "-l", "a", "--", "true")
    for words in (["list", "--all"], ["inspect", "a"]):
        assert on_terminal(*words, **env).splitlines() == without_colours(on_terminal(*words))


def test_rich_is_not_loaded_for_programs(lockctl):
    lockctl("run", "-l", "a", "--", "true")
    tracing = {"PYTHONPROFILEIMPORTTIME": "1"}
    for words in (
        ["list", "--json"],
        ["list", "-o", "name"],
        ["inspect", "a", "--json"],
        ["history", "a", "-o", "yaml"],
    ):
        loaded = lockctl(*words, env=tracing).stderr
        assert " click" in loaded
        assert " rich" not in loaded
    assert " rich" in lockctl("list", "--all", env=tracing).stderr


def test_a_name_that_nothing_ever_used_is_not_known(lockctl):
    lockctl("run", "-l", "nightly", "--", "true")
    said = f"lockctl: nigthly is not known in {lockctl.url}: nothing ever used this name there\n"
    for words in (["inspect"], ["history"], ["inspect", "-o", "name"], ["history", "-o", "wide"]):
        done = lockctl(*words, "nigthly")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
        assert lockctl(*words, "nightly").returncode == 0
    assert lockctl("history", "nigthly", "--json").stdout == "[]\n"
    done = lockctl("force-release", "nigthly", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", said)


def test_every_profile_is_looked_at_if_that_is_wanted(lockctl, locks):
    here, there, gone = (locks / name for name in ("here", "there", "gone"))
    here.mkdir()
    there.mkdir()
    config = locks / "config.toml"
    config.write_text(
        f'[defaults]\nbackend = "here"\n[backends.here]\nurl = "file://{here}"\n[backends.there]\nurl = "file://{there}"\n'
    )
    place = {"LOCKCTL_CONFIG": str(config), "LOCKCTL_BACKEND": ""}
    lockctl.start_holding("a", "-b", f"file://{here}")
    lockctl.start_holding("b", "-b", f"file://{there}")
    assert lockctl("list", "-o", "name", env=place).stdout == "a\n"
    done = lockctl("list", "--all-backends", env=place)
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["BACKEND", "NAME"],
        ["here", "a"],
        ["there", "b"],
    ]
    assert done.stderr == f"lockctl: 2 locks in here (file://{here}), there (file://{there})\n"
    found = json.loads(lockctl("list", "--all-backends", "--json", env=place).stdout)
    assert [(each["name"], each["profile"]) for each in found] == [("a", "here"), ("b", "there")]
    assert f"there (file://{there})" in lockctl("inspect", "--all-backends", "b", env=place).stdout
    with config.open("a") as file:
        file.write(f'[backends.gone]\nurl = "redis+unix://{gone}"\n')
    done = lockctl("list", "--all-backends", "-o", "name", env=place)
    assert (done.returncode, done.stdout.split()) == (69, ["a", "b"])
    assert done.stderr.startswith("lockctl: gone: redis at ")


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
    assert done.returncode == 0
    assert "h?st pid 1" in done.stdout


@pytest.mark.parametrize("words", [["list", "-a"], ["list", "--json"], ["inspect", "a"], ["backends"]])
def test_data_that_cannot_be_written_is_an_error(lockctl, words):
    lockctl("run", "-l", "a", "--", "true")
    with open("/dev/full", "w") as full:
        done = lockctl(*words, stdout=full)
    assert (done.returncode, done.stderr) == (69, "lockctl: cannot write to stdout: No space left on device\n")
    script = 'LOCKCTL_BACKEND=$0 exec "$@" >&-'
    closed = lockctl("run", "-l", "b", "--", "sh", "-c", script, lockctl.url, lockctl.command, *words)
    assert closed.returncode == 64
    assert closed.stderr == "lockctl: there is no stdout to write to: it was closed before lockctl started\n"


@pytest.mark.parametrize(
    "words",
    [
        ["force-release", "a", "--yes", "--json"],
        ["prune", "--older-than", "0s"],
        ["prune", "--older-than=0s", "--json"],
    ],
)
def test_nothing_is_done_that_could_not_be_told(lockctl, words):
    lockctl("run", "-l", "b", "--", "true")
    lockctl.start_holding("a")
    environment = lockctl.environment({"LOCKCTL_BACKEND": lockctl.url})
    script = 'exec "$@" >&-'
    done = subprocess.run(["sh", "-c", script, "sh", lockctl.command, *words], env=environment, check=False)
    assert done.returncode == 64
    assert json.loads(lockctl("inspect", "a", "--json").stdout)["state"] == "held"
    assert lockctl("history", "b").returncode == 0
