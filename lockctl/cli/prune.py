"""``lockctl prune``: forget names that nobody uses any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.cli.look import REQUEST_TIMEOUT, json_array
from lockctl.cli.messages import Talk
from lockctl.cli.output import print_data, table
from lockctl.clock import utc
from lockctl.durations import parse_duration
from lockctl.errors import LockctlError, UsageError
from lockctl.names import printable

if TYPE_CHECKING:
    from lockctl.backend import Backend

HEADING = ("NAME", "LAST USED")


def prune(backend: Backend, pattern: str, older_than: str, *, dry_run: bool, as_json: bool) -> int:
    """Forget what was not used for so long, or only say what that is; 0 also when there is nothing.

    What was forgotten before an error is said, too.
    """
    try:
        least = parse_duration(older_than)
    except ValueError as wrong:
        message = f"--older-than: {printable(str(wrong))}"
        raise UsageError(message) from None
    found = list(backend.unused(pattern, older_than=least, timeout=REQUEST_TIMEOUT))
    outcomes: list[tuple[str, float, bool]] = []
    try:
        for name, at in found:
            forgotten = not dry_run and backend.forget(name, older_than=least, timeout=REQUEST_TIMEOUT)
            outcomes.append((name, at, forgotten))
    except LockctlError:
        _print(outcomes, dry_run=dry_run, as_json=as_json)
        raise
    _print(outcomes, dry_run=dry_run, as_json=as_json)
    return exit_status.OK


def _print(outcomes: list[tuple[str, float, bool]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        keys = ("name", "last_used", "forgotten")
        documents = (dict(zip(keys, (name, utc(at), gone), strict=True)) for name, at, gone in outcomes)
        print_data(json_array(json.dumps(document, indent=2) for document in documents))
    else:
        rows = [(printable(name), utc(at)) for name, at, gone in outcomes if gone or dry_run]
        if rows:
            print_data(table([HEADING, *rows]))
    gone = sum(forgotten for _, _, forgotten in outcomes)
    kept = len(outcomes) - gone
    talk = Talk(verbose=True)
    if dry_run:
        talk("info", f"{kept} unused: nothing was forgotten, because of --dry-run")
    else:
        others = f", {kept} kept: in use again, or not to be removed by this user" if kept else ""
        talk("info", f"{gone} forgotten{others}")
