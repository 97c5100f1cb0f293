"""Processes that outlive the command: stopped, waited for, or left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually, guard_of

# `sh -c '...' PIDFILE`: each writes its pid once it is as hard to end as it gets
STUBBORN = 'trap "" TERM HUP INT; echo $$ > "$0"; while :; do sleep 0.05; done'
STOPPED = 'echo $$ > "$0"; kill -STOP $$'
ORDINARY = 'echo $$ > "$0"; exec sleep 60'
AWAIT = 'while ! [ -s "{file}" ]; do sleep 0.01; done'


def leaving(file, kind, detach):
    """A line of shell that leaves a process of this kind behind, and ends with 3 when it is there."""
    quoted = kind.replace("'", "'\\''")
    starts = {
        "setsid": f"setsid sh -c '{quoted}' {file} < /dev/null > /dev/null 2>&1 &",
        "double fork": f"(setsid sh -c '{quoted}' {file} < /dev/null > /dev/null 2>&1 &) &",
        "background": f"sh -c '{quoted}' {file} < /dev/null > /dev/null 2>&1 &",
    }
    return f"{starts[detach]} {AWAIT.format(file=file)}; exit 3"


@pytest.mark.parametrize("detach", ["setsid", "double fork", "background"])
@pytest.mark.parametrize("kind", [STUBBORN, STOPPED, ORDINARY], ids=["stubborn", "stopped", "ordinary"])
def test_what_the_command_leaves_behind_is_stopped_and_reported(lockctl, locks, kind, detach):
    file = locks / ".pid"
    done = lockctl("run", "-l", "a", "-k", "300ms", "--", "sh", "-c", leaving(file, kind, detach))
    assert done.returncode == 3
    assert re.fullmatch(
        r"lockctl: a: stopped \d process(es)? that the command had left behind: \w+ \(pid \d+\).*\n", done.stderr
    )
    assert not alive(int(file.read_text()))
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_one_process_left_behind_is_counted_as_one(lockctl, locks):
    line = leaving(locks / ".pid", ORDINARY, "setsid")
    done = lockctl("run", "-l", "a", "--", "sh", "-c", line)
    said = r"lockctl: a: stopped 1 process that the command had left behind: \w+ \(pid \d+\)\n"
    assert re.fullmatch(said, done.stderr)


def test_the_lock_is_held_until_the_last_process_is_gone(lockctl, locks):
    line = leaving(locks / ".pid", STUBBORN, "double fork")
    first = lockctl.start("run", "-l", "a", "-k", "700ms", "--", "sh", "-c", line)
    pid = int(eventually(lambda: (locks / ".pid").exists() and (locks / ".pid").read_text().strip()))
    look = f"[ -e /proc/{pid} ] && exit 9; exit 0"
    assert lockctl("run", "-l", "a", "--wait", "forever", "--", "sh", "-c", look).returncode == 0
    assert first.wait(timeout=LIMIT) == 3


def test_leftover_wait_waits_for_them_and_says_nothing(lockctl, locks):
    job = f"setsid sh -c 'sleep 0.7; touch {locks}/.end' > /dev/null 2>&1 & exit 4"
    done = lockctl("run", "-l", "a", "--leftover", "wait", "--", "sh", "-c", job)
    assert (done.returncode, done.stderr) == (4, "")
    assert (locks / ".end").exists()


def test_leftover_wait_still_obeys_max_runtime(lockctl, locks):
    line = leaving(locks / ".pid", STUBBORN, "setsid")
    options = ("--leftover", "wait", "--max-runtime", "600ms", "-k", "200ms")
    assert lockctl("run", "-l", "a", *options, "--", "sh", "-c", line).returncode == 124
    assert not alive(int((locks / ".pid").read_text()))


def test_leftover_leave_frees_the_lock_at_once_and_touches_nothing(lockctl, locks):
    line = leaving(locks / ".pid", ORDINARY, "setsid")
    done = lockctl("run", "-l", "a", "--leftover", "leave", "--", "sh", "-c", line)
    pid = int((locks / ".pid").read_text())
    try:
        assert (done.returncode, done.stderr) == (3, "")
        assert lockctl("run", "-l", "a", "--", "true").returncode == 0
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_helpers_that_end_by_themselves_are_not_reported(lockctl, locks):
    job = f"exec > >(tee {locks}/.log) 2>&1; echo one; seq 1 2000; echo last"
    done = lockctl("run", "-l", "a", "--", "bash", "-c", job)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("last\n")
    assert (locks / ".log").read_text() == done.stdout


FOREST = """
import os, sys, time
depth, width = 3, 4  # 4 + 16 + 64 processes
while depth:
    depth -= 1
    for _ in range(width):
        if os.fork() == 0:
            if depth % 2:
                os.setsid()
            break
    else:
        break
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(60)
"""


def test_a_whole_forest_of_processes_is_gone_after_a_signal(lockctl, locks):
    file = locks / ".pids"
    job = [sys.executable, "-ISB", "-c", FOREST, str(file)]
    keeper = lockctl.start("run", "-l", "a", "--", *job, start_new_session=True)
    eventually(lambda: file.exists() and len(file.read_text().split()) == 85)
    pids = [int(line) for line in file.read_text().split()]
    assert set(pids) <= set(tree.descendants(keeper.pid))
    tree.send(keeper.pid, signal.SIGTERM)
    assert keeper.wait(timeout=LIMIT) == 128 + signal.SIGTERM
    assert not [pid for pid in pids if alive(pid)]


FORKING_ON = """
import os, time
until = time.monotonic() + 20  # bounded, whatever happens
if os.fork():
    os._exit(0)
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
"""


def test_a_process_that_runs_away_by_forking_is_caught(lockctl):
    begin = time.monotonic()
    done = lockctl("run", "-l", "a", "-k", "200ms", "--", sys.executable, "-ISB", "-c", FORKING_ON)
    assert done.returncode == 0
    assert "that the command had left behind" in done.stderr
    assert time.monotonic() - begin < 10


# the first process of a container that never reaps what becomes its child
REAPS_NOTHING = """
import os, subprocess, sys
from lockctl import kernel
from lockctl.supervise import tree
kernel.become_subreaper()
statuses = [subprocess.run(sys.argv[1:]).returncode for _ in range(3)]
print(statuses, tree.children(os.getpid()))
"""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ("--", "true")),
        (0, ("--wait", "5s", "--", "true")),
        (127, ("--", "/no/such/program")),
        (137, ("--", "sh", "-c", "kill -9 $$")),
        (0, ("--", "sh", "-c", "sleep 60 & exit 0")),
        (64, ("--ttl", "nonsense", "--", "true")),
        (75, ("-l", "held", "--", "true")),
        (75, ("-l", "held", "--wait", "100ms", "--", "true")),
    ],
)
def test_a_run_leaves_no_zombie_where_nobody_reaps(lockctl, status, words):
    if "held" in words:
        lockctl.start_holding("held")
    command = [sys.executable, "-c", REAPS_NOTHING, lockctl.command, "run", "-k", "1s", *words]
    done = subprocess.run(
        command, env=lockctl.environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout == f"{[status] * 3} []\n", done.stderr


def test_fence_exec_leaves_no_zombie_where_nobody_reaps(lockctl, tmp_path):
    words = ("fence", "exec", "--token", "1", "--domain", "d", f"{tmp_path}/data", "--", "true")
    command = [sys.executable, "-c", REAPS_NOTHING, lockctl.command, *words]
    done = subprocess.run(
        command, env=lockctl.environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout == "[0, 0, 0] []\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes two other users, as root")
@pytest.mark.parametrize("end", ["its guard", "its keeper", "no process of lockctl"])
def test_what_may_not_be_killed_is_waited_for_and_spoken_of(lockctl, locks, end):
    """As with sudo: the job becomes a user to whom this one may send no signal."""
    locks.chmod(0o1777)
    caps = ("--clear-groups", "--inh-caps=+setuid", "--ambient-caps=+setuid")
    who = ("setpriv", "--reuid=65534", "--regid=65534", *caps)
    limit = ("--max-runtime", "600ms") if "no" in end else ()
    options = ("-b", f"file://{locks}/own", "-l", "a", "-k", "200ms", *limit)
    job = f'trap "" TERM; echo $$ >{locks}/.new; mv {locks}/.new {locks}/.pid; while :; do sleep 0.05; done'
    another = ("setpriv", "--reuid=65533", "--ambient-caps=-all", "--inh-caps=-all", "sh", "-c", job)
    said = locks / ".said"
    with said.open("w") as errors:
        keeper = subprocess.Popen(
            [*who, lockctl.command, "run", *options, "--", *another], env=lockctl.environment(), stderr=errors
        )
    try:
        eventually((locks / ".pid").exists)
        pid = int((locks / ".pid").read_text())
        if "guard" in end:
            tree.send(guard_of(keeper.pid), signal.SIGKILL)
        elif "keeper" in end:
            keeper.kill()
        eventually(lambda: "waiting for processes that KILL does not end" in said.read_text())
        assert f"sh (pid {pid})" in said.read_text()
        assert alive(pid)
    finally:
        tree.send(int((locks / ".pid").read_text()), signal.SIGKILL)
    assert keeper.wait(LIMIT) == (124 if "no" in end else -signal.SIGKILL if "keeper" in end else 137)
    assert said.read_text().count("waiting for processes") == 1
