"""Very many signals in a short time: nothing is lost that the kernel does not merge, and the job goes on."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.jobs import LIMIT, alive, eventually, guard_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

ROUNDS = 500
STORM = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH, signal.SIGCONT)

# counts what it gets until TERM, which it survives to write the counts down
COUNTER = """
import signal, sys
counts = {}
def count(number, frame):
    counts[number] = counts.get(number, 0) + 1
caught = [signal.Signals(int(word)) for word in sys.argv[2:]]
for number in caught:
    signal.signal(number, count)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(sys.argv[1] + ".ready", "w").close()
signal.sigwait([signal.SIGTERM])
signal.pthread_sigmask(signal.SIG_BLOCK, caught)
with open(sys.argv[1], "w") as file:
    file.write(" ".join(str(counts.get(number, 0)) for number in caught))
sys.exit(7)
"""


def test_a_storm_of_signals_reaches_the_command_and_hurts_nobody(lockctl: Lockctl, tmp_path: Path) -> None:
    import sys

    counts = tmp_path / "counts"
    numbers = [str(int(number)) for number in STORM]
    holder = lockctl.start_holding("nightly", "--", sys.executable, "-c", COUNTER, str(counts), *numbers)
    guard = guard_of(holder.pid)
    eventually((tmp_path / "counts.ready").exists)
    for _ in range(ROUNDS):
        for number in STORM:
            os.kill(holder.pid, number)
            os.kill(guard, number)  # nobody does this; it must not matter
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 75
    os.kill(holder.pid, signal.SIGTERM)
    assert holder.wait(LIMIT) == 7
    assert not alive(guard)
    seen = [int(word) for word in counts.read_text().split()]
    assert all(1 <= count <= ROUNDS + 1 for count in seen), seen
    assert lockctl("run", "-l", "nightly", "--", "true").returncode == 0


def test_a_storm_of_signals_does_not_wake_a_waiter_out_of_its_wait(lockctl: Lockctl) -> None:
    holder = lockctl.start_holding("nightly")
    waiter = lockctl.start("run", "-l", "nightly", "--wait", "forever", "--", "true")
    guard_of(waiter.pid)
    for _ in range(ROUNDS):
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT):
            os.kill(waiter.pid, number)
    assert waiter.poll() is None
    holder.terminate()
    assert waiter.wait(LIMIT) == 0
