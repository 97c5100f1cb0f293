"""lockctl.supervise.keeper: a real guard, a renewer that is told what the test wants, and a channel with holes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = """
import errno, os, resource, sys, time
from lockctl import clock, kernel
from lockctl.lease import lease_events
from lockctl.lease.schedule import Schedule
from lockctl.supervise import channel as wire
from lockctl.supervise.fork import fork_guard
from lockctl.supervise.keeper import Keeper
from lockctl.supervise.liveness import Liveness
from lockctl.supervise.orders import Orders
from lockctl.supervise.signals import Signals
UNSENT, MARK = sys.argv[1:]
class Deaf:
    "A channel on which one kind of frame cannot be sent, for want of memory."
    def __init__(self, link):
        self._link, self.failure = link, 0
    def __getattr__(self, name):
        return getattr(self._link, name)
    def send(self, kind, *values, descriptors=()):
        self.failure = errno.ENOBUFS if kind == UNSENT else 0
        return kind != UNSENT and self._link.send(kind, *values, descriptors=descriptors)
class Revoked:
    "A renewer that is told once that somebody asks for the lock."
    def __init__(self):
        self.readable, writing = os.pipe()
        os.write(writing, b".")
        self.reports = [lease_events.RevocationAsked("ops@host", "", clock.boottime() + 60)]
    def renew_now(self):
        while not os.path.exists(MARK):
            time.sleep(0.001)
        if not UNSENT:  # the whole time that the kernel lets this process take before it says something
            limit = int(time.process_time()) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, 1000))
            while resource.getrlimit(resource.RLIMIT_CPU)[0] == limit:
                pass
        return True
    def take(self):
        taken, self.reports = self.reports, []
        return taken
signals = Signals()
said = []
note = lambda level, text, *_, **__: said.append(text)
guard = fork_guard(("sh", "-c", 'trap "" TERM; : >"$0"; exec sleep 60', MARK), dict(os.environ), signals, note, lambda: None)
guard.link = Deaf(guard.link)
schedule = Schedule(ttl=60.0, grace=1.0, margin=1.0, interval=0.2, request_timeout=5.0, rate_error=0.0)
guard.tell_deadline(clock.boottime() + 60)
orders = Orders(first_signal=15, leftover="kill", max_runtime=None, kernel_held=False, on_terminal=False,
                kill_on_loss=True, contain="no")
guard.start(orders, schedule, [], ())
live = Liveness(schedule, kernel_held=False, kill_on_loss=True)
keeper = Keeper(guard, signals, clock.boottime, kernel.timer_descriptor(clock.BOOTTIME), live, note)
ending = keeper.run(clock.boottime() + 60, Revoked)
guard.dismiss()
"""


@pytest.mark.parametrize(
    ("unsent", "expected"),
    [
        ("start", "(ending.status, ending.error, os.path.exists(MARK)) == (None, errno.ENOBUFS, False)"),
        ("deadline", "(ending.status, ending.error, os.path.exists(MARK)) == (None, errno.ENOBUFS, False)"),
        ("stop", "(ending.cause, ending.error) == ('revoked', 0) and 'could not be told' in ' '.join(said)"),
    ],
)
def test_what_the_guard_cannot_be_told_ends_the_run(unsent: str, expected: str, tmp_path: Path) -> None:
    """A guard without the order to start waits for ever, and one without a deadline or an order to stop goes on."""
    assert_ending(unsent, expected, tmp_path / "mark")


def test_the_processor_time_of_lockctl_itself_is_not_the_commands_affair(tmp_path: Path) -> None:
    """Of SIGXCPU that the kernel sends to the keeper the command would end."""
    assert_ending("", "(ending.cause, ending.status) == ('revoked', 9)", tmp_path / "mark")


def assert_ending(unsent: str, expected: str, mark: Path) -> None:
    script = f"{BEGIN}assert {expected}, (ending.status, ending.cause, ending.error, said)\n"
    words = [sys.executable, "-c", script, unsent, str(mark)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
