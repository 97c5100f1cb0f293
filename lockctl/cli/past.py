"""``lockctl history``: the last runs under a lock, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.look import REQUEST_TIMEOUT, UNKNOWN, checked, json_array, place, span
from lockctl.cli.output import on_styled_screen, print_data, run_document, table
from lockctl.clock import utc
from lockctl.errors import UsageError
from lockctl.names import command_line, printable

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Run

HEADING = ("WHEN", "OUTCOME", "DURATION", "TOKEN", "WHERE", "COMMAND")
SHOWN = 20  # runs, unless told otherwise


def print_history(backend: Backend, name: str, limit: str | None, *, as_json: bool) -> int:
    """Print the newest runs of one lock, the newest first; 0 also when there is none."""
    count = _limit(limit)
    runs = backend.history(checked(name), timeout=REQUEST_TIMEOUT)[:count]
    if as_json:
        scheme = backend.capabilities.scheme
        print_data(json_array(json.dumps(run_document(name, scheme, run), indent=2) for run in runs))
    elif runs and on_styled_screen():
        from lockctl.cli import screen

        screen.print_runs(HEADING, [row(run) for run in runs])
    elif runs:
        print_data(table([HEADING, *map(row, runs)]))
    return exit_status.OK


def row(run: Run) -> tuple[str, ...]:
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


def _limit(text: str | None) -> int:
    if text is None:
        return SHOWN
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        message = f"--limit: {printable(text[:30])!r} is not a number of runs: 1 or more"
        raise UsageError(message)
    return int(text)
