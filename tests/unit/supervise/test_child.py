"""lockctl.supervise.child: what the command's process does with signals that come around the order to start."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl.supervise import channel
from lockctl.supervise.child import _await_order, _exec
from lockctl.supervise.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.supervise.channel import Frame


def is_left_after_the_order(guard: channel.Channel, own: channel.Channel) -> bool:
    """Whether an interrupt that follows the order waits for the command; both come while an earlier signal is looked at."""
    signals = Signals()
    receive = own.receive

    def look() -> list[Frame]:
        frames = receive()
        if not frames:
            guard.send(channel.GO, ())
            os.kill(os.getpid(), signal.SIGINT)
        return frames

    own.receive = look  # type: ignore[method-assign]
    os.kill(os.getpid(), signal.SIGHUP)  # of the terminal, before the order: it is not for the command
    frames = _await_order(own, signals, ("true",), {})
    return [kind for kind, _, _ in frames] == [channel.GO] and signal.sigpending() == {signal.SIGINT}


def test_a_signal_that_follows_the_order_is_never_taken_away() -> None:
    guard, own = channel.pair()
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if is_left_after_the_order(guard, own) else 1
        finally:
            os._exit(status)
    guard.close()
    own.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Executed(Exception):
    """In place of what becomes another program."""


@pytest.mark.parametrize("number", ["ENOENT", "ENOTDIR", "EACCES", "ESTALE", "ENODEV", "ETIMEDOUT", "ENOTCONN"])
def test_the_search_goes_on_after_a_directory_whose_file_server_is_gone(
    number: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def look(path: str) -> None:
        if path.startswith("/gone/"):
            raise OSError(getattr(errno, number), "gone")

    def execute(path: str, *_: object) -> None:
        raise Executed(path)

    (tmp_path / "job").touch()
    with monkeypatch.context() as patched:
        patched.setattr("os.stat", look)
        patched.setattr("os.execve", execute)
        with pytest.raises(Executed, match=str(tmp_path)):
            _exec(("job",), {"PATH": f"/gone:{tmp_path}"})
        with pytest.raises(OSError, match="gone") as refused:  # the only place that it could be in
            _exec(("/gone/job",), {"PATH": str(tmp_path)})
    assert refused.value.errno == getattr(errno, number)


WITHOUT_RIGHTS = ("setpriv", "--bounding-set", "-sys_admin,-sys_resource")  # with them root has no such limit
MANY_IN_FLIGHT = """
import errno, os, resource, socket
from lockctl.supervise.child import Child
from lockctl.supervise.signals import Signals
child = Child(("true",), dict(os.environ), Signals(), own_group=False)
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
socket.send_fds(one, [b"."], [0] * 80)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
assert not child.go((), (0,))
assert child.error() == (errno.ETOOMANYREFS, "")
child.drop()
"""


def test_a_command_that_cannot_be_told_to_go_says_why(need_tool: Callable[[str], str]) -> None:
    before = (need_tool(WITHOUT_RIGHTS[0]), *WITHOUT_RIGHTS[1:]) if os.geteuid() == 0 else ()
    words = [*before, sys.executable, "-c", MANY_IN_FLIGHT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
