"""Situations in which it counts what was before: a silence, a death, a hold, another use, another name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from tests.simulation.plan import ANSWER, BOTH, GUARD, INFINITE, KEEPER, KEPT, NODES, REQUEST, Fault, Plan, RunPlan

if TYPE_CHECKING:
    import random

TTLS = (6.0, 10.0, 20.0)
FOUND_AGAIN = ACQUIRE_TIMEOUT + 5.0  # seconds after an outage in which who waits has a place in the queue again


def forgotten_as_it_is_handed_on(chance: random.Random, plan: Plan) -> Plan:
    """A name that is to be forgotten in the moment in which its lock is given back, and some wait for it."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02, 0.05))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(3.0, 5.0))
    behind = [first._replace(host=number % 2, start=0.2 + 0.1 * number, length=1.0) for number in (1, 2, 3)]
    runs = (first, *behind[: chance.choice((1, 2, 2, 3))])
    at, apart = first.length + slowest * chance.uniform(0.0, 5.0), slowest * chance.uniform(2.0, 8.0)
    faults = [Fault("forget", number % 2, at + number * apart, chance.choice((0.0, 0.0, 0.2))) for number in range(4)]
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def forgotten_beside_another(chance: random.Random, plan: Plan) -> Plan:
    """Two names that are forgotten one after the other, and then all clocks go back."""
    first, slowest = RunPlan(0, 0.0, 6.0, 30.0, 0.1), chance.choice((0.002, 0.02))
    other = first._replace(locks=("weekly",))
    runs = [first._replace(start=chance.uniform(0.0, 1.5)), other._replace(host=1, start=chance.uniform(0.0, 1.5))]
    runs += [first._replace(host=1, start=8.0), other._replace(start=8.0 + chance.random())]
    times = chance.sample((4.0, 5.5), 2)
    faults = [Fault("forget", 0, times[0], 0.2), Fault("forget", 1, times[1], 0.2, 1)]
    back = -chance.uniform(8.0, 60.0)
    faults += [Fault("jump", 0, 7.0, back), Fault("wrong", 0, 7.0, back), Fault("wrong", 1, 7.0, back)]
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=tuple(runs), faults=tuple(faults))


def comes_long_after_a_silence(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who waits and is not heard of for longer than its place lasts, and long after that another one comes."""
    ttl = chance.choice((6.0, 10.0))
    cut = Fault(
        "cut", 1, chance.uniform(1.0, 4.0), chance.uniform(1.2, 2.6) * ttl, chance.choice((REQUEST, ANSWER, BOTH))
    )
    again = cut.at + cut.value + FOUND_AGAIN
    first = RunPlan(0, 0.0, ttl, 60.0, again + chance.uniform(4.0, 6.0))
    second = first._replace(host=1, start=0.5, wait=200.0, length=0.5)
    third = second._replace(host=0, start=again + chance.uniform(0.0, 3.0))
    return plan._replace(runs=(first, second, third), faults=(cut,))


def next_hold_begins(chance: random.Random, plan: Plan) -> Plan:
    """Some who come when a hold is over, one of whom says so too late: the next one has begun."""
    first = RunPlan(0, 0.0, 10.0, 60.0, 0.1, min_hold=chance.uniform(1.0, 2.0))
    second = first._replace(start=first.min_hold + chance.uniform(0.5, 2.0), min_hold=chance.choice((8.0, 15.0)))
    third = second._replace(host=1, start=second.start + chance.uniform(-0.05, 0.02), min_hold=0.0)
    fourth = third._replace(host=0, start=second.start + chance.uniform(2.0, 5.0))
    late = Fault("late", 1, chance.randrange(1, 16), chance.uniform(0.5, 4.0), REQUEST)
    return plan._replace(runs=(first, second, third, fourth), faults=(late,))


def other_slots_later(chance: random.Random, plan: Plan) -> Plan:
    """Some who say another number of slots than others before them, of whom one may have been killed, or kept the lock."""
    ttl, mode = chance.choice((6.0, 10.0)), "exclusive" if plan.store == "redlock" else "slot"
    slots = {"slot": chance.sample((2, 3), 2), "exclusive": [1, 1]}[mode]
    first = RunPlan(0, 0.0, ttl, 30.0, 3.0, mode=mode, slots=slots[0])
    start, faults = chance.uniform(4.0, 8.0), tuple[Fault, ...]()
    before = [first, first._replace(host=1, start=0.3, length=chance.choice((0.5, 3.0)))]
    if chance.random() < 0.6:
        faults = tuple([Fault("pause", 0, 1.5 + chance.random(), INFINITE, who) for who in (KEEPER, GUARD)])
        start += 4 * ttl
    elif chance.random() < 0.5:
        before = [first._replace(mode="exclusive", slots=1, length=0.5, min_hold=3.0)]
        start += 3.0
    after = [first._replace(host=number, start=start + 0.2 * number, length=1.0, slots=slots[1]) for number in (1, 0)]
    if chance.random() < 0.3:
        after = [each._replace(mode="exclusive", slots=1) for each in after]
    return plan._replace(runs=(*before, *after), faults=faults)


def ended_as_it_is_kept(chance: random.Random, plan: Plan) -> Plan:
    """A connection that ends just before a lock is to be kept closed after its job, which is another's by then."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(2.0, 4.0))
    first = first._replace(min_hold=first.length + chance.uniform(8.0, 25.0))
    others = [first._replace(host=1, start=start, length=1.0, min_hold=0.0) for start in (0.5, 0.8)]
    others[0] = others[0]._replace(length=chance.uniform(1.0, 9.0))  # a second request may come meanwhile
    at = first.length + 0.3 * chance.random()
    cut = Fault("cut", 0, at - 0.3 * chance.random(), chance.uniform(0.5, 6.0), chance.choice((REQUEST, ANSWER, BOTH)))
    return plan._replace(runs=(first, *others), faults=(cut, Fault("ended", 0, at)))


def clock_back_beside_others(chance: random.Random, plan: Plan) -> Plan:
    """Some who are inside together, of whom the last one has left, a clock that goes back, and then one loses its place."""
    mode, slots = ("slot", 2) if plan.store == "consul" or chance.random() < 0.3 else ("shared", 1)
    if plan.store == "redlock":
        mode, slots = "exclusive", 1
    first = RunPlan(0, 0.0, 10.0, 60.0, 8.0, mode=mode, slots=slots)
    second = first._replace(start=chance.uniform(0.3, 0.8), length=0.3)
    later = [first._replace(start=start, length=0.5) for start in (0.9, 5.0)]
    later[1] = later[1]._replace(mode=chance.choice((mode, "exclusive")))
    later[1] = later[1]._replace(slots=slots if later[1].mode == "slot" else 1)
    back = -chance.uniform(5.0, 60.0)
    faults = [Fault("wrong", 0, 2.0, back), Fault("revoke", 0, 3.0 + chance.random(), 0.0, 1)]
    if plan.store not in ("file", "sqlite"):
        faults.append(Fault("jump", 0, 2.0, back))
    runs = (first, second, *later[chance.randrange(2) :])
    return plan._replace(runs=runs, faults=tuple(faults))


def few_keep_it(chance: random.Random, plan: Plan) -> Plan:
    """Most of several servers are away when a lock is to be kept closed after its job for longer than its lease."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.5, 3.0))
    first = first._replace(min_hold=first.length + chance.uniform(1.5, 3.0) * ttl)
    second = first._replace(host=1, start=chance.uniform(0.3, 3.0), length=1.0, min_hold=0.0)
    away = chance.sample(range(NODES), chance.choice((3, 3, 4)))
    faults = [
        Fault("down", each, first.length - 0.2 * chance.random(), chance.uniform(0.5, 6.0), KEPT) for each in away
    ]
    return plan._replace(runs=(first, second), faults=tuple(faults))


def goes_on_as_another_is_inside(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who stood still when a slot was to be its, and goes on when another one has that."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(2.0, 3.0), mode="slot", slots=2)
    runs = (first, first._replace(length=6 * ttl), first._replace(start=0.3), first._replace(start=0.6, length=3 * ttl))
    still = Fault("pause", 2, chance.uniform(1.0, first.length), chance.uniform(1.2, 2.2) * ttl, KEEPER)
    return plan._replace(runs=runs, faults=(still,))


def stands_still_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody with a long lease who waits and stands still until its place is gone, and another one has the lock by then."""
    ttl = chance.choice((40.0, 60.0))
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(3.0, 8.0))
    second = first._replace(host=1, start=0.5, wait=200.0, length=1.0)
    third = first._replace(start=chance.choice((0.8, first.length + 1.0)), length=1.5 * ttl, stubborn=INFINITE)
    span = ttl * chance.uniform(0.55, 0.98)
    still = Fault("pause", 1, chance.uniform(1.0, first.length), span, KEEPER)
    if chance.random() < 0.3:
        still = Fault("cut", 1, still.at, span, BOTH)
    return plan._replace(runs=(first, second, third), faults=(still,))


def granted_late(chance: random.Random, plan: Plan) -> Plan:
    """A request so late that another one has had the lock meanwhile, and it is free again when that comes."""
    ttl = chance.choice(TTLS)
    before = RunPlan(0, 0.0, ttl, 60.0, 0.05)
    late = Fault("late", 1, chance.randrange(1, 16), chance.uniform(0.3, 4.0), REQUEST)
    second = before._replace(host=1, start=1.0, length=0.3)
    meanwhile = [before._replace(start=1.0 + at) for at in (chance.uniform(0.01, 0.1), chance.uniform(0.2, 2.0))]
    runs = (before, second, *meanwhile[: chance.choice((1, 2))])
    faults = [late]
    if chance.random() < 0.3:
        faults.append(Fault("wrong", 1, 0.5, -chance.uniform(0.1, 30.0)))
    if "redlock" not in plan.store and chance.random() < 0.2:
        runs = tuple([each._replace(mode="slot", slots=2) for each in runs])
    return plan._replace(runs=runs, faults=tuple(faults))


OF_A_HOST = (other_slots_later, next_hold_begins, clock_back_beside_others, goes_on_as_another_is_inside)
OF_ALL = (
    *(other_slots_later, next_hold_begins, clock_back_beside_others),
    *(forgotten_as_it_is_handed_on, forgotten_beside_another, comes_long_after_a_silence),
    *(stands_still_in_line, granted_late, granted_late),
)
OF_CONNECTIONS = (ended_as_it_is_kept,)
