"""Histories by the thousand, until one is wrong or the time is over.

python -m tests.simulation --seconds 180            those in which faults were found before, and new ones from a new seed on
python -m tests.simulation --seed 7 --histories 500  these, and no others
python -m tests.simulation --tell exact:7            what happens in one
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation import kept, modules
from tests.simulation.history import History
from tests.simulation.shrink import happens, judged, kinds_of, shrunk
from tests.simulation.situations import as_its_store_has_it, drawn
from tests.simulation.stores import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from tests.simulation.plan import Plan


# of each store so many of all: a history of one takes up to twice as long as one of another
SHARES = {
    "exact": 22,
    "seconds": 8,
    "redis": 14,
    "etcd": 8,
    "etcd-cluster": 4,
    "consul": 8,
    "zookeeper": 6,
    "postgresql": 4,
    "transaction": 4,
    "mysql": 3,
    "redlock": 4,
    "file": 4,
    "s3": 3,
    "azblob": 2,
    "gcs": 2,
    "dynamodb": 4,
    "kubernetes": 4,
    "nats": 4,
    "sqlite": 2,
}


CHANCES = 30  # seeds of small chances that a plan is tried with, at most
AGAIN = 2  # times that a search tries each known plan with another one of these, after all with their own
IN_TURN = 2  # plans with other stores before each new one: in the same time they find more


class Known(NamedTuple):
    """Plans in which faults were found before, each with a name."""

    first: tuple[tuple[str, Plan], ...] = ()  # to begin with
    between: tuple[tuple[str, Plan], ...] = ()  # that come in turn with new ones, as long as there are any


class Task(NamedTuple):
    """What one process of Python tries."""

    first: int
    step: int
    histories: int
    until: float  # of the monotonic clock
    stores: tuple[str, ...]
    stop: Any  # an event: another one has found something
    known: Known


class Found(NamedTuple):
    """What it has found: after how many histories which one was wrong, if any."""

    histories: int
    name: str = ""  # STORE:SEED, or the fault that was found in it before
    plan: Plan | None = None


def prepare() -> None:
    """Replace what lockctl sees of the world. Of the memory, only what histories leave is looked through for rubbish."""
    modules.install()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def search(task: Task) -> Found:
    """Try seeds until a history is wrong, or to the end."""
    tried = 0
    for name, plan in _plans_of(task):
        if tried >= task.histories or time.monotonic() >= task.until or task.stop.is_set():
            break
        tried += 1
        if happens(plan):
            task.stop.set()
            return Found(tried, name, plan)
    return Found(tried)


def _plans_of(task: Task) -> Iterator[tuple[str, Plan]]:
    yield from task.known.first
    between, seed = iter(task.known.between), task.first
    while True:
        yield from islice(between, IN_TURN)
        store = task.stores[seed // task.step % len(task.stores)]
        yield f"{store}:{seed}", drawn(seed, store)
        seed += task.step


def _known(stores: tuple[str, ...], begin: int) -> Known:
    """What a search knows; some faults need more than the plan of another one. Searches differ in *begin*.

    First come all plans, and all with other small chances, and then, in turn with new plans, those with other stores.
    """
    known = kept.of_stores(stores, begin)
    chances = [1 + (begin + turn) % (CHANCES - 1) for turn in range(AGAIN)]
    again = [(name, plan._replace(seed=plan.seed + number)) for number in chances for name, plan in known]
    between = [
        (name, as_its_store_has_it(plan)._replace(seed=plan.seed + chances[0])) for name, plan in kept.exchanged(stores)
    ]
    random.Random(begin).shuffle(between)
    return Known((*known, *again), tuple(between))


def tell(plan: Plan) -> list[str]:
    """Print what happens in a history, and what is wrong in it."""
    history = History(plan, telling=True)
    found = judged(history)
    print(f"store {plan.store}, messages take {plan.fastest:g} to {plan.slowest:g} s, clock rates {plan.rates}")
    for number, run in enumerate(plan.runs):
        print(f"run {number}: {run}")
    for fault in plan.faults:
        print(f"  {fault}")
    for at, who, text in history.world.story:
        print(f"{at:10.3f}  {who:16}  {text}")
    for each in found:
        print(f"WRONG  {each}")
    return found


def show(name: str, plan: Plan) -> None:
    """A wrong history, made as small as it gets."""
    kinds = sorted(kinds_of(happens(plan)))
    print(f"\n{name} is wrong ({', '.join(kinds)}). The smallest history of this kind that was found:\n")
    smallest = shrunk(plan, kinds[0])
    tell(smallest)
    fault, _, store = name.partition(" with ")
    whole = f"--plans tests/simulation/faults/{fault}.patch" + (f" --with {store}" if store else "")
    whole = f"--tell {name}" if ":" in name else whole
    print(f"\n{smallest}\nto see all of it: python -m tests.simulation {whole}", flush=True)


def try_plans(files: list[str], most: int, store: str | None = None) -> int:
    """Try the plans of files, each in so many histories at *most*, or those that fit another *store* with that one.

    1 if anything is wrong.
    """
    status = 0
    for name in files:
        for line in Path(name).read_text().splitlines():
            if line.startswith("Plan("):
                plan = kept.read(line)
                if store is not None:
                    other = kept.with_store(plan, store)
                    if other is None:
                        continue
                    plan = as_its_store_has_it(other)
                # any change of the code can shift the small chances of a history
                chances = (plan._replace(seed=plan.seed + number) for number in range(min(CHANCES, most)))
                found = next(filter(None, map(happens, chances)), [])
                status = 1 if found else status
                print(f"{Path(name).stem}: {'; '.join(found) or 'nothing is wrong'}")
    return status


def run_all(options: argparse.Namespace) -> int:
    """Search with all processors; 1 if a history is wrong."""
    workers = options.jobs
    stores = tuple(name for name in options.store.split(",") for _ in range(SHARES[name]))
    first, known = options.seed, Known()
    if first is None:
        begin = time.time_ns() // 1_000_000 % 10**9
        first, known = 1000 * begin, _known(stores, begin)
    each = -(-options.histories // workers)
    began = time.monotonic()
    context = multiprocessing.get_context("fork")
    stop, until = context.Event(), began + options.seconds
    tasks = [
        Task(first + number, workers, each, until, stores, stop, Known(*(plans[number::workers] for plans in known)))
        for number in range(workers)
    ]
    links: list[Connection] = []
    for task in tasks:
        ours, its = context.Pipe(duplex=False)
        context.Process(target=lambda task, its: its.send(search(task)), args=(task, its), daemon=True).start()
        its.close()
        links.append(ours)
    found = [link.recv() for link in links]
    tried = sum(each.histories for each in found)
    print(f"{tried} histories from seed {first} in {time.monotonic() - began:.1f} s: {options.store}", flush=True)
    wrong = [(each.name, each.plan) for each in found if each.plan is not None]
    for name, plan in wrong[:1] if options.quiet else wrong:
        if options.quiet:
            print("wrong:", ", ".join(sorted(kinds_of(happens(plan)))), name)
        else:
            show(name, plan)
    return 1 if wrong else 0


def main() -> int:
    """The status for the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seconds", type=float, default=180.0, help="how long to search (180)")
    parser.add_argument("--seed", type=int, help="the first seed (a new one each time)")
    parser.add_argument("--histories", type=int, default=10**9, help="how many at most; of each plan in a file, too")
    parser.add_argument("--store", default=",".join(STORES), help="which stores, with commas between them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--quiet", action="store_true", help="only say which history is wrong")
    parser.add_argument("--tell", metavar="STORE:SEED", nargs="+", help="print what happens in histories")
    parser.add_argument("--without", default="", metavar="FAULT", help="leave out the plan of a fault that is known")
    parser.add_argument("--plans", nargs="+", metavar="FILE", help="try the plans in files")
    parser.add_argument("--with", dest="other", choices=STORES, help="of these, those that fit this store, with it")
    options = parser.parse_args()
    prepare()
    kept.left_out = options.without
    if options.plans:
        return try_plans(options.plans, options.histories, options.other)
    if options.tell:
        parts = [each.partition(":") for each in options.tell]
        wrong = [tell(drawn(int(seed), store)) for store, _, seed in parts]
        return 1 if any(wrong) else 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
