"""``lockctl list``: the locks of a backend, for people and, with ``--json``, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import lock_document
from lockctl.cli.parameters import LockWord
from lockctl.cli.places import Place, ask_each
from lockctl.cli.query import SORTS, STATES, Query, ordered, say_failures, sort_option, state_option, with_query

if TYPE_CHECKING:
    from lockctl.model import LockInfo


@with_settings("backend", "config")
@verb(
    "list",
    examples={
        "lockctl list --all": "All locks of the configured backend, the free ones too.",
        "lockctl list 'deploy-*' -b redis://redis.example/0": "Those in use whose names begin so, on a server.",
    },
)
@click.argument("pattern", default="*", type=LockWord(), metavar="[GLOB]")
@click.option("-a", "--all", "everything", is_flag=True, help="Show the free locks, too.")
@state_option(STATES, "Show only the locks in these states: held, foreign, free.")
@sort_option(SORTS, "name")
@with_query
def command(pattern: str, **given: Any) -> int:
    """List the locks of a backend that are held or waited for.

    Name, state, holder, token, age, when the lease ends, waiters, command.
    """
    # nothing is printed before the backend has said everything: half a list would look like a whole one
    query = Query(**given)
    places = query.places()
    answers, failed = ask_each(places, lambda place: list(place.open().list(pattern, timeout=REQUEST_TIMEOUT)))
    there = [(place, lock) for place, locks in answers for lock in locks]
    found = ordered([each for each in there if query.wants(each[1])], query.sort)
    if not query.for_people:
        query.print((place, lock_document(lock)) for place, lock in found)
        return say_failures(failed)
    if found:
        from lockctl.cli import screen

        screen.print_locks(found, wide=query.form == "wide", several=query.all_backends)
    if answers:
        Talk(verbose=True)("info", _summary([place for place, _ in answers], pattern, there, found))
    return say_failures(failed)


def _summary(
    places: list[Place], pattern: str, there: list[tuple[Place, LockInfo]], found: list[tuple[Place, LockInfo]]
) -> str:
    """How many locks were found, and where: an empty list may be one of the wrong place."""
    of = "" if pattern == "*" else f" that matches {pattern}"
    count = f"{len(found)} lock{'s' * (len(found) != 1)}" if found else f"no lock{of}"
    hidden = len(there) - len(found)
    rest = f", {hidden} more not shown (--all shows them)" if hidden else ""
    hints = "".join(f"; {place.hint}" for place in places if place.hint)
    return f"{count} in {', '.join(map(str, places))}{rest}{hints}"
