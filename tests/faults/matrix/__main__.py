"""Play the faults on the stores, print the table, and keep what was seen for the manual.

python -m tests.faults.matrix --repetitions 20 --only etcd --fault "servers wiped" --keep --jobs 8
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.machine import versions
from tests.faults.backends import PLACES
from tests.faults.matrix import page
from tests.faults.matrix.faults import CLUSTERS, FAULTS
from tests.faults.matrix.stage import Stage
from tests.scratch import local_directory
from tests.servers.fixtures import MAKERS
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.matrix.faults import Fault
    from tests.faults.matrix.stage import Outcome

AT_ONCE = 3  # pairs beside each other, where the fault is not that of their servers
TOGETHER = 3  # faults on the same servers, one after the other, where it is not


class Cell(NamedTuple):
    """What became of one fault on one store, in all repetitions. Times in seconds."""

    store: str
    fault: str
    runs: int
    went_on: int
    overlaps: int
    refused: int  # the first token, by a resource that has seen the second
    next_median: float
    next_most: float
    wrong: list[str]


@contextlib.contextmanager
def serving(store: str, directory: Path, *, three: bool) -> Iterator[Any]:
    """Servers of that store; ``None`` where there are none."""
    fixture = CLUSTERS[store] if three else PLACES[store].servers
    if not fixture:
        yield None
        return
    make = (lambda place: Redis(place, fsync=True)) if store == "redis" else MAKERS[fixture]
    made = make(directory / fixture).start()
    try:
        yield getattr(made, "members", made) if store == "redlock" else made
    finally:
        made.discard()


def play(store: str, fault: Fault, servers: Any, directory: Path) -> Outcome:
    """One repetition."""
    stage = Stage(store, servers, directory, fault)
    try:
        return stage.play()
    finally:
        stage.end()


def cell(store: str, name: str, servers: Any, directory: Path, repetitions: int) -> Cell:
    """All repetitions of a fault on a store."""
    fault = FAULTS[name]
    with ThreadPoolExecutor(1 if fault.alone else AT_ONCE) as pool:
        plays = [pool.submit(play, store, fault, servers, directory / str(each)) for each in range(repetitions)]
        seen, wrong = [], []
        for number, each in enumerate(plays):
            try:
                seen.append(each.result())
            except Exception as error:  # the table goes on, and tells it at its end
                wrong.append(f"{number}: {type(error).__name__}: {error}")
    for number, one in enumerate(seen):
        wrong += [f"{number}: {line}" for line in one.wrong]
        if one.overlap and store not in fault.admitted:
            wrong.append(f"{number}: two at once")
    times = [one.next_after for one in seen] or [0.0]
    return Cell(
        store=store,
        fault=name,
        runs=repetitions,
        went_on=sum(one.went_on for one in seen),
        overlaps=sum(one.overlap for one in seen),
        refused=sum(not one.wrong for one in seen),
        next_median=round(statistics.median(times), 1),
        next_most=round(max(times), 1),
        wrong=wrong,
    )


class Task(NamedTuple):
    """Faults that are played one after the other on servers of their own."""

    store: str
    three: bool
    faults: tuple[str, ...]


def tasks(stores: Sequence[str], faults: Sequence[str]) -> Iterator[Task]:
    """All of them, those first that take long."""
    for alone, store, three in itertools.product((True, False), stores, (False, True)):
        found = [name for name in faults if FAULTS[name].stores(store)]
        names = [name for name in found if (FAULTS[name].alone, FAULTS[name].three) == (alone, three)]
        step = 1 if alone else TOGETHER
        for first in range(0, len(names), step):
            yield Task(store, three, tuple(names[first : first + step]))


def played(task: Task, repetitions: int) -> list[Cell]:
    """What became of each of its faults."""
    with tempfile.TemporaryDirectory(prefix="lockctl-faults-", dir=local_directory()) as directory:
        place = Path(directory)
        with serving(task.store, place, three=task.three) as servers:
            return [
                cell(task.store, name, servers, place / name.replace(" ", "-"), repetitions) for name in task.faults
            ]


def keep(found: Sequence[Cell], programs: dict[str, str]) -> None:
    """In place of what was seen before of the same faults on the same stores; *programs* are the versions."""
    before = json.loads(page.RESULTS.read_text())["cells"] if page.RESULTS.exists() else []
    seen = {(each["store"], each["fault"]): each for each in [*before, *(each._asdict() for each in found)]}
    cells = [seen[store, fault] for store in PLACES for fault in FAULTS if (store, fault) in seen]
    stores = list(dict.fromkeys(each["store"] for each in cells))
    leases = [PLACES[store].ttl for store in stores]
    told = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "versions": programs,
        "leases": {"shortest": min(leases), "longest": max(leases)},
        "cells": cells,
    }
    page.RESULTS.write_text(json.dumps(told, indent=1) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    """What the command line says; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(PLACES), help="a store; may be repeated")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep what was seen, and write the page of the manual")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes play at once, on servers of their own")
    given = parser.parse_args(words)
    programs, is_wrong = versions(PLACES) if given.keep else {}, False
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as pool:
        todo = tasks(given.only or list(PLACES), given.fault or list(FAULTS))
        for done in as_completed([pool.submit(played, task, given.repetitions) for task in todo]):
            if done.exception() is not None:  # the table goes on
                is_wrong = True
                print(f"not played: {done.exception()!r}", flush=True)
                continue
            if given.keep:
                keep(done.result(), programs)
            for each in done.result():
                is_wrong = is_wrong or bool(each.wrong)
                print(
                    f"{each.store:11} {each.fault:23} {each.runs:3} runs {each.went_on:3} went on"
                    f" {each.overlaps:3} overlaps {each.refused:3} refused,"
                    f" next after {each.next_median:5.1f} s ({each.next_most:.1f})",
                    *each.wrong,
                    sep="\n    ",
                    flush=True,
                )
    if given.keep:
        page.write()
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
