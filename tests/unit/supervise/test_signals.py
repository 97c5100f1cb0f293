"""lockctl.supervise.signals: names, and signals as values, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.supervise.signals import NAMES, parse_signal, signal_name


@given(st.sampled_from(sorted(signal.Signals)), st.sampled_from(["{}", "SIG{}", " {} ", "sig{}"]), st.booleans())
def test_a_signal_is_known_by_its_name_however_it_is_written(
    meant: signal.Signals,
    form: str,
    lower: bool,  # noqa: FBT001 - Hypothesis gives it by position
) -> None:
    name = meant.name.removeprefix("SIG")
    assert parse_signal(form.format(name.lower() if lower else name)) == meant


@given(st.integers(min_value=1, max_value=int(signal.SIGRTMAX)))
def test_a_signal_is_known_by_its_number_and_named_so_that_it_can_be_read_back(number: int) -> None:
    assert parse_signal(str(number)) == number
    name = signal_name(number)
    assert parse_signal(name.removeprefix("signal ")) == number


@pytest.mark.parametrize(
    "text",
    ["", "0", "-9", "65", "999", "SIG", "BANANA", "TERM INT", "9.0", "٩", "_DFL", "SIG_IGN", "SIGSIGTERM", "9" * 5000],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="is not a signal: use for example TERM"):
        parse_signal(text)


def test_the_usual_name_is_used_for_signals_with_several() -> None:
    assert [signal_name(NAMES[name]) for name in ("CHLD", "IO", "TERM", "KILL")] == [
        "SIGCHLD",
        "SIGIO",
        "SIGTERM",
        "SIGKILL",
    ]


BEGIN = """
import os, signal, select, sys
from lockctl.supervise.signals import Signals, suspend
me = os.getpid()
def other_sends(*signums):
    if os.fork() == 0:
        for signum in signums:
            os.kill(me, signum)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize(
    "script",
    [
        # read as values, in one go, with the sender
        """
signals = Signals()
other_sends(signal.SIGTERM, signal.SIGUSR1)
assert select.select([signals.descriptor], [], [], 5)[0]
found = signals.read()
assert {number for number, _, _ in found} >= {15, 10}, found
assert all(sender not in (0, me) for number, _, sender in found if number in (10, 15)), found
assert signals.read() == []
""",
        # what ends a wait, and what does not
        """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signals = Signals()
for signum in (signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH):
    other_sends(signum)
    assert signals.ending() is None, signum
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
    other_sends(signum)
    assert signals.ending() == signum
""",
        # the end of a child, told when it is asked for
        """
signals = Signals()
other_sends()
assert select.select([signals.descriptor], [], [], 0)[0] == []
assert signals.ending() is None
signals.watch_children()
assert select.select([signals.descriptor], [], [], 5)[0]
assert [number for number, _, _ in signals.read()] == [signal.SIGCHLD]
other_sends()
assert select.select([signals.descriptor], [], [], 5)[0]
""",
        # the command gets the mask and the dispositions that we were started with
        """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signals = Signals()
assert signals.child_ignored and signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
signals.restore_for_command()
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR2}
assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
""",
        # stopping oneself as a signal would have, until continued
        """
signals = Signals()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)  # a group whose parent is outside of it: without such a one the signal would be dropped
    suspend(signal.SIGTSTP)
    assert signal.SIGTSTP in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os._exit(7)
assert os.WSTOPSIG(os.waitpid(child, os.WUNTRACED)[1]) == signal.SIGTSTP
os.kill(child, signal.SIGCONT)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    ],
    ids=["values", "ending", "children", "restore", "suspend"],
)
def test_signals_in_a_process_of_their_own(script: str) -> None:
    words = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
