"""``lockctl history``: the last runs under a lock, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.options import AS_JSON, REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import json_array, on_styled_screen, print_data, run_document, table
from lockctl.cli.parameters import LockName, Parsed, open_backend
from lockctl.cli.rows import UNKNOWN, place, span
from lockctl.clock import utc
from lockctl.names import command_line, printable

if TYPE_CHECKING:
    from lockctl.model import Run

HEADING = ("WHEN", "OUTCOME", "DURATION", "TOKEN", "WHERE", "COMMAND")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise ValueError(f"{printable(text[:30])!r} is not a number of runs: it must be at least 1")
    return int(text)


@with_settings("backend", "config")
@verb(
    "history",
    examples={
        "lockctl history nightly": "The last twenty runs, of all hosts.",
        "lockctl history nightly --limit 100 --json | jq 'map(select(.exit_code > 0)) | first'": (
            "The last run that failed."
        ),
    },
)
@click.argument("name", type=LockName())
@click.option("--limit", metavar="N", type=Parsed(_number), default="20", show_default=True, help="How many runs.")
@AS_JSON
def command(name: str, *, limit: int, as_json: bool, backend: str | None, config: str | None) -> int:
    """Show the last runs under a lock, the newest first.

    Host, command, token, start, duration, outcome.
    """
    opened = open_backend(backend, config, name)
    runs = opened.history(name, timeout=REQUEST_TIMEOUT)[:limit]
    if as_json:
        scheme = opened.capabilities.scheme
        print_data(json_array(json.dumps(run_document(name, scheme, run), indent=2) for run in runs))
    elif runs and on_styled_screen():
        from lockctl.cli import screen

        screen.print_runs(HEADING, [_row(run) for run in runs])
    elif runs:
        print_data(table([HEADING, *map(_row, runs)]))
    return exit_status.OK


def _row(run: Run) -> tuple[str, ...]:
    """One run under ``HEADING``."""
    when = run.started_at if run.started_at is not None else run.ended_at
    status = "" if run.exit_code is None else f" {run.exit_code}"
    detail = f" ({run.detail})" if run.detail else ""
    return (
        UNKNOWN if when is None else utc(when),
        printable(run.outcome + status),
        UNKNOWN if run.duration is None else span(run.duration),
        UNKNOWN if run.token is None else str(run.token),
        place(run.host, None, run.user),
        (command_line(run.command) if run.command else UNKNOWN) + printable(detail),
    )
