"""``lockctl history``: the last runs under a lock, for people and, with ``--json``, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lockctl import registry
from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import REQUEST_TIMEOUT, with_settings
from lockctl.cli.output import run_document
from lockctl.cli.parameters import LockName, Parsed
from lockctl.cli.places import Place, ask_each, is_known, not_known
from lockctl.cli.query import LAST, Query, say_failures, sort_option, state_option, with_query
from lockctl.cli.rows import place as place_text
from lockctl.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Run

OUTCOMES = ("exited", "signaled", "held", "lost", "revoked", "timed_out", "not_executed")
SORTS: dict[str, Callable[[Run], Any]] = {
    "when": lambda run: -(run.ended_at or run.started_at or 0.0),
    "duration": lambda run: LAST if run.duration is None else -run.duration,
    "token": lambda run: LAST if run.token is None else -run.token,
    "outcome": lambda run: (run.outcome, run.exit_code or 0),
    "where": lambda run: place_text(run.host, None, run.user),
}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise ValueError(f"{printable(text[:30])!r} is not a number of runs: 1 to 999999999")
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
@click.option("-a", "--all", "everything", is_flag=True, help="Show all runs that are kept, whatever --limit says.")
@state_option(OUTCOMES, "Show only the runs with these outcomes: " + ", ".join(OUTCOMES) + ".")
@sort_option(SORTS, "when")
@with_query
def command(name: str, *, limit: int, **given: Any) -> int:
    """Show the last runs under a lock, the newest first.

    Host, command, token, start, duration, outcome.
    """
    query = Query(**given)
    places = query.places(name)

    def look(place: Place) -> tuple[tuple[Run, ...], bool]:
        backend = place.open()
        runs = backend.history(name, timeout=REQUEST_TIMEOUT)
        return runs, bool(runs) or is_known(
            backend, backend.inspect(name, timeout=REQUEST_TIMEOUT), timeout=REQUEST_TIMEOUT
        )

    answers, failed = ask_each(places, look)
    runs = [(place, run) for place, (all_runs, _) in answers for run in all_runs]
    runs = [each for each in runs if not query.states or each[1].outcome in query.states]
    if len(answers) > 1:  # one alone has them in their order, whatever the clocks of their hosts
        runs.sort(key=lambda each: SORTS["when"](each[1]))
    runs = runs[: None if query.everything else limit]
    if query.sort != "when":
        runs.sort(key=lambda each: SORTS[query.sort](each[1]))
    if not query.for_people:
        query.print((place, run_document(name, _scheme(place), run)) for place, run in runs)
    elif runs:
        from lockctl.cli import screen

        screen.print_runs(runs, wide=query.form == "wide", several=query.all_backends)
    status = say_failures(failed)
    known = [place for place, (_, there) in answers if there]
    if not known and not status:
        Talk()("error", not_known(name, places))
        return exit_status.NOT_KNOWN
    if query.for_people and known:
        count = f"{len(runs)} run{'s' * (len(runs) != 1)}" if runs else "no run"
        Talk(verbose=True)("info", f"{count} under {name} in {', '.join(map(str, known))}")
    return status


def _scheme(place: Place) -> str:
    return registry.capabilities_of(place.url).scheme
