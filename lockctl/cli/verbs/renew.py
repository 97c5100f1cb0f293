"""``lockctl renew``: have the daemon that a handle names hold the lock for longer."""

from __future__ import annotations

import os

import click

from lockctl.cli import exit_status
from lockctl.cli.daemon.client import Gone, ask, ended
from lockctl.cli.daemon.handle import document, read, write
from lockctl.cli.daemon.remains import Remains
from lockctl.cli.group import verb
from lockctl.cli.options import HANDLE
from lockctl.cli.output import data_stream, print_data
from lockctl.cli.parameters import Parsed, positive_duration
from lockctl.value import replace


@verb(
    "renew",
    examples={
        "lockctl renew --handle deploy.lock": "Fails if the lock was lost meanwhile.",
        "lockctl renew --handle deploy.lock --for 1h": "Hold it for one more hour.",
    },
)
@HANDLE
@click.option(
    "--for",
    "span",
    metavar="DURATION",
    type=Parsed(positive_duration("30m")),
    help="Hold the lock for at most this long, from now on.",
)
def command(*, file: str | None, span: float | None) -> int:
    """Hold an acquired lock for longer."""
    # 75: this handle holds nothing any more, 76: the lock was lost
    handle, place = read(file, os.environ)
    if place == "-":
        data_stream()
    request: dict[str, object] = {"verb": "renew", "owner": handle.owner}
    if span is not None:
        request["for"] = span
    try:
        answer = ask(handle, request)
    except Gone:
        return ended(handle, Remains(handle.socket.removesuffix(".sock")))
    until = answer.get("expires_at")
    renewed = replace(handle, expires_at=until if isinstance(until, str) else handle.expires_at)
    if place == "-":
        print_data(document(renewed))
    else:
        write(place, document(renewed), renewed=True)
    return exit_status.OK
