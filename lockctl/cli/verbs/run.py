"""``lockctl run`` for click: what ``fastpath`` leaves to it."""

from __future__ import annotations

import os
from typing import Any

import click

from lockctl.cli.group import CONTEXT, verb
from lockctl.cli.options import with_settings, written
from lockctl.cli.parameters import CommandWord
from lockctl.errors import UsageError
from lockctl.settings import BY_NAME


@with_settings(*BY_NAME)
@verb(
    "run",
    examples={
        "lockctl run -l nightly --skip-ok -- /usr/local/bin/nightly": (
            "In a crontab: if the last run is still active, skip this one without a message."
        ),
        "lockctl run -l deploy --wait 10m -- ./deploy.sh": "In a pipeline: wait for at most ten minutes.",
    },
    context_settings={**CONTEXT, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=CommandWord(), metavar="[--] COMMAND [ARG]...")
def command(words: tuple[str, ...], **given: Any) -> int:
    """Run a command under a lock.

    Exits with the command's own status; 75 if another holds the lock, 76 if the lease was lost.
    """
    from lockctl.cli.main import start_run

    os._exit(start_run(*read(words, **given)))


def read(words: tuple[str, ...], **given: Any) -> tuple[dict[str, str | bool], tuple[str, ...], tuple[str, ...]]:
    """What click has read, as ``fastpath.read`` gives it. Raises ``UsageError``."""
    settings = written(given)
    locks, resources = settings.pop("lock"), settings.pop("fence")
    if locks:
        settings["lock"] = locks[0]
    if len(resources) > 1:  # elsewhere the last one counts; here another one would be left without a fence
        raise UsageError(
            "--fence takes one resource: register at the others in the command, with lockctl fence advance"
        )
    if resources:
        settings["fence"] = resources[0]
    if not words:
        raise UsageError("no command: lockctl run [OPTIONS] [--] COMMAND [ARG]...")
    return settings, words, tuple(locks[1:])
