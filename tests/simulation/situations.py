"""Plans drawn from seeds: most often a mess, else one of the situations that are hard to come by."""

from __future__ import annotations

import random

from tests.simulation import afterwards, kept, rare
from tests.simulation.kept import WITHOUT, WITHOUT_LISTS
from tests.simulation.plan import (
    ANSWER,
    BOTH,
    DENIED,
    DISK,
    ENDS_A_WAIT,
    GUARD,
    HELPER,
    INFINITE,
    JOINED,
    KEEPER,
    KEPT,
    LOCK,
    LOST,
    NODES,
    OLD,
    REQUEST,
    SENTINELS,
    Fault,
    Plan,
    RunPlan,
)

DAY = 86400.0  # seconds
NAMES = ("hourly", LOCK, "weekly", "Nightly")
LONGEST_GRACE = 0.28  # part of a ttl that --kill-after may be with every store
KNOWN = 0.2  # part of the histories
RARE = 0.25  # of the rest
LOOKED_AT = 0.03  # of the rest
FENCED = 0.1  # of a mess
OTHERWISE_TOLD = 0.2  # of a mess: jobs that are told to end by other signals than TERM
UNDELAYED = 0.2  # of those with Consul: no lock delay
HARMED = 0.05  # of those on one host: what is kept there
TTLS = (6.0, 6.0, 10.0, 10.0, 10.0, 20.0)
ON_ONE_HOST = ("file", "sqlite")


def drawn(seed: int, store: str) -> Plan:
    """The plan of a seed, and what is as a URL may have it."""
    chance = random.Random(seed)
    plan = _drawn(chance, seed, store)
    # without a delay, a session that ends before its time ends the lock of a job that goes on
    if store == "consul" and chance.random() < UNDELAYED and all(each.kind != "removed" for each in plan.faults):
        return plan._replace(lock_delay=0.0)
    return plan


def _drawn(chance: random.Random, seed: int, store: str) -> Plan:
    """The plan of a seed: most often a mess, else one of the situations that are hard to come by."""
    for part, situation in ((KNOWN, _known), (RARE, _rare), (LOOKED_AT, _looked_at)):
        if chance.random() < part:
            return situation(chance, _quiet(seed, store))
    if store in ON_ONE_HOST and chance.random() < HARMED:
        harm = _without_power if store == "file" or chance.random() < 0.5 else _replaced
        return _on_one_host(harm(chance, _quiet(seed, store)))
    if store in ON_ONE_HOST:
        return _on_one_host(chance.choice(SITUATIONS_OF_A_HOST)(chance, _quiet(seed, store)))
    situations = [_mess, _mess, _mess, _silence, _silence, _stuck, _far, _early_signal, _forgotten, _given_up, _several]
    situations += [_asleep, _forgotten_as_it_begins, _asked_from_afar, _kept_closed, _out_of_time, _asked_in_the_wait]
    situations += [_lingering, _out_of_reach]
    situations += (
        [_few_left, _one_at_a_time]
        if store == "redlock"
        else [_slot_of_the_dead, _at_once, _newcomer, _queued, _cut_in_turn, _given_back_in_vain]
    )
    if "shared" not in WITHOUT.get(store, ()):
        situations.append(_impatient)
    if store == "zookeeper":
        situations += [_apart, _apart, _silent_then_apart, _asked_in_turn, _asked_from_afar, _asked_from_afar]
        situations += [_restarted_in_turn, _restarted_in_turn, _slot_of_the_dead]
    else:
        situations += [_unanswered, _granted_twice, _kept_late, _late_in_line]
    situations += OF_STORES.get(store, ())
    if store == "etcd-cluster":
        return _with_a_leader(chance.choice(situations)(chance, _quiet(seed, store)))
    return chance.choice(situations)(chance, _quiet(seed, store))


def _known(chance: random.Random, plan: Plan) -> Plan:
    """One like those in which a fault was found before."""
    return as_its_store_has_it(kept.near(chance, plan, WITHOUT.get(plan.store, ())))


def as_its_store_has_it(plan: Plan) -> Plan:
    """A plan that was made for another store, without what this one does not have."""
    if plan.store in ON_ONE_HOST:
        return _on_one_host(plan)
    return _with_a_leader(plan) if plan.store == "etcd-cluster" else plan


def _rare(chance: random.Random, plan: Plan) -> Plan:
    """One of those that need no other kind of store than most are."""
    if plan.store in ON_ONE_HOST:
        return _on_one_host(chance.choice((*rare.OF_A_HOST, *afterwards.OF_A_HOST))(chance, plan))
    others = () if plan.store == "redlock" else rare.OF_STREAMS
    more = rare.OF_CELLS if plan.store in ("exact", "seconds") else others
    plan = chance.choice((*rare.OF_ALL, *afterwards.OF_ALL, *more))(chance, plan)
    return _with_a_leader(plan) if plan.store == "etcd-cluster" else plan


def _without_power(chance: random.Random, plan: Plan) -> Plan:
    """Runs that come one after the other, or wait, on a host that starts again in between, maybe with a wrong clock."""
    if plan.store == "file" and chance.random() < 0.2:
        return _killed_then_without_power(chance, plan)
    at, wrong = (
        chance.choice((0.05, 3.0, 200.0)) * chance.random(),
        chance.choice((0.0, 20.0, -1.0, -30.0, -3600.0, -3 * DAY)),
    )
    first = RunPlan(0, 0.0, 10.0, 60.0, chance.choice((0.0, 0.01, 1.0)), min_hold=chance.choice((0.0, 0.0, 60.0)))
    if chance.random() < 0.3:
        mode, slots = chance.choice((("slot", 2), ("shared", 1)))
        first = first._replace(mode=mode, slots=slots, min_hold=0.0)
    before = [first._replace(start=at * chance.random()) for _ in range(chance.choice((1, 2, 3)))]
    after = [first._replace(start=at + 1.0 + chance.choice((0.1, 70.0)) * chance.random()) for _ in range(2)]
    faults = [Fault("power", 0, at, wrong)]
    if chance.random() < 0.3:  # the disk alone fails, and what is granted since the clock went back has reached it
        faults = [Fault("wrong", 0, 3.0, -abs(wrong)), Fault("power", 0, 4.0 + at, 0.0, DISK)]
        before = [first._replace(start=number * (3.1 + at * chance.random())) for number in range(len(before))]
        after = [each._replace(start=each.start + 4.0) for each in after]
    elif chance.random() < 0.4:
        faults.append(Fault("forget", 0, at * chance.random(), 0.0))
    return plan._replace(runs=(*before, *after), faults=tuple(faults))


def _killed_then_without_power(chance: random.Random, plan: Plan) -> Plan:
    """A run that is killed in the middle of what it writes, the next one, and a host that starts again soon after."""
    first = RunPlan(0, 0.0, 10.0, 60.0, 0.01)
    runs = [first._replace(start=start) for start in (0.0, chance.uniform(0.02, 0.12), 1.5, 1.6)]
    killed = Fault("stop", 0, chance.randrange(2, 60), INFINITE, KEEPER)
    power = Fault("power", 0, chance.uniform(0.3, 0.5), -30.0)
    return plan._replace(runs=tuple(runs), faults=(killed, power))


def _skewed(chance: random.Random, plan: Plan) -> Plan:
    """A host whose clock is so wrong, or becomes so, that what is signed by it is refused."""
    first = RunPlan(0, 0.5, 10.0, 60.0, chance.uniform(0.5, 12.0))
    wrong = Fault("wrong", 0, chance.choice((0.0, 5.0)) * chance.random(), chance.choice((-3600.0, 3600.0)))
    second = first._replace(host=1, start=chance.uniform(0.3, 3.0), length=0.5)
    return plan._replace(runs=(first, second), faults=(wrong,))


def _replaced(chance: random.Random, plan: Plan) -> Plan:
    """A database that is removed while a job runs, and another one waits, or comes."""
    runs = _one_after_another(chance)
    return plan._replace(runs=tuple(runs), faults=(Fault("replaced", 0, chance.uniform(0.2, runs[0].length)),))


def _looked_at(chance: random.Random, plan: Plan) -> Plan:
    """Runs that an operator looks at."""
    slowest = chance.choice((0.002, 0.002, 0.05))
    mode, slots = chance.choice((("exclusive", 1), ("exclusive", 1), ("shared", 1), ("slot", 2)))
    if mode in WITHOUT.get(plan.store, ()):
        mode, slots = "exclusive", 1
    runs = [_run(chance, number % 2, 10.0, None, mode, slots) for number in range(3)]
    if mode == "exclusive" and chance.random() < 0.3:
        runs = [runs[0]._replace(length=0.5, min_hold=3.0)]  # a hold that ends by itself
    at_all = (0.0, 0.0, 1.0) if plan.store not in WITHOUT_LISTS else (0.0,)
    faults = [Fault("look", number % 2, 12.0 * chance.random(), chance.choice(at_all)) for number in range(3)]
    plan = plan._replace(fastest=slowest / 4, slowest=slowest, runs=tuple(runs), faults=tuple(faults))
    return _on_one_host(plan) if plan.store in ON_ONE_HOST else plan


def _quiet(seed: int, store: str) -> Plan:
    return Plan(seed, store, 0.0003, 0.002, (1.0, 1.0, 1.0), (), ())


def _on_one_host(plan: Plan) -> Plan:
    """The same without a network, and without servers."""
    faults = [each for each in plan.faults if each.kind in KINDS_OF_A_HOST]
    if plan.store != "file":
        faults = [each for each in faults if each.kind != "other"]
    faults = [
        each._replace(whom=0) if each.kind in ("revoke", "wrong", "forget", "look", "sleep") else each
        for each in faults
    ]
    runs = tuple([each._replace(host=0) for each in plan.runs])
    return plan._replace(
        fastest=0.0003, slowest=0.002, rates=(plan.rates[0], plan.rates[0]), runs=runs, faults=tuple(faults)
    )


def _with_a_leader(plan: Plan) -> Plan:
    """The same, but of several members the one that leads is always there."""
    faults = [each._replace(whom=1 + each.whom % 2, more=KEPT) if each.kind == "down" else each for each in plan.faults]
    return plan._replace(faults=tuple(faults))


def _mess(chance: random.Random, plan: Plan) -> Plan:
    """Anything."""
    hosts = chance.choice((2, 2, 3))
    fastest, slowest = chance.choice(((0.0003, 0.002), (0.0003, 0.002), (0.01, 0.05), (0.1, 0.3), (0.3, 0.5)))
    ttl = chance.choice(TTLS)
    spread = 0.0019
    rates = tuple([1 + spread / 2 * chance.choice((-1, 0, 1)) for _ in range(hosts + 1)])
    once_per = chance.choice((None, None, None, None, None, 60.0, 60.0, 5.0))
    mode, slots = chance.choice((("exclusive", 1),) * 8 + (("shared", 1), ("slot", 2)))
    if mode in WITHOUT.get(plan.store, ()):
        mode, slots = "exclusive", 1
    runs = [
        _run(chance, number % hosts, ttl, once_per, mode, slots) for number in range(chance.choice((2, 2, 2, 3, 3)))
    ]
    if chance.random() < FENCED:
        runs = [each._replace(fence=True) for each in runs]
    if chance.random() < OTHERWISE_TOLD:
        runs = [each._replace(first_signal=chance.choice(ENDS_A_WAIT)) for each in runs]
    if mode == "slot" and chance.random() < 0.3:
        runs[-1] = runs[-1]._replace(slots=3)  # it is wrong about how many there are
    faults: list[Fault] = []
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4, 6))):
        faults += _fault(chance, runs, hosts, ttl)
    return Plan(plan.seed, plan.store, fastest, slowest, rates, tuple(runs), tuple(faults))


def _one_after_another(chance: random.Random) -> list[RunPlan]:
    """A long job that does not heed TERM, and who waits for its lock."""
    ttl = chance.choice(TTLS)
    length = chance.choice((1.5 * ttl, 1.5 * ttl, ttl))
    holder = RunPlan(
        0, 0.0, ttl, 30.0, length, chance.choice((0.05, INFINITE, INFINITE)), chance.choice((0.0, INFINITE))
    )
    waiters = [RunPlan(1, chance.uniform(0.1, ttl), ttl, 90.0, 1.0), RunPlan(1, chance.uniform(1, ttl), ttl, 90.0, 1.0)]
    return [holder, *waiters[: chance.choice((1, 1, 1, 2))]]


def _silence(chance: random.Random, plan: Plan) -> Plan:
    """Slow answers, then none: the deadline is all that the holder has."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    time = chance.choice((0.0, 0.0, chance.uniform(0, 0.8 * ttl)))
    faults = [Fault("slow", 0, time, chance.uniform(0, 0.2) * ttl, chance.choice((REQUEST, ANSWER, ANSWER)))]
    cut = time + chance.uniform(0.2, 4.0)
    if chance.random() < 0.2:  # and in between, an answer or two
        faults[0] = Fault("cut", 0, time + 0.3, ttl * chance.uniform(0.2, 0.8), chance.choice((REQUEST, ANSWER, BOTH)))
        cut = faults[0].at + faults[0].value + chance.uniform(0.1, 2.5)
    runs[0] = runs[0]._replace(length=cut + 1.3 * ttl)  # until its lease is over
    faults.append(Fault("cut", 0, cut, 3 * ttl, chance.choice((REQUEST, ANSWER, BOTH))))
    if plan.store == "nats" and chance.random() < 0.5:  # and another server leads, whose clock ends the lease
        faults.append(Fault("down", 0, cut + 0.02, 0.3 * chance.random(), KEPT))
    if chance.random() < 0.3:
        faults += _fault(chance, runs, 2, ttl)
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=tuple(faults))


def _apart(chance: random.Random, plan: Plan) -> Plan:
    """Silence after an answer of a server that others of its cluster do not hear any more."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    runs[0] = runs[0]._replace(length=6 * ttl, stubborn=INFINITE)
    cut = chance.uniform(0.3, ttl)
    down = Fault("down", chance.randrange(NODES), max(0.2, cut - chance.uniform(0.0, 0.5 * ttl)), 4 * ttl, KEPT)
    faults = [Fault("cut", 0, cut, 4 * ttl, chance.choice((REQUEST, ANSWER, BOTH))), down]
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=tuple(faults))


def _silent_then_apart(chance: random.Random, plan: Plan) -> Plan:
    """A keeper that stands still for nearly a lease, renews it, and is cut off with its server, which others do not hear.

    What that server told the leader is from before the silence.
    """
    ttl = 10.0
    holder = RunPlan(0, 0.0, ttl, 30.0, 6 * ttl, INFINITE, kill_after=0.05)
    waiter = RunPlan(1, 2.0, ttl, 90.0, 1.0)
    still = Fault("pause", 0, chance.uniform(0.3, 4.0), ttl * chance.uniform(0.84, 0.92), KEEPER)
    at = still.at + still.value + chance.uniform(0.5, 2.8)
    faults = (still, Fault("down", chance.randrange(NODES), at, 4 * ttl, KEPT), Fault("cut", 0, at, 4 * ttl, BOTH))
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=(holder, waiter), faults=faults)


def _deposed(chance: random.Random, plan: Plan) -> Plan:
    """A leader that others have replaced prolongs a lease for nobody; then it knows, and then there is silence."""
    runs = _one_after_another(chance)
    ttl, slowest = runs[0].ttl, chance.choice((0.002, 0.2))
    time, host = chance.uniform(0.0, ttl), 0
    if chance.random() < 0.5:  # while a waiter gets the lock
        runs[0] = runs[0]._replace(length=chance.uniform(1.0, 3.0), outlived=0.0)
        runs[1:] = [runs[1]._replace(start=0.5), runs[0]._replace(start=0.9)]
        time, host = runs[0].length + 10 * slowest * chance.random(), 1
    runs[host] = runs[host]._replace(length=6 * ttl, stubborn=INFINITE, mode=chance.choice(("exclusive", "shared")))
    span = chance.uniform(0.05, 0.9) * ttl
    faults = [Fault("deposed", host, time, span)]
    if chance.random() < 0.7:
        faults.append(Fault("cut", host, time + span + chance.uniform(0.0, 0.2 * ttl), 4 * ttl, BOTH))
    return plan._replace(
        fastest=slowest / 4, slowest=slowest, rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=tuple(faults)
    )


def _deposed_at_the_end(chance: random.Random, plan: Plan) -> Plan:
    """A leader that others have replaced when a run gives its lock back, for a moment, and another one waits for it."""
    first = RunPlan(0, 0.0, chance.choice(TTLS), 60.0, chance.uniform(0.3, 3.0))
    at = max(0.1, first.length - 0.3 * chance.random())
    deposed = Fault("deposed", 0, at, chance.uniform(0.3, 3.0))
    return plan._replace(runs=(first, first._replace(host=1, start=0.3, length=1.0)), faults=(deposed,))


def _cut_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """Silence as soon as somebody who has waited gets the lock.

    During the wait, answers may have come late, or a leader may have been deposed. A long lease is not renewed until then.
    """
    is_late, is_long = chance.random() < 0.3, chance.random() < 0.3
    ttl = rare.LONG if is_long else chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 30.0, chance.uniform(1.0, 5.0 if is_long else 0.5 * ttl))
    if is_late:
        first = first._replace(length=chance.uniform(3.7, 4.7))
    third = first._replace(start=1.0, wait=90.0, length=1.0)
    second = first._replace(host=1, start=0.5, wait=90.0, length=3 * ttl, stubborn=INFINITE)
    faults = [Fault("cut", 1, first.length + chance.uniform(0.01, 0.1), 4 * ttl, BOTH)]
    if is_long and chance.random() < 0.4:  # and it has waited for nearly all of its own lease
        first = first._replace(length=ttl * chance.uniform(0.5, 0.97))
        faults = [faults[0]._replace(at=first.length + chance.uniform(0.01, 0.1))]
    elif is_long:  # and what it is told of its turn comes late
        time = first.length + chance.uniform(0.018, 0.026)
        faults = [Fault("slow", 1, time, chance.uniform(5.0, rare.LATEST), ANSWER), faults[0]._replace(at=time + 0.3)]
    elif is_late:  # its answers, for the 3 s before
        time = first.length - 3.0 - 0.2 * chance.random()
        faults.append(Fault("slow", 1, time, chance.uniform(0.1, 0.25) * ttl, ANSWER))
    elif plan.store in ("etcd", "etcd-cluster") and chance.random() < 0.6:
        time = chance.uniform(0.6, first.length)
        faults.append(Fault("deposed", 1, time, (first.length - time) * chance.uniform(0.7, 1.0)))
    if chance.random() < 0.2:  # the last one of several, whose leases count from other times
        first, second = first._replace(locks=("weekly",)), second._replace(locks=(LOCK, "weekly"))
        third = third._replace(locks=chance.choice((("weekly",), (LOCK,))))
    return plan._replace(runs=(first, second, third), faults=tuple(faults))


def _member_away(chance: random.Random, plan: Plan) -> Plan:
    """Some who come and wait while one of several members answers nothing, from before them on."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(4.0, 8.0))
    others = [first._replace(host=number % 2, start=0.5 * number, length=1.0) for number in (1, 2)]
    away = Fault("down", chance.choice((1, 2)), 0.0, INFINITE, KEPT)
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(first, *others), faults=(away,))


def _wait_ends(chance: random.Random, plan: Plan) -> Plan:
    """Some over a slow network who stop waiting for a lock that is kept closed after its job."""
    ttl, slowest = chance.choice((*TTLS, rare.LONG)), chance.choice((0.02, 0.1, 0.2))
    first = RunPlan(0, 0.0, ttl, 30.0, 0.0, min_hold=60.0)
    others = [
        first._replace(host=1, start=0.9 + 0.1 * number, wait=chance.uniform(1.0, 8.0), min_hold=0.0)
        for number in range(4)
    ]
    return plan._replace(fastest=0.9 * slowest, slowest=slowest, runs=(first, *others))


def _kept_closed(chance: random.Random, plan: Plan) -> Plan:
    """Some who wait for a lock that is kept closed after its job, but not for ever."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.1, 2.0))
    first = first._replace(min_hold=first.length + chance.uniform(0.5, chance.choice((4.0, 15.0))))
    start = chance.choice((0.5, first.min_hold)) * chance.random()
    mode = chance.choice(("exclusive", "exclusive", "shared"))
    if mode in WITHOUT.get(plan.store, ()):
        mode = "exclusive"
    runs = (first, first._replace(host=1, start=start, length=1.0, min_hold=0.0, mode=mode))
    faults = []
    if chance.random() < 0.3:  # and the name is to be forgotten meanwhile
        faults = [Fault("forget", 1, chance.uniform(first.length, first.min_hold), chance.choice((0.0, 0.2)))]
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def _out_of_time(chance: random.Random, plan: Plan) -> Plan:
    """A job that does not heed TERM, and ends by itself after its time: that is no success."""
    ttl, longest = chance.choice(TTLS), chance.uniform(0.5, 2.0)
    length = longest + 0.2 * ttl * chance.random()
    run = RunPlan(0, 0.0, ttl, 60.0, length, INFINITE, once_per=60.0, max_runtime=longest)
    other = run._replace(host=1, start=0.3, length=0.2)
    if chance.random() < 0.3:  # and its lock is to be kept closed for longer
        run = run._replace(length=chance.choice((length, 3 * ttl)), min_hold=longest + chance.uniform(1.0, ttl))
    return plan._replace(runs=(run, other))


def _lingering(chance: random.Random, plan: Plan) -> Plan:
    """A command that leaves a process behind, and something happens while that is waited for, or does not heed TERM."""
    ttl = chance.choice(TTLS)
    length, at = chance.uniform(0.05, 0.5 * ttl), chance.uniform(0.7, 1.5) * ttl
    plan, other = plan._replace(rates=(0.99905, 1.0, 1.00085)), RunPlan(1, 0.5, ttl, 120.0, 1.0)
    if chance.random() < 0.3:  # by a guard that is stopped itself
        run = RunPlan(0, 0.0, ttl, 60.0, length, INFINITE, INFINITE)
        stuck = Fault("pause", 0, length + chance.uniform(0.1, 0.3 * ttl), 3 * ttl, GUARD)
        return plan._replace(runs=(run, other), faults=(stuck,))
    run = RunPlan(0, 0.0, ttl, 60.0, length, chance.choice((0.05, INFINITE)), 5 * ttl, waits_for_rest=True)
    stopped = Fault("pause", 0, at, chance.choice((INFINITE, 3 * ttl)), chance.choice((KEEPER, GUARD)))
    fault = chance.choice((Fault("cut", 0, at, 6 * ttl, BOTH), stopped, Fault("revoke", 0, at), SIGNAL, None))
    if fault is SIGNAL:
        fault = SIGNAL._replace(at=at, value=chance.choice(SIGNALS))
    if fault is None:
        return plan._replace(runs=(run._replace(max_runtime=at), other))
    return plan._replace(runs=(run, other), faults=(fault,))


def _asked_in_the_wait(chance: random.Random, plan: Plan) -> Plan:
    """A lock of somebody who waits for another one: all that it has is given back, in whatever order it took them."""
    ttl, later = chance.choice(TTLS), ("weekly", "yearly")
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(3.0, 6.0), locks=later[1:])
    waiting = first._replace(start=0.3, length=0.5, locks=(LOCK, *later))
    asked = Fault("revoke", 0, chance.uniform(1.0, first.length), 0.0)
    return plan._replace(
        runs=(first, waiting, waiting._replace(host=1, start=0.6, locks=(LOCK, "weekly"))), faults=(asked,)
    )


def _given_back_in_vain(chance: random.Random, plan: Plan) -> Plan:
    """Who waits for its second lock is asked for the first one, and is cut off while it gives both back."""
    ttl, slowest = chance.choice((20.0, 60.0)), chance.choice((0.02, 0.1, 0.2))
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(4.0, 20.0), locks=("weekly",))
    waiting = first._replace(host=1, start=0.3, length=0.5, wait=200.0, locks=(LOCK, "weekly"))
    asked = Fault("revoke", 0, chance.uniform(1.0, 3.0))
    way = chance.choice((REQUEST, REQUEST, ANSWER, BOTH))
    span = chance.choice((chance.uniform(0.5, 4.0), chance.uniform(9.0, 12.0)))  # or for more than one attempt
    parted = Fault("parted", 1, chance.choice((1, 1, 2, 3)), span, way)
    runs = (first, waiting, first._replace(start=0.1, length=1.0))[: chance.choice((2, 3))]
    return plan._replace(fastest=slowest / 2, slowest=slowest, runs=runs, faults=(asked, parted))


def _few_left(chance: random.Random, plan: Plan) -> Plan:
    """Most servers of several are away until the lease is over there, and the holder hears of the others alone."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    runs[0] = runs[0]._replace(length=4 * ttl, stubborn=INFINITE)
    time, span = chance.uniform(0.3, ttl), chance.uniform(0.5, 1.5) * ttl
    away = chance.sample(range(NODES), 3)
    faults = [Fault("down", number, time + chance.uniform(0.0, 0.5), span, KEPT) for number in away]
    if chance.random() < 0.3:  # the third one only for a moment, in which the others come back without the lock
        faults[:2] = [each._replace(at=time, value=1.1 * ttl) for each in faults[:2]]
        faults[2] = faults[2]._replace(at=time + 1.1 * ttl - 0.3 * chance.random(), value=chance.uniform(0.6, 1.2))
    return plan._replace(runs=tuple(runs), faults=tuple(faults))


def _one_at_a_time(chance: random.Random, plan: Plan) -> Plan:
    """Servers of several that are away until the lease is over there, one after the other."""
    ttl = chance.choice((4.0, 6.0, 10.0))
    faults, time = [], chance.uniform(0.3, ttl)
    for number in chance.sample(range(NODES), chance.choice((3, 4))):
        faults.append(Fault("down", number, time, chance.uniform(1.05, 1.2) * ttl, KEPT))
        time += faults[-1].value + JOINED * ttl
    run = RunPlan(0, 0.0, ttl, 60.0, time + ttl)
    return plan._replace(runs=(run,), faults=tuple(faults))


def _removed(chance: random.Random, plan: Plan) -> Plan:
    """A server that fails together with the host of a holder: Autopilot ends the session long before its ttl."""
    ttl = chance.choice((10.0, 20.0, 30.0))
    holder = RunPlan(0, 0.0, ttl, 30.0, 4 * ttl, INFINITE)
    waiter = holder._replace(host=1, start=chance.uniform(0.1, 3.0), wait=120.0, length=1.0)
    runs = [holder, waiter]
    if chance.random() < 0.5:  # of one slot, while another one is taken
        runs.insert(1, holder._replace(host=1, start=0.1))
        if chance.random() < 0.5:  # and given back, and there are two who wait
            runs[1] = runs[1]._replace(length=chance.uniform(8.0, 30.0))
            runs.append(waiter._replace(start=chance.uniform(0.2, 3.0), length=20.0))
        runs = [each._replace(mode="slot", slots=2) for each in runs]
    cut = chance.uniform(0.3, 5.0)
    faults = (Fault("cut", 0, cut, 4 * ttl, BOTH), Fault("removed", 0, cut + chance.uniform(7.0, 15.0)))
    if len(runs) == 2 and chance.random() < 0.3:  # of one slot, and then somebody comes who wants all of them
        start = faults[1].at + chance.uniform(0.1, 0.5 * ttl)
        runs = [holder._replace(mode="slot", slots=2), waiter._replace(start=start)]
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=faults)


def _ended(chance: random.Random, plan: Plan) -> Plan:
    """Connections that an administrator ends, of a job and of those who wait for its lock."""
    runs = _one_after_another(chance)
    ttl, slowest = runs[0].ttl, chance.choice((0.002, 0.002, 0.05))
    runs[0] = runs[0]._replace(length=chance.choice((ttl / 3, 1.5 * ttl)) + 2.0)
    faults = [Fault("ended", chance.randrange(2), chance.uniform(0.02, runs[0].length)) for _ in range(3)]
    return plan._replace(
        fastest=slowest / 4, slowest=slowest, runs=tuple(runs), faults=tuple(faults[: chance.choice((1, 2, 3))])
    )


def _rows_locked(chance: random.Random, plan: Plan) -> Plan:
    """Another program that has the rows locked while locks are taken or given back, and connections that end meanwhile."""
    ttl, start = chance.choice((20.0, 40.0)), 2.0  # of the longer one, a late answer does not need a renewal
    first = RunPlan(0, 0.0, ttl, 90.0, chance.choice((0.5, 0.5, start)) + chance.random())
    later = [first._replace(host=1, start=start + each * chance.random()) for each in (0.5, 1.0)]
    # the longest wait for a row is 5 s
    span = chance.choice((5.0 + chance.random(), 5.0 + chance.random(), 12.0 * chance.random()))
    faults = [Fault("other", 0, start + chance.uniform(-0.2, 0.2), span)]
    if chance.random() < 0.3:
        faults.append(Fault("ended", chance.randrange(2), start + span * chance.random()))
    return plan._replace(runs=(first, *later[: chance.choice((1, 2, 2))]), faults=tuple(faults))


def _failover(chance: random.Random, plan: Plan) -> Plan:
    """Another server becomes the primary, as a lock is taken, held, waited for, kept or given back."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.002, 0.02))
    mode, slots = chance.choice((("exclusive", 1), ("exclusive", 1), ("shared", 1), ("slot", 2)))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, 2 * ttl), once_per=chance.choice((None, None, 60.0)))
    first = first._replace(mode=mode, slots=slots, min_hold=chance.choice((0.0, 3.0)) if mode == "exclusive" else 0.0)
    runs = [first, first._replace(host=1, start=chance.uniform(0.0, 3.0), length=1.0, min_hold=0.0)]
    times = (8 * slowest * chance.random(), first.length * chance.random(), first.length - 0.2 + 0.4 * chance.random())
    spans = (0.0, chance.random(), 0.3 * ttl * chance.random())
    fault = Fault("failover", 0, chance.choice(times), chance.choice(spans), chance.choice((0, SENTINELS)))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=tuple(runs), faults=(fault,))


def _busy(chance: random.Random, plan: Plan) -> Plan:
    """A server that refuses most of what it is asked, and may have done it, as a lock is taken, kept or given back."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.002, 0.02))
    once_per, hold = chance.choice((None, 60.0)), chance.choice((0.0, 0.0, 3.0))
    mode = "shared" if "shared" not in WITHOUT.get(plan.store, ()) and chance.random() < 0.3 else "exclusive"
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.1, 1.5 * ttl), once_per=once_per, mode=mode)
    first = first._replace(min_hold=hold if mode == "exclusive" else 0.0)
    times = {
        0.0: (0.5, 2.0, 8.0),
        8 * slowest: (0.5, 2.0),  # as soon as the lock was granted
        first.length - 0.2: (0.5, 2.0),
        chance.uniform(0.1, ttl): (0.5, 0.2 * ttl, 0.4 * ttl),
    }
    faults, at, why = [], 0.0, chance.choice((0, 0, DENIED))
    for time in sorted(chance.sample([*times], chance.choice((1, 1, 1, 2, 3)))):
        at = max(at, time + 0.2 * chance.random())
        faults.append(Fault("busy", 0, at, chance.choice(times[time]) * chance.random(), why))
        at += faults[-1].value
    runs = (first, first._replace(host=1, start=chance.uniform(0.0, 3.0), length=0.5, mode="exclusive"))
    if chance.random() < 0.1:  # for so long that it is never known whether the job has succeeded before
        why = chance.choice((why, DENIED))
        faults = [Fault("busy", 0, 10 * slowest * chance.random(), chance.uniform(0.5, 2.0) * ttl, why)]
        runs = (first._replace(once_per=60.0), runs[1])
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def _expired(chance: random.Random, plan: Plan) -> Plan:
    """Credentials that end while a lock is taken, held, waited for, kept or given back; others are there, or soon."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.002, 0.02))
    hold = chance.choice((0.0, 0.0, 3.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, 1.5 * ttl), min_hold=hold)
    first = first._replace(once_per=chance.choice((None, None, 60.0)))
    times = [chance.uniform(0.0, 0.3), first.length * chance.random(), first.length + 0.2 * chance.uniform(-1.0, 1.0)]
    times = sorted(chance.sample(times, chance.choice((1, 1, 2, 3))))
    soon = (0.0, 0.0, 0.0, 0.5 * chance.random(), 0.2 * ttl * chance.random())
    faults = [Fault("expired", 0, at, chance.choice(soon)) for at in times]
    runs = (first, first._replace(host=1, start=chance.uniform(0.0, 3.0), length=0.5))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def _few_answer(chance: random.Random, plan: Plan) -> Plan:
    """Some of several servers that refuse most of what they are asked, as a lock is taken, kept or given back."""
    plan = _busy(chance, plan)
    first, others = plan.faults[0], range(1, chance.choice((2, 3, 4, 5)))
    faults = [first._replace(whom=number, at=first.at + 0.1 * chance.random()) for number in others]
    return plan._replace(faults=(*plan.faults, *faults))


def _few_shown(chance: random.Random, plan: Plan) -> Plan:
    """An operator who looks when some of several servers are back that did not hear of a lock, and others are away."""
    ttl = chance.choice(TTLS)
    before = RunPlan(1, 0.0, ttl, 60.0, 0.1)
    run = before._replace(host=0, start=1.0, length=ttl)
    away, back = 0.9, chance.uniform(1.3, 4.0)
    nodes = chance.sample(range(NODES), 4)
    faults = [Fault("down", number, away, back - away, KEPT) for number in nodes[: chance.choice((1, 2))]]
    faults += [
        Fault("down", number, back - 0.2 * chance.random(), chance.uniform(0.5, 3.0), KEPT)
        for number in nodes[2 : chance.choice((3, 4))]
    ]
    looks = [Fault("look", 1, back + chance.uniform(0.0, 0.3 * ttl), chance.choice((0.0, 1.0))) for _ in range(3)]
    return plan._replace(runs=(before, run), faults=(*faults, *looks))


def _renamed(chance: random.Random, plan: Plan) -> Plan:
    """Two hosts whose URLs name the nodes of Redlock otherwise, some of which may be away."""
    ttl = chance.choice(TTLS)
    hold = chance.choice((0.0, 0.0, 5.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.5, 1.5 * ttl), min_hold=hold)
    runs = [first, first._replace(host=1, start=1.3 * first.length * chance.random(), length=0.5)]
    runs.append(runs[1]._replace(host=0, start=first.length * chance.random()))
    away = [
        Fault("down", number, first.length * chance.random(), chance.uniform(0.1, ttl), KEPT)
        for number in range(chance.choice((0, 0, 1, 2)))
    ]
    return plan._replace(runs=tuple(runs), faults=(Fault("renamed", 1, 0.0), *away))


def _taken_away(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken away while some of several servers are away, and then granted while others are."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, ttl)
    at = chance.uniform(0.5, 3.0)
    next_one = first._replace(host=1, start=chance.choice((0.3, at + 0.5)), length=0.5)
    if chance.random() < 0.2:  # or most of them are away, so that it is not
        first, freed = first._replace(ttl=20.0, length=40.0), Fault("revoke", 1, at, 0.8, 1)
        away = [Fault("down", number, at + 0.4, 12.0, KEPT) for number in chance.sample(range(NODES), 3)]
        return plan._replace(runs=(first,), faults=(freed, *away))
    one, other = chance.sample(range(NODES), 2)
    faults = [Fault("revoke", 1, at, 0.0, 1), Fault("down", one, at + chance.uniform(0.0, 0.4), ttl, KEPT)]
    if chance.random() < 0.5:
        faults.append(Fault("down", other, at - 0.3, 0.3 + 0.4 * chance.random(), KEPT))
    return plan._replace(runs=(first, next_one, next_one._replace(start=at + 1.0)), faults=tuple(faults))


def _winter(chance: random.Random, plan: Plan) -> Plan:
    """Summer time ended an hour ago, while a lock is held and another waits for it."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, 2 * ttl))
    later = first._replace(host=1, start=first.length * chance.random(), length=1.0)
    return plan._replace(runs=(first, later), faults=(Fault("winter", 0, first.length * chance.random()),))


def _asked_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who wants the lock in the moment when the next one gets it."""
    ttl = chance.choice(TTLS)
    slowest = chance.choice((0.002, 0.02, 0.1, 0.2))
    length = chance.uniform(1.0, 3.0)
    first = RunPlan(0, 0.0, ttl, 60.0, length)
    second = first._replace(host=chance.choice((1, 1, 0)), start=chance.uniform(0.1, 1.0), length=8.0 + ttl / 2)
    runs = (first, second)
    asked = length + chance.uniform(0.0, 2.0) + 10 * slowest * chance.random()
    faults = [Fault("revoke", chance.randrange(2), asked, chance.choice((0.0, slowest)))]
    late, way, how = chance.uniform(0.1, 0.5), chance.choice((REQUEST, ANSWER)), chance.random()
    if how < 0.3:  # which it learns late, or says late, and who asks is near
        faults = [faults[0]._replace(whom=1 - second.host, at=length + 1.5 * late * chance.random())]
        faults.append(Fault("slow", second.host, length - 2.0 * chance.random(), late, way))
    elif how < 0.6:  # by somebody far away: what is seen has changed by then
        slowest = 0.002  # so that it is known when the job ends
        faults = [faults[0]._replace(whom=0, at=max(0.1, length - 4 * late * chance.random()), value=0.0)]
        faults.append(Fault("slow", 0, max(0.0, length - 2.5), late, way))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def _freed_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """The same, and the lock is taken from who has it."""
    plan = _asked_in_turn(chance, plan)
    asked, *others = plan.faults
    return plan._replace(faults=(asked._replace(value=chance.choice((0.0, 1.0)) * chance.random(), more=1), *others))


def _newcomer(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who comes in the moment when another one, who has waited, is to get the lock."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02, 0.05))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(3.0, 5.0))
    runs: tuple[RunPlan, ...] = (
        first,
        first._replace(host=1, start=0.5, length=1.0),
        first._replace(start=first.length + 8 * slowest * chance.random(), length=1.0),
    )
    if plan.store != "redlock" and chance.random() < 0.3:  # while one of two slots is given back
        start = first.length + slowest * chance.choice((15.0, 5.0)) * chance.uniform(-1.0, 1.0)
        last = first._replace(start=start, length=6.0)
        waiting = [first._replace(host=1, start=0.5)]  # it may be there, or not
        others = [last._replace(start=start + 2 * slowest * number) for number in range(chance.choice((1, 1, 3)))]
        slots = [first, first._replace(host=1, length=20.0), *waiting[chance.random() < 0.3 :], *others]
        runs = tuple([each._replace(mode="slot", slots=2) for each in slots])
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs)


def _restarted(chance: random.Random, plan: Plan) -> Plan:
    """A server that is restarted while a job runs, whose keeper may be stopped just then."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    down = Fault("down", 0, chance.uniform(0.3, ttl), chance.choice((0.1, 1.0, 2 * ttl)) * chance.random(), KEPT)
    who = chance.choice((KEEPER, KEEPER, GUARD))
    stopped = Fault("pause", 0, max(0.2, down.at - chance.random()), chance.uniform(1.5, 0.6 * ttl), who)
    return plan._replace(runs=tuple(runs), faults=(down, stopped)[: chance.choice((1, 2))])


def _restarted_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """A leader that is restarted as a lock is given back, of which who is next in line may hear nothing."""
    ttl = chance.choice((6.0, 10.0, 20.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.5, 4.0))
    runs = [first, first._replace(host=1, start=0.3, wait=120.0, length=1.0)]
    if chance.random() < 0.3:
        runs.append(runs[1]._replace(host=chance.choice((0, 1)), start=0.4))
    at = first.length + chance.uniform(0.02, 0.22)  # its processes end before
    down = Fault("down", chance.choice((0, 0, 0, 1, 2)), at, chance.choice((1.0, 4.0, ttl)) * chance.random(), KEPT)
    return plan._replace(runs=tuple(runs), faults=(down,))


def _table_locked(chance: random.Random, plan: Plan) -> Plan:
    """Another program that has the tables locked for a while, and somebody who wants the lock back after that."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, 3 * ttl, mode=chance.choice(("exclusive", "exclusive", "shared")))
    locked = Fault("table", 0, chance.uniform(0.3, ttl), chance.uniform(0.05, 0.8) * ttl)
    asked = Fault("revoke", 1, locked.at + locked.value + chance.uniform(0.4, 0.8) * ttl)
    waiting = first._replace(host=1, start=chance.uniform(0.1, ttl), wait=120.0, length=1.0)
    faults = (locked, asked)[: chance.choice((1, 2, 2))]
    if chance.random() < 0.3:  # and what the server says of that comes late
        faults = locked, Fault("slow", 0, locked.at, chance.uniform(0.1, 0.25) * ttl, ANSWER)
    return plan._replace(runs=(first, waiting), faults=faults)


def _another_program(chance: random.Random, plan: Plan) -> Plan:
    """A program that is not lockctl has the record of the lock, or wants it, and a holder may be silent."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    times = [chance.choice((1.0, ttl)) * chance.random() for _ in range(chance.choice((1, 1, 2)))]
    faults = [Fault("other", 0, time, chance.choice((2.0, ttl)) * chance.random()) for time in times]
    if chance.random() < 0.2:
        faults = [Fault("other", 0, chance.uniform(0.3, ttl), 2 * ttl, 1)]
    elif chance.random() < 0.4:  # until its lease is over, and those who wait write to the record that tells how long
        cut = Fault("cut", 0, chance.uniform(0.3, ttl), 4 * ttl, BOTH)
        runs = [runs[0]._replace(length=4 * ttl, stubborn=INFINITE), *[runs[1]._replace(start=ttl / 2)] * 2]
        if chance.random() < 0.5:  # or as it ends
            runs[2] = runs[2]._replace(start=cut.at + ttl * chance.uniform(0.8, 1.1))
        faults.append(cut)
    runs = [each._replace(start=each.start + chance.choice((0.0, 2.0))) for each in runs]
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=tuple(faults))


def _others_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """Two programs that are not lockctl have the record one after the other; an operator frees what it saw before."""
    others = (Fault("other", 0, 0.3, chance.uniform(1.0, 4.0)), Fault("other", 0, 0.5, 30.0))
    revoke = Fault("revoke", 1, chance.uniform(0.6, 3.0), chance.choice((0.1, 4.0, 8.0)) * chance.uniform(0.5, 1.5), 1)
    before = RunPlan(0, 0.0, 10.0, 60.0, 0.1)
    runs = [before, before._replace(host=1, start=chance.uniform(1.0, 12.0), length=3.0)]
    return plan._replace(runs=tuple(runs[chance.randrange(2) :]), faults=(*others, revoke))


def _beside_others(chance: random.Random, plan: Plan) -> Plan:
    """Programs that are not lockctl and wait in the server's own queue for the same lock."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    times = [chance.uniform(0.0, 2 * ttl) for _ in range(chance.choice((1, 2, 3)))]
    faults = [Fault("other", 0, time, chance.choice((0.1, 1.0, ttl, 70.0)) * chance.random()) for time in times]
    for _ in range(chance.choice((0, 1, 1, 2))):
        faults += _fault(chance, runs, 2, ttl)
    return plan._replace(runs=tuple(runs), faults=tuple(faults))


def _at_once(chance: random.Random, plan: Plan) -> Plan:
    """Several who may be inside together, and come together."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.02, 0.1, 0.2))
    mode = chance.choice([each for each in ("shared", "slot") if each not in WITHOUT.get(plan.store, ())])
    first = RunPlan(0, 0.0, ttl, 60.0, 1.0 + 15 * slowest, once_per=chance.choice((None, 60.0)), mode=mode)
    if first.mode == "slot":
        first = first._replace(slots=chance.choice((2, 3)))
    apart = 0.01 if plan.store == "file" else 8 * slowest
    runs = [
        first._replace(host=number % 2, start=apart * chance.random()) for number in range(chance.choice((3, 3, 4)))
    ]
    if chance.random() < 0.3:
        runs = [each._replace(ttl=chance.choice(TTLS), length=1.2 * ttl) for each in runs]
    elif chance.random() < 0.3:  # and they end together
        runs = [each._replace(length=first.length + apart - each.start) for each in runs]
    faults: list[Fault] = []
    if plan.store != "file" and chance.random() < 0.15:  # and then some are not heard of any more, with other leases
        lengths = chance.sample((6.0, 20.0), 2)
        runs = [each._replace(ttl=lengths[each.host], length=30.0, stubborn=INFINITE, once_per=None) for each in runs]
        runs = [each._replace(host=0) for each in runs[: 3 if mode == "shared" else first.slots]]
        runs[0] = runs[0]._replace(ttl=lengths[1])
        runs.append(first._replace(host=1, start=3.0, mode="exclusive" if mode == "shared" else mode, once_per=None))
        faults = [Fault("cut", 0, chance.uniform(3.0, 8.0), 60.0, BOTH)]
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=tuple(runs), faults=tuple(faults))


def _slot_of_the_dead(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who is killed with one of two slots, while another one keeps the lock and a third one waits."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 90.0, chance.choice((4.0, chance.uniform(0.3, 2.5))) * ttl, mode="slot", slots=2)
    runs = (
        first,
        first._replace(host=1, ttl=chance.choice((ttl, 30.0))),
        first._replace(host=1, start=1.0, length=1.0),
    )
    at, killed = chance.uniform(1.2, 0.7 * ttl), chance.choice(((KEEPER,), (KEEPER, GUARD)))
    return plan._replace(runs=runs, faults=tuple(Fault("pause", 0, at, INFINITE, who) for who in killed))


def _queued(chance: random.Random, plan: Plan) -> Plan:
    """Several who wait, and something happens to the one in front, or to its helper; or one comes when some were served."""
    ttl, length = chance.choice(TTLS), chance.uniform(1.5, 4.0)
    modes = chance.choice((("exclusive",), ("exclusive",), ("shared", "exclusive"), ("slot",)))
    if not set(modes).isdisjoint(WITHOUT.get(plan.store, ())):
        modes = ("exclusive",)
    comes_later = chance.random() < 0.2
    runs = [
        RunPlan(number % 2, 0.3 * number + chance.uniform(0, 0.2), ttl, 120.0, length, mode=chance.choice(modes))
        for number in range(4 if comes_later else chance.choice((3, 3, 4)))
    ]
    runs = [each._replace(slots=2 if each.mode == "slot" else 1) for each in runs]
    if comes_later:
        runs.append(runs[0]._replace(start=length * chance.uniform(2.1, 2.9)))
        return plan._replace(runs=tuple(runs))
    faults = []
    for _ in range(chance.choice((1, 1, 2))):
        time = chance.uniform(1.5, 3 * length)
        span = chance.choice((INFINITE, chance.uniform(0, 3) * ttl))
        who = chance.randrange(3 if plan.store == "file" else 2)
        faults.append(Fault("pause", chance.randrange(len(runs)), time, span, who))
    return plan._replace(runs=tuple(runs), faults=tuple(faults))


def _several(chance: random.Random, plan: Plan) -> Plan:
    """Runs that take several locks, in any order, and something may happen to one of them."""
    ttl = chance.choice(TTLS)
    fastest, slowest = chance.choice(((0.0003, 0.002), (0.0003, 0.002), (0.01, 0.05)))
    begin = chance.choice((0.0, 0.0, 60.0)) * chance.random()  # a period may end while somebody has one of them
    runs = [
        RunPlan(
            number % 2,
            begin + chance.choice((0.0, 0.01, 1.0, ttl)) * chance.random(),
            ttl,
            chance.choice((0.0, 30.0, 120.0, 120.0)),
            chance.choice((0.1, 3.0, 1.5 * ttl)) * chance.random(),
            once_per=chance.choice((None, None, 60.0)),
            min_hold=chance.choice((0.0, 0.0, 0.0, ttl / 2)),
            locks=tuple(chance.sample(NAMES, chance.choice((1, 2, 2, 3)))),
        )
        for number in range(chance.choice((2, 2, 3)))
    ]
    if "shared" not in WITHOUT.get(plan.store, ()) and chance.random() < 0.3:
        runs = [each._replace(mode="shared", min_hold=0.0) for each in runs]
    faults: list[Fault] = []
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        faults += _fault(chance, runs, 2, ttl)
    if chance.random() < 0.2:
        faults = [Fault("revoke", 0, chance.uniform(0.0, 2 * ttl), 0.0, chance.choice((0, 0, 1)))]
    return plan._replace(fastest=fastest, slowest=slowest, runs=tuple(runs), faults=tuple(faults))


def _asleep(chance: random.Random, plan: Plan) -> Plan:
    """A host that sleeps for longer than the lease, and wakes up when the job has ended meanwhile, or goes on.

    One of the two processes may get a processor later than the other.
    """
    runs = _one_after_another(chance)
    ttl, span = runs[0].ttl, chance.uniform(0.8, 2.5) * runs[0].ttl
    at = chance.uniform(0.3, ttl)
    runs[0] = runs[0]._replace(length=at + chance.uniform(0.5, 1.2) * span)
    spans = (span, span + chance.choice((0.0, 0.0, 0.4)) * ttl * chance.random())
    processes = chance.sample((KEEPER, GUARD), 2)
    times = [at + 0.001 * chance.random(), at + 0.001 * chance.random()]
    if chance.random() < 0.3:  # the guard before it may start the command, and both until the lease is over
        processes, times = [GUARD, KEEPER], [0.004 + 0.01 * chance.random(), at]
        spans = (at + 1.1 * ttl, chance.uniform(1.1, 1.2) * ttl)
    each = zip(times, spans, processes, strict=True)
    faults = tuple([Fault("pause", 0, time, seconds, who) for time, seconds, who in each])
    return plan._replace(rates=(0.99905, 1.0, 1.00085), runs=tuple(runs), faults=faults)


def _far_behind(chance: random.Random, plan: Plan) -> Plan:
    """So many who wait that the last ones look less often, for so long that each of them has to keep its place."""
    ttl, apart = chance.choice((6.0, 10.0)), 2.2
    last = RunPlan(0, 0.0, ttl, 120.0, 0.1)
    runs = [last._replace(host=number % 2, start=apart * number) for number in range(chance.choice((6, 7)))]
    runs[0] = runs[0]._replace(length=apart * len(runs) + ttl * chance.uniform(0.5, 1.5))
    return plan._replace(runs=tuple(runs))


def _impatient(chance: random.Random, plan: Plan) -> Plan:
    """Readers and writers, some of whom give up their place in the queue before it is their turn."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02))
    mode, other = chance.sample(("shared", "exclusive"), 2)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(4.0, 7.0), mode=chance.choice((mode, "shared")))
    leaving = first._replace(
        host=1, start=chance.uniform(0.5, 1.0), wait=chance.choice((60.0, chance.uniform(0.5, 3.0))), mode=other
    )
    behind = [
        first._replace(start=chance.uniform(2.0, 5.0), length=1.0, mode=chance.choice(("shared", mode)))
        for _ in range(chance.choice((1, 2)))
    ]
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(first, leaving, *behind))


def _stopped_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who is first in line and does not use it."""
    ttl, slots = chance.choice(TTLS), chance.choice((1, 2, 2))
    first = RunPlan(
        0, 0.0, ttl, 120.0, chance.uniform(2.0, 4.0), mode="slot" if slots > 1 else "exclusive", slots=slots
    )
    runs = [first._replace(start=0.3 * number) for number in range(slots + 2)]
    at, who = chance.uniform(1.0, first.length), chance.choice((KEEPER, HELPER, HELPER))
    return plan._replace(runs=tuple(runs), faults=(Fault("pause", slots, at, 5 * ttl, who),))


def _left_behind(chance: random.Random, plan: Plan) -> Plan:
    """A keeper that is stopped while its job ends, and goes on when another one has the lock."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, 3.0))
    runs = (first, first._replace(start=0.3, length=2 * ttl))
    stopped = Fault("pause", 0, chance.uniform(0.5, first.length), chance.uniform(1.2, 3.0) * ttl, KEEPER)
    return plan._replace(runs=runs, faults=(stopped,))


def _freed_as_it_ends(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken from somebody in the moment in which it is given back, and another one gets it."""
    first = RunPlan(0, 0.0, chance.choice(TTLS), 60.0, chance.uniform(1.0, 4.0))
    runs = (first, first._replace(start=0.5), first._replace(start=0.8))
    asked = first.length + chance.uniform(-0.03, 0.02)
    return plan._replace(runs=runs, faults=(Fault("revoke", 0, asked, 0.0, 1),))


def _stuck(chance: random.Random, plan: Plan) -> Plan:
    """One of the two processes stands still, or is dead, while no renewal comes through."""
    runs = _one_after_another(chance)
    ttl = runs[0].ttl
    time, who = chance.uniform(0.02, ttl), chance.randrange(2)
    runs[0] = runs[0]._replace(length=time + 1.3 * ttl)
    cut = max(0.1, time + chance.uniform(-1, 1))
    near_the_end = cut - time + chance.uniform(0.7, 1.0) * ttl  # of the lease, when the job is to be stopped
    spans = (3 * ttl, 3 * ttl, INFINITE, chance.uniform(0, ttl), near_the_end)
    still = [Fault("pause", 0, time, chance.choice(spans), who)]
    if chance.random() < 0.5:
        step = chance.choice((int(2 ** chance.uniform(1, 8)), chance.randrange(3, 7)))  # while it starts the command
        still = [Fault("stop", 0, step, still[0].value, who)]
    faults = [*still, Fault("cut", 0, cut, 3 * ttl, BOTH)]
    return plan._replace(runs=tuple(runs), faults=tuple(faults[: chance.choice((1, 2, 2))]))


def _given_up(chance: random.Random, plan: Plan) -> Plan:
    """An attempt that is given up, because its answer comes late, and what still comes of it later."""
    ttl = chance.choice((6.0, 20.0))
    first = RunPlan(0, 0.0, ttl, 60.0, 2 * ttl * chance.choice((0.0, 1.0)))
    start = chance.choice((0.05, 6.0, 6.0)) * chance.random()
    runs = (first, first._replace(host=1, start=start, length=1.0, wait=90.0))
    number = chance.randrange(1, 8)
    if ttl == 6.0:
        late = [Fault("late", 0, number, chance.uniform(4.0, 8.0), ANSWER)]
        late.append(Fault("late", 0, number + chance.randrange(1, 3), chance.uniform(1.1, 5.9), REQUEST))
    else:
        late = [Fault("late", 0, number, chance.uniform(9.5, 19.0), REQUEST)]
    return plan._replace(runs=runs[: chance.choice((1, 2))], faults=tuple(late))


def _late_in_line(chance: random.Random, plan: Plan) -> Plan:
    """A request for a place in the queue that comes when who asked for it has given up, and others still wait."""
    first = RunPlan(0, 0.0, 20.0, 60.0, chance.uniform(6.0, 14.0))
    second = first._replace(host=1, start=0.5, wait=chance.choice((2.5, 8.0)) * chance.uniform(0.4, 1.0), length=1.0)
    late = Fault("late", 1, chance.randrange(1, 14), chance.uniform(0.9, 1.3) * second.wait, REQUEST)
    if "shared" not in WITHOUT.get(plan.store, ()) and chance.random() < 0.3:
        second = second._replace(mode="shared")
    if chance.random() < 0.4:  # or was granted the lock meanwhile, and has given it back
        second = second._replace(wait=90.0, length=0.1)
        late = late._replace(value=first.length - second.start + chance.uniform(0.2, 3.0))
    return plan._replace(runs=(first, second, second._replace(host=0, start=0.2, wait=90.0)), faults=(late,))


def _granted_twice(chance: random.Random, plan: Plan) -> Plan:
    """A grant whose answer is late, the same one again, and then silence: its lease must count from the second.

    The second attempt comes when the time of the first is over, at once with a signal that is for the job, or when the
    server is there again that went away without an answer.
    """
    ttl = 20.0
    holder = RunPlan(0, 0.0, ttl, 60.0, 3 * ttl, INFINITE)
    runs = (holder, holder._replace(host=1, start=chance.uniform(1.0, 9.0), length=1.0, wait=120.0))
    if chance.random() < 0.3:
        if "shared" not in WITHOUT.get(plan.store, ()):
            runs = (holder._replace(mode=chance.choice(("exclusive", "shared"))), runs[1])
        slowest, away = chance.choice((0.01, 0.05)), chance.uniform(3.0, 7.0)
        at = 10 * slowest * chance.random()
        cut, down = Fault("cut", 0, at, 10 * slowest, ANSWER), Fault("down", 0, at + 10 * slowest, away, KEPT)
        silence = Fault("cut", 0, down.at + away + chance.uniform(0.3, 2.0), 3 * ttl, BOTH)
        plan = plan._replace(rates=rare.SLOW_CLOCK, fastest=slowest / 4, slowest=slowest)
        return plan._replace(runs=runs, faults=(cut, down, silence))
    unanswered = Fault("late", 0, chance.randrange(1, 8), chance.uniform(10.0, 12.0), ANSWER)
    silence = Fault("cut", 0, chance.uniform(10.1, 14.0), 3 * ttl, BOTH)
    if chance.random() < 0.5:
        told = Fault("signal", 0, chance.uniform(3.0, 8.0), 10)  # USR1
        unanswered = unanswered._replace(at=chance.randrange(1, 10), value=9.5)
        silence = silence._replace(at=told.at + chance.uniform(0.1, 2.5))
        return plan._replace(runs=runs, faults=(unanswered, told, silence))
    return plan._replace(runs=runs, faults=(unanswered, silence))


def _kept_late(chance: random.Random, plan: Plan) -> Plan:
    """A request to keep a lock closed after its job that comes when another one has the lock already."""
    first = RunPlan(0, 0.0, 20.0, 60.0, chance.uniform(0.1, 1.0), min_hold=chance.uniform(1.5, 3.0))
    second = first._replace(host=1, start=0.5, wait=90.0, length=13.0, min_hold=0.0)
    late = Fault("late", 0, chance.randrange(2, 14), chance.uniform(4.0, 12.0), REQUEST)
    return plan._replace(runs=(first, second), faults=(late,))


def _out_of_reach(chance: random.Random, plan: Plan) -> Plan:
    """A job that ends while its host, or the server, is away for a moment."""
    locks = tuple(chance.sample(NAMES, 2)) if chance.random() < 0.3 else (LOCK,)
    length = chance.uniform(1.0, 8.0) + chance.choice((0.0, 0.0, 0.0, 20.0))  # also one that outlasts its first lease
    run = RunPlan(0, 0.0, 20.0, 30.0, length, locks=locks, once_per=chance.choice((None, 60.0)))
    span = chance.choice((2.5, 2.5, 20.0)) * chance.random()
    begin = run.length + chance.uniform(0.1, 1.0) - span * chance.random()  # it starts when the lock was taken
    way = chance.choice((REQUEST, ANSWER, BOTH))
    cut = Fault("cut", 0, begin, span, way)
    down = Fault("down", chance.randrange(3), begin, span, KEPT)
    other = run._replace(host=1, start=0.5, wait=90.0, once_per=None)
    if chance.random() < 0.2:  # it keeps the lock, or even for longer than its lease
        run = run._replace(min_hold=run.length + chance.choice((chance.uniform(1.0, 15.0), chance.uniform(22.0, 30.0))))
    return plan._replace(runs=(run, other), faults=(chance.choice((cut, down)),))


def _unanswered(chance: random.Random, plan: Plan) -> Plan:
    """A server that ends after it did what it was asked for, and before it could say so; of several, all are silent."""
    run = RunPlan(0, 0.0, 20.0, 90.0, 1.0)
    at = chance.uniform(0.0, 0.8) + chance.choice((0.0, 0.0, run.length))  # as it begins, or at its end
    faults = [Fault("cut", 0, at, 0.1, ANSWER), Fault("down", 0, at + 0.11, chance.uniform(0.1, 0.5), KEPT)]
    if plan.store == "redlock":
        faults = [Fault("cut", 0, at, chance.uniform(2.0, 6.0), ANSWER)]
    return plan._replace(fastest=0.02, slowest=0.05, runs=(run,), faults=tuple(faults))


def _far(chance: random.Random, plan: Plan) -> Plan:
    """A server that is far away."""
    ttl = chance.choice((10.0, 20.0, 30.0))
    # the members of a cluster are tried one after the other, each over a new connection
    slowest = ttl / (chance.uniform(40, 70) if plan.store == "etcd-cluster" else chance.uniform(26, 50))
    run = RunPlan(0, 0.0, ttl, 60.0, 1.3 * ttl)
    if chance.random() < 0.3:
        run = run._replace(locks=NAMES[:2])
    return plan._replace(fastest=0.8 * slowest, slowest=slowest, runs=(run,))


def _asked_from_afar(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who wants the lock of a long job, over a slow network."""
    ttl, slowest = chance.choice((6.0, 6.0, 10.0)), chance.choice((0.1, 0.2, 0.3))
    run = RunPlan(0, 0.0, ttl, 60.0, 4 * ttl)
    asked = Fault("revoke", 0, chance.uniform(1.0, 2 * ttl), 0.0)
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(run,), faults=(asked,))


def _early_signal(chance: random.Random, plan: Plan) -> Plan:
    """A signal, or somebody who wants the lock, in the moment when the command starts."""
    run = RunPlan(0, 0.0, 10.0, 30.0, 6.0, 0.05)
    span = chance.uniform(0.05, 0.9)
    faults = [Fault("stop", 0, chance.randrange(1, 30), span, chance.choice((KEEPER, GUARD, GUARD)))]
    faults.append(Fault("signal", 0, chance.uniform(0.02, 0.1 + span), chance.choice(SIGNALS)))
    if chance.random() < 0.5:
        revoke = Fault("revoke", 1, chance.choice((0.1, 3.0)) * chance.uniform(0.1, 1.0), 0.0, chance.randrange(2))
        faults = [revoke, faults[0]][: chance.choice((1, 2))]
    return plan._replace(runs=(run, run._replace(host=1, start=8.0)), faults=tuple(faults))


def _forgotten(chance: random.Random, plan: Plan) -> Plan:
    """A name that is forgotten, and a clock that goes back."""
    short = RunPlan(0, 0.0, 6.0, 30.0, 0.5)
    runs = [short, short._replace(host=1, start=chance.uniform(4, 9)), short._replace(start=14.0)]
    forget, back = sorted((chance.uniform(2, 8), chance.uniform(2, 12)))
    faults = [Fault("forget", 1, forget, 0.2), Fault("jump", 0, back, -chance.uniform(0, 30))]
    faults.append(Fault("forget", 0, chance.uniform(8, 13), 0.2))
    return plan._replace(runs=tuple(runs), faults=tuple(faults[: chance.choice((1, 2, 2, 3))]))


def _forgotten_as_it_begins(chance: random.Random, plan: Plan) -> Plan:
    """A name that is forgotten in the moment in which some come for it, one after the other."""
    first, at = RunPlan(0, 0.0, 6.0, 30.0, 0.5), 3.0
    if chance.random() < 0.2:  # before they come, and then the clock goes back
        faults = [Fault("forget", 0, at, 0.2), Fault("wrong", 0, at + 0.5, -chance.uniform(1.0, 60.0))]
        return plan._replace(runs=(first, first._replace(start=at + 1.0)), faults=tuple(faults))
    if plan.store != "file" and chance.random() < 0.3:  # whose tokens are ahead of the clock, since it went back
        plan = plan._replace(fastest=0.002, slowest=0.05)
        later = [first._replace(start=1.5), first._replace(host=1, start=at + 0.3 * chance.random())]
        faults = [Fault("jump", 0, 1.2, -chance.uniform(5.0, 60.0)), Fault("forget", 1, at, 0.2)]
        return plan._replace(runs=(first, *later), faults=tuple(faults))
    if plan.store != "file" and chance.random() < 0.4:  # and each message takes as long
        plan = plan._replace(fastest=0.001, slowest=0.05)
    apart = 0.02 if plan.store == "file" else 0.1
    later = [first._replace(host=number % 2, start=at + apart * chance.random(), length=1.0) for number in range(3)]
    faults = [Fault("forget", number, at + apart * chance.random(), 0.2) for number in range(chance.choice((1, 1, 2)))]
    if plan.store == "file":
        faults += [Fault("other", 0, at + apart * chance.random(), 1.0) for _ in range(chance.randrange(3))]
    return plan._replace(runs=(first, *later[: chance.choice((1, 2, 3))]), faults=tuple(faults))


def _run(chance: random.Random, host: int, ttl: float, once_per: float | None, mode: str, slots: int) -> RunPlan:
    if mode == "shared" and chance.random() < 0.4:
        mode = "exclusive"
    outlived = chance.choice((0.0, 0.0, 0.0, 0.1, 1.0, INFINITE))
    kill_after = chance.choice((None,) * 8 + (0.0, LONGEST_GRACE * ttl * chance.random()))
    return RunPlan(
        host=host,
        start=chance.choice((0.0, chance.uniform(0, 3), chance.uniform(0, ttl))),
        ttl=ttl,
        wait=chance.choice((0.0, 30.0, 60.0, 60.0)),
        length=chance.choice(
            (0.05, chance.uniform(0, 3), chance.uniform(0, ttl), chance.uniform(0.5 * ttl, 1.3 * ttl))
        ),
        stubborn=chance.choice((0.05, 0.05, 1.0, INFINITE)),
        outlived=outlived,
        succeeds=chance.random() < 0.8,
        once_per=once_per,
        min_hold=chance.choice((0.0,) * 9 + (ttl / 2,)) if mode == "exclusive" else 0.0,
        mode=mode,
        slots=slots,
        max_runtime=chance.choice((None,) * 7 + (chance.uniform(0, ttl),)),
        waits_for_rest=outlived < INFINITE and chance.random() < 0.2,
        kill_after=kill_after,
        kills_on_loss=chance.random() < 0.9,
    )


def _fault(chance: random.Random, runs: list[RunPlan], hosts: int, ttl: float) -> list[Fault]:
    """One fault, or a few that belong together."""
    kind = chance.choice(KINDS + KINDS_TOO)
    number = chance.randrange(len(runs))
    time = chance.choice((chance.uniform(0, 3), chance.uniform(0, 2 * ttl)))
    host = chance.randrange(hosts)
    span = chance.choice((chance.uniform(0, 0.3), chance.uniform(0, 0.15 * ttl), chance.uniform(0, 2 * ttl), 3 * ttl))
    step = int(2 ** chance.uniform(1, 8.5))
    if kind == "stop":
        return [Fault(kind, number, step, span, chance.randrange(2))]
    if kind == "kill":
        return [Fault("stop", number, step, INFINITE, chance.randrange(2))]
    if kind == "pause":
        return [Fault(kind, number, time, chance.choice((span, INFINITE)), chance.randrange(2))]
    if kind == "both":
        return [Fault("pause", number, time, span, KEEPER), Fault("pause", number, time, span, GUARD)]
    if kind in ("lose", "late", "twice"):
        way = chance.randrange(2)
        return [Fault(kind, host, int(2 ** chance.uniform(0, 6)), span, way)]
    if kind in ("cut", "slow"):
        return [Fault(kind, host, time, span, chance.randrange(3 if kind == "cut" else 2))]
    if kind == "down":
        return [Fault(kind, chance.randrange(NODES), time, max(span, 0.1), chance.choice((KEPT, KEPT, LOST, OLD)))]
    if kind == "jump":
        return [Fault(kind, chance.randrange(NODES), time, chance.choice((-1, 1)) * span)]
    if kind == "wrong":
        return [Fault(kind, host, time, chance.choice((-1, 1)) * 50 * span)]
    if kind == "signal":
        return [Fault(kind, number, time, chance.choice(SIGNALS))]
    if kind == "revoke":
        return [Fault(kind, host, time, chance.choice((0.0, span)), chance.choice((0, 0, 1)))]
    forget = Fault("forget", host, time + ttl, chance.choice((0.0, 0.5, 2.0, 8.0)))
    return [forget, Fault("jump", 0, max(0.0, time + ttl - 1), -span)] if chance.random() < 0.7 else [forget]


SIGNAL = Fault("signal", 0, 0.0, 15)
SIGNALS = (15, 15, 15, 2, 1, 3, 10)  # TERM, INT, HUP, QUIT, and USR1, which ends nothing here
KINDS = ("stop", "stop", "kill", "pause", "both", "lose", "lose", "late", "late", "twice", "cut", "cut")
KINDS_TOO = ("slow", "down", "jump", "wrong", "signal", "revoke", "revoke", "forget")
KINDS_OF_A_HOST = (
    *(
        "replaced",
        "sleep",
        "stop",
        "pause",
        "signal",
        "threads",
        "marks",
        "power",
        "look",
        "wrong",
        "revoke",
        "other",
        "forget",
    ),
)
SITUATIONS_OF_A_HOST = (
    *(_mess, _mess, _mess, _stuck, _early_signal, _forgotten, _slot_of_the_dead, _asked_in_turn, _freed_in_turn),
    *(_newcomer, _at_once, _beside_others, _queued, _stopped_in_line, _freed_as_it_ends, _left_behind, _several),
    *(_impatient, _forgotten_as_it_begins, _asleep, _kept_closed, _out_of_time, _asked_in_the_wait, _lingering),
)
IN_TURN = (_asked_in_turn, _freed_in_turn)
ANY_SCOPE = (
    *(rare.long_in_line, rare.asked_as_it_is_cut, _beside_others, *IN_TURN, _restarted),
    *(_wait_ends, _table_locked),
)
OF_OTHERS = (
    _busy,
    _busy,
    _expired,
    _expired,
    _others_in_turn,
    *(_another_program,) * 6,
)  # all else is said of other cells
OF_OBJECTS = (
    _busy,
    _busy,
    _expired,
    _expired,
    rare.come_as_a_lease_ends,
    rare.come_as_a_lease_ends,
    rare.removed_by_hand,
)
# of stores: what only they have
OF_STORES = {
    "etcd": (_deposed, _deposed, _busy, _busy, _expired, _wait_ends, _cut_in_turn, *IN_TURN),
    "etcd-cluster": (_deposed, _deposed, _far, _far, _one_at_a_time, _wait_ends, _member_away),
    "nats": (_deposed, _deposed, _deposed_at_the_end, _busy, _busy, _expired, _expired),
    "redis": (
        _far_behind,
        _others_in_turn,
        _failover,
        _failover,
        _busy,
        _busy,
        _busy,
        _busy,
        *(_another_program,) * 3,
        *IN_TURN,
    ),
    "redlock": (_few_answer, _few_answer, _few_shown, _renamed, _taken_away, _unanswered, afterwards.few_keep_it),
    "consul": (_removed, _removed, _busy, _busy, *IN_TURN),
    "zookeeper": (_freed_in_turn,),
    "s3": (*OF_OBJECTS, _skewed),
    "azblob": OF_OBJECTS,
    "gcs": OF_OBJECTS,
    "postgresql": (*ANY_SCOPE, _busy, _ended, *afterwards.OF_CONNECTIONS, rare.freed_as_it_is_kept),
    "transaction": (*ANY_SCOPE, _busy, _ended, *afterwards.OF_CONNECTIONS, rare.freed_as_it_is_kept),
    "kubernetes": OF_OTHERS,
    "dynamodb": OF_OTHERS,
    "mysql": (
        *(_beside_others, _ended, _ended, _rows_locked, _asked_in_turn, _freed_as_it_ends, _stopped_in_line),
        *(_left_behind, _winter, _busy, _busy, _deposed, _deposed, _deposed),
    ),
}
