"""lockctl.supervise.fork: where the guard runs, and how its end is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from socket import AF_UNIX, SOCK_SEQPACKET, socketpair
from typing import TYPE_CHECKING

import pytest

from lockctl import kernel
from lockctl.supervise import fork, tree
from lockctl.supervise.channel import Channel
from lockctl.supervise.fork import GuardProcess, put_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl

FORKS = 20
PROCESSOR = 36  # of the fields behind the state in /proc/PID/stat, proc(5)


def processors_of_a_fork() -> tuple[int, int]:
    """Of this process until the child was there, and of the child."""
    while True:
        here = kernel.call("sched_getcpu")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        put_beside(pid)
        fields = tree.stat_fields(pid)
        stayed = kernel.call("sched_getcpu") == here
        os.waitpid(pid, 0)
        if stayed and fields is not None:
            return here, int(fields[PROCESSOR])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_a_fork_is_put_on_another_processor() -> None:
    places = [processors_of_a_fork() for _ in range(FORKS)]
    assert len([1 for parent, child in places if parent != child]) > FORKS * 3 // 4, places


@pytest.mark.parametrize("processors", ["one", "all"])
def test_a_command_may_use_the_processors_that_lockctl_may_use(lockctl: Lockctl, processors: str) -> None:
    every = os.sched_getaffinity(0)
    given = every if processors == "all" else {max(every)}
    tell = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]

    def limit() -> None:
        os.sched_setaffinity(0, given)

    done = lockctl("run", "-l", "a", "--", *tell, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (0, f"{sorted(given)}\n")


FORKED_ELSEWHERE = """
import os, sys
from lockctl.supervise.child import Child
from lockctl.supervise.signals import Signals
every = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(every)})
child = Child((sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"), dict(os.environ), Signals(), own_group=True)
os.sched_setaffinity(0, every)
assert child.go((), ())
os.waitpid(child.pid, 0)
"""


def test_a_command_forked_before_the_guard_may_use_all_processors_again_may_use_them_all() -> None:
    """The keeper is put off its processor between the two calls of :func:`put_beside`, as on a busy machine."""
    done = subprocess.run([sys.executable, "-c", FORKED_ELSEWHERE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{os.sched_getaffinity(0)}\n", "")


USED_UP = """
import errno, os
from lockctl.supervise import fork
try:
    while True:
        os.dup(0)
except OSError:
    pass
try:
    print(fork._has_terminal())
except OSError as failure:
    print(errno.errorcode[failure.errno])
"""


def test_whether_there_is_a_terminal_is_not_guessed_when_no_descriptor_is_free() -> None:
    script = ("sh", "-c", 'ulimit -n 30; exec "$@"', "sh", sys.executable, "-c", USED_UP)
    done = subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("EMFILE\n", "")


def guard_of(pid: int, link: Channel, job: int) -> GuardProcess:
    made = GuardProcess(pid, link, on_terminal=False, strangers=frozenset())
    made.job = job
    return made


@pytest.fixture
def link() -> Iterator[Channel]:
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    yield Channel(ours)
    theirs.close()


def test_who_dismisses_a_guard_sleeps_no_longer_than_it_lives(link: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(fork, "sleep", forbidden)
    pid = os.fork()
    if pid == 0:
        signal.pause()
    guard = guard_of(pid, link, fork.OVER)
    guard.dismiss()
    assert guard.ended
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_guard_that_was_waited_for_is_not_asked_after_again(link: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernel, "process_descriptor", asked.append)
    guard = guard_of(os.getppid(), link, fork.OVER)  # another process has its number by now
    guard.ended = True
    guard.dismiss()
    assert not asked
