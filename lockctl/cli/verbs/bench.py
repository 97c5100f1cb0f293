"""``lockctl bench``: how quick the locks of the backend are from here."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lockctl import registry
from lockctl.bench.measure import CONTENTION, LATENCY, Result, measure, percentile
from lockctl.bench.worker import Bench
from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, with_settings
from lockctl.cli.output import data_stream, print_data
from lockctl.cli.parameters import Parsed, positive_duration, whole_number
from lockctl.cli.places import url_and_settings
from lockctl.cli.rows import UNKNOWN
from lockctl.cli.run import schedule_of
from lockctl.clock import monotonic
from lockctl.durations import format_duration
from lockctl.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Capabilities

    Tell = Callable[[str, float], None]

PARTS = (0.5, 0.99)  # the percentiles that are shown
REDRAWN = 0.1  # seconds between two pictures
MOST_ROUNDS = 1_000_000
MOST_CONTENDERS = 64  # each is a process with a connection


@with_settings("backend", "config", "ttl")
@verb(
    "bench",
    examples={
        "lockctl bench": "The backend of the configuration, for about ten seconds.",
        "lockctl bench -b redis://cache1:6379/0 --contenders 16 --for 30s --json": "Longer, for a program.",
    },
)
@click.option(
    "--rounds",
    metavar="N",
    type=Parsed(whole_number(MOST_ROUNDS)),
    default="200",
    help="Locks to take without a rival.  [default: 200]",
)
@click.option(
    "--contenders",
    metavar="N",
    type=Parsed(whole_number(MOST_CONTENDERS)),
    default="4",
    help="Processes that want the same lock.  [default: 4]",
)
@click.option(
    "--for",
    "seconds",
    metavar="DURATION",
    type=Parsed(positive_duration("5s")),
    default="5s",
    help="How long they contend.  [default: 5s]",
)
@AS_JSON
def command(
    rounds: int, contenders: int, seconds: float, *, as_json: bool, config: str | None, **given: str | None
) -> int:
    """Measure the locks of the backend.

    Acquire and release without a rival, then hand-off and throughput with several contenders.
    """
    data_stream()
    url, settings = url_and_settings(given, config)
    name = f"lockctl-bench-{os.urandom(4).hex()}"
    schedule = schedule_of(settings["ttl"], None, url)
    bench = Bench(url, name, schedule.ttl, rounds, contenders, seconds)
    with _progress() as tell:
        result = measure(bench, tell)
    promised = registry.capabilities_of(url)
    if as_json:
        print_data(_document(bench, result, promised))
    else:
        _print(bench, result, promised)
    if not result.forgotten:
        Talk()("warning", f"records of {name} are left: lockctl prune 'lockctl-bench-*' --older-than 1m removes them")
    return exit_status.OK


@contextmanager
def _progress() -> Iterator[Tell]:
    """A bar on stderr, if somebody looks there."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _what, _part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # without a thread that draws: processes are forked meanwhile, and signals are blocked in this thread alone
    columns = (TextColumn("{task.description:10}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        progress.console.show_cursor(True)  # who is stopped by Ctrl-Z or killed cannot do it then
        tasks = {what: progress.add_task(what, total=1.0) for what in (LATENCY, CONTENTION)}
        drawn = 0.0

        def tell(what: str, part: float) -> None:
            nonlocal drawn
            progress.update(tasks[what], completed=part)
            if monotonic() - drawn > REDRAWN:
                drawn = monotonic()
                progress.refresh()

        yield tell


def _times(result: Result) -> dict[str, tuple[float, ...]]:
    return {"acquire": result.acquires, "release": result.releases, "handoff": result.handoffs}


def _throughput(result: Result) -> float | None:
    return result.grants / result.span if result.span else None


def _print(bench: Bench, result: Result, promised: Capabilities) -> None:
    from lockctl.cli import screen

    rows = []
    for what, times in _times(result).items():
        usual = promised.usual_latency if what == "acquire" else None
        shown = f"{usual[0] * 1000:g} to {usual[1] * 1000:g} ms" if usual else UNKNOWN
        rows.append(screen.Row((what, *(_milliseconds(percentile(times, part)) for part in PARTS), shown)))
    print_data(f"{printable(str(bench.url))}, lock {bench.name}, ttl {format_duration(bench.ttl)}")
    screen.print_table(screen.MEASURED, rows)
    speed = _throughput(result)
    throughput = UNKNOWN if speed is None else f"{speed:.0f} locks per second"
    print_data(f"{throughput} with {bench.contenders} contenders in {format_duration(bench.seconds)}")


def _milliseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds * 1000:.2f} ms"


def _document(bench: Bench, result: Result, promised: Capabilities) -> str:
    return json.dumps(
        {
            "backend": promised.scheme,
            "rounds": bench.rounds,
            "contenders": bench.contenders,
            "seconds": bench.seconds,
            "ttl": bench.ttl,
            **{
                what: {"p50": percentile(times, PARTS[0]), "p99": percentile(times, PARTS[1]), "count": len(times)}
                for what, times in _times(result).items()
            },
            "throughput": _throughput(result),
            "usual_latency": promised.usual_latency,
        },
        indent=2,
    )
