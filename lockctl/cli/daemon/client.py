"""A request to the daemon that a handle names, and how that daemon ended if it is there no more.

A handle reaches the one daemon that made it and nobody else, so an old one frees nothing: its daemon is gone, or
refuses an owner that is not its own.
"""

from __future__ import annotations

import _socket
import json
import os
import select
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.daemon.command import RELEASED, address, peer_user
from lockctl.cli.daemon.handle import NOT_HELD, Handle
from lockctl.cli.daemon.remains import LARGEST, Remains, reason
from lockctl.cli.messages import Talk
from lockctl.errors import BackendUnavailable, LockctlError, UsageError
from lockctl.names import printable
from lockctl.supervise import tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


ANSWER = 10.0  # seconds for the daemon's answer: it does nothing else
GIVE_BACK = 30.0  # seconds beyond a lease in which a daemon has given the lock back or given up


class Gone(Exception):
    """No daemon listens at the place that the handle names."""


def ask(handle: Handle, request: Mapping[str, object]) -> dict[str, Any]:
    """The daemon's answer; raises ``Gone``, ``LockctlError`` if it refuses, ``BackendUnavailable`` if it is silent."""
    tree.hold_proc()  # the way to the socket goes through it
    kind = _socket.SOCK_SEQPACKET | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
    end = _socket.socket(_socket.AF_UNIX, kind)
    try:
        try:
            place = os.open(os.path.dirname(handle.socket), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                end.connect(address(place, handle.socket))
            finally:
                os.close(place)
            if os.geteuid() not in (0, peer_user(end)):
                raise UsageError(
                    f"{handle.name}: the process that listens at {printable(handle.socket)} belongs to another user"
                )
            end.send(json.dumps(request).encode(), _socket.MSG_NOSIGNAL)
            data = _receive(end)
        except BlockingIOError:
            data = None
        except PermissionError:
            raise UsageError(f"{handle.name}: {printable(handle.socket)} belongs to another user") from None
        except OSError:
            raise Gone from None
    finally:
        end.close()
    if data is None:
        raise BackendUnavailable(f"{handle.name}: the daemon (pid {handle.pid}) does not answer: is it stopped?")
    if not data:
        raise Gone
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("refused"):
        raise LockctlError(f"{handle.name}: the daemon refused: it did not make this handle")
    return answer


def _receive(end: _socket.socket) -> bytes | None:
    poll = select.poll()
    poll.register(end.fileno(), select.POLLIN)
    return end.recv(LARGEST) if poll.poll(ANSWER * 1000) else None


def ended(handle: Handle, remains: Remains) -> int:
    """Say why there is no daemon any more, when it has come to an end in every respect.

    Raises ``BackendUnavailable`` if it has not.
    """
    if not os.path.lexists(remains.path(".sock")):
        remains.check_gone(handle.name)
    if not remains.await_end(handle.ttl + GIVE_BACK):
        raise BackendUnavailable(f"{handle.name}: the daemon (pid {handle.pid}) is ending, but has not ended yet")
    report = remains.report()
    if not remains.known():  # asked last: another release may take all of it away at any moment
        Talk()("error", f"{handle.name} {NOT_HELD}")
        return exit_status.HELD
    released = {"outcome": "exited", "exit_code": RELEASED, "detail": None}
    if report is not None and released.items() <= report.items():
        Talk()("error", f"{handle.name} is not held by this handle any more: it was released")
        return exit_status.HELD
    return say_end(handle, report)


def say_end(handle: Handle, report: Mapping[str, Any] | None) -> int:
    """Say how the daemon ended, which did not end because of a release."""
    Talk()("error", f"{handle.name} is not held any more: {reason(report)}")
    return exit_status.LOST
