"""``lockctl list``: the locks of a backend, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.options import AS_JSON, REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import json_array, lock_document, on_styled_screen, print_data, table
from lockctl.cli.parameters import LockWord, open_backend
from lockctl.cli.rows import HEADING, row

MOST_STYLED = 500  # rows: rich takes 0.4 ms for each, and nobody reads more of them on a screen


@with_settings("backend", "config")
@verb(
    "list",
    examples={
        "lockctl list": "All locks of the configured backend.",
        "lockctl list 'deploy-*' -b redis://redis.example/0": "Those whose names begin so, on a server.",
    },
)
@click.argument("pattern", default="*", type=LockWord(), metavar="[GLOB]")
@AS_JSON
def command(pattern: str, *, as_json: bool, backend: str | None, config: str | None) -> int:
    """List the locks of a backend with their holders.

    Name, state, holder, token, age, waiters.
    """
    # nothing is printed before the backend has said everything: half a list would look like a whole one
    found = open_backend(backend, config).list(pattern, timeout=REQUEST_TIMEOUT)
    if as_json:
        print_data(json_array(json.dumps(lock_document(lock), indent=2) for lock in found))
        return exit_status.OK
    locks = list(found)
    if not locks:
        return exit_status.OK
    if on_styled_screen() and len(locks) <= MOST_STYLED:
        from lockctl.cli import screen

        screen.print_locks(locks)
    else:
        print_data(table([HEADING, *(row(lock) for lock in locks)]))
    return exit_status.OK
