"""``lockctl inspect``: one lock in full, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import lock_document, print_data
from lockctl.cli.parameters import LockName
from lockctl.cli.places import Place, ask_each, is_known, not_known
from lockctl.cli.query import Query, say_failures, to_yaml, with_query

if TYPE_CHECKING:
    from lockctl.model import LockInfo


@with_settings("backend", "config")
@verb(
    "inspect",
    examples={
        "lockctl inspect nightly": "Who holds it, who waits, and how the last run ended.",
        "lockctl inspect nightly --json | jq -r .key": "The key of the lock in the backend, for other tools.",
    },
)
@click.argument("name", type=LockName())
@with_query
def command(name: str, **given: Any) -> int:
    """Show one lock in full.

    Its holder, the waiters in order, and the key that other tools use.
    """
    query = Query(**given)
    places = query.places(name)

    def look(place: Place) -> tuple[LockInfo, bool]:
        backend = place.open()
        lock = backend.inspect(name, timeout=REQUEST_TIMEOUT)
        return lock, is_known(backend, lock, timeout=REQUEST_TIMEOUT)

    answers, failed = ask_each(places, look)
    known = [(place, lock) for place, (lock, there) in answers if there]
    if query.for_people and known:
        from lockctl.cli import screen

        screen.print_facts(known)
    elif query.form == "json" and not query.all_backends:
        print_data(json.dumps(lock_document(answers[0][1][0]), indent=2))
    elif query.form == "yaml" and not query.all_backends:
        print_data(to_yaml(lock_document(answers[0][1][0])))
    elif not query.for_people:
        query.print((place, lock_document(lock)) for place, lock in known)
    status = say_failures(failed)
    if known or status:
        return status
    Talk()("error", not_known(name, places))
    return exit_status.NOT_KNOWN
