"""lockctl.supervise.guard: the real guard, given its orders in a bunch because it was stopped meanwhile."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = """
import os, select, signal, sys, time
from lockctl import clock
from lockctl.lease.schedule import Schedule
from lockctl.supervise import channel as wire
from lockctl.supervise import tree
from lockctl.supervise.fork import fork_guard
from lockctl.supervise.orders import Orders
from lockctl.supervise.signals import Signals
MARK = sys.argv[1]
signals = Signals()
said = []
def give(*words, killed=False):
    "A guard that is stopped, and has the order to start these words before it; *killed*: what waits to become them."
    guard = fork_guard(words, dict(os.environ), signals, lambda *_, **__: None, lambda: None)
    while killed and not tree.children(guard.pid):
        time.sleep(0.001)
    for parked in tree.children(guard.pid) if killed else ():
        os.kill(parked, signal.SIGKILL)
        while tree.stat_fields(parked)[0] != b"Z":
            time.sleep(0.001)
    os.kill(guard.pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(guard.pid, os.WUNTRACED)[1])
    orders = Orders(first_signal=15, leftover="kill", max_runtime=None, kernel_held=False, on_terminal=False,
                    kill_on_loss=True, contain="no")
    schedule = Schedule(ttl=60.0, grace=1.0, margin=1.0, interval=20.0, request_timeout=5.0, rate_error=0.0)
    guard.tell_deadline(clock.boottime() + 60)
    guard.start(orders, schedule, [], ())
    return guard
def answers(guard):
    "What it says until its end, by kind."
    os.kill(guard.pid, signal.SIGCONT)
    poll = select.poll()
    poll.register(guard.link.fileno, select.POLLIN)
    found = {}
    while guard.link.open and wire.FINISHED not in found and wire.FAILED not in found:
        assert poll.poll(15000), found
        found.update({kind: values for kind, values, _ in guard.link.receive()})
    return found
"""


@pytest.mark.parametrize(
    "script",
    [
        """
guard = give("sleep", "60", killed={killed})
guard.link.send(wire.SIGNAL, 15, 0)
found = answers(guard)
assert os.waitstatus_to_exitcode(*found[wire.FINISHED]) == -15, found
assert wire.CAUSE not in found, found
""",
        """
guard = give("touch", MARK, killed={killed})
guard.link.send(wire.STOP, "lost", True)
found = answers(guard)
assert found[wire.CAUSE] == ("lost",) and wire.STARTED not in found, found
assert not os.path.exists(MARK)
""",
        """
guard = give("touch", MARK, killed={killed})
guard.link.send(wire.STOP, "revoked", False)
found = answers(guard)
assert found[wire.CAUSE] == ("revoked",) and wire.STARTED not in found, found
assert not os.path.exists(MARK)
""",
        # the keeper has died in the meantime
        """
guard = give("touch", MARK, killed={killed})
guard.link.close()
os.kill(guard.pid, signal.SIGCONT)
assert os.waitstatus_to_exitcode(os.waitpid(guard.pid, 0)[1]) == 0
assert not os.path.exists(MARK)
""",
        """
guard = give("/no/such/program", killed={killed})
guard.link.send(wire.SIGNAL, 28, 0)
found = answers(guard)
assert found[wire.FAILED] == (2, '') and wire.ENDED not in found, found
""",
    ],
    ids=["signal", "loss", "revocation", "end of the keeper", "not found"],
)
@pytest.mark.parametrize("killed", [False, True])
def test_what_comes_right_behind_the_order_to_start_is_obeyed(
    script: str,
    killed: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", BEGIN + script.format(killed=killed), str(tmp_path / "mark")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
