"""Plans near those in which a fault was found before, as fuzzers begin from a corpus: the same, at other times.

What is hard to come by once is hard to come by again: another mistake in the same code needs much of the same plan.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.plan import INFINITE, Fault, Plan, RunPlan

if TYPE_CHECKING:
    import random

FAULTS = sorted((Path(__file__).parent / "faults").glob("*.patch"))
# with these, plans for the store of which nothing but a cell is known go for any other one, too
OF_ANY_STORE = (
    *("stop", "pause", "sleep", "lose", "late", "twice", "cut", "slow", "down", "jump", "wrong", "signal"),
    *("revoke", "forget", "parted"),
)
ANYWHERE = ("look", "marks", "threads", "halt")  # so do plans of any store, with these beside them
OF_ONE_STORE = ("power", "replaced", "failover")  # what is left after them is planned for one store
WITHOUT = {"redlock": ("shared", "slot"), "consul": ("shared",)}  # the modes that a store does not have
WITHOUT_LISTS = ("file", "seconds", "s3", "azblob", "gcs")  # of directories, and by threads
BY_NUMBER = ("stop", "lose", "late", "twice", "parted")  # faults whose time is the number of a step, or of a message
IN_SECONDS = (
    *("stop", "pause", "sleep", "late", "twice", "cut", "parted", "slow", "deposed", "failover"),
    *("down", "jump", "wrong", "table"),
)
LONGEST = 60.0  # seconds of a lease: histories with longer ones take too much time
SHORTEST = 6.0  # the same: with shorter ones, what a store may take in seconds is more than the lease
AS_LONG = 0.2  # part of a time by which it may be changed
NEXT = 2  # steps, or messages, by which a number may be changed

left_out = ""  # a fault whose plan is not known: whether others find it


def read(line: str) -> Plan:
    """The plan that a line of a file has."""
    plan: Plan = eval(line, {"Plan": Plan, "RunPlan": RunPlan, "Fault": Fault, "inf": INFINITE, "__builtins__": {}})
    return plan


@cache
def _plans() -> dict[str, Plan]:
    """Fault -> the plan in which it was found."""
    found = {}
    for path in FAULTS:
        with path.open() as file:
            found[path.stem] = read(next(file))
    found.pop(left_out, None)
    return found


def of_stores(stores: tuple[str, ...], begin: int) -> list[tuple[str, Plan]]:
    """The plans in which faults were found with these stores, each with the name of its fault.

    *begin*: a number that says with which one, as a short search does not come to the end.
    """
    found = [(name, plan) for name, plan in _plans().items() if plan.store in stores]
    first = begin % max(len(found), 1)
    return found[first:] + found[:first]


def exchanged(stores: tuple[str, ...]) -> list[tuple[str, Plan]]:
    """Each plan with each other one of these stores that it fits, and its fault: what is hard with one is with all."""
    pairs = [(name, with_store(plan, store)) for name, plan in _plans().items() for store in sorted(set(stores))]
    return [(name, plan) for name, plan in pairs if plan is not None and plan.store != _plans()[name].store]


def with_store(plan: Plan, store: str) -> Plan | None:
    """A plan in which a fault was found with one store for another one; ``None``: it needs what that one does not have."""
    return plan._replace(store=store, lock_delay=None) if _fits(plan, store) else None


def _fits(plan: Plan, store: str) -> bool:
    if any(not SHORTEST <= run.ttl <= LONGEST or run.mode in WITHOUT.get(store, ()) for run in plan.runs):
        return False
    lists = store in WITHOUT_LISTS and any(each.kind == "look" and each.value for each in plan.faults)
    return not lists and all(each.kind in _kinds(store) for each in plan.faults)


@cache
def _kinds(store: str) -> frozenset[str]:
    """The kinds of faults that a plan of any store may have with this one."""
    own = {each.kind for plan in _plans().values() if plan.store == store for each in plan.faults}
    return frozenset((*OF_ANY_STORE, *ANYWHERE, *own)).difference(OF_ONE_STORE)


@cache
def plans(store: str, without: tuple[str, ...]) -> tuple[Plan, ...]:
    """The plans in which faults were found with a store, or which may be tried with it; *without*: modes it lacks."""
    found = []
    for plan in _plans().values():
        is_for_any = plan.store == "exact" and all(each.kind in OF_ANY_STORE for each in plan.faults)
        if not (plan.store == store or is_for_any) or any(run.ttl > LONGEST for run in plan.runs):
            continue
        if any(run.mode in without for run in plan.runs):
            continue
        if not any(each.kind == "power" for each in plan.faults):  # what the disk has by then is planned exactly
            found.append(plan._replace(store=store))
    return tuple(found)


def near(chance: random.Random, plan: Plan, without: tuple[str, ...]) -> Plan:
    """One of the plans for the store of *plan*, changed in some of its times; *without*: see :func:`plans`."""
    known = chance.choice(plans(plan.store, without))
    fastest, slowest = chance.choice(((known.fastest, known.slowest), (0.0003, 0.002), (0.01, 0.05)))
    runs = [run._replace(start=_changed(chance, run.start), length=_changed(chance, run.length)) for run in known.runs]
    faults = [_moved(chance, fault) for fault in known.faults if chance.random() > 0.1]
    return known._replace(seed=plan.seed, fastest=fastest, slowest=slowest, runs=tuple(runs), faults=tuple(faults))


def _moved(chance: random.Random, fault: Fault) -> Fault:
    """The same fault at another time, or for another time."""
    if fault.kind in BY_NUMBER:
        fault = fault._replace(at=max(1, fault.at + chance.randint(-NEXT, NEXT)))
    else:
        fault = fault._replace(at=_changed(chance, fault.at))
    return fault._replace(value=_changed(chance, fault.value)) if fault.kind in IN_SECONDS else fault


def _changed(chance: random.Random, seconds: float) -> float:
    if seconds == INFINITE or chance.random() < 0.5:
        return seconds
    return seconds * chance.uniform(1 - AS_LONG, 1 + AS_LONG)
