"""``lockctl inspect``: one lock in full, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.options import AS_JSON, REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import lock_document, on_styled_screen, print_data
from lockctl.cli.parameters import LockName, open_backend
from lockctl.cli.rows import facts, waiter_place
from lockctl.clock import utc


@with_settings("backend", "config")
@verb(
    "inspect",
    examples={
        "lockctl inspect nightly": "Who holds it, who waits, and how the last run ended.",
        "lockctl inspect nightly --json | jq -r .key": "The key of the lock in the backend, for other tools.",
    },
)
@click.argument("name", type=LockName())
@AS_JSON
def command(name: str, *, as_json: bool, backend: str | None, config: str | None) -> int:
    """Show one lock in full.

    Its holder, the waiters in order, and the key that other tools use.
    """
    lock = open_backend(backend, config, name).inspect(name, timeout=REQUEST_TIMEOUT)
    if as_json:
        print_data(json.dumps(lock_document(lock), indent=2))
        return exit_status.OK
    if on_styled_screen():
        from lockctl.cli import screen

        screen.print_lock(lock)
        return exit_status.OK
    lines = facts(lock)
    for number, waiter in enumerate(lock.waiters or (), 1):
        since = f", since {utc(waiter.since)}" if waiter.since is not None else ""
        lines.append((f"waiter {number}", waiter_place(waiter) + since))
    print_data("\n".join(f"{label + ':':12}{text}" for label, text in lines))
    return exit_status.OK
