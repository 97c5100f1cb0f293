"""Waiting for a lock, and how a wait ends."""

from __future__ import annotations

import json
import signal
import time

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually


def waiters(lockctl, name):
    return json.loads(lockctl("inspect", name, "--json").stdout)["waiters"]


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
def test_a_signal_ends_the_random_delay_before_the_lock_is_taken(lockctl, locks, number):
    delayed = lockctl.start("run", "-l", "a", "--splay", "3650d", "--", "touch", str(locks / ".ran"))
    eventually(lambda: tree.children(delayed.pid))
    tree.send(delayed.pid, number)
    assert delayed.wait(timeout=LIMIT) == 128 + number
    assert json.loads(lockctl("inspect", "a", "--json").stdout)["state"] == "free"
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
