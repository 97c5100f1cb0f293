"""Signals that somebody sends to lockctl: passed on once, and nothing added."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually

MARK = ("--token", "1", "--domain", "d")
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


# asks the test for a signal at one step of the start: something that the interpreter audits, such as an import,
# a file that is opened, a process that is forked
STEPS = """
import os, sys
me, steps, at = os.getpid(), 0, int(os.environ["AT_STEP"])
asked, answered = map(int, os.environ["STEP_PIPES"].split())
def hook(event, arguments):
    global steps
    if os.getpid() != me or (steps == 0 and arguments[:1] != ("lockctl.loading",)):
        return
    steps += 1
    if steps == at:
        os.write(asked, b".")
        os.read(answered, 1)
sys.addaudithook(hook)
"""
EACH = 8  # steps: every one would take too long, and these are less than a millisecond


@pytest.fixture
def end_at(lockctl, tmp_path):
    """The status of a `lockctl` that gets a signal at a step of its start, or as soon as *started*; it says nothing."""
    (tmp_path / "sitecustomize.py").write_text(STEPS)

    def end(step, number, started, *words):
        (asked, ask), (answered, answer) = os.pipe(), os.pipe()
        env = {"PYTHONPATH": str(tmp_path), "AT_STEP": str(step), "STEP_PIPES": f"{ask} {answered}"}
        env["XDG_RUNTIME_DIR"] = str(tmp_path)
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            process = lockctl.start(*words, env=env, pass_fds=(ask, answered), **streams)
            eventually(lambda: select.select([asked], [], [], 0)[0] or started.exists() or process.poll() is not None)
            tree.send(process.pid, number)
            os.write(answer, b".")
            said = process.communicate(timeout=LIMIT)[1]
        finally:
            for descriptor in (asked, ask, answered, answer):
                os.close(descriptor)
        assert said == "", step
        return process.returncode

    return end


def test_a_signal_at_any_step_of_the_start_ends_the_run_and_says_nothing(lockctl, end_at, tmp_path):
    step, up, numbers = 1, tmp_path / "up", itertools.cycle((signal.SIGTERM, signal.SIGINT))
    while not up.exists():
        number = next(numbers)
        status = end_at(step, number, up, "run", "-l", "a", "--", "sh", "-c", ': >"$0"; exec sleep 60', str(up))
        assert status in (-number, 128 + number), step
        step += EACH
    assert step > 10 * EACH
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("verb", "steps"),
    [(("acquire", "a", "--for", "60s"), 440), (("list",), 480), (("force-release", "a", "--yes"), 500)],
)
def test_an_interrupt_at_any_step_of_another_verb_says_nothing_and_leaves_nothing(
    lockctl, end_at, verb, steps, tmp_path
):
    for step in range(1, steps, 5 * EACH):
        status = end_at(step, signal.SIGINT, tmp_path / "never", *verb)
        assert status in (-signal.SIGINT, 128 + signal.SIGINT), step
    assert lockctl("run", "-l", "a", "--wait", "5s", "--", "true").returncode == 0


# as a library that was loaded before lockctl, and has a thread that knows nothing of what is blocked later
PRELOADED = "import _thread, time; _thread.start_new_thread(time.sleep, (1000,))"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("verb", [("run", "-l", "a"), ("run", "-vl", "a"), ("fence", "exec", *MARK)])
def test_a_signal_reaches_the_command_although_a_library_has_a_thread(lockctl, tmp_path, verb, number):
    (tmp_path / "sitecustomize.py").write_text(PRELOADED)
    up, resource = tmp_path / "up", (str(tmp_path / "data"),) if verb[0] == "fence" else ()
    job = f'trap "exit 5" {int(number)}; : >"$0"; while :; do sleep 0.02; done'
    words = (*verb, *resource, "--", "sh", "-c", job, str(up))
    keeper = lockctl.start(*words, env={"PYTHONPATH": str(tmp_path)}, start_new_session=True)
    eventually(up.exists)
    tree.send(keeper.pid, number)
    assert keeper.wait(LIMIT) == 5


def test_the_command_has_the_mask_and_the_environment_as_without_such_a_library(lockctl, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(PRELOADED)
    # without the two signals of the C library, which some ways to start a program ignore, and threads do not
    mask = "$(($1 & ~(3 << 31)))"
    job = f"grep '^Sig[^Q]' /proc/self/status | while read -r name bits; do set -- 0x$bits; echo $name {mask}; done"
    words = ("run", "-l", "a", "--", "sh", "-c", f"{job}; env | grep -c STANDBY")
    with_threads = lockctl(*words, env={"PYTHONPATH": str(tmp_path)})
    assert with_threads.stdout == lockctl(*words).stdout
    assert "SigBlk: 0\n" in with_threads.stdout


def test_a_refused_run_ends_although_a_library_has_a_thread(lockctl, tmp_path):
    """It has executed itself anew, as a standby does, and is none."""
    (tmp_path / "sitecustomize.py").write_text(PRELOADED)
    done = lockctl("run", "-l", "a", "-b", "bogus://x", "--", "true", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr.count("\n")) == (78, 1), done.stderr


def test_a_variable_that_somebody_has_set_makes_no_standby(lockctl):
    done = lockctl("run", "-l", "a", "-b", "bogus://x", "--", "true", env={"LOCKCTL_STANDBY": "by hand"})
    assert (done.returncode, done.stderr.count("\n")) == (78, 1), done.stderr
