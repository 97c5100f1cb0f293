"""`force-release`: a holder is told, or its lock is taken away."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from tests.fleet.hosts import inspect
from tests.jobs import LIMIT, alive, eventually
from tests.run.terminal import Terminal
from tests.servers.http_proxy import HttpProxy


def token_of(lockctl, name):
    return inspect(lockctl, name)["holders"][0]["token"]


def state_of(lockctl, name):
    return inspect(lockctl, name)["state"]


def test_a_free_lock_is_no_error(lockctl):
    done = lockctl("force-release", "a")
    said = f"lockctl: a is not known in {lockctl.url}: nothing ever used this name there\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
    lockctl("run", "-l", "a", "--", "true")
    done = lockctl("force-release", "a", "--now", "--yes")
    assert (done.returncode, done.stderr) == (0, f"lockctl: a is free in {lockctl.url}: nothing to do\n")


@pytest.mark.parametrize("how", [(), ("--now",)])
def test_who_may_not_is_told_who_may(lockctl, locks, without_rights, how):
    lockctl.start_holding("a")
    (locks / "a").chmod(0)
    done = without_rights(lockctl.command, "force-release", "a", "--yes", *how)
    may = f"a: no permission to use {locks}/a: run this as root, or as the user who holds it"
    assert (done.returncode, done.stdout, done.stderr) == (78, "", f"lockctl: {may}\n")


def test_a_revoked_holder_stops_its_command_and_exits_76(lockctl, locks):
    ready = locks / ".up"
    job = f"touch {ready}; exec sleep 60"
    with (locks / ".said").open("w") as said:
        holder = lockctl.start("run", "-l", "a", "--", "sh", "-c", job, stderr=said)
    eventually(ready.exists)
    begin = time.monotonic()
    env = {"LOGNAME": "ada"}
    done = lockctl("force-release", "a", "--yes", "--reason", "repair\x1b[2J\nnow", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "lockctl: a was released\n")
    assert holder.wait(timeout=LIMIT) == 76
    assert time.monotonic() - begin < 5
    lines = (locks / ".said").read_text().splitlines()
    assert f"by ada@{os.uname().nodename}: repair" in lines[-1]
    assert all(line.isprintable() for line in lines)
    assert state_of(lockctl, "a") == "free"


def test_the_next_holder_starts_only_after_the_last_process_of_the_revoked_job(lockctl, locks):
    """It needs two seconds to stop, in a daemon that has left its session."""
    daemon = f'trap "sleep 2; touch {locks}/.gone; exit" TERM; touch {locks}/.up; while :; do sleep 0.05; done'
    job = f"setsid sh -c '{daemon}' > /dev/null 2>&1 & sleep 60"
    holder = lockctl.start("run", "-l", "a", "--", "sh", "-c", job)
    eventually((locks / ".up").exists)
    look = f"test -e {locks}/.gone"
    waiter = lockctl.start("run", "-l", "a", "--wait", "forever", "--", "sh", "-c", look)
    eventually(lambda: inspect(lockctl, "a")["waiters"])
    assert lockctl("force-release", "a", "--yes").returncode == 0
    assert (locks / ".gone").exists()
    assert holder.wait(timeout=LIMIT) == 76
    assert waiter.wait(timeout=LIMIT) == 0


def test_a_revocation_is_for_one_holder_only(lockctl):
    first = lockctl.start_holding("a")
    assert lockctl("force-release", "a", "--yes").returncode == 0
    assert first.wait(timeout=LIMIT) == 76
    assert lockctl("run", "-l", "a", "--", "sleep", "1").returncode == 0


def test_a_lock_is_taken_away_at_once_and_the_old_holder_is_stopped(lockctl):
    holder = lockctl.start_holding("a")
    old = token_of(lockctl, "a")
    done = lockctl("force-release", "a", "--now", "--yes")
    assert done.returncode == 0
    assert "The old holder may still be running until it notices" in done.stderr
    floor = int(done.stderr.split()[-1])
    token = int(lockctl("run", "-l", "a", "--", "printenv", "LOCKCTL_TOKEN").stdout)
    assert token >= floor > old
    assert holder.wait(timeout=LIMIT) == 76


def test_the_old_holder_does_not_disturb_the_next_one(lockctl):
    old = lockctl.start_holding("a")
    assert lockctl("force-release", "a", "--now", "--yes").returncode == 0
    new = lockctl.start_holding("a")
    assert old.wait(timeout=LIMIT) == 76
    assert lockctl("run", "-l", "a", "--", "true").returncode == 75
    assert new.poll() is None


def test_a_wrong_token_is_refused(lockctl):
    holder = lockctl.start_holding("a")
    token = token_of(lockctl, "a")
    for words in ([], ["--now"]):
        done = lockctl("force-release", "a", "--yes", "--token", str(token + 1), *words)
        assert (done.returncode, done.stderr.count("\n")) == (75, 1)
        assert f"its token is {token}" in done.stderr
    assert holder.poll() is None
    assert lockctl("force-release", "a", "--yes", "--token", str(token)).returncode == 0
    assert holder.wait(timeout=LIMIT) == 76


@pytest.mark.parametrize("text", ["x", "-1", "", "1.5", "9" * 30, "\u0661"])
def test_what_is_no_token_is_wrong_usage(lockctl, text):
    holder = lockctl.start_holding("a")
    done = lockctl("force-release", "a", "--yes", f"--token={text}")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert holder.poll() is None


def test_without_a_terminal_it_needs_a_yes(lockctl):
    holder = lockctl.start_holding("a")
    done = lockctl("force-release", "a")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--yes" in done.stderr
    assert holder.poll() is None


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("yes", 0), ("n", 75), ("", 75)])
def test_on_a_terminal_it_asks(lockctl, answer, status):
    holder = lockctl.start_holding("a")
    terminal = Terminal(lockctl.command, "force-release", "a", env=lockctl.environment())
    try:
        shown = terminal.expect(r"\[y/N\] ")
        assert f"pid {holder.pid}" in shown
        terminal.line(answer)
        assert terminal.process.wait(timeout=LIMIT) == status
    finally:
        terminal.end()
    if status:
        assert holder.poll() is None
    else:
        assert holder.wait(timeout=LIMIT) == 76


@pytest.fixture
def foreign(locks):
    """Another program's flock on the file of lock "a"."""
    with (locks / "a").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.mark.usefixtures("foreign")
def test_another_programs_lock_cannot_be_asked_for(lockctl):
    done = lockctl("force-release", "a", "--yes")
    assert (done.returncode, done.stderr.count("\n")) == (75, 1)
    assert f"pid {os.getpid()}" in done.stderr
    assert "cannot be told" in done.stderr
    assert lockctl("run", "-l", "a", "--", "true").returncode == 75


@pytest.mark.usefixtures("foreign")
def test_another_programs_lock_can_be_taken_away(lockctl):
    assert lockctl("force-release", "a", "--yes", "--now").returncode == 0
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_json_says_what_was_done(lockctl):
    holder = lockctl.start_holding("a")
    done = lockctl("force-release", "a", "--yes", "--token", "1", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]) == (75, "other_holder")
    done = lockctl("force-release", "a", "--yes", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"name": "a", "result": "released", "next_token_at_least": None}
    assert holder.wait(timeout=LIMIT) == 76
    done = lockctl("force-release", "a", "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]) == (0, "free")
    lockctl.start_holding("a")
    done = lockctl("force-release", "a", "--yes", "--now", "--json")
    assert json.loads(done.stdout)["next_token_at_least"] > 0


def test_a_revoked_job_that_ignores_the_signal_is_killed_after_its_grace(lockctl, locks):
    job = f'trap "" TERM; echo $$ > {locks}/.pid; while :; do sleep 0.05; done'
    holder = lockctl.start("run", "-l", "a", "-k", "400ms", "--", "sh", "-c", job)
    pid = int(eventually(lambda: (locks / ".pid").exists() and (locks / ".pid").read_text().strip()))
    assert lockctl("force-release", "a", "--yes").returncode == 0
    assert not alive(pid)
    assert holder.wait(timeout=LIMIT) == 76


def test_asking_twice_is_the_same_as_asking_once(lockctl):
    holder = lockctl.start_holding("a", "-k", "1s", "--", sys.executable, "-ISBc", SLOW_TO_STOP)
    first, second = (lockctl.start("force-release", "a", "--yes") for _ in range(2))
    assert first.wait(timeout=LIMIT) == 0
    assert second.wait(timeout=LIMIT) == 0
    assert holder.wait(timeout=LIMIT) == 76


SLOW_TO_STOP = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: time.sleep(0.5) or exit())
time.sleep(60)
"""


def test_nobody_is_said_to_run_when_only_min_hold_keeps_the_lock(lockctl):
    assert lockctl("run", "-l", "a", "--min-hold", "1m", "--", "true").returncode == 0
    done = lockctl("force-release", "a", "--now", "--yes")
    assert (done.returncode, done.stderr) == (0, "lockctl: a is free: it was held only by --min-hold\n")
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_look_that_fails_after_the_revocation_is_repeated(lockctl, locks, redis_server, start_proxy):
    proxy = start_proxy(redis_server)
    at = f"/0?prefix={os.urandom(4).hex()}:"
    stop = f"touch {locks}/.told; while ! test -e {locks}/.end; do sleep 0.05; done; exit"
    job = f'trap "{stop}" TERM; touch {locks}/.up; while :; do sleep 0.05; done'
    words = ("-l", "a", "-k", "20s", "-t", "60s", "--", "sh", "-c", job)
    holder = lockctl.start("run", "-b", f"redis://{redis_server.address}{at}", *words)
    eventually((locks / ".up").exists)
    url = f"redis://{proxy.address}{at}"
    asking = lockctl.start("force-release", "-b", url, "a", "--yes", stderr=subprocess.PIPE)
    eventually((locks / ".told").exists)
    for mode in ("reset", "pass", "reset"):
        proxy.accepted = 0
        proxy.mode = mode
        eventually(lambda: proxy.accepted)
    proxy.mode = "pass"
    (locks / ".end").touch()
    assert asking.communicate(timeout=LIMIT)[1] == "lockctl: a was released\n"
    assert asking.returncode == 0
    assert holder.wait(timeout=LIMIT) == 76


@pytest.mark.parametrize(
    ("lost", "status", "said"),
    [
        (1, 0, "a is free. The old holder may still be running until it notices"),  # sent again, and answered
        (2, 0, "a is free now. If its holder did not release it, the old holder may still be running until it notices"),
        (99, 69, "it is not known whether the lock was freed: inspect the lock and try again"),
    ],
)
def test_a_lock_whose_taking_away_was_not_answered_is_looked_at_again(lockctl, consul_server, lost, status, said):
    at = f"/?prefix=lockctl/{os.urandom(4).hex()}/"
    lockctl.start_holding("a", "-b", f"consul://{consul_server.address}{at}", "-t", "60s")
    losing = False
    left = lost

    def look(request):
        nonlocal losing, left
        losing = losing or b'"delete' in request.body
        proxy.lose_answer = losing and left > 0
        left -= proxy.lose_answer

    with HttpProxy(consul_server.address, look) as proxy:
        done = lockctl("force-release", "-b", f"consul://{proxy.address}{at}", "a", "--now", "--yes")
    assert done.returncode == status
    assert said in done.stderr
