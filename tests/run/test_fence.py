"""`run --fence` and `fence exec`: what is let in, what is kept out, and what a command that is let in can outlive."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

from lockctl.fence import Mark, locate, sql
from tests.fleet.hosts import inspect
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.mounts import FULL_DISK, READ_ONLY

DOMAIN = "test:1"
OWN = {"LOCKCTL_TOKEN": "33", "LOCKCTL_TOKEN_DOMAIN": DOMAIN}


@pytest.fixture
def stock(locks):
    path = locks / ".stock"
    path.write_text("old\n")
    return path


def current(path):
    location = locate(str(path))
    return location.store.current(location.resource, timeout=LIMIT)


def put(path, mark):
    location = locate(str(path))
    location.store.reset(location.resource, mark, timeout=LIMIT)


def kept(path):
    """Whether nobody can advance the mark now."""
    with open(f"{path}.fence", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def free(lockctl, name="a"):
    return inspect(lockctl, name)["state"] == "free"


# run --fence


def test_the_token_is_shown_before_the_command_starts(lockctl, stock):
    script = f'cat {stock}.fence; echo "$LOCKCTL_TOKEN_DOMAIN;$LOCKCTL_TOKEN"'
    done = lockctl("run", "-l", "a", "--fence", str(stock), "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.split()[-1]
    assert done.stdout.count(shown) == 3, "in both slots, and in the environment"
    assert str(current(stock)) == shown


def test_of_two_holders_the_one_before_cannot_write_any_more(lockctl, stock):
    first = lockctl("run", "-l", "a", "--fence", str(stock), "--", "env").stdout
    old = dict(line.split("=", 1) for line in first.splitlines() if line.startswith("LOCKCTL_TOKEN"))
    second = f"echo new | {lockctl.command} fence write {stock} && {lockctl.command} fence check {stock}"
    assert lockctl("run", "-l", "a", "--fence", str(stock), "-c", "--", second).returncode == 0
    assert stock.read_text() == "new\n"
    for verb in ("check", "write", "advance"):
        assert lockctl("fence", verb, str(stock), env=old).returncode == 77
    assert lockctl("fence", "exec", str(stock), "--", "rm", str(stock), env=old).returncode == 77
    assert stock.read_text() == "new\n"


def test_a_resource_that_has_seen_a_newer_token_keeps_the_command_from_starting(refused, lockctl, stock, locks):
    domain = lockctl("run", "-l", "a", "--", "sh", "-c", "echo $LOCKCTL_TOKEN_DOMAIN").stdout.strip()
    put(stock, Mark(domain, 2**62))
    report = locks / ".report"
    said = refused(77, "-l", "a", "--fence", str(stock), "--report", str(report))
    assert said.startswith(f"lockctl: a: nothing was started: {stock} refuses token")
    document = json.loads(report.read_text())
    assert (document["outcome"], document["exit_code"], document["started_at"]) == ("not_executed", None, None)
    assert document["token"] > 0
    assert str(2**62) in document["detail"]
    assert free(lockctl)
    last = json.loads(lockctl("history", "a", "--json").stdout)[0]
    assert (last["outcome"], last["token"]) == ("not_executed", document["token"])
    assert str(2**62) in last["detail"]
    assert current(stock) == Mark(domain, 2**62)


def test_another_domain_keeps_it_out_until_a_reset(refused, lockctl, stock):
    put(stock, Mark("etcd:1", 5))
    assert "lockctl fence reset" in refused(77, "-l", "a", "--fence", str(stock))
    assert lockctl("fence", "reset", str(stock), "--yes").returncode == 0
    assert lockctl("run", "-l", "a", "--fence", str(stock), "--", "true").returncode == 0


def test_a_mark_that_cannot_be_written_keeps_it_out_and_frees_the_lock(refused, lockctl, stock):
    for content in ("damaged", None):
        if content is None:
            os.unlink(f"{stock}.fence")
            os.mkfifo(f"{stock}.fence")
        else:
            (stock.parent / ".stock.fence").write_text(content)
        said = refused(78, "-l", "a", "--fence", str(stock))
        assert "nothing was started" in said
        assert free(lockctl)


def test_a_mark_that_somebody_holds_is_waited_for_and_then_keeps_it_out(refused, lockctl, stock):
    put(stock, Mark("x", 1))
    os.unlink(f"{stock}.fence")
    lockctl("run", "-l", "a", "--fence", str(stock), "--", "true")
    with open(f"{stock}.fence", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = time.monotonic()
        assert "held by another program" in refused(69, "-l", "a", "--ttl", "4s", "--fence", str(stock))
        assert time.monotonic() - before < 10
        assert free(lockctl)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_mark_at_once(lockctl, stock, locks, signum):
    lockctl("run", "-l", "a", "--fence", str(stock), "--", "true")
    with open(f"{stock}.fence", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = lockctl.start("run", "-l", "a", "--fence", str(stock), "--", "touch", str(locks / ".ran"))
        eventually(lambda: not free(lockctl))
        run.send_signal(signal.SIGWINCH)
        time.sleep(0.1)
        before = time.monotonic()
        run.send_signal(signum)
        assert run.wait(timeout=LIMIT) == 128 + signum
        assert time.monotonic() - before < 8
    assert not (locks / ".ran").exists()
    assert free(lockctl)


@pytest.mark.parametrize(
    ("resource", "status", "said"),
    [
        ("banana://x", 78, "no store of marks"),
        ("file://host/x", 78, "three slashes"),
        ("sqlite:///a.db?table=a%20b", 78, "not a name for a table"),
        ("", 64, "empty"),
    ],
)
def test_words_that_are_no_resource_are_refused_before_the_lock_is_taken(refused, locks, resource, status, said):
    assert said in refused(status, "-l", "a", "--fence", resource)
    assert not (locks / "a").exists()


@pytest.mark.parametrize("other", [["--on-unavailable", "run"], ["--shared"], ["--slots", "2"]])
def test_what_contradicts_it_is_wrong_usage(refused, stock, other):
    assert "--fence" in refused(64, "-l", "a", "--fence", str(stock), *other)
    assert not os.path.exists(f"{stock}.fence")


def test_it_can_be_a_variable_or_a_key_and_its_password_is_not_for_the_command(lockctl, stock, locks):
    assert lockctl("run", "-l", "a", "--", "true", env={"LOCKCTL_FENCE": str(stock)}).returncode == 0
    first = current(stock)
    config = locks / ".config.toml"
    config.write_text(f'[locks."a"]\nfence = "{stock}"\n')
    assert lockctl("run", "--config", str(config), "-l", "a", "--", "true").returncode == 0
    assert current(stock).token > first.token
    env = {"LOCKCTL_FENCE": "redis://:s3cret@127.0.0.1:1/0?resource=x"}
    shown = lockctl("config", "show", env=env)
    assert "redis://127.0.0.1:1/0" in shown.stdout
    done = lockctl("run", "-v", "-l", "b", "--", "true", env=env)
    assert done.returncode == 69
    assert "s3cret" not in shown.stdout + shown.stderr + done.stderr
    inner = lockctl("run", "-l", "b", "--fence", str(stock), "--", "env", env=env).stdout
    assert "LOCKCTL_TOKEN=" in inner
    assert "s3cret" not in inner


def test_who_may_write_to_a_resource_and_not_read_it_can_advance_its_mark(lockctl, without_rights, stock):
    stock.chmod(0o200)
    for words in (["advance", str(stock)], ["exec", str(stock), "--", "true"], ["write", str(stock)]):
        done = without_rights(lockctl.command, "fence", *words, env=OWN, input="new\n")
        assert (done.returncode, done.stderr) == (0, ""), words
    assert stock.stat().st_mode & 0o777 == 0o200
    stock.chmod(0o600)
    assert stock.read_text() == "new\n"
    report = stock.parent / ".report"
    report.write_text("old\n")
    report.chmod(0o200)
    words = [
        "run",
        "-vq",
        "-l",
        "a",
        "--report",
        str(report),
        "--",
        "true",
    ]  # click reads options of one letter together
    assert without_rights(lockctl.command, *words).returncode == 0
    report.chmod(0o600)
    assert json.loads(report.read_text())["outcome"] == "exited"


@pytest.mark.parametrize(
    ("resource", "of_file"),
    [
        ("foo://x", True),
        ("redis://h:99999/", False),
        ("redis://h/?bogus=1", True),
        ("sqlite:x", False),
        ("sqlite:x", True),
        ("/a\x1b/", False),
    ],
)
def test_a_wrong_resource_says_where_it_was_given(refused, lockctl, locks, resource, of_file):
    config = locks / ".config.toml"
    config.write_text(f"[defaults]\nfence = {json.dumps(resource)}\n" if of_file else "")
    env = {} if of_file else {"LOCKCTL_FENCE": resource}
    said = refused(78, "-l", "a", "--config", str(config), env=env)
    assert ("[defaults] fence: " if of_file else "$LOCKCTL_FENCE: ") in said
    acquired = lockctl("acquire", "a", "--for", "5s", "--config", str(config), env=env)
    assert (acquired.returncode, acquired.stderr) == (78, said)


@pytest.fixture
def fenced(stock, locks):
    """A configuration with a resource for each lock."""
    config = locks / ".config.toml"
    config.write_text(f'[defaults]\nfence = "{stock}"\n[locks."strict"]\nguarantee = "correctness"\n')
    return config


def test_a_reader_of_a_lock_with_a_resource_goes_without(lockctl, stock, fenced):
    words = ["run", "--config", str(fenced), "-l", "a"]
    assert lockctl(*words, "--", "true").returncode == 0
    first = current(stock)
    refused = lockctl(*words, "--shared", "--", "true")
    assert (refused.returncode, f"--fence ({fenced} [defaults]) and --shared" in refused.stderr) == (64, True)
    assert "give --fence none" in refused.stderr
    assert lockctl(*words, "--shared", "--fence", "none", "--", "true").returncode == 0
    acquire = ("acquire", "a", "--config", str(fenced), "--for", "30s", "--shared", "--bind-pid", str(os.getpid()))
    handle = lockctl(*acquire, env={"LOCKCTL_FENCE": "none"}).stdout
    assert lockctl("release", "--handle", "-", input=handle).returncode == 0
    assert current(stock) == first
    assert lockctl(*words, "--fence", "./none", "--", "true", cwd=stock.parent).returncode == 0
    assert current(stock.parent / "none")


def test_correctness_does_not_lose_its_resource(lockctl, stock, fenced):
    words = ["run", "--config", str(fenced), "-l", "strict", "--fence", "none"]
    refused = lockctl(*words, "--", "echo", "ran")
    said = "--guarantee correctness is not met: --fence none lets the resource accept earlier holders"
    place = f'({fenced} [locks."strict"] guarantee)'
    assert (refused.returncode, refused.stdout, refused.stderr) == (78, "", f"lockctl: strict: {said} {place}\n")
    assert lockctl(*words, "--guarantee", "efficiency", "--", "true").returncode == 0
    assert not os.path.exists(f"{stock}.fence")


def test_a_resource_of_the_environment_is_not_that_of_nested_runs(lockctl, stock):
    """It belongs to one lock: with the token of another one it would refuse its own holder."""
    inner = shlex.join([lockctl.command, "run", "-b", lockctl.url, "-l", "inner", "--", "true"])
    write = shlex.join([lockctl.command, "fence", "write", str(stock)])
    line = f"env | grep ^LOCKCTL_FENCE=; {inner}; echo new | {write}"
    done = lockctl("run", "-l", "outer", "--", "sh", "-c", line, env={"LOCKCTL_FENCE": str(stock)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stock.read_text() == "new\n"


def test_a_resource_of_the_environment_is_not_for_the_command_of_exec(lockctl, stock):
    done = lockctl("fence", "exec", str(stock), "--", "env", env={**OWN, "LOCKCTL_FENCE": f"{stock}2"})
    assert (done.returncode, "LOCKCTL_TOKEN=" in done.stdout, "LOCKCTL_FENCE=" in done.stdout) == (0, True, False)


def test_it_goes_with_correctness_several_locks_and_once_per(lockctl, stock):
    words = ["run", "-l", "a", "-l", "b", "--guarantee", "correctness", "--once-per", "1h", "--fence", str(stock)]
    done = lockctl(*words, "--", "sh", "-c", 'echo "$LOCKCTL_TOKEN_DOMAIN;$LOCKCTL_TOKEN"')
    assert done.stdout.strip() == str(current(stock))
    seen = current(stock)
    assert lockctl(*words, "--", "true").returncode == 75
    assert current(stock) == seen, "a run that is skipped shows nothing"


def test_a_standby_that_is_refused_tries_again(lockctl, stock, locks):
    domain = lockctl("run", "-l", "a", "--", "sh", "-c", "echo $LOCKCTL_TOKEN_DOMAIN").stdout.strip()
    put(stock, Mark(domain, 2**62))
    err = (locks / ".err").open("w+")
    run = lockctl.start(
        "run", "-v", "-l", "a", "--restart", "--fence", str(stock), "--", "touch", str(locks / ".ran"), stderr=err
    )
    eventually(lambda: "waiting for the lock again" in (locks / ".err").read_text())
    put(stock, None)
    eventually((locks / ".ran").exists)
    run.send_signal(signal.SIGTERM)
    run.wait(timeout=LIMIT)
    err.close()


@pytest.mark.parametrize("name", ["/".join(["d" * 60] * 6), "a\nb", "a\udcffb"], ids=["long", "line", "bytes"])
def test_a_lock_in_a_directory_with_any_name_has_a_token_that_is_taken(lockctl, stock, locks, name):
    directory = locks / ".odd" / name
    directory.mkdir(parents=True)
    lockctl.url = "file://" + quote(os.fsencode(directory))
    done = lockctl("run", "-l", "a", "--fence", str(stock), "--", lockctl.command, "fence", "check", str(stock))
    assert (done.returncode, done.stderr) == (0, "")
    assert current(stock).domain.startswith(f"file:{os.uname().nodename}:{locks}")


def test_a_store_in_a_database_works_the_same(lockctl, refused, locks):
    with contextlib.closing(sqlite3.connect(locks / ".shop.db")) as base:
        base.executescript(sql.text("sqlite"))
    url = f"sqlite://{locks}/.shop.db?resource=stock"
    assert lockctl("run", "-l", "a", "--fence", url, "--", "true").returncode == 0
    assert current(url).token > 0
    put(url, Mark("other", 5))
    refused(77, "-l", "a", "--fence", url)


@pytest.mark.parametrize(("setup", "status", "said"), [(FULL_DISK, 69, "No space left"), (READ_ONLY, 78, "read-only")])
def test_a_disk_without_room_or_rights_is_said(locks, mounted, setup, status, said):
    path = locks / ".mount/stock"
    done = mounted(setup, "fence", "check", str(path), "--token", "5", "--domain", "x")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert said in done.stderr


def test_a_disk_that_becomes_full_loses_neither_the_file_nor_its_mark(locks, mounted, lockctl):
    point = locks / ".mount"
    own = "--token 5 --domain x"
    setup = (
        f"mount -t tmpfs -o size=64k none . && cd $PWD && printf old > stock && {lockctl.command} fence check stock {own}"
        " && { cat /dev/zero > filler 2> /dev/null || true; }"
        f" && {{ {lockctl.command} fence write stock {own} < filler || [ $? = 69 ]; }}"
        f" && [ $(cat stock) = old ] && {lockctl.command} fence check stock --token 6 --domain x && [ $(ls -A | wc -l) = 3 ]"
    )
    done = mounted(setup, "fence", "show", str(point / "stock"))
    assert (done.returncode, done.stdout) == (0, "x;6\n"), done.stderr
    assert "cannot replace" in done.stderr
    assert "No space left" in done.stderr


def test_what_was_replaced_and_may_not_be_on_the_disk_is_said_to_be_replaced(lockctl, stock):
    failing = """
import errno, os, stat
fsync = os.fsync
def fail(number):
    if stat.S_ISDIR(os.fstat(number).st_mode):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    fsync(number)
os.fsync = fail
from lockctl.__main__ import main
main()
"""
    assert lockctl("fence", "check", str(stock), env=OWN).returncode == 0
    words = [sys.executable, "-c", failing, "fence", "write", str(stock)]
    done = subprocess.run(words, input="new\n", env=os.environ | OWN, text=True, capture_output=True, check=False)
    said = f"lockctl: {stock} was replaced, but that may not survive a loss of power: Input/output error\n"
    assert (done.returncode, done.stderr) == (69, said)
    assert stock.read_text() == "new\n"


def test_no_resource_of_several_is_left_without_a_fence(lockctl, locks):
    several = ["--fence", str(locks / ".one"), "--fence", str(locks / ".two")]
    done = lockctl("run", "-l", "a", *several, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (64, "")
    assert "--fence takes one resource" in done.stderr
    assert not list(locks.glob(".*.fence"))


def test_a_file_on_a_file_system_that_became_read_only_is_said_to_be(locks, mounted, lockctl):
    path = locks / ".mount/stock"
    setup = (
        "mount -t tmpfs -o size=64k none . && cd $PWD && printf old > stock"
        f" && {lockctl.command} fence check stock --token 5 --domain x && mount -o remount,ro none ."
    )
    done = mounted(setup, "fence", "write", str(path), "--token", "6", "--domain", "x")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == f"lockctl: cannot replace {path}: the file system is read-only\n"


def test_a_file_that_the_user_may_not_write_is_not_replaced(without_rights, lockctl, locks):
    path = locks / ".readable"
    path.write_text("old")
    path.chmod(0o444)
    done = without_rights(lockctl.command, "fence", "write", str(path), env=OWN)
    assert (done.returncode, done.stderr) == (78, f"lockctl: cannot replace {path}: no permission\n")
    assert path.read_text() == "old"


def test_a_user_without_rights_is_told(without_rights, lockctl, locks):
    closed = locks / ".closed"
    closed.mkdir()
    (closed / "stock").write_text("old")
    closed.chmod(0o500)
    for verb in (["check"], ["write"]):
        done = without_rights(lockctl.command, "fence", *verb, str(closed / "stock"), env=OWN)
        assert (done.returncode, done.stderr.count("\n")) == (78, 1), done.stderr
        assert "no permission" in done.stderr
    closed.chmod(0o700)


# fence exec


def execute(lockctl, stock, *words, **options):
    return lockctl("fence", "exec", str(stock), "--", *words, env=OWN, **options)


@pytest.fixture
def holding(lockctl, stock):
    """Starts a command under the mark, and gives lockctl's process when it runs."""

    def start(*words, resource=None, **options):
        ready = stock.parent / ".ready"
        script = 'touch "$0"; exec "$@"'
        words = ("sh", "-c", script, str(ready), *words)
        process = lockctl.start("fence", "exec", str(resource or stock), "--", *words, env=OWN, **options)
        eventually(ready.exists)
        return process

    return start


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("exit 77", 77), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_status_is_that_of_the_command(lockctl, stock, script, status):
    done = execute(lockctl, stock, "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    assert current(stock) == Mark(DOMAIN, 33)
    assert not kept(stock)


def test_streams_and_token_are_those_of_the_command(lockctl, stock):
    done = lockctl(
        *("fence", "exec", "--token", "40", str(stock), "sh", "-c"),
        *('cat; echo "$LOCKCTL_LOCK $LOCKCTL_TOKEN $LOCKCTL_TOKEN_DOMAIN ${LOCKCTL_PASSWORD-none}" >&2',),
        env={**OWN, "LOCKCTL_LOCK": "outer", "LOCKCTL_PASSWORD": "s3cret"},
        stdin=subprocess.PIPE,
        input=None,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"outer 40 {DOMAIN} none\n")


@pytest.mark.slow
def test_a_guard_that_is_stopped_does_not_keep_the_mark_for_ever(lockctl, stock):
    done = execute(lockctl, stock, "sh", "-c", "kill -STOP $PPID; exec sleep 60")
    assert done.returncode == 128 + signal.SIGKILL
    assert "the guard process did not answer: killing the command" in done.stderr
    assert lockctl("fence", "advance", "--token", "41", str(stock), env=OWN).returncode == 0


@pytest.mark.parametrize("verb", ["run", "exec"])
@pytest.mark.parametrize("outer", [False, True])
def test_no_command_is_given_credentials(lockctl, stock, verb, outer):
    secrets = {
        "LOCKCTL_PASSWORD": "s3cret",
        "LOCKCTL_FENCE": "redis://:s3cret@127.0.0.1:1/0?resource=x",
        "LOCKCTL_BACKEND": "redis://:s3cret@127.0.0.1:1/0",
        "LOCKCTL_STANDBY": "s3cret",
    }
    inside = {"LOCKCTL_OWNER": "me", "LOCKCTL_LOCK": "outer"} if outer else {}
    words = ["run", "-l", "a", "-b", lockctl.url, "--fence"] if verb == "run" else ["fence", "exec"]
    done = lockctl(*words, str(stock), "--", "env", env={**OWN, **secrets, **inside})
    assert done.returncode == 0, done.stderr
    assert "LOCKCTL_TOKEN=" in done.stdout
    assert "s3cret" not in done.stdout
    assert ("LOCKCTL_LOCK=outer" in done.stdout) is (outer and verb == "exec")


@pytest.mark.parametrize(("word", "status"), [("/no/such/command", 127), ("/", 126), ("", 127)])
def test_a_command_that_cannot_run_is_one_line(lockctl, stock, word, status):
    done = execute(lockctl, stock, word)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert not kept(stock)


def test_exec_names_the_processes_that_its_command_left_behind(lockctl, stock):
    done = execute(lockctl, stock, "sh", "-c", "sleep 60 > /dev/null 2>&1 &")
    assert done.returncode == 0
    said = r"lockctl: \S* ?stopped 1 process that the command had left behind: \w+ \(pid \d+\)\n"
    assert re.fullmatch(said, done.stderr)


@pytest.mark.parametrize("words", [[], ["--"], ["--token", "5", "--", "true"]])
def test_exec_without_a_command_is_wrong_usage(lockctl, stock, words):
    done = lockctl("fence", "exec", str(stock), *words, env=OWN)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)


def test_nothing_runs_under_a_stale_token_or_a_mark_that_is_held(lockctl, stock, holding):
    marker = stock.parent / ".ran"
    put(stock, Mark(DOMAIN, 34))
    done = execute(lockctl, stock, "touch", str(marker))
    assert (done.returncode, done.stderr.count("\n")) == (77, 1)
    put(stock, None)
    run = holding("sleep", "60")
    newer = {**OWN, "LOCKCTL_TOKEN": "34"}
    for words in (["check", str(stock)], ["exec", str(stock), "--", "touch", str(marker)], ["write", str(stock)]):
        done = lockctl("fence", words[0], "--timeout", "200ms", *words[1:], env=newer)
        assert (done.returncode, done.stderr.count("\n")) == (69, 1)
        assert "held by another program" in done.stderr
    assert not marker.exists()
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=LIMIT) == 143
    assert lockctl("fence", "check", str(stock), env=newer).returncode == 0


def test_signals_reach_the_command_which_decides(holding, stock):
    out = stock.parent / ".out"
    trapped = stock.parent / ".trapped"
    script = f"trap 'echo usr1 >> {out}' USR1; trap 'echo term >> {out}; exit 5' TERM; : > {trapped}"
    run = holding("sh", "-c", f"{script}; while :; do sleep 0.05; done")
    eventually(trapped.exists)
    run.send_signal(signal.SIGUSR1)
    eventually(lambda: out.exists() and out.read_text() == "usr1\n")
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=LIMIT) == 5
    assert out.read_text() == "usr1\nterm\n"


def test_a_signal_ends_the_wait_to_get_in(lockctl, holding, stock):
    holding("sleep", "60")
    waiting = lockctl.start("fence", "exec", "--timeout", "60s", str(stock), "--", "true", env=OWN)
    guard_of(waiting.pid)
    time.sleep(0.2)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(timeout=5) == 143


def test_what_the_command_leaves_behind_does_not_outlive_the_hold(lockctl, stock):
    pids = stock.parent / ".pids"
    script = f"(setsid sleep 60 & echo $! > {pids}) > /dev/null 2>&1; exit 0"
    done = execute(lockctl, stock, "sh", "-c", script)
    assert done.returncode == 0
    assert "left behind" in done.stderr
    assert not alive(int(pids.read_text()))
    assert not kept(stock)


@pytest.mark.parametrize("victims", ["keeper", "guard", "both"])
def test_when_lockctl_is_killed_the_mark_is_held_until_the_last_process_is_gone(stock, holding, victims):
    pids = stock.parent / ".pids"
    job = f"setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 4' & echo $! >> {pids}; wait"
    run = holding("sh", "-c", job)
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    guard = guard_of(run.pid)
    if victims in ("guard", "both"):
        os.kill(guard, signal.SIGKILL)
    if victims in ("keeper", "both"):
        os.kill(run.pid, signal.SIGKILL)
    family = [int(pid) for pid in pids.read_text().split()]
    until = time.monotonic() + LIMIT
    while kept(stock):
        assert time.monotonic() < until
        time.sleep(0.002)
    assert not any(alive(pid) for pid in family)
    run.wait(timeout=LIMIT)


def test_when_lockctl_is_killed_over_a_database_the_command_is_killed_at_once(lockctl, locks, holding):
    with contextlib.closing(sqlite3.connect(locks / ".shop.db")) as base:
        base.executescript(sql.text("sqlite"))
    url = f"sqlite://{locks}/.shop.db?resource=stock"
    pids = locks / ".pids"
    run = holding("sh", "-c", f"trap '' TERM; setsid sleep 60 & echo $$ $! > {pids}; wait", resource=url)
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    done = lockctl("fence", "check", "--timeout", "200ms", url, env={**OWN, "LOCKCTL_TOKEN": "34"})
    assert done.returncode == 69
    before = time.monotonic()
    os.kill(run.pid, signal.SIGKILL)
    eventually(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))
    assert time.monotonic() - before < 10
    assert lockctl("fence", "check", url, env={**OWN, "LOCKCTL_TOKEN": "34"}).returncode == 0


def test_a_store_that_cannot_hold_a_mark_is_refused(lockctl, locks):
    marker = locks / ".ran"
    url = "redis://127.0.0.1:1/0?resource=a"
    done = lockctl("fence", "exec", url, "--", "touch", shlex.quote(str(marker)), env=OWN)
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert "cannot hold a mark" in done.stderr
    assert not marker.exists()


# with a real database


@pytest.fixture
def database(postgres_server):
    """A table with the trigger that is printed: the URL of its mark, and a program that knows nothing of tokens."""
    schema = f"fence_run_{os.getpid()}"
    trigger = (
        f"CREATE TRIGGER f BEFORE INSERT ON goods FOR EACH STATEMENT EXECUTE FUNCTION {schema}.lockctl_fence('stock')"
    )
    user = postgres_server.user
    postgres_server.command(
        f"CREATE SCHEMA {schema} AUTHORIZATION {user}; SET ROLE {user}; SET search_path = {schema};"
        f" {sql.text('postgresql', schema=schema)}; CREATE TABLE goods (name text); {trigger};"
    )
    program = (
        "import psycopg2, sys\n"
        f"with psycopg2.connect({postgres_server.url!r}) as base, base.cursor() as cursor:\n"
        f"    cursor.execute('INSERT INTO {schema}.goods VALUES (%s)', sys.argv[1:])\n"
        "    cursor.execute('SHOW search_path')\n"
        "    print(cursor.fetchone()[0])\n"
    )
    yield f"{postgres_server.url}?schema={schema}&resource=stock", (sys.executable, "-c", program)
    postgres_server.command(f"DROP SCHEMA {schema} CASCADE")


def test_a_program_that_cannot_be_changed_brings_its_token_to_postgresql(lockctl, refused, database):
    url, program = database
    alone = lockctl("run", "-l", "a", "--", *program, "without")
    assert alone.returncode == 1
    assert "without a fencing token" in alone.stderr
    env = {"PGOPTIONS": "-c search_path=elsewhere"}
    done = lockctl("run", "-l", "a", "--fence", url, "--", *program, "first", env=env)
    assert (done.returncode, done.stdout) == (0, "elsewhere\n"), done.stderr
    older = lockctl("run", "-l", "a", "--fence", url, "--", "sh", "-c", "echo $PGOPTIONS").stdout.strip()
    assert lockctl("run", "-l", "a", "--fence", url, "--", "true").returncode == 0
    late = lockctl("run", "-l", "b", "--", *program, "stale", env={"PGOPTIONS": older})
    assert late.returncode == 1
    assert "has already seen token" in late.stderr
    put(url, Mark("other", 5))
    assert "another domain" in refused(77, "-l", "a", "--fence", url)


def test_a_hold_in_postgresql_that_was_lost_is_told(lockctl, locks, postgres_server, database, holding):
    url, _ = database
    lost = locks / ".lost"
    run = holding("sh", "-c", f"until [ -e {lost} ]; do sleep 0.05; done", resource=url)
    held = lockctl("fence", "check", "--timeout", "500ms", url, env={**OWN, "LOCKCTL_TOKEN": "34"})
    assert held.returncode == 69
    postgres_server.command(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        f" AND usename = '{postgres_server.user}'"
    )
    lost.touch()
    assert run.wait(timeout=LIMIT) == 76
