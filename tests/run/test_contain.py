"""`--contain`: a job in a pid namespace, of which nothing is left when both processes of lockctl are killed at once."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.terminal import INTERRUPT, PROMPT, SUSPEND, Terminal

SLEEP = "sleep 61.{}"  # a number of seconds by which a process of the test is found
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces, as root")


@pytest.fixture
def number():
    """What no other test of this machine has in the words of its processes."""
    return f"{os.getpid()}{time.monotonic_ns() % 10**9}"


@pytest.fixture
def job(number):
    """The pids, as they are outside, of the sleeping processes of the job that are alive."""

    def found():
        words = SLEEP.format(number).replace(" ", "\0").encode()
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command_line = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if command_line == words + b"\0" and alive(int(entry.name)):
                    pids.append(int(entry.name))
        return pids

    yield found
    for pid in found():
        tree.send(pid, signal.SIGKILL)


def kill_both(keeper):
    """Both processes of lockctl at once: while they are stopped, neither can do anything about the other's end.

    The guard first: the kernel continues a stopped process group when the parent outside of it ends.
    """
    both = [guard_of(keeper.pid), keeper.pid]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in both:
            os.kill(pid, signum)
    keeper.wait(timeout=LIMIT)


def family_of(keeper):
    """The pids of the guard and its children by their names."""
    guard = guard_of(keeper.pid)
    return {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in (guard, *tree.children(guard))}


@contextlib.contextmanager
def held_up(pid):
    """A process that does nothing for a while. One that is stopped goes on when its process group becomes an orphan."""
    library = ctypes.CDLL(None, use_errno=True)
    assert library.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0)
    try:
        yield
    finally:
        library.ptrace(PTRACE_DETACH, pid, 0, 0)


ESCAPES = {
    "another session": "setsid {} &",
    "a double fork": "(setsid sh -c '{} & :' &);",
    "a pid namespace": "unshare -pf --mount-proc --kill-child=KILL {} &",
    "a user namespace": "unshare -Ur setsid {} &",
    "traced": "strace -D -f -o /dev/null {} &",
    "a covered proc": "mount -t tmpfs none /proc; setsid {} &",
    "set-user-ID": "cp /bin/sleep $0/sleep; chown 65534 $0/sleep; chmod 4755 $0/sleep; PATH=$0:$PATH setsid {} &",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_nothing_is_left_when_both_processes_are_killed_at_once(lockctl, tmp_path, number, job, escape):
    tmp_path.chmod(0o755)
    sleep = SLEEP.format(number)
    script = f"{escape.format(sleep)} {sleep} & exec {sleep}"
    keeper = lockctl.start("run", "--contain", "require", "-l", "a", "--", "sh", "-c", script, str(tmp_path))
    eventually(lambda: len(job()) >= 3)
    kill_both(keeper)
    eventually(lambda: not job())
    assert lockctl("run", "-l", "a", "--wait", "9s", "--", "true").returncode == 0


@pytest.mark.parametrize("store", ["file", "postgresql"])
def test_a_lock_that_is_a_descriptor_is_free_after_the_job_is_gone(lockctl, number, job, store, request):
    """Also where what was told to end the job is held up itself, as on a busy machine; its lock is not the job's here."""
    url = lockctl.url if store == "file" else request.getfixturevalue("postgres_server").url
    sleep = SLEEP.format(number)
    daemon = f"import os; os.closerange(3, 100); os.setsid(); os.execvp('sleep', {sleep.split()})"
    script = f'"$0" -c "{daemon}" & exec {sleep}'
    words = ("run", "-b", url, "-l", number, "--contain", "require", "--", "sh", "-c", script, sys.executable)
    keeper = lockctl.start(*words)
    eventually(lambda: len(job()) == 2)
    with held_up(family_of(keeper)["lease-init"]):
        kill_both(keeper)
        eventually(lambda: len(job()) == 1)
        assert lockctl("run", "-b", url, "-l", number, "--", "true").returncode == 75
    done = lockctl("run", "-b", url, "-l", number, "--wait", "9s", "--", "pgrep", "-f", f"^{sleep}$")
    assert (done.returncode, done.stdout) == (1, ""), "the job was not gone"


@pytest.mark.parametrize("store", ["file", "redis"])
def test_what_outlives_its_command_ends_with_both_processes(lockctl, number, job, store, request):
    url = lockctl.url if store == "file" else request.getfixturevalue("redis_server").url
    words = ("run", "-b", url, "-l", number, "--contain", "require", "--leftover", "wait", "-t", "4s")
    keeper = lockctl.start(*words, "--", "sh", "-c", f"setsid {SLEEP.format(number)} & :")
    eventually(job)
    guard, init = guard_of(keeper.pid), family_of(keeper)["lease-init"]
    # it has said to the init that the command has ended, and waits
    eventually(lambda: list(tree.children(guard)) == [init] and (tree.stat_fields(guard) or [b""])[0] == b"S")
    kill_both(keeper)
    eventually(lambda: not job())
    assert lockctl("run", "-b", url, "-l", number, "--wait", "9s", "--", "true").returncode == 0


def test_without_it_processes_that_the_command_has_forked_are_left(lockctl, number, job):
    sleep = SLEEP.format(number)
    keeper = lockctl.start("run", "-l", "a", "-c", f"setsid {sleep} & exec {sleep}")
    eventually(lambda: len(job()) == 2)
    kill_both(keeper)
    eventually(lambda: len(job()) == 1)


def test_another_user_is_contained_where_it_is_required(lockctl, locks, number, job):
    locks.chmod(0o1777)
    sleep = SLEEP.format(number)
    words = (*NOBODY, lockctl.command, "run", "--contain", "require", "-b", f"file://{locks}/own", "-l", "a")
    script = f"id -u >{locks}/.id; setsid {sleep} & exec {sleep}"
    keeper = subprocess.Popen([*words, "-c", script], env=lockctl.environment({"SHELL": "/bin/sh"}))
    eventually(lambda: len(job()) == 2)
    kill_both(keeper)
    eventually(lambda: not job())
    assert (locks / ".id").read_text() == "65534\n"


def inside(done):
    """Whether the command saw itself in a namespace of its own, by the number that it printed."""
    assert done.returncode == 0, done.stderr
    return int(done.stdout) < 10


def test_auto_contains_the_jobs_of_root_alone(lockctl, locks):
    locks.chmod(0o1777)
    words = ("run", "-b", f"file://{locks}/own", "-l", "a", "--", "sh", "-c", "echo $$")
    other = subprocess.run(
        [*NOBODY, lockctl.command, *words],
        env=lockctl.environment({"LOCKCTL_CONTAIN": "auto"}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert not inside(other)
    of_root = ("run", "-l", "a", "--", "sh", "-c", "echo $$")
    assert inside(lockctl(*of_root, env={"LOCKCTL_CONTAIN": "auto"}))
    assert not inside(lockctl(*of_root))


WITHOUT_NAMESPACES = ("unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_pid_namespaces; exec "$0" "$@"')


def test_doctor_tells_whether_it_can_be(lockctl):
    for before, level in ((), "ok"), (WITHOUT_NAMESPACES, "warn"):
        words = (*before, lockctl.command, "doctor", "--json")
        found = subprocess.run(words, env=lockctl.environment(), capture_output=True, timeout=LIMIT, check=False)
        levels = {each["id"]: each["level"] for each in json.loads(found.stdout)["findings"]}
        assert levels["host.contain"] == level


@pytest.mark.parametrize(("wanted", "status"), [("require", 78), ("auto", 0)])
def test_where_it_cannot_be_it_is_refused_or_left_out(lockctl, locks, wanted, status):
    run = (lockctl.command, "run", "--contain", wanted, "-l", "a", "--", "touch", str(locks / ".ran"))
    done = subprocess.run(
        [*WITHOUT_NAMESPACES, *run],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert (locks / ".ran").exists() == (status == 0)
    assert done.stderr.count("\n") == (0 if status == 0 else 1)
    assert ("--contain: this system allows no pid namespace" in done.stderr) == (status != 0)


def test_too_few_descriptors_are_said_to_be_that(lockctl):
    for limit, wanted in itertools.product(range(8, 20), ("require", "auto")):
        words = ("prlimit", f"--nofile={limit}", lockctl.command, "run", "--contain", wanted, "-l", "a", "--", "true")
        done = subprocess.run(words, env=lockctl.environment(), capture_output=True, timeout=LIMIT, check=False)
        assert done.returncode == 0 or b"Too many open files" in done.stderr, (limit, done.stderr)


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_the_status_is_the_commands(lockctl, script, status):
    assert lockctl("run", "--contain", "require", "-l", "a", "--", "sh", "-c", script).returncode == status


def test_what_cannot_be_executed_has_the_usual_status(lockctl, locks):
    assert lockctl("run", "--contain", "require", "-l", "a", "--", "/nowhere").returncode == 127
    assert lockctl("run", "--contain", "require", "-l", "a", "--", str(locks)).returncode == 126
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0


def test_a_job_that_obeys_no_signal_ends_at_its_limit(lockctl, number, job):
    script = f'trap "" TERM; setsid {SLEEP.format(number)} & sleep 60; sleep 60'
    words = ("--max-runtime", "300ms", "-k", "200ms", "--", "sh", "-c", script)
    assert lockctl("run", "--contain", "require", "-l", "a", *words).returncode == 124
    assert not job()


def test_what_the_command_leaves_behind_is_told_and_stopped_and_the_init_is_not_of_it(lockctl, number, job):
    done = lockctl("run", "--contain", "require", "-l", "a", "--", "sh", "-c", f"setsid {SLEEP.format(number)} & :")
    assert done.returncode == 0
    assert "stopped 1 process that the command had left behind: sleep" in done.stderr
    assert not job()


def test_a_run_waits_for_what_the_command_left_behind_if_it_is_told_to(lockctl, locks):
    script = f"setsid sh -c 'while [ ! -e {locks}/.go ]; do sleep 0.02; done; touch {locks}/.done' & :"
    words = ("--contain", "require", "-l", "a", "--leftover", "wait", "--", "sh", "-c", script)
    keeper = lockctl.start("run", *words)
    time.sleep(0.5)  # longer than a job is given to settle: that it goes on is the point
    assert keeper.poll() is None
    (locks / ".go").touch()
    assert keeper.wait(timeout=LIMIT) == 0
    assert (locks / ".done").exists()


# a child of whose parent it is, as clone(2) makes it with CLONE_PARENT, that outlives it; for two kinds of processors
CLONED = """
import ctypes, os, signal, sys, time
numbers = {"x86_64": 56, "aarch64": 220}
arguments = [ctypes.c_long(0x8000 | signal.SIGCHLD), *[ctypes.c_long(0)] * 4]
if ctypes.CDLL(None).syscall(ctypes.c_long(numbers[os.uname().machine]), *arguments) == 0:
    os.setsid()
    while not os.path.exists(sys.argv[1] + "/.go"):
        time.sleep(0.02)
    open(sys.argv[1] + "/.done", "w")
os._exit(0)
"""


@pytest.mark.parametrize("contain", ["require", "no"])
@pytest.mark.parametrize("leftover", ["wait", "kill"])
def test_what_the_command_left_behind_as_a_child_of_the_guard_is_a_part_of_the_job(lockctl, locks, contain, leftover):
    words = ("--contain", contain, "--leftover", leftover, "-l", "a", "--", sys.executable, "-ISc", CLONED, str(locks))
    keeper = lockctl.start("run", *words, stderr=subprocess.PIPE)
    if leftover == "wait":
        time.sleep(1.0)  # longer than the command needs, and than a job is given to settle
        assert keeper.poll() is None
        (locks / ".go").touch()
    assert "stopped 1 process" in keeper.communicate(timeout=LIMIT)[1] or leftover == "wait"
    assert keeper.returncode == 0
    assert (locks / ".done").exists() == (leftover == "wait")


def test_both_ask_for_something_that_cannot_be(refused):
    assert "contradict each other" in refused(64, "--contain", "auto", "--leftover", "leave")


def test_signals_are_passed_on_and_a_stopped_command_is_followed(lockctl, locks, number, job):
    script = f'trap "echo got >{locks}/.got; exit 5" USR1; {SLEEP.format(number)} & wait'
    keeper = lockctl.start("run", "--contain", "require", "-l", "a", "--", "sh", "-c", script)
    (inner,) = eventually(job)
    shell = tree.parent_of(inner)
    assert shell
    os.kill(shell, signal.SIGSTOP)
    os.kill(keeper.pid, signal.SIGUSR1)
    os.kill(keeper.pid, signal.SIGCONT)
    assert keeper.wait(timeout=LIMIT) == 5
    assert (locks / ".got").exists()
    assert not job()


def test_a_killed_guard_or_init_ends_the_job(lockctl, number, job):
    for victim in ("lease-guard", "lease-init"):
        keeper = lockctl.start("run", "--contain", "require", "-l", "a", "--", *SLEEP.format(number).split())
        eventually(job)
        os.kill(family_of(keeper)[victim], signal.SIGKILL)
        assert keeper.wait(timeout=LIMIT) == 137
        assert not job()


def test_the_job_sees_its_own_processes_alone_and_is_seen_from_outside(lockctl, need_tool):
    need_tool("ps")
    done = lockctl("run", "--contain", "require", "-l", "a", "--", "sh", "-c", "ps -e -o pid,comm; echo parent $PPID")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1:3] == [["1", "lease-init"], ["2", "sh"]]
    assert len(lines) == 5
    assert lines[-1] == ["parent", "0"]


def test_what_the_job_mounts_is_mounted_outside_and_proc_is_as_it_was(lockctl, locks):
    place = locks / ".mounted"
    place.mkdir()
    before = Path("/proc/self/mountinfo").read_text()
    script = f"mount --bind {place} {place}"
    run = (lockctl.command, "run", "--contain", "require", "-l", "a", "--", "sh", "-c", script)
    seen = "/proc/self/mountinfo"
    look = f"mount --make-rshared / && \"$@\"; grep -c {place} {seen}; grep -c ' /proc ' {seen}"
    host = subprocess.run(  # a host whose mounts are shared, as systemd makes them
        ["unshare", "-m", "--propagation", "private", "sh", "-c", look, "sh", *run],
        env=lockctl.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert host.stdout.split() == ["1", str(before.count(" /proc "))], host.stderr
    assert Path("/proc/self/mountinfo").read_text() == before


def test_a_contained_job_may_have_locks_of_its_own(lockctl):
    inner = f"{lockctl.command} run -b {lockctl.url} --contain require -l b -- sh -c 'echo $$ $LOCKCTL_LOCK'"
    done = lockctl("run", "--contain", "require", "-l", "a", "-c", inner)
    assert (done.returncode, done.stdout) == (0, "2 b\n"), done.stderr


@pytest.fixture
def terminal(lockctl):
    """A shell on a terminal, whose jobs are contained."""
    shell = shutil.which("bash")
    assert shell, "bash is part of every Debian"
    env = lockctl.environment({"PS1": PROMPT, "LOCKCTL_CONTAIN": "require", "TERM": "dumb"})
    env["PATH"] = f"{Path(lockctl.command).parent}:{env['PATH']}"
    opened = Terminal(shell, "--norc", "--noprofile", "-i", env=env)
    opened.expect(PROMPT)
    yield opened
    opened.end()


def test_ctrl_c_and_ctrl_z_reach_a_contained_job(terminal, number, job):
    terminal.line(f"lockctl run -l t -- {SLEEP.format(number)}")
    eventually(job)
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    assert len(job()) == 1
    terminal.line("fg")
    terminal.expect("lockctl run")
    # the shell says so before it gives the terminal away and continues the job
    eventually(lambda: terminal.foreground() != terminal.process.pid)
    eventually(lambda: [(tree.stat_fields(pid) or [b""])[0] for pid in job()] == [b"S"])
    terminal.type(INTERRUPT)
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-130")
    assert not job()
