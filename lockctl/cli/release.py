"""``lockctl renew`` and ``lockctl release``: a request to the daemon that a handle names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.acquire import positive_span
from lockctl.cli.daemon.handle import document, read, write
from lockctl.cli.daemon.remains import Remains
from lockctl.cli.daemon.request import GIVE_BACK, Gone, ask, ended, say_end
from lockctl.cli.messages import Talk
from lockctl.cli.output import print_data
from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.value import replace

if TYPE_CHECKING:
    from collections.abc import Mapping


def renew(word: str | None, span: str | None, environ: Mapping[str, str]) -> int:
    """Have the daemon hold on, counted from now; 75 if this handle holds nothing any more, 76 if the lock was lost."""
    handle, place = read(word, environ)
    request: dict[str, object] = {"verb": "renew", "owner": handle.owner}
    if span is not None:
        request["for"] = positive_span(span)
    try:
        answer = ask(handle, request)
    except Gone:
        return ended(handle, Remains(handle.socket.removesuffix(".sock")))
    until = answer.get("expires_at")
    renewed = replace(handle, expires_at=until if isinstance(until, str) else handle.expires_at)
    if place == "-":
        print_data(document(renewed))
    else:
        write(place, document(renewed))
    return exit_status.OK


def release(word: str | None, environ: Mapping[str, str]) -> int:
    """End the daemon and wait until the lock is free; 75 if this handle holds nothing any more, 76 if it was lost."""
    handle, _ = read(word, environ)
    remains = Remains(handle.socket.removesuffix(".sock"))
    try:
        ask(handle, {"verb": "release", "owner": handle.owner})
    except Gone:
        status = ended(handle, remains)
        if not remains.alive():
            remains.remove()
        return status
    if not remains.await_end(handle.ttl + GIVE_BACK):
        raise BackendUnavailable(f"{handle.name}: the keeper (pid {handle.pid}) has not given the lock back yet")
    report = remains.report()
    remains.remove()
    if report is None or report.get("outcome") not in ("exited", "signaled"):
        return say_end(handle, report)
    failure = report.get("not_released")
    if failure:
        text = f"{handle.name}: could not release the lock, it ends with its lease: {printable(str(failure))}"
        Talk()("warning", text)
        return exit_status.UNAVAILABLE
    return exit_status.OK
