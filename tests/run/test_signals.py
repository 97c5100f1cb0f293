"""Signals that somebody sends to lockctl: passed on once, and nothing added."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually

RECORDER = str(Path(__file__).parent / "recorder.py")
PASSED_ON = [
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGALRM,
    signal.SIGTTIN,
    signal.SIGPIPE,
    signal.SIGRTMIN,
    signal.SIGRTMAX,
]


class Recorded:
    """A run of the recorder, and what it has written so far."""

    def __init__(self, lockctl, *options):
        self.file = lockctl.directory / ".signals"
        words = [*options, "--", sys.executable, "-ISB", RECORDER, str(self.file)]
        # a session of its own: a terminal on which the tests run would be the job's terminal too
        self.keeper = lockctl.start("run", "-l", "a", *words, start_new_session=True)
        eventually(lambda: self.file.exists() and self.lines())

    def lines(self):
        return self.file.read_text().split()

    def reached(self, count):
        return lambda: len(self.got()) >= count

    def got(self):
        return [int(line) for line in self.lines()[1:]]


def test_each_signal_reaches_the_command_exactly_once(lockctl):
    recorded = Recorded(lockctl)
    for position, number in enumerate(PASSED_ON, 1):
        tree.send(recorded.keeper.pid, number)
        eventually(recorded.reached(position))
    assert recorded.got() == PASSED_ON
    assert recorded.keeper.poll() is None


def test_signals_while_others_wait_to_be_passed_on_are_not_lost(lockctl):
    recorded = Recorded(lockctl)
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP]
    for number in numbers:
        tree.send(recorded.keeper.pid, number)
    eventually(lambda: len(recorded.got()) >= len(numbers))
    tree.send(recorded.keeper.pid, signal.SIGQUIT)
    eventually(lambda: signal.SIGQUIT in recorded.got())
    assert sorted(recorded.got()) == sorted([*numbers, signal.SIGQUIT])


def test_a_process_of_the_group_that_leaves_the_session_still_gets_nothing_twice(lockctl):
    """Sent to the process group of lockctl, as a shell's `kill %1` does: the job is in a group of its own."""
    recorded = Recorded(lockctl)
    os.killpg(recorded.keeper.pid, signal.SIGTERM)
    eventually(lambda: recorded.got() == [signal.SIGTERM])
    tree.send(recorded.keeper.pid, signal.SIGUSR1)
    eventually(lambda: signal.SIGUSR1 in recorded.got())
    assert recorded.got() == [signal.SIGTERM, signal.SIGUSR1]


def test_lockctl_adds_nothing_to_a_signal_and_keeps_the_lock_until_the_job_has_ended(lockctl, locks):
    job = f'trap "sleep 1.2; echo cleaned > {locks}/.end; exit 5" TERM; touch {locks}/.up; while :; do sleep 0.05; done'
    keeper = lockctl.start("run", "-l", "a", "-k", "200ms", "--", "sh", "-c", job, start_new_session=True)
    eventually((locks / ".up").exists)
    tree.send(keeper.pid, signal.SIGTERM)
    begin = time.monotonic()
    while time.monotonic() < begin + 0.8:
        assert lockctl("run", "-l", "a", "--", "true").returncode == 75
    assert keeper.wait(timeout=LIMIT) == 5
    assert (locks / ".end").read_text() == "cleaned\n"
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_command_that_obeys_a_signal_ends_with_128_plus_its_number(lockctl, locks, number):
    keeper = lockctl.start("run", "-l", "a", "--", "sh", "-c", f"echo $$ > {locks}/.pid; exec sleep 60")
    eventually(lambda: (locks / ".pid").exists() and (locks / ".pid").read_text().endswith("\n"))
    command = int((locks / ".pid").read_text())
    tree.send(command if number == signal.SIGKILL else keeper.pid, number)
    assert keeper.wait(timeout=LIMIT) == 128 + number
    assert not alive(command)


def test_a_job_that_stops_itself_can_be_continued_through_lockctl(lockctl, locks):
    job = f"echo $$ > {locks}/.pid; kill -STOP $$; exit 11"
    keeper = lockctl.start("run", "-l", "a", "--", "sh", "-c", job, start_new_session=True)

    def stopped():
        text = (locks / ".pid").read_text() if (locks / ".pid").exists() else ""
        fields = tree.stat_fields(int(text)) if text.endswith("\n") else None
        return fields is not None and fields[0] == b"T"

    eventually(stopped)
    assert keeper.poll() is None
    tree.send(keeper.pid, signal.SIGCONT)
    assert keeper.wait(timeout=LIMIT) == 11


def test_a_signal_after_the_commands_end_goes_to_what_it_left_behind(lockctl, locks):
    daemon = f"trap 'echo told > {locks}/.told; exit' USR1; touch {locks}/.up; while :; do sleep 0.05; done"
    job = f'echo $$ > {locks}/.pid; setsid sh -c "{daemon}" > /dev/null 2>&1 & while ! [ -e {locks}/.up ]; do sleep 0.02; done; exit 2'
    keeper = lockctl.start("run", "-l", "a", "--leftover", "wait", "--", "sh", "-c", job, start_new_session=True)
    eventually((locks / ".up").exists)
    command = int(eventually(lambda: (locks / ".pid").exists() and (locks / ".pid").read_text().strip()))
    eventually(lambda: not alive(command))

    def told():
        tree.send(keeper.pid, signal.SIGUSR1)
        return (locks / ".told").exists()

    eventually(told, pause=0.05)
    assert keeper.wait(timeout=LIMIT) == 2
