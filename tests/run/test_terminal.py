"""`run` in front of a person: a real terminal, an interactive shell with job control."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from lockctl.supervise import tree
from tests.fleet.hosts import inspect
from tests.jobs import LIMIT, alive, eventually, guard_of
from tests.run.terminal import END_OF_FILE, INTERRUPT, PROMPT, QUIT, SUSPEND, Terminal

HERE = Path(__file__).parent
PYTHON = f"{sys.executable} -ISB"
FREE, HELD = 0, 75


@pytest.fixture
def terminal(lockctl, locks):
    """An interactive bash whose `lockctl` is ours."""
    shell = shutil.which("bash")
    assert shell, "bash is an essential package of Debian"
    path = f"{Path(lockctl.command).parent}:{os.environ['PATH']}"
    env = lockctl.environment({"PS1": PROMPT, "TERM": "dumb", "PATH": path, "HOME": str(locks), "HISTFILE": ""})
    made = Terminal(shell, "--norc", "--noprofile", "-i", env=env)
    made.expect(PROMPT)
    yield made
    made.end()


@pytest.fixture
def attempt(lockctl):
    """The status that an attempt to take a lock gives."""
    return lambda name="t": lockctl("run", "-l", name, "--", "true").returncode


def state_of(pid):
    """The letter that ps shows."""
    fields = tree.stat_fields(pid)
    return fields and fields[0]


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip()
    except OSError:
        return None


def pid_in(file):
    return int(eventually(lambda: file.exists() and file.read_text().strip()))


def test_a_command_reads_a_line_from_the_terminal(terminal):
    terminal.line("lockctl run -l t -- bash -c 'read word; echo got-$word-end'")
    terminal.line("hello")
    terminal.expect("got-hello-end")
    terminal.expect(PROMPT)


def test_an_editor_takes_the_terminal_raw_and_gives_it_back(terminal):
    terminal.line(f"lockctl run -l t -- {PYTHON} {HERE}/raw_keys.py")
    terminal.expect("raw now")
    assert terminal.raw()
    terminal.type("a")
    terminal.expect("<61>")
    terminal.type(INTERRUPT + SUSPEND)
    terminal.expect("<03><1a>")
    terminal.type("q")
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-0")


def test_ctrl_c_reaches_the_job_exactly_once(terminal, locks):
    file = locks / ".signals"
    terminal.line(f"lockctl run -v -l t -- {PYTHON} {HERE}/recorder.py {file} & echo $! > {locks}/.keeper; fg")
    eventually(lambda: file.exists() and "ready" in file.read_text())
    terminal.expect("started as pid")  # before lockctl knows it, a signal is passed on that the command may have
    eventually(lambda: terminal.foreground() == pid_in(locks / ".keeper"))
    terminal.type(INTERRUPT)
    eventually(lambda: file.read_text().split() == ["ready", "2"])
    os.kill(pid_in(locks / ".keeper"), signal.SIGUSR1)  # behind it, the way a second one would take
    eventually(lambda: "10" in file.read_text().split())
    terminal.type(QUIT)
    eventually(lambda: "3" in file.read_text().split())
    os.kill(pid_in(locks / ".keeper"), signal.SIGUSR2)
    eventually(lambda: "12" in file.read_text().split())
    assert file.read_text().split() == ["ready", "2", "10", "3", "12"]


def test_a_job_that_ctrl_c_ends_gives_130_and_frees_the_lock(terminal, locks, attempt):
    terminal.line(f"lockctl run -l t -- sh -c 'echo $$ > {locks}/.pid; exec sleep 60'")
    pid = pid_in(locks / ".pid")
    terminal.type(INTERRUPT)
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-130")
    assert not alive(pid)
    assert attempt() == FREE


def test_ctrl_z_gives_the_prompt_back_and_fg_goes_on_even_after_the_ttl(terminal, locks, attempt):
    job = f"echo $$ > {locks}/.pid; read word; echo went-on-$word"
    terminal.line(f"lockctl run -l t --ttl 1s -- bash -c '{job}'")
    pid = pid_in(locks / ".pid")
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    time.sleep(1.5)  # longer than the ttl: that this time passes is the point
    assert alive(pid)
    assert attempt() == HELD
    terminal.line("fg")
    terminal.line("again")
    terminal.expect("went-on-again")
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-0")
    assert attempt() == FREE


def test_ctrl_z_and_fg_work_more_than_once(terminal, locks):
    terminal.line(f"lockctl run -l t -- bash -c 'echo $$ > {locks}/.pid; read word; echo went-on-$word'")
    pid = pid_in(locks / ".pid")
    for _ in range(10):
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.expect(PROMPT)
        terminal.line("fg")
        eventually(lambda: terminal.foreground() != terminal.process.pid and state_of(pid) == b"S")
    terminal.line("again")
    terminal.expect("went-on-again")


# what the keeper passes on in the first moment of a command, as a guard that has hardly any processor gets it: after `fg`
LATE = """
import os, select, signal
from lockctl import clock
from lockctl.lease.schedule import Schedule
from lockctl.supervise import channel, tree
from lockctl.supervise.fork import fork_guard
from lockctl.supervise.orders import Orders
from lockctl.supervise.signals import Signals
guard = fork_guard(("sleep", "60"), dict(os.environ), Signals(), lambda *_, **__: None, lambda: None)
orders = Orders(15, "kill", None, kernel_held=False, on_terminal=True, kill_on_loss=True, contain="no")
guard.tell_deadline(clock.boottime() + 60)
guard.start(orders, Schedule(ttl=60.0, grace=1.0, margin=1.0, interval=20.0, request_timeout=5.0, rate_error=0.0), [], ())
said = []
def until(*kinds):
    poll = select.poll()
    poll.register(guard.link.fileno, select.POLLIN)
    while not said or said[-1] not in kinds:
        poll.poll()
        said.extend(kind for kind, _, _ in guard.link.receive())
until(channel.STARTED)
(command,) = tree.children(guard.pid)
os.kill(command, signal.SIGSTOP)
until(channel.HALTED)
os.kill(command, signal.SIGCONT)
guard.link.send(channel.SIGNAL, int(signal.SIGTSTP), 0)
guard.link.send(channel.SIGNAL, int(signal.SIGTERM), 1)
said.clear()
until(channel.FINISHED, channel.HALTED)
print("stopped again" if channel.HALTED in said else "went on", flush=True)
os.kill(command, signal.SIGKILL)
"""


def test_a_ctrl_z_that_is_passed_on_late_does_not_stop_the_command_again(terminal, tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE)
    terminal.line(f"PYTHONPATH={HERE.parent.parent} {sys.executable} {script}")
    terminal.expect("went on")


def test_an_interactive_shell_under_lockctl_has_job_control_of_its_own(terminal, attempt):
    terminal.line("PS1='inner> ' lockctl run -l t -- bash --norc --noprofile -i")
    terminal.expect("inner> ")
    terminal.line("sleep 60")
    terminal.expect("sleep 60")
    shell = terminal.process.pid
    eventually(lambda: b"sleep" in [name_of(pid) for pid in tree.descendants(shell)])
    eventually(lambda: name_of(terminal.foreground()) == b"sleep")
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect("inner> ")
    assert attempt() == HELD
    terminal.line("fg")
    eventually(lambda: name_of(terminal.foreground()) == b"sleep")
    terminal.type(INTERRUPT)
    terminal.expect("inner> ")
    terminal.line("exit 5")
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-5")
    assert attempt() == FREE


def test_a_suspended_job_can_be_killed_by_its_job_number(terminal, locks, attempt):
    terminal.line(f"lockctl run -l t -- sh -c 'echo $$ > {locks}/.pid; exec sleep 60'")
    pid = pid_in(locks / ".pid")
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    terminal.line("kill %1")
    eventually(lambda: not alive(pid))
    eventually(lambda: attempt() == FREE)


def test_a_job_in_the_background_that_reads_stops_and_fg_feeds_it(terminal):
    terminal.line("lockctl run -l t -- cat &")
    terminal.expect(PROMPT)

    def stopped():
        terminal.line("jobs")
        return "Stopped" in terminal.expect(PROMPT)

    eventually(stopped, pause=0.05)
    terminal.line("fg")
    terminal.expect("lockctl run")
    terminal.line("fed")
    terminal.expect("fed\r\nfed")
    terminal.type(END_OF_FILE)
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-0")


def test_a_pager_behind_a_pipe_keeps_the_terminal(terminal):
    terminal.line(f"lockctl run -l t -- seq 41 100000 | {PYTHON} {HERE}/raw_keys.py pager")
    terminal.expect("first line: 41")
    terminal.expect("raw now")
    terminal.type("b")
    terminal.expect("<62>")
    terminal.type("q")
    terminal.expect(PROMPT)


def test_a_pager_under_lockctl_keeps_the_terminal(terminal):
    terminal.line(f"seq 42 100000 | lockctl run -l t -- {PYTHON} {HERE}/raw_keys.py pager")
    terminal.expect("first line: 42")
    terminal.expect("raw now")
    terminal.type("b")
    terminal.expect("<62>")
    terminal.type("q")
    terminal.expect(PROMPT)


def test_ctrl_z_while_waiting_for_the_lock(terminal, lockctl):
    holder = lockctl.start_holding("t")
    terminal.line("lockctl run -l t --wait forever -- echo now-$((40+2))")
    eventually(lambda: inspect(lockctl, "t")["waiters"])
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    terminal.line("fg")
    terminal.expect("lockctl run")
    os.kill(holder.pid, signal.SIGTERM)
    terminal.expect("now-42")
    terminal.expect(PROMPT)


def test_ctrl_c_while_waiting_for_the_lock(terminal, lockctl):
    lockctl.start_holding("t")
    terminal.line("lockctl run -l t --wait forever -- echo ran")
    eventually(lambda: inspect(lockctl, "t")["waiters"])
    terminal.type(INTERRUPT)
    terminal.expect(PROMPT)
    terminal.line("echo status-$?")
    terminal.expect("status-130")


def test_closing_the_window_ends_the_job(terminal, locks, attempt):
    terminal.line(f"lockctl run -l t -- sh -c 'echo $$ > {locks}/.pid; exec sleep 60'")
    pid = pid_in(locks / ".pid")
    terminal.hang_up()
    eventually(lambda: not alive(pid))
    eventually(lambda: attempt() == FREE)


def test_closing_a_window_that_has_only_lockctl_in_it_ends_the_job(lockctl, locks, attempt):
    window = Terminal(
        lockctl.command,
        "run",
        "-l",
        "t",
        "--",
        "sh",
        "-c",
        f"echo $$ > {locks}/.pid; exec sleep 60",
        env=lockctl.environment(),
    )
    try:
        pid = pid_in(locks / ".pid")
        window.hang_up()
        assert window.process.wait(timeout=LIMIT) == 128 + signal.SIGHUP
        eventually(lambda: not alive(pid))
        assert attempt() == FREE
    finally:
        window.end()


@pytest.fixture
def window(lockctl):
    """Starts a program with which a session begins, as `ssh -t HOST PROGRAM` does: no shell in it has job control."""
    opened = []

    def start(*words):
        opened.append(Terminal(*words, env=lockctl.environment()))
        return opened[-1]

    yield start
    for each in opened:
        each.end()


ALONE = [
    pytest.param((), id="nothing"),
    pytest.param(("sh", "-c", '"$@"; echo ended-$?', "sh"), id="sh"),
]


@pytest.mark.parametrize("around", ALONE)
@pytest.mark.parametrize("locks_held", [("t",), ("t", "u")], ids=["one", "nested"])
def test_ctrl_z_stops_nobody_where_no_shell_could_continue_the_job(lockctl, window, around, locks_held):
    runs = [word for name in locks_held for word in (lockctl.command, "run", "-b", lockctl.url, "-l", name, "--")]
    opened = window(*around, *runs, "sh", "-c", "echo job-$((1+1)); while read word; do echo got-$word; done")
    opened.expect("job-2")
    for word in ("one", "two", "three"):
        opened.type(SUSPEND)
        opened.line(word)
        opened.expect(f"got-{word}")
    opened.type(INTERRUPT)
    if around:
        opened.process.wait(timeout=LIMIT)  # a shell ends with the signal that its command ended with
    else:
        assert opened.process.wait(timeout=LIMIT) == 128 + signal.SIGINT


@pytest.mark.parametrize("around", ALONE)
def test_ctrl_z_does_not_stop_a_wait_where_no_shell_could_continue_it(lockctl, window, around):
    holder = lockctl.start_holding("t")
    opened = window(
        *around, lockctl.command, "run", "-l", "t", "--wait", "forever", "--", "sh", "-c", "echo now-$((40+2))"
    )
    eventually(lambda: inspect(lockctl, "t")["waiters"])
    opened.type(SUSPEND)
    opened.expect(r"\^Z")
    holder.terminate()
    opened.expect("now-42")
    if around:
        opened.expect("ended-0")
    assert opened.process.wait(timeout=LIMIT) == 0


NUMBERED_ANEW = [
    pytest.param(("unshare", "-pf", "--mount-proc", "--kill-child"), id="unshare"),
    pytest.param(("lockctl", "run", "-l", "outer", "--contain", "require", "--"), id="contained"),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a pid namespace, as root")
@pytest.mark.parametrize("around", NUMBERED_ANEW)
def test_a_job_has_the_terminal_in_a_pid_namespace_that_its_process_group_is_not_in(lockctl, window, around):
    words = [lockctl.command if word == "lockctl" else word for word in around]
    job = "trap 'echo interrupted-$((1+1)); exit 7' INT; read word; echo got-$word-end; while :; do sleep 0.02; done"
    opened = window(*words, lockctl.command, "run", "-b", lockctl.url, "-l", "t", "--", "sh", "-c", job)
    opened.line("hello")
    opened.expect("got-hello-end")
    opened.type(INTERRUPT)
    opened.expect("interrupted-2")
    assert opened.process.wait(timeout=LIMIT) == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_job_has_the_terminal_where_dev_has_no_tty(lockctl, window):
    """As in a bare chroot."""
    bare = 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"'
    job = "echo terminal-$((1+1)); read word; echo got-$word-end"
    run = (lockctl.command, "run", "-l", "t", "--", "sh", "-c", job)
    opened = window("unshare", "-m", "sh", "-c", bare, "sh", *run)
    opened.expect("terminal-2")
    opened.line("hello")
    opened.expect("got-hello-end")
    assert opened.process.wait(timeout=LIMIT) == 0


def test_a_kill_of_the_whole_process_group_leaves_the_guard_to_end_the_rest(terminal, locks, attempt):
    stubborn = f"trap '' TERM; echo $$ > {locks}/.pid; while :; do sleep 0.02; done"
    (locks / ".job").write_text(f'setsid sh -c "{stubborn.replace("$", chr(92) + "$")}" &\nsleep 60\n')
    terminal.line(f"lockctl run -l t -k 0.1s -- sh {locks}/.job & echo $! > {locks}/.keeper")
    pid = pid_in(locks / ".pid")
    os.killpg(pid_in(locks / ".keeper"), signal.SIGKILL)
    eventually(lambda: not alive(pid))
    eventually(lambda: attempt() == FREE)


def test_what_is_typed_in_the_wait_for_the_lock_does_not_end_a_guard_whose_run_ignores_it(terminal, lockctl):
    holder = lockctl.start_holding("t")
    terminal.line("(trap '' INT QUIT; exec lockctl run -l t --wait forever -- echo now-$((40+2)))")
    eventually(lambda: inspect(lockctl, "t")["waiters"])
    for key, shown in ((INTERRUPT, r"\^C"), (QUIT, r"\^\\")):
        terminal.type(key)
        terminal.expect(shown)
    os.kill(holder.pid, signal.SIGTERM)
    terminal.expect("now-42")
    terminal.expect(PROMPT)


# from a group in the background, both stop a process if a shell of the terminal waits for its group, and else fail
NEEDS_FOREGROUND = ["read word </dev/tty", "stty -echo </dev/tty"]


@pytest.fixture
def in_background(terminal, locks):
    """Starts a program whose last step needs the keys, which have come back to the shell with *prompt* by then."""

    def start(step, line, prompt=PROMPT):
        wait = f"while ! [ -e {locks}/.go ]; do sleep 0.02; done"
        (locks / ".job").write_text(f"echo $$ > {locks}/.pid; {wait}; {step}; echo $? > {locks}/.status")
        terminal.line(line.format(f"sh {locks}/.job"))
        terminal.expect(prompt)
        eventually((locks / ".pid").exists)
        (locks / ".go").touch()

    return start


def status_in(file):
    return eventually(lambda: file.exists() and file.read_text().strip())


@pytest.mark.parametrize("step", NEEDS_FOREGROUND)
def test_a_job_in_the_background_whose_shell_has_ended_is_refused_the_keys(in_background, locks, attempt, step):
    in_background(step, "(lockctl run -l t -- {} &)")
    try:
        assert status_in(locks / ".status") != "0"
        eventually(lambda: attempt() == FREE)
    finally:
        tree.send(pid_in(locks / ".pid"), signal.SIGKILL)


CONTAINED = pytest.param("--contain require", marks=pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces"))


@pytest.mark.parametrize("how", ["--contain no", CONTAINED])
@pytest.mark.parametrize("step", NEEDS_FOREGROUND)
def test_an_orphan_of_a_job_in_the_background_is_refused_the_keys(terminal, in_background, locks, how, step):
    terminal.line(f"PS1='inner> ' lockctl run -l t {how} -- bash --norc --noprofile -i")
    terminal.expect("inner> ")
    in_background(step, "({} &)", "inner> ")
    assert status_in(locks / ".status") != "0"


def test_the_end_of_its_shell_ends_a_job_that_ctrl_z_has_stopped(terminal, locks, attempt):
    terminal.line(f"lockctl run -l t -- sh -c 'echo $$ > {locks}/.pid; exec sleep 60'")
    pid = pid_in(locks / ".pid")
    terminal.type(SUSPEND)
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    try:
        terminal.process.kill()
        eventually(lambda: not alive(pid))
        eventually(lambda: attempt() == FREE)
    finally:
        tree.send(pid, signal.SIGKILL)


def test_a_session_that_was_stopped_for_longer_than_the_ttl_goes_on(lockctl, window, attempt):
    job = "echo job-$((1+1)); read word; echo went-on-$word"
    opened = window(lockctl.command, "run", "-l", "t", "--ttl", "1s", "--", "sh", "-c", job)
    opened.expect("job-2")
    leader = opened.process.pid
    session = [leader, *(each for each in tree.descendants(leader) if os.getsid(each) == leader)]
    for each in session:
        os.kill(each, signal.SIGSTOP)
    time.sleep(1.5)  # longer than the ttl: that this time passes is the point
    assert attempt() == HELD
    for each in reversed(session):
        os.kill(each, signal.SIGCONT)
    opened.line("again")
    opened.expect("went-on-again")
    assert opened.process.wait(timeout=LIMIT) == 0
    assert attempt() == FREE


def test_closing_a_window_that_has_only_lockctl_in_it_ends_a_job_that_is_stopped(lockctl, window, locks, attempt):
    opened = window(lockctl.command, "run", "-l", "t", "--", "sh", "-c", f"echo $$ > {locks}/.pid; exec sleep 60")
    pid = pid_in(locks / ".pid")
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state_of(opened.process.pid) == b"T")
    opened.hang_up()
    assert opened.process.wait(timeout=LIMIT) == 128 + signal.SIGHUP
    assert not alive(pid)
    assert attempt() == FREE


def test_an_interrupt_between_the_grant_and_the_start_of_the_command_is_not_lost(terminal, lockctl, attempt):
    holder = lockctl.start_holding("t")
    terminal.line("lockctl run -l t -v --wait forever -- sleep 60; echo ended-$?")
    keeper = eventually(lambda: [pid for pid in tree.children(terminal.process.pid) if name_of(pid) == b"lockctl"])[0]
    guard = guard_of(keeper)
    eventually(lambda: len(inspect(lockctl, "t")["waiters"]) == 1, pause=0.02)
    os.kill(guard, signal.SIGSTOP)
    holder.terminate()
    terminal.expect("acquired")
    terminal.type(INTERRUPT)
    terminal.expect("passing on signal 2")
    os.kill(guard, signal.SIGCONT)
    terminal.expect(f"ended-{128 + signal.SIGINT}")
    assert attempt() == FREE
