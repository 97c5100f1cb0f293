"""``lockctl renew`` and ``lockctl release``: a word to the keeper that a handle names, or how that keeper ended.

A handle reaches the one keeper that made it and nobody else, so an old one frees nothing: its keeper is gone, or
refuses an owner that is not its own.
"""

from __future__ import annotations

import _socket
import json
import os
import select
import sys
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.acquire import positive_span
from lockctl.cli.handle import LARGEST, Remains, document, is_own, parse, read_bounded, reason, write
from lockctl.cli.holder import RELEASED, address, peer_user
from lockctl.cli.messages import Talk
from lockctl.cli.output import print_data
from lockctl.errors import BackendUnavailable, LockctlError, UsageError
from lockctl.names import printable
from lockctl.supervise import tree
from lockctl.value import replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lockctl.cli.handle import Handle

ANSWER = 10.0  # seconds for the keeper's answer: it does nothing else
GIVE_BACK = 30.0  # seconds beyond a lease in which a keeper has given the lock back or given up
NOT_HELD = "is not held by this handle any more: it was released, or this host was restarted"


class Gone(Exception):
    """No keeper listens at the place that the handle names."""


def read(word: str | None, environ: Mapping[str, str]) -> tuple[Handle, str]:
    """The handle that ``--handle`` or ``$LOCKCTL_HANDLE`` means, and its file (``-``: stdin)."""
    place = word or environ.get("LOCKCTL_HANDLE", "")
    if not place:
        raise UsageError("no handle: give --handle FILE, or set LOCKCTL_HANDLE to it")
    try:
        if place == "-" and sys.stdin is None:  # it was closed before lockctl started
            raise UsageError("there is no stdin to read the handle from")
        text = sys.stdin.read(LARGEST) if place == "-" else read_bounded(place)
    except (OSError, ValueError) as failure:
        if isinstance(failure, FileNotFoundError) and is_own(place, environ):
            name = printable(environ.get("LOCKCTL_LOCK", "")) or "the lock"
            raise LockctlError(f"{name} {NOT_HELD}") from None
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise UsageError(f"cannot read the handle {printable(place)}: {reason}") from None
    return parse(text, place), place


def renew(word: str | None, span: str | None, environ: Mapping[str, str]) -> int:
    """Have the keeper hold on, counted from now; 75 if this handle holds nothing any more, 76 if the lock was lost."""
    handle, place = read(word, environ)
    request: dict[str, object] = {"verb": "renew", "owner": handle.owner}
    if span is not None:
        request["for"] = positive_span(span)
    try:
        answer = ask(handle, request)
    except Gone:
        return _ended(handle, Remains(handle.socket.removesuffix(".sock")))
    until = answer.get("expires_at")
    renewed = replace(handle, expires_at=until if isinstance(until, str) else handle.expires_at)
    if place == "-":
        print_data(document(renewed))
    else:
        write(place, document(renewed))
    return exit_status.OK


def release(word: str | None, environ: Mapping[str, str]) -> int:
    """End the keeper and wait until the lock is free; 75 if this handle holds nothing any more, 76 if it was lost."""
    handle, _ = read(word, environ)
    remains = Remains(handle.socket.removesuffix(".sock"))
    try:
        ask(handle, {"verb": "release", "owner": handle.owner})
    except Gone:
        status = _ended(handle, remains)
        if not remains.alive():
            remains.remove()
        return status
    if not remains.await_end(handle.ttl + GIVE_BACK):
        raise BackendUnavailable(f"{handle.name}: the keeper (pid {handle.pid}) has not given the lock back yet")
    report = remains.report()
    remains.remove()
    if report is None or report.get("outcome") not in ("exited", "signaled"):
        return _say_end(handle, report, exit_status.LOST)
    failure = report.get("not_released")
    if failure:
        text = f"{handle.name}: could not release the lock, it ends with its lease: {printable(str(failure))}"
        Talk()("warning", text)
        return exit_status.UNAVAILABLE
    return exit_status.OK


def ask(handle: Handle, request: Mapping[str, object]) -> dict[str, Any]:
    """The keeper's answer; raises ``Gone``, ``LockctlError`` if it refuses, ``BackendUnavailable`` if it is silent."""
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
                raise UsageError(f"{handle.name}: what listens at {printable(handle.socket)} belongs to another user")
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
        raise BackendUnavailable(f"{handle.name}: the keeper (pid {handle.pid}) does not answer: is it stopped?")
    if not data:
        raise Gone
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("refused"):
        raise LockctlError(f"{handle.name}: the keeper refused: this handle is not the one that it made")
    return answer


def _receive(end: _socket.socket) -> bytes | None:
    poll = select.poll()
    poll.register(end.fileno(), select.POLLIN)
    return end.recv(LARGEST) if poll.poll(ANSWER * 1000) else None


def _ended(handle: Handle, remains: Remains) -> int:
    """Say why there is no keeper any more, when it has come to an end in every respect."""
    if not remains.known():
        Talk()("error", f"{handle.name} {NOT_HELD}")
        return exit_status.HELD
    if not remains.await_end(handle.ttl + GIVE_BACK):
        raise BackendUnavailable(f"{handle.name}: the keeper (pid {handle.pid}) is ending, and has not ended yet")
    report = remains.report()
    if report is not None and report.get("outcome") == "exited" and report.get("exit_code") == RELEASED:
        Talk()("error", f"{handle.name} is not held by this handle any more: it was released")
        return exit_status.HELD
    return _say_end(handle, report, exit_status.LOST)


def _say_end(handle: Handle, report: Mapping[str, Any] | None, status: int) -> int:
    Talk()("error", f"{handle.name} is not held any more: {reason(report)}")
    return status
