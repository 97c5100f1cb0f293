"""Making a plan that fails smaller: fewer faults, fewer runs, then simpler times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.check import violations
from tests.simulation.history import History
from tests.simulation.plan import INFINITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.plan import Fault, Plan, RunPlan

MOST_TRIES = 600
OF_RUNS = ("stop", "pause", "signal", "threads", "halt")  # kinds of faults that belong to a run


def happens(plan: Plan) -> list[str]:
    """What is wrong in the history of a plan."""
    history = History(plan)
    found = judged(history)
    history.forget()
    return found


def judged(history: History) -> list[str]:
    """Let a history happen: what is wrong in it. What cannot be judged, such as what no code should write, is wrong."""
    try:
        history.run()
        return violations(history)
    except Exception as bug:
        history.world.end()
        history.world.note_bug(bug, "what looks at it")
        return [f"bug: {each}" for each in history.wrong]


def kinds_of(found: list[str]) -> set[str]:
    """The kinds of what is wrong."""
    return {each.partition(":")[0] for each in found}


def shrunk(plan: Plan, kind: str, find: Callable[[Plan], list[str]] = happens) -> Plan:
    """The smallest plan found in which the same *kind* of thing goes wrong."""
    tries = 0
    again = True
    while again and tries < MOST_TRIES:
        again = False
        for smaller in _smaller(plan):
            tries += 1
            if kind in kinds_of(find(smaller)):
                plan, again = smaller, True
                break
            if tries >= MOST_TRIES:
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for number in range(len(plan.faults)):
        yield plan._replace(faults=plan.faults[:number] + plan.faults[number + 1 :])
    if len(plan.runs) > 1:
        for number in range(len(plan.runs)):
            runs = plan.runs[:number] + plan.runs[number + 1 :]
            yield plan._replace(runs=runs, faults=tuple(_without(plan.faults, number)))
    if any(rate != 1.0 for rate in plan.rates):
        yield plan._replace(rates=(1.0,) * len(plan.rates))
    if plan.fastest != 0.001:
        yield plan._replace(fastest=0.001, slowest=0.001)
    for number, run in enumerate(plan.runs):
        for simpler in _simpler(run):
            yield plan._replace(runs=(*plan.runs[:number], simpler, *plan.runs[number + 1 :]))
    for number, fault in enumerate(plan.faults):
        for rounder in _rounder(fault):
            yield plan._replace(faults=(*plan.faults[:number], rounder, *plan.faults[number + 1 :]))


def _without(faults: tuple[Fault, ...], run: int) -> Iterator[Fault]:
    for fault in faults:
        if fault.kind not in OF_RUNS or fault.whom < run:
            yield fault
        elif fault.whom > run:
            yield fault._replace(whom=fault.whom - 1)


def _simpler(run: RunPlan) -> Iterator[RunPlan]:
    usual = {"stubborn": 0.05, "outlived": 0.0, "succeeds": True, "once_per": None, "min_hold": 0.0}
    usual |= {
        "max_runtime": None,
        "waits_for_rest": False,
        "executable": True,
        "dying": 0.0,
        "forks": False,
        "fence": False,
        "leaves_rest": False,
        "first_signal": 15,
    }
    for name, content in usual.items():
        if getattr(run, name) != content:
            yield run._replace(**{name: content})  # type: ignore[arg-type]
    for name in ("start", "length"):
        at = getattr(run, name)
        for simple in (0.0, float(round(at)), round(at, 1)):
            if simple < at or (simple != at and round(at, 1) != at):
                yield run._replace(**{name: simple})  # type: ignore[arg-type]


def _rounder(fault: Fault) -> Iterator[Fault]:
    for name in ("at", "value"):
        at = getattr(fault, name)
        if at < INFINITE:
            for simple in (float(round(at)), round(at, 1)):
                if simple != at and round(at, 1) != at:
                    yield fault._replace(**{name: simple})  # type: ignore[arg-type]
