"""``lockctl prune``: forget names that nobody uses any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import data_stream, json_array, print_data
from lockctl.cli.parameters import LockWord, Parsed
from lockctl.cli.places import is_known, place
from lockctl.clock import utc
from lockctl.durations import parse_duration
from lockctl.errors import BackendUnavailable
from lockctl.names import printable

if TYPE_CHECKING:
    from lockctl.backend import Backend


@with_settings("backend", "config")
@verb(
    "prune",
    examples={
        "lockctl prune --older-than 90d --dry-run": "Print what would be forgotten.",
        "lockctl prune 'build-*' --older-than 30d": "Names that are made for each build.",
    },
)
@click.argument("pattern", default="*", type=LockWord(), metavar="[GLOB]")
@click.option(
    "--older-than",
    metavar="DURATION",
    type=Parsed(parse_duration),
    required=True,
    help="Only names that have not been used for this long.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be forgotten, and forget nothing.")
@AS_JSON
def command(
    pattern: str, *, older_than: float, dry_run: bool, as_json: bool, backend: str | None, config: str | None
) -> int:
    """Forget lock names that are no longer used.

    Their history, successes and counters. Tokens still only rise.
    """
    data_stream()  # what is forgotten is said
    opened = place(backend, config).open()
    found = list(opened.unused(pattern, older_than=older_than, timeout=REQUEST_TIMEOUT))
    outcomes: list[tuple[str, float, bool]] = []
    try:
        for name, at in found:
            forgotten = not dry_run and _forget(opened, name, older_than)
            outcomes.append((name, at, forgotten))
    finally:  # what was forgotten before an error is said, too
        _print(outcomes, dry_run=dry_run, as_json=as_json)
    return exit_status.OK


def _forget(opened: Backend, name: str, older_than: float) -> bool:
    """Whether a name is forgotten; where the answer does not say so, which may have been lost, as a look sees it."""
    try:
        if opened.forget(name, older_than=older_than, timeout=REQUEST_TIMEOUT):
            return True
    except BackendUnavailable:
        if opened.forget(name, older_than=older_than, timeout=REQUEST_TIMEOUT):
            return True
    return not is_known(opened, opened.inspect(name, timeout=REQUEST_TIMEOUT), timeout=REQUEST_TIMEOUT)


def _print(outcomes: list[tuple[str, float, bool]], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        keys = ("name", "last_used", "forgotten")
        documents = (dict(zip(keys, (name, utc(at), gone), strict=True)) for name, at, gone in outcomes)
        print_data(json_array(json.dumps(document, indent=2) for document in documents))
    else:
        rows = [(printable(name), utc(at)) for name, at, gone in outcomes if gone or dry_run]
        if rows:
            from lockctl.cli import screen

            screen.print_table(screen.UNUSED, [screen.Row(cells) for cells in rows])
    gone = sum(forgotten for _, _, forgotten in outcomes)
    kept = len(outcomes) - gone
    talk = Talk(verbose=True)
    if dry_run:
        talk("info", f"{kept} unused: nothing was forgotten, because of --dry-run")
    else:
        others = f", {kept} kept: in use again, or not to be removed by this user" if kept else ""
        talk("info", f"{gone} forgotten{others}")
