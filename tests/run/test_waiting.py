"""Waiting for a lock, and how a wait ends."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.fleet.hosts import inspect
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.terminal import Terminal


def waiters(lockctl, name):
    return inspect(lockctl, name)["waiters"]


def start_waiting(lockctl, *options, through=None):
    """A run that waits for lock "a", and its whole family of processes."""
    words = ["run", "-l", "a", *(options or ["--wait", "forever"]), "--", "touch", str(lockctl.directory / ".ran")]
    waiter = through.start(lockctl.command, *words) if through else lockctl.start(*words, start_new_session=True)
    eventually(lambda: [seen["pid"] for seen in waiters(lockctl, "a")] == [waiter.pid])
    return waiter, tree.descendants(waiter.pid)


def test_signals_that_mean_nothing_to_a_waiter_do_not_end_the_wait(lockctl, locks):
    holder = lockctl.start_holding("a")
    waiter, _ = start_waiting(lockctl)
    for number in (signal.SIGUSR1, signal.SIGWINCH, signal.SIGALRM, signal.SIGCONT, signal.SIGPIPE):
        tree.send(waiter.pid, number)
    with pytest.raises(AssertionError):
        eventually(lambda: waiter.poll() is not None, limit=0.3)
    tree.send(holder.pid, signal.SIGTERM)
    assert waiter.wait(timeout=LIMIT) == 0
    assert (locks / ".ran").exists()


def test_a_hangup_that_nohup_ignores_does_not_end_the_wait(lockctl, after):
    lockctl.start_holding("a")
    nohup = after("signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    waiter, _ = start_waiting(lockctl, through=nohup)
    tree.send(waiter.pid, signal.SIGHUP)
    with pytest.raises(AssertionError):
        eventually(lambda: waiter.poll() is not None, limit=0.3)
    tree.send(waiter.pid, signal.SIGTERM)
    assert waiter.wait(timeout=LIMIT) == 128 + signal.SIGTERM


def test_a_hangup_ends_an_ordinary_wait(lockctl):
    lockctl.start_holding("a")
    waiter, _ = start_waiting(lockctl)
    tree.send(waiter.pid, signal.SIGHUP)
    assert waiter.wait(timeout=LIMIT) == 128 + signal.SIGHUP


def test_a_command_whose_guard_was_killed_in_the_wait_is_not_executed(lockctl, locks):
    holder = lockctl.start_holding("a")
    report, said = locks / ".report", locks / ".said"
    words = ("run", "-l", "a", "--wait", "forever", "--report", str(report), "--", "touch", str(locks / ".ran"))
    with said.open("w") as stderr:
        waiter = lockctl.start(*words, stderr=stderr)
    eventually(lambda: [seen["pid"] for seen in waiters(lockctl, "a")] == [waiter.pid])
    guard = guard_of(waiter.pid)
    family = (guard, *tree.descendants(guard))
    tree.send(guard, signal.SIGKILL)
    eventually(lambda: not any(map(alive, family)))
    holder.terminate()
    assert waiter.wait(timeout=LIMIT) == 126
    assert said.read_text() == "lockctl: a: cannot run touch: its guard process was killed\n"
    document = json.loads(report.read_text())
    assert (document["outcome"], document["exit_code"]) == ("not_executed", None)
    assert (document["started_at"], document["duration"]) == (None, None)
    assert not (locks / ".ran").exists()
    assert holder.wait(timeout=LIMIT) == 128 + signal.SIGTERM
    runs = {run["command"][0]: run for run in json.loads(lockctl("history", "a", "--json").stdout)}
    assert (runs["touch"]["outcome"], runs["touch"]["started_at"]) == ("not_executed", None)
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_command_that_has_no_room_for_the_descriptor_of_its_lock_is_not_executed(lockctl, locks):
    holder = lockctl.start_holding("a")
    said = locks / ".said"
    with said.open("w") as stderr:
        waiter = lockctl.start("run", "-l", "a", "--wait", "forever", "--", "touch", str(locks / ".ran"), stderr=stderr)
    eventually(lambda: [seen["pid"] for seen in waiters(lockctl, "a")] == [waiter.pid])
    (command,) = eventually(lambda: tree.children(guard_of(waiter.pid)))
    resource.prlimit(command, resource.RLIMIT_NOFILE, (3, 3))
    holder.terminate()
    assert waiter.wait(timeout=LIMIT) == 126
    assert said.read_text().startswith("lockctl: a: cannot start: Too many open files: raise the limit")
    assert not (locks / ".ran").exists()
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_standby_whose_guard_was_killed_in_the_wait_tries_again(lockctl, locks):
    holder = lockctl.start_holding("a")
    waiter = lockctl.start("run", "-l", "a", "--restart", "--", "sh", "-c", f": >{locks}/.ran; exec sleep 60")
    eventually(lambda: [seen["pid"] for seen in waiters(lockctl, "a")] == [waiter.pid])
    tree.send(guard_of(waiter.pid), signal.SIGKILL)
    holder.terminate()
    assert eventually((locks / ".ran").exists)
    tree.send(waiter.pid, signal.SIGTERM)
    assert waiter.wait(timeout=LIMIT) == 128 + signal.SIGTERM


def test_a_killed_waiter_leaves_no_queue_entry(lockctl):
    lockctl.start_holding("a")
    waiter, family = start_waiting(lockctl)
    waiter.kill()
    waiter.wait(timeout=LIMIT)
    eventually(lambda: not [pid for pid in family if alive(pid)])
    assert waiters(lockctl, "a") == []


def test_an_interrupted_wait_passes_the_lock_to_the_next_waiter(lockctl, locks):
    holder = lockctl.start_holding("a")
    first, _ = start_waiting(lockctl)
    second = lockctl.start("run", "-l", "a", "--wait", "forever", "--", "true")
    eventually(lambda: len(waiters(lockctl, "a")) == 2)
    tree.send(first.pid, signal.SIGTERM)
    assert first.wait(timeout=LIMIT) == 128 + signal.SIGTERM
    tree.send(holder.pid, signal.SIGTERM)
    assert second.wait(timeout=LIMIT) == 0
    assert not (locks / ".ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_first_attempt_while_another_program_writes_to_the_database(lockctl, locks, number):
    path = locks / "locks.db"
    assert lockctl("run", "-b", f"sqlite://{path}", "-l", "a", "--", "true").returncode == 0
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        words = ("-b", f"sqlite://{path}", "-l", "a", "-w", "60", "--", "touch", str(locks / ".ran"))
        attempt = lockctl.start("run", *words)
        eventually(
            lambda: f"{path}-wal" in {os.path.realpath(each) for each in Path(f"/proc/{attempt.pid}/fd").iterdir()}
        )
        tree.send(attempt.pid, number)
        assert attempt.wait(timeout=LIMIT) == 128 + number
    assert not (locks / ".ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_random_delay_before_the_lock_is_taken(lockctl, locks, number):
    delayed = lockctl.start("run", "-l", "a", "--splay", "3650d", "--", "touch", str(locks / ".ran"))
    eventually(lambda: tree.children(delayed.pid))
    tree.send(delayed.pid, number)
    assert delayed.wait(timeout=LIMIT) == 128 + number
    assert inspect(lockctl, "a")["state"] == "free"
    assert not (locks / ".ran").exists()


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ([], 0),
        (["--wait", "0"], 0),
        (["--wait", "400ms"], 0.4),
        (["-w", "0.4"], 0.4),
        (["--wait", "forever", "--no-wait"], 0),
        (["-n"], 0),
    ],
)
def test_a_wait_lasts_as_long_as_asked(lockctl, options, least):
    lockctl.start_holding("a")
    begin = time.monotonic()
    assert lockctl("run", "-l", "a", *options, "--", "true").returncode == 75
    assert time.monotonic() - begin >= least


@pytest.fixture
def screen(lockctl):
    """Starts a command with a terminal in front of it."""
    started = []

    def start(*words):
        env = lockctl.environment({"TERM": "xterm"})
        started.append(Terminal(lockctl.command, *words, env=env))
        return started[-1]

    yield start
    for terminal in started:
        terminal.end()


@pytest.mark.parametrize(
    "words", [("run", "-l", "a", "-w", "1m", "--", "echo", "ran"), ("acquire", "a", "--for", "1ms", "-w", "1m")]
)
def test_who_waits_at_a_terminal_sees_for_whom_and_since_when_in_one_line(lockctl, screen, words):
    holder = lockctl.start_holding("a")
    terminal = screen(*words)
    terminal.expect(rf"\r\x1b\[Klockctl: a: waiting for 0s, 1 of 1: held for \d+s by \S+ pid {holder.pid} ")
    tree.send(holder.pid, signal.SIGTERM)
    terminal.expect(r"\r\x1b\[K(ran|{)")


def test_who_waits_says_it_once_in_a_while_with_v_and_nothing_without(lockctl):
    holder = lockctl.start_holding("a")
    quiet, chatty = (
        lockctl.start("run", "-l", "a", "-w", "1m", *options, "--", "true", stderr=subprocess.PIPE)
        for options in ((), ("-v", "--log-format", "json"))
    )
    line = json.loads(chatty.stderr.readline())
    assert line["level"] == "info"
    assert f"held by {os.uname().nodename} pid {holder.pid}" in line["message"]
    tree.send(holder.pid, signal.SIGTERM)
    assert quiet.communicate(timeout=LIMIT)[1] == ""
    chatty.communicate(timeout=LIMIT)


@pytest.mark.parametrize(
    ("outer", "inner", "status"),
    [
        (["-l", "a"], ["-l", "a"], 64),
        (["-l", "b", "-l", "a"], ["-l", "a"], 64),
        (["-l", "a"], ["-l", "b", "--", "env", "-i", "@", "run", "-l", "a"], 64),
        (["-l", "a", "--shared"], ["-l", "a"], 64),
        (["-l", "a", "--slots", "1"], ["-l", "a", "--restart"], 64),
        (["-l", "a", "--shared"], ["-l", "a", "--shared"], 0),
        (["-l", "a", "--slots", "2"], ["-l", "a", "--slots", "2"], 0),
    ],
)
def test_a_run_inside_its_own_job_does_not_wait_for_ever(lockctl, outer, inner, status):
    own = ["env", f"LOCKCTL_BACKEND={lockctl.url}", lockctl.command]
    words = [word for each in inner for word in (own[1:] if each == "@" else [each])]
    done = lockctl("run", *outer, "--", *own, "run", "-w", "forever", *words, *waits(inner), "--", "true")
    assert (done.returncode, "it would wait for itself" in done.stderr) == (status, status == 64)


def waits(inner):
    return ["-w", "forever"] if "@" in inner else []
