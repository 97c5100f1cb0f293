"""Situations that a mess does not come by, and that need no other kind of store than most are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.lease.schedule import RENEWALS_PER_TTL
from tests.simulation.network import SLOW
from tests.simulation.plan import (
    ANSWER,
    BOTH,
    BY_SIGNAL,
    DESCRIPTORS,
    ENDS_A_WAIT,
    GUARD,
    INFINITE,
    KEEPER,
    KEPT,
    LOCK,
    NODES,
    PARKED,
    REQUEST,
    Fault,
    Plan,
    RunPlan,
)

if TYPE_CHECKING:
    import random

LONG, LATEST = 60.0, 7.5  # seconds of a lease that is renewed although answers take so long
TTLS = (6.0, 10.0, 20.0)
LEFT = 0.1  # part of a lease in which a renewal comes through when a server that has refused is there again
SLOW_CLOCK = (0.99905, 1.0, 1.00085)  # that of the first host, and that of the servers is fast


def lost_now_and_then(chance: random.Random, plan: Plan) -> Plan:
    """Short outages, so far apart that none of them may harm a job, whatever was before."""
    ttl = chance.choice((6.0, 10.0))
    first, times = chance.uniform(0.5, ttl), [0.0]
    for _ in range(chance.choice((2, 3))):
        times.append(times[-1] + ttl * chance.uniform(1.15, 1.4))
    way = chance.choice((REQUEST, ANSWER, BOTH))
    faults = [Fault("cut", 0, first + time, ttl * chance.uniform(0.02, 0.18), way) for time in times]
    run = RunPlan(0, 0.0, ttl, 30.0, first + times[-1] + ttl)
    return plan._replace(runs=(run,), faults=tuple(faults))


def asleep_now_and_then(chance: random.Random, plan: Plan) -> Plan:
    """A host that sleeps again and again, never for long."""
    ttl, times = chance.choice((6.0, 10.0)), [chance.uniform(0.5, 3.0)]
    for _ in range(4):
        times.append(times[-1] + ttl * chance.uniform(1.25, 1.4))
    faults = [Fault("sleep", 0, time, ttl * chance.uniform(0.1, 0.18)) for time in times]
    run = RunPlan(0, 0.0, ttl, 30.0, times[-1] + ttl)
    return plan._replace(runs=(run,), faults=tuple(faults))


def refused_then_silent(chance: random.Random, plan: Plan) -> Plan:
    """A server that refuses for a moment, and then a request that gets no answer."""
    ttl = chance.choice((10.0, 20.0))
    down = Fault("down", 0, chance.uniform(0.5, ttl), ttl * chance.uniform(0.05, 0.15), KEPT)
    lost = Fault("lose", 0, chance.randrange(6, 24), 0.0, ANSWER)
    run = RunPlan(0, 0.0, ttl, 30.0, down.at + 1.5 * ttl)
    return plan._replace(runs=(run,), faults=(down, lost))


def late_then_silent(chance: random.Random, plan: Plan) -> Plan:
    """Answers so late that more was asked meanwhile, and then there is silence: the lease counts from what they answer."""
    ttl = chance.choice((6.0, 6.0, 10.0, 20.0))
    holder = RunPlan(0, 0.0, ttl, 30.0, 6 * ttl, INFINITE)
    waiter = RunPlan(1, 1.0, ttl, 90.0, 1.0)
    slow = Fault("slow", 0, chance.uniform(0.1, ttl), ttl * chance.uniform(0.2, 0.45), ANSWER)
    cut = Fault("cut", 0, slow.at + slow.value + ttl * chance.uniform(0.0, 0.25), 4 * ttl, BOTH)
    return plan._replace(rates=SLOW_CLOCK, runs=(holder, waiter), faults=(slow, cut))


def refused_for_long(chance: random.Random, plan: Plan) -> Plan:
    """A server that refuses, for nearly as long as a lease may do without a renewal."""
    ttl = chance.choice(TTLS)
    run = RunPlan(0, 0.0, ttl, 30.0, 0.0)
    longest = ttl - run.margin - run.grace - ttl * (1.1 / RENEWALS_PER_TTL + LEFT)
    span = chance.choice((ttl * chance.uniform(0.15, 0.5), longest * chance.uniform(0.95, 1.0)))
    down = Fault("down", 0, chance.uniform(0.5, ttl), span, KEPT)
    return plan._replace(runs=(run._replace(length=down.at + 1.5 * ttl),), faults=(down,))


def long_lease(chance: random.Random, plan: Plan) -> Plan:
    """A lease so long that clocks of another speed are apart by more than its margin when it ends; then there is silence."""
    ttl = chance.choice((1800.0, 3600.0))
    holder = RunPlan(0, 0.0, ttl, 30.0, 2 * ttl, INFINITE)
    waiter = RunPlan(1, 0.99 * ttl, ttl, 0.05 * ttl, 1.0)
    cut = Fault("cut", 0, chance.uniform(0.3, 3.0), 2 * ttl, BOTH)
    return plan._replace(rates=SLOW_CLOCK, runs=(holder, waiter), faults=(cut,))


def stopped_in_turn(chance: random.Random, plan: Plan) -> Plan:
    """Both processes stand still, one after the other, while no renewal comes through."""
    ttl = chance.choice(TTLS)
    holder = RunPlan(0, 0.0, ttl, 30.0, 4 * ttl, INFINITE)
    waiter = RunPlan(1, 0.5, ttl, 90.0, 1.0)
    first = chance.uniform(0.3, 0.5 * ttl)
    renewed = first + ttl * chance.uniform(-0.1, 0.02)
    if chance.random() < 0.5:  # the guard is there again when the job is to be killed, and then the keeper is not
        back = renewed + ttl * chance.uniform(0.5, 0.9)
        still = [Fault("pause", 0, first, back - first, GUARD)]
        still.append(Fault("pause", 0, back + 0.1 * chance.random(), chance.choice((INFINITE, 2 * ttl)), KEEPER))
    else:
        span = chance.uniform(0.5, 2.5)
        still = [Fault("pause", 0, first, span, KEEPER)]
        still.append(Fault("pause", 0, first + span + 0.2 * chance.random(), 3 * ttl, GUARD))
    cut = Fault("cut", 0, max(0.1, renewed), 5 * ttl, BOTH)
    return plan._replace(rates=SLOW_CLOCK, runs=(holder, waiter), faults=(*still, cut))


def worse(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken away while its job is being stopped for another reason."""
    ttl = chance.choice((10.0, 20.0))
    at = chance.uniform(0.3, ttl)
    run = RunPlan(0, 0.0, ttl, 30.0, 4 * ttl, INFINITE, kills_on_loss=chance.random() < 0.7)
    freed = Fault("revoke", 1, at + run.grace * chance.uniform(-0.5, 0.9), 0.0, 1)
    if chance.random() < 0.5:
        # and its guard may stand still, when it has said why it stops the job
        stuck = Fault("pause", 0, at + 0.3 + run.grace * chance.random(), 2 * ttl, GUARD)
        faults = chance.choice(((freed,), (freed,), (freed, stuck)))
        return plan._replace(runs=(run._replace(max_runtime=at),), faults=faults)
    freed = freed._replace(at=at + ttl / 6 + run.grace * chance.uniform(-0.5, 0.9))
    return plan._replace(runs=(run,), faults=(Fault("revoke", 1, at), freed))


def taken_back(chance: random.Random, plan: Plan) -> Plan:
    """A guard that is stopped before it has the order to start, and nobody wants the job any more when it goes on."""
    ttl = chance.choice((10.0, 20.0))
    run = RunPlan(0, 0.0, ttl, 30.0, ttl)
    at = chance.uniform(0.3, 0.2 * ttl)
    fault = chance.choice((Fault("pause", 0, at, INFINITE, KEEPER), Fault("revoke", 1, at)))
    span = at + chance.uniform(0.02, 0.35) * ttl
    guard = Fault("pause", 0, 0.004 + 0.01 * chance.random(), span, GUARD)
    return plan._replace(runs=(run,), faults=(guard, fault))


def signalled_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who waits over a slow network is told to end, and others wait, too."""
    ttl, slowest = chance.choice((10.0, 20.0)), chance.choice((0.002, 0.1, 0.3))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(2.0, 6.0))
    second = first._replace(host=1, start=chance.choice((0.0, 0.5)), wait=90.0, length=1.0)
    third = second._replace(host=0, start=second.start + 0.5)
    at = second.start + chance.choice((12 * slowest, 4.0)) * chance.random()
    faults = [Fault("signal", 1, at, chance.choice((15, 15, 2, 1, 3)))]
    if chance.random() < 0.4:  # and nobody answers it just then
        cut = Fault("cut", 1, max(0.0, at - 2.0 * chance.random()), chance.uniform(2.0, 12.0), BOTH)
        faults.append(cut._replace(more=chance.choice((REQUEST, ANSWER, BOTH))))
    runs = chance.choice(((first, second, third), (first, second), (first._replace(length=0.0), second)))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=tuple(faults))


def signalled_far_away(chance: random.Random, plan: Plan) -> Plan:
    """A run that is told to end while it takes its lock from a server that is far away."""
    ttl = chance.choice((10.0, 20.0))
    slowest = ttl / chance.uniform(26, 60)
    locks = chance.choice((("nightly",), ("nightly",), ("hourly", "nightly")))
    run = RunPlan(0, 0.0, ttl, 60.0, ttl, locks=locks)
    signal = Fault("signal", 0, 14 * len(locks) * slowest * chance.random(), 15)
    return plan._replace(fastest=0.8 * slowest, slowest=slowest, runs=(run,), faults=(signal,))


def signalled_as_it_is_renewed(chance: random.Random, plan: Plan) -> Plan:
    """A run that is told to end when it has its lock late, and renews it before its job starts, and nobody answers."""
    run = RunPlan(0, 0.0, 30.0, 60.0, 1.0)
    late = Fault("late", 0, chance.randrange(1, 12), chance.uniform(5.5, 9.0), ANSWER)
    cut = Fault("cut", 0, 1.0, 60.0, REQUEST)
    signal = Fault("signal", 0, late.value + 1.0 * chance.random(), 15)
    return plan._replace(runs=(run,), faults=(late, cut, signal))


def signalled_after_a_late_grant(chance: random.Random, plan: Plan) -> Plan:
    """Who is granted its lock when hardly anything of the lease is left waits again, for another, and is told to end."""
    run = RunPlan(0, 0.0, 6.0, 60.0, 1.0)
    late = Fault("late", 0, chance.randrange(1, 12), chance.uniform(4.3, 8.5), ANSWER)
    other = run._replace(host=1, start=chance.uniform(0.3, 3.0), length=12.0)
    signal = Fault("signal", 0, late.value + chance.uniform(0.2, 3.0), chance.choice(ENDS_A_WAIT))
    return plan._replace(runs=(run, other), faults=(late, signal))


def signalled(chance: random.Random, plan: Plan) -> Plan:
    """A run that is sent a signal while its job has another process beside the command."""
    ttl = chance.choice(TTLS)
    run = RunPlan(0, 0.0, ttl, 30.0, chance.uniform(1.0, ttl), chance.choice((0.05, INFINITE)), 1.0)
    signal = Fault("signal", 0, chance.uniform(0.2, run.length), chance.choice((15, 2, 1, 3)))
    return plan._replace(runs=(run,), faults=(signal,))


def asked_of_a_long_lease(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is asked for, or taken away, whose lease is so long that only the heartbeat has it renewed sooner."""
    ttl = chance.choice((60.0, 300.0))
    run = RunPlan(0, 0.0, ttl, 30.0, 60.0)
    asked = Fault("revoke", 1, chance.uniform(0.3, 20.0), 0.0, chance.choice((0, 0, 1)))
    return plan._replace(runs=(run,), faults=(asked,))


def hard_to_kill(chance: random.Random, plan: Plan) -> Plan:
    """A job that lives on for a while after KILL, or of which another process appears while it is killed."""
    ttl = chance.choice((6.0, 10.0))
    at, forks = chance.uniform(0.2, ttl), chance.random() < 0.5
    dying = 0.0 if forks else chance.uniform(0.5, 2.5) * ttl
    run = RunPlan(0, 0.0, ttl, 30.0, 6 * ttl, INFINITE, dying=dying, forks=forks)
    waiter = RunPlan(1, 0.5, ttl, 120.0, 1.0)
    kinds = [Fault("revoke", 1, at), None, Fault("pause", 0, at, chance.choice((INFINITE, 2 * ttl)), GUARD)]
    fault = chance.choice([*kinds, Fault("cut", 0, at, 2 * ttl, BOTH)] if forks else kinds[:2])
    if fault is None:
        return plan._replace(runs=(run._replace(max_runtime=at), waiter))
    return plan._replace(runs=(run, waiter), faults=(fault,))


def stopped_at_the_end(chance: random.Random, plan: Plan) -> Plan:
    """A keeper that stands still for a moment as its job ends, and has to keep the lock closed, or to note a success."""
    ttl = chance.choice((6.0, 10.0))
    run = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.5, 3.0), once_per=chance.choice((None, 3600.0)))
    run = run._replace(min_hold=0.0 if run.once_per else run.length + chance.uniform(1.0, 4.0))
    still = Fault("pause", 0, run.length - 0.2 * chance.random(), chance.uniform(0.3, 0.5 * ttl), KEEPER)
    waiting = run._replace(host=1, start=0.3, length=0.2, min_hold=0.0)
    return plan._replace(runs=(run, waiting), faults=(still,))


def away_at_first(chance: random.Random, plan: Plan) -> Plan:
    """A server that is out of reach when a run wants its lock, for a moment or for too long."""
    run = RunPlan(0, 0.0, 10.0, chance.choice((0.0, 5.0, 60.0)) * chance.random(), 1.0)
    down = Fault("down", 0, 0.1 * chance.random(), chance.uniform(1.0, 20.0), KEPT)  # it may just have come
    return plan._replace(fastest=0.005, slowest=0.02, runs=(run,), faults=(down,))


def not_executable(chance: random.Random, plan: Plan) -> Plan:
    """A command that cannot be executed: nothing is kept of its run."""
    run = RunPlan(0, 0.0, chance.choice(TTLS), 30.0, 1.0, executable=False)
    run = run._replace(min_hold=chance.choice((0.0, 20.0)), once_per=chance.choice((None, 60.0)))
    other = run._replace(host=1, start=chance.choice((0.0, 0.5)), wait=60.0, executable=True, min_hold=0.0)
    return plan._replace(runs=(run, other))


def no_threads(chance: random.Random, plan: Plan) -> Plan:
    """A user who has as many processes as are allowed, when the first renewal is due and perhaps from then on.

    Or, but only for a moment, the keeper has as many descriptors.
    """
    ttl = chance.choice((6.0, 10.0, 20.0))
    run = RunPlan(
        0, 0.0, ttl, 30.0, 1.5 * ttl, locks=chance.choice((("nightly",), ("nightly",), ("hourly", "nightly")))
    )
    lasts = ttl * chance.choice((chance.uniform(0.03, 0.17), 3.0))
    none = Fault("threads", 0, ttl * chance.uniform(0.0, 0.15), lasts)
    if lasts < ttl and chance.random() < 0.5:
        none = none._replace(more=DESCRIPTORS)
    return plan._replace(runs=(run,), faults=(none,))


def granted_late(chance: random.Random, plan: Plan) -> Plan:
    """A name that is used and forgotten while the first request for it is still on its way."""
    first = RunPlan(0, 0.0, 20.0, 60.0, 1.0)
    second = first._replace(host=1, start=chance.uniform(0.1, 0.5), length=0.1)
    late = Fault("late", 0, chance.randrange(1, 12), chance.uniform(2.5, 6.0), REQUEST)
    forget = Fault("forget", 1, second.start + chance.uniform(0.3, 1.5), chance.choice((0.0, 0.2)))
    runs = (first, second, second._replace(start=3.0))[: chance.choice((2, 3))]
    return plan._replace(fastest=0.002, slowest=0.01, runs=runs, faults=(late, forget))


def cut_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who waits is cut off for a while, which must not cost it more than that."""
    first = RunPlan(1, 0.0, 60.0, 60.0, chance.uniform(2.0, 12.0))
    second = RunPlan(0, 0.5, 60.0, 120.0, 1.0)
    at = chance.choice((0.5 + 0.06 * chance.random(), chance.uniform(0.5, first.length), first.length + 0.05))
    cut = Fault("cut", 0, at, chance.uniform(1.0, 12.0), chance.choice((REQUEST, ANSWER, BOTH)))
    if plan.store == "redlock" or chance.random() < 0.5:
        return plan._replace(runs=(first, second), faults=(cut,))
    # for a slot, behind another one who got the first that was free
    runs = (
        first._replace(length=first.length * chance.random()),
        first,
        first._replace(start=0.3, length=60.0),
        second,
    )
    slots = tuple([each._replace(mode="slot", slots=2) for each in runs])
    return plan._replace(runs=slots, faults=(cut,))


def refused_in_line_now_and_then(chance: random.Random, plan: Plan) -> Plan:
    """A server that is restarted while somebody waits, and long after that once more: none of that may end the wait."""
    first = RunPlan(1, 0.0, 20.0, 60.0, 27.0)
    waiting = first._replace(host=0, start=0.5, wait=120.0, length=0.5)
    down = Fault("down", 0, chance.uniform(1.6, 3.5), chance.choice((0.3, 2.0)) * chance.uniform(0.2, 1.0), KEPT)
    again = down._replace(at=down.at + chance.uniform(22.1, 23.0))
    return plan._replace(runs=(first, waiting), faults=(down, again))


def asked_while_stopped(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is asked for, or taken away, while the guard of its job stands still."""
    ttl, soon = chance.choice(((10.0, 10.0), (20.0, 20.0), (60.0, 10.0)))
    run = RunPlan(0, 0.0, ttl, 30.0, 4 * ttl, chance.choice((0.05, INFINITE)))
    stopped = Fault("pause", 0, chance.uniform(0.3, soon), 3 * ttl, GUARD)
    asked = Fault("revoke", 1, stopped.at + chance.uniform(-0.1, 0.3) * soon, 0.0, chance.choice((0, 0, 1)))
    return plan._replace(runs=(run,), faults=(stopped, asked._replace(at=max(0.2, asked.at))))


def asked_of_one_of_several(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who wants the place of one of those who are inside together, or takes it away."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, 2 * ttl, mode="slot", slots=chance.choice((2, 3)))
    if plan.store == "redlock":
        first = first._replace(mode="exclusive", slots=1)
    runs = [first._replace(host=number % 2, start=0.3 * number * chance.random()) for number in range(3)]
    asked = Fault("revoke", 0, chance.uniform(0.5, ttl), more=chance.choice((0, 0, 1)))
    return plan._replace(runs=tuple(runs), faults=(asked,))


def asked_while_kept(chance: random.Random, plan: Plan) -> Plan:
    """The first of two locks, which is asked for, or taken away, while its holder waits for the second one."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(2.0, 2 * ttl), locks=("weekly",))
    second = first._replace(host=1, start=0.1, length=chance.uniform(0.5, ttl), locks=("weekly", LOCK))
    third = first._replace(start=chance.uniform(0.3, first.length), length=1.0, locks=(LOCK,))
    asked = Fault("revoke", 0, chance.uniform(0.5, first.length), 0.0, chance.choice((0, 0, 1)))
    return plan._replace(runs=(first, second, third)[: chance.choice((2, 3))], faults=(asked,))


def asked_as_it_is_cut(chance: random.Random, plan: Plan) -> Plan:
    """Who waits for its second lock is asked for the first one, gives it back, and is cut off just then."""
    ttl, slowest = 60.0, chance.choice((0.05, 0.2, 0.3))
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(40.0, 50.0), locks=("weekly",))
    waiting = first._replace(host=1, start=0.3, length=0.5, wait=200.0, locks=(LOCK, "weekly"))
    asked = Fault("revoke", 0, chance.uniform(1.0, 4.0) + 30 * slowest)
    later = chance.choice((1.0, 2.0, 10.0)) * chance.random() + 4 * slowest
    span = chance.choice((chance.uniform(1.5, 5.0), chance.uniform(9.0, 15.0)))  # or for more than one attempt
    cut = Fault("cut", 1, asked.at + later, span, chance.choice((REQUEST, REQUEST, BOTH)))
    return plan._replace(fastest=slowest / 2, slowest=slowest, runs=(first, waiting), faults=(asked, cut))


def freed_before_it_is_known(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken away while the answer that grants it is on its way, until a part of its lease is over."""
    ttl = chance.choice((10.0, 20.0))
    run = RunPlan(0, 0.0, ttl, 60.0, ttl)
    late = Fault("late", 0, chance.randrange(1, 12), chance.uniform(0.2, 0.45) * ttl, ANSWER)
    freed = Fault("revoke", 1, chance.uniform(0.1, 0.2) * ttl, 0.0, 1)
    return plan._replace(fastest=0.001, slowest=0.005, runs=(run,), faults=(late, freed))


def comes_as_it_is_freed(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who comes just before the lock is given back, and begins to wait."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(2.0, 4.0))
    mode, slots = chance.choice((("exclusive", 1), ("exclusive", 1), ("slot", 2)))
    if plan.store == "redlock":
        mode, slots = "exclusive", 1
    runs = [first._replace(mode=mode, slots=slots, start=0.1 * number) for number in range(slots)]
    runs[1:] = [each._replace(length=20.0) for each in runs[1:]]
    start = first.length + slowest * chance.uniform(-10.0, 40.0)
    coming = runs[0]._replace(host=1, start=start, length=1.0)
    if chance.random() < 0.2:  # and the name is to be forgotten before it has the lock
        forget = Fault("forget", 0, first.length + chance.choice((20 * slowest, 1.0)) * chance.random(), 0.0)
        waiting = coming._replace(start=0.5)
        return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(*runs, waiting), faults=(forget,))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(*runs, coming))


def ends_as_it_is_renewed(chance: random.Random, plan: Plan) -> Plan:
    """Jobs that end in the moment of the first renewal."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.choice((0.5, 0.9, ttl / 6)) - chance.uniform(0.0, 0.025))
    return plan._replace(runs=(first, first._replace(start=first.length + 1.0), first._replace(host=1, start=0.1)))


def forgotten_late(chance: random.Random, plan: Plan) -> Plan:
    """A name that is forgotten by requests of which one is so late that somebody has its lock by then."""
    first = RunPlan(1, 0.0, 10.0, 60.0, 0.1)
    second = first._replace(start=2.0 + chance.random(), length=6.0)
    forget = Fault("forget", 0, 2.0, chance.choice((0.0, 0.2)))
    late = Fault("late", 0, chance.randrange(1, 30), chance.uniform(0.5, 4.0), REQUEST)
    return plan._replace(fastest=0.001, slowest=0.005, runs=(first, second), faults=(forget, late))


def clock_back(chance: random.Random, plan: Plan) -> Plan:
    """A clock of a host, or of a server, that goes back, and a lock, or a hold, that is taken away after that."""
    first = RunPlan(0, 0.0, 6.0, 30.0, chance.choice((0.3, 6.0)), min_hold=chance.choice((0.0, 20.0)))
    second = first._replace(start=chance.choice((0.5, 3.5)), wait=60.0, length=0.5, min_hold=0.0)
    kind = "wrong" if plan.store in ("file", "sqlite") else chance.choice(("wrong", "jump"))
    back = Fault(kind, 0, chance.uniform(0.5, 2.0), -chance.uniform(1.0, 60.0))
    return plan._replace(runs=(first, second), faults=(back, Fault("revoke", 0, 2.0 + chance.random(), 0.0, 1)))


def clock_ahead(chance: random.Random, plan: Plan) -> Plan:
    """A clock of a host that is set forward while a job runs, or its lock is kept closed, and another one waits."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, 1.5 * ttl))
    first = first._replace(min_hold=chance.choice((0.0, 0.0, first.length + 5.0)))
    ahead = Fault("wrong", chance.randrange(2), chance.uniform(0.6, first.length), chance.uniform(1.0, 60.0))
    second = first._replace(host=1, start=chance.choice((0.5, ahead.at + 0.1)), length=1.0, min_hold=0.0)
    return plan._replace(runs=(first, second), faults=(ahead,))


def taken_as_it_is_forgotten(chance: random.Random, plan: Plan) -> Plan:
    """A name that is forgotten in the moment in which somebody takes its lock."""
    slowest = chance.choice((0.02, 0.1))
    first = RunPlan(0, 0.0, 10.0, 60.0, 0.1)
    at = 2.0 + 20 * slowest
    messages = chance.choice((10, 30))  # in that time some stores have seen whether the server heeds conditions
    second = first._replace(host=1, start=at + messages * slowest * chance.random(), length=5.0)
    forget = Fault("forget", 0, at, chance.choice((0.0, 0.2)))
    runs = (first, second, second._replace(host=0, start=second.start + 1.0, length=1.0))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=(forget,))


def asked_before_it_is_known(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who wants a lock back of which its holder does not know yet that it has it."""
    run = RunPlan(0, 0.0, 20.0, 60.0, 40.0)
    cut = Fault("cut", 0, chance.choice((0.3, 1.0)) * chance.random(), 0.1, ANSWER)
    down = Fault("down", 0, cut.at + 0.11, chance.uniform(0.1, 3.0), KEPT)
    asked = Fault("revoke", 1, down.at + down.value + chance.choice((0.2, 1.0)) * chance.random())
    return plan._replace(fastest=0.005, slowest=0.05, runs=(run,), faults=(cut, down, asked))


def killed_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who is killed while another one has the lock, and a third one waits behind."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 120.0, chance.uniform(2.0, 4.0))
    runs = [first._replace(host=number % 2, start=0.6 * number) for number in range(3)]
    killed = Fault("pause", 1, chance.uniform(1.5, 1.9), INFINITE, KEEPER)
    if chance.random() < 0.4:  # or nobody else waits, or they are inside together, and an operator looks
        mode = "exclusive" if plan.store in ("consul", "redlock") else chance.choice(("exclusive", "shared"))
        looks = [Fault("look", 0, 2.0 + ttl * chance.uniform(0.5, 2.0)) for _ in range(2)]
        both = tuple([each._replace(length=2 * ttl, mode=mode) for each in runs[:2]])
        return plan._replace(runs=both, faults=(killed, *looks))
    return plan._replace(runs=tuple(runs), faults=(killed,))


def comes_for_nobody(chance: random.Random, plan: Plan) -> Plan:
    """A request so late that its run is over: a signal broke it off, which may have ended the run, or was for its job.

    What it gives back, or keeps closed, may need a second request.
    """
    ttl, told = 20.0, chance.choice((0.1, 2.0)) * chance.random()
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.05, 1.0))
    signal, over = Fault("signal", 0, told, chance.choice(ENDS_A_WAIT)), told
    if chance.random() < 0.6:
        signal, over = signal._replace(value=10), told + first.length  # USR1
        first = first._replace(min_hold=chance.choice((0.0, first.length + 1.5 * chance.random())))
    if plan.store not in ("redlock", "consul") and chance.random() < 0.3:
        first = first._replace(mode="shared", min_hold=0.0)
    later = chance.choice((chance.uniform(1.0, 5.0), chance.uniform(7.0, 12.0)))
    late = Fault("late", 0, chance.randrange(1, 8), over + later, REQUEST)
    faults = [late, signal]
    if plan.store == "redlock":  # what is sent to all nodes
        number = NODES * chance.choice((1, 2))
        faults = [signal, *(late._replace(at=number + each) for each in range(NODES))]
    if chance.random() < 0.4:
        cut = Fault("cut", 0, max(0.0, over - 0.03), chance.uniform(0.05, 1.0), chance.choice((REQUEST, ANSWER)))
        faults.append(cut)
    second = first._replace(host=1, start=late.value + chance.uniform(0.3, 2.0), min_hold=0.0)
    return plan._replace(runs=(first, second), faults=tuple(faults))


def granted_again(chance: random.Random, plan: Plan) -> Plan:
    """A server that is restarted before it can say that it has granted a lock, and is silent soon after it says so."""
    holder = RunPlan(0, 0.0, 20.0, 60.0, 60.0, INFINITE)
    lost = Fault("cut", 0, 0.3 * chance.random(), 0.1, ANSWER)
    down = Fault("down", 0, lost.at + 0.11, chance.uniform(2.0, 8.0), KEPT)
    over = down.at + down.value
    silence = Fault("cut", 0, over + chance.uniform(0.1, 2.5), 60.0, BOTH)
    waiter = holder._replace(host=1, start=over + 3.0, wait=120.0, length=1.0, stubborn=0.05)
    return plan._replace(fastest=0.005, slowest=0.05, runs=(holder, waiter), faults=(lost, down, silence))


def freed_in_line(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken away, or asked for, while some wait for it who came one after the other."""
    ttl = chance.choice((10.0, 20.0))
    first = RunPlan(0, 0.0, ttl, 90.0, 40.0)
    runs = [first._replace(host=number % 2, start=3.0 * number, length=1.0) for number in range(1, 4)]
    asked = Fault("revoke", 0, chance.uniform(9.5, 15.0), chance.choice((0.0, 0.5)), chance.choice((0, 1)))
    return plan._replace(runs=(first, *runs), faults=(asked,))


def in_other_modes(chance: random.Random, plan: Plan) -> Plan:
    """Readers, and those who want a slot, who wait behind each other: they are not inside together."""
    ttl, slowest = chance.choice(TTLS), chance.choice((0.002, 0.02))
    first = RunPlan(0, 0.0, ttl, 90.0, chance.uniform(3.0, 5.0))
    modes = [("shared", 1), ("slot", 2)]
    if plan.store in ("consul", "redlock"):
        modes = [("exclusive", 1), ("slot", 2) if plan.store == "consul" else ("exclusive", 1)]
    kinds = [*chance.sample(modes, 2), *chance.choices([*modes, ("exclusive", 1)], k=2)]
    runs = [
        first._replace(host=number % 2, start=0.4 + 0.5 * number, length=2.0, mode=mode, slots=slots)
        for number, (mode, slots) in enumerate(kinds)
    ]
    if chance.random() < 0.4:  # who comes when others are inside, and nobody waits
        runs = [first._replace(mode=mode, slots=slots) for mode, slots in (kinds[0], *kinds[:2])]
        runs[1:] = [
            each._replace(host=1, start=number + chance.random(), length=1.0) for number, each in enumerate(runs[1:])
        ]
        return plan._replace(fastest=slowest / 4, slowest=slowest, runs=tuple(runs))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(first, *runs))


def freed_as_it_is_kept(chance: random.Random, plan: Plan) -> Plan:
    """A lock that is taken away in the moment in which it is to be kept closed after its job."""
    slowest = chance.choice((0.002, 0.02, 0.1))
    first = RunPlan(0, 0.0, 10.0, 60.0, chance.uniform(0.5, 3.0), min_hold=20.0)
    second = first._replace(host=1, start=0.3, length=1.0, min_hold=0.0)
    at = first.length + 12 * slowest * chance.uniform(-1.0, 1.0)
    freed = Fault("revoke", 1, max(0.2, at), 0.0, 1)
    third = second._replace(start=0.6)
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(first, second, third), faults=(freed,))


def asked_too_late(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who saw a holder, and asks for its lock, or takes it away, when the next one of that host has it."""
    ttl = chance.choice(TTLS)
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.5, 3.0))
    second = first._replace(start=chance.uniform(0.3, first.length + 0.3), length=8.0)
    seen = chance.uniform(0.5, first.length - 0.5)
    asked = Fault("revoke", 1, seen, chance.uniform(0.5, first.length + 2.0 - seen), chance.choice((0, 1)))
    return plan._replace(runs=(first, second), faults=(asked,))


def sleeping_host(chance: random.Random, plan: Plan) -> Plan:
    """A host that sleeps, and whose clocks do not agree about that; when it is awake, the server may be out of reach."""
    ttl = chance.choice(TTLS)
    span = chance.choice((chance.uniform(0.5, 2.5), chance.uniform(0.05, 0.3))) * ttl
    asleep = Fault("sleep", 0, chance.uniform(0.3, ttl), span)
    length = asleep.at + asleep.value * chance.uniform(0.5, 1.2)
    run = RunPlan(0, 0.0, ttl, 30.0, chance.choice((length, 5 * ttl)), chance.choice((0.05, INFINITE)))
    cut = Fault("cut", 0, asleep.at + asleep.value * chance.random(), 4 * ttl, BOTH)
    faults = (asleep, cut)[: chance.choice((1, 1, 2))]
    return plan._replace(rates=SLOW_CLOCK, runs=(run, RunPlan(1, 0.5, ttl, 90.0, 1.0)), faults=faults)


def next_hold(chance: random.Random, plan: Plan) -> Plan:
    """Somebody who saw a hold, and ends it when it is over, and another one has begun."""
    first = RunPlan(0, 0.0, 10.0, 60.0, 0.2, min_hold=2.0)
    second = first._replace(host=1, start=0.5, min_hold=chance.choice((10.0, 20.0)))
    third = second._replace(start=4.0, length=0.5, min_hold=0.0)
    ended = Fault("revoke", 0, chance.uniform(0.5, 1.8), chance.uniform(1.5, 4.0), 1)
    return plan._replace(runs=(first, second, third), faults=(ended,))


def around_a_period(chance: random.Random, plan: Plan) -> Plan:
    """Short jobs that come one after the other when a period ends and the next one begins."""
    slowest = chance.choice((0.002, 0.02))
    first = RunPlan(0, 10.0 + chance.uniform(-0.3, 0.2), 10.0, 30.0, 0.05, once_per=10.0)
    later = [first._replace(host=number % 2, start=10.0 + chance.uniform(0.1, 0.9)) for number in range(2)]
    back = (Fault("jump", 0, 10.0 + 0.5 * chance.random(), -chance.random()),)  # a clock is set
    faults = back if plan.store not in ("file", "redlock") and chance.random() < 0.5 else ()
    if plan.store != "redlock" and chance.random() < 0.3:  # a success by a clock that was far ahead is none of now
        kind, ahead = "wrong" if plan.store == "file" else "jump", chance.choice((30.0, 3000.0))
        moved = (Fault(kind, 0, 9.0, ahead), Fault(kind, 0, 11.5, -ahead))
        runs = (first, *[each._replace(start=each.start + 2.0) for each in later])
        return plan._replace(runs=runs, faults=moved)
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=(first, *later), faults=faults)


def forgotten_while_kept(chance: random.Random, plan: Plan) -> Plan:
    """A name that is to be forgotten while its lock is kept closed after a job."""
    first = RunPlan(0, 0.0, 10.0, 60.0, 0.2, min_hold=chance.choice((5.0, 20.0)))
    second = first._replace(host=1, start=chance.choice((0.5, 4.2, 4.2)), min_hold=0.0)
    forget = Fault("forget", 1, chance.uniform(0.5, 4.0), chance.choice((0.0, 0.2)))
    return plan._replace(runs=(first, second), faults=(forget,))


def forgotten_in_peace(chance: random.Random, plan: Plan) -> Plan:
    """A name that is forgotten long after its last use."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 60.0, 0.2, min_hold=chance.choice((0.0, 5.0)), once_per=chance.choice((None, 60.0)))
    if plan.store not in ("consul", "redlock") and chance.random() < 0.3:
        first = first._replace(mode="shared", min_hold=0.0, once_per=None)
    forget = Fault("forget", 0, chance.uniform(5.0, 6.0) * ttl, chance.choice((0.0, 0.2, 0.9 * ttl)))
    return plan._replace(runs=(first, first._replace(start=chance.choice((0.1, 1.0)))), faults=(forget,))


def removed_by_hand(chance: random.Random, plan: Plan) -> Plan:
    """A lock that somebody removes from the store after each of some short jobs: the next one has greater tokens."""
    first, at = RunPlan(0, 0.0, 6.0, 30.0, 0.0), 0.0
    runs, faults = [first], list[Fault]()
    for number in range(chance.choice((1, 2))):
        at += chance.uniform(0.15, 0.4)
        faults.append(Fault("emptied", 0, at))
        runs.append(first._replace(host=1 - number, start=at + 0.1 * chance.random()))
    return plan._replace(runs=tuple(runs), faults=tuple(faults))


def fenced(chance: random.Random, plan: Plan) -> Plan:
    """A resource that must know of a token before the job starts: it is out of reach, asked late, or by two at once."""
    ttl, slowest = chance.choice((6.0, 10.0)), chance.choice((0.002, 0.002, 0.1))
    first = RunPlan(0, 0.0, ttl, 60.0, 1.0, fence=True, once_per=chance.choice((None, None, 60.0)))
    if plan.store != "redlock" and chance.random() < 0.3:
        first = first._replace(mode="slot", slots=3)
        three = tuple([first._replace(host=number % 2, start=0.05 * chance.random()) for number in range(3)])
        return plan._replace(fastest=0.001, slowest=0.1, runs=three)
    runs = (first, first._replace(host=1, start=chance.choice((0.0, 0.5)), length=0.5))
    gone = Fault("marks", 0, 0.0, chance.choice((0.5, 2.0, 30.0)))
    asleep = Fault("stop", 0, chance.randrange(20, 120), chance.choice((0.5, 1.5)) * ttl, KEEPER)
    told = Fault("signal", 0, 0.3 * chance.random(), 15)
    cut = Fault("cut", 0, 0.3 * chance.random(), chance.choice((1.0, 2 * ttl)), chance.choice((REQUEST, ANSWER, BOTH)))
    faults = chance.choice(((), (gone,), (asleep,), (asleep,), (gone, told), (told,), (cut,)))
    return plan._replace(fastest=slowest / 4, slowest=slowest, runs=runs, faults=faults)


def come_as_a_lease_ends(chance: random.Random, plan: Plan) -> Plan:
    """Some who come one after the other when the lease of a silent holder ends, whose job lives as long as it may."""
    ttl = chance.choice((6.0, 10.0))
    cut = Fault("cut", 0, chance.uniform(0.5, 3.0), 4 * ttl, BOTH)
    first = RunPlan(0, 0.0, ttl, 60.0, 6 * ttl, INFINITE, kill_after=chance.choice((None, 0.05)))
    over = cut.at + ttl * chance.uniform(0.75, 1.0)
    others = [first._replace(host=1, start=over + 0.2 * number, length=1.0, stubborn=0.05) for number in range(4)]
    return plan._replace(rates=SLOW_CLOCK, runs=(first, *others), faults=(cut,))


def stopped_on_its_terminal(chance: random.Random, plan: Plan) -> Plan:
    """A command that somebody stops on its terminal, and continues, maybe when its lease is over; another run waits."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(1.0, ttl), chance.choice((0.05, INFINITE)))
    halt = Fault("halt", 0, chance.uniform(0.1, first.length), ttl * chance.choice((0.1, 1.0, 2.0)) * chance.random())
    if chance.random() < 0.3:
        halt = halt._replace(value=0.3 + halt.value, more=BY_SIGNAL)
    return plan._replace(
        runs=(first, first._replace(host=1, start=chance.uniform(0.3, 3.0), length=0.5)), faults=(halt,)
    )


def unanswered_as_it_ends(chance: random.Random, plan: Plan) -> Plan:
    """A short job, and one answer that is lost: maybe that to the request which adds the run to the history."""
    first = RunPlan(0, 0.0, 10.0, 60.0, chance.uniform(0.0, 0.5), once_per=chance.choice((None, 60.0)))
    lost = Fault("lose", 0, chance.randrange(4, 45), 0.0, ANSWER)
    return plan._replace(runs=(first, first._replace(host=1, start=1.5, length=0.1)), faults=(lost,))


def long_in_line(chance: random.Random, plan: Plan) -> Plan:
    """Somebody with a lease of a second who waits for so long that it looks as seldom as anybody ever does."""
    first = RunPlan(0, 0.0, 10.0, 60.0, chance.uniform(40.0, 60.0))
    short = first._replace(
        host=1, start=chance.uniform(0.3, 3.0), ttl=chance.choice((1.0, 1.5)), wait=120.0, length=0.3
    )
    runs = (first, short, short._replace(start=short.start + 3.0), short._replace(host=0, start=20.0, ttl=10.0))
    return plan._replace(runs=runs)


def left_alone(chance: random.Random, plan: Plan) -> Plan:
    """A command that leaves a process behind which is to go on without the lock, and another run waits for that."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.05, 1.3 * ttl), outlived=INFINITE, leaves_rest=True)
    first = first._replace(
        min_hold=chance.choice((0.0, 0.0, first.length + 3.0)), once_per=chance.choice((None, 3600.0))
    )
    runs = [first, first._replace(host=1, start=0.3, length=0.2, min_hold=0.0)]
    if plan.store != "redlock" and chance.random() < 0.3:
        runs = [each._replace(mode="slot", slots=2, min_hold=0.0, once_per=None) for each in (*runs, first)]
    still = Fault(
        "pause", 0, first.length - 0.2 * chance.random(), chance.uniform(0.3, 2 * ttl), chance.choice((KEEPER, GUARD))
    )
    return plan._replace(runs=tuple(runs), faults=chance.choice(((), (), (still,))))


def freed_beside_a_late_one(chance: random.Random, plan: Plan) -> Plan:
    """Of two locks one is taken away, while answers about the other one come late."""
    ttl = chance.choice((10.0, 20.0))
    run = RunPlan(0, 0.0, ttl, 30.0, 2 * ttl, INFINITE, locks=("hourly", "nightly"))
    number = chance.randrange(8, 30)
    late = [Fault("late", 0, number + 2 * each, chance.uniform(1.5, 4.0), ANSWER) for each in range(4)]
    return plan._replace(runs=(run,), faults=(Fault("revoke", 1, chance.uniform(1.0, ttl), 0.0, 1), *late))


def slow_for_long(chance: random.Random, plan: Plan) -> Plan:
    """Answers that take longer than a request may take at first, for so long that one of them must be waited for."""
    run = RunPlan(0, 0.0, LONG, 30.0, 1.5 * LONG, locks=chance.choice(((LOCK,), (LOCK,), (LOCK, "weekly"))))
    way, longest = chance.choice((REQUEST, ANSWER)), chance.uniform(5.5, LATEST)
    faults = [Fault("slow", 0, 2.0 + SLOW * number, longest) for number in range(int(run.length / SLOW))]
    return plan._replace(runs=(run,), faults=tuple([each._replace(more=way) for each in faults]))


def several_far_away(chance: random.Random, plan: Plan) -> Plan:
    """Who has some locks and waits for the last one, far from the store, until a signal comes or its time is over."""
    ttl, slowest = chance.choice((10.0, 20.0, 60.0)), chance.choice((0.025, 0.05))
    holder = RunPlan(0, 0.0, ttl, 30.0, 16.0, locks=("weekly",))
    names = chance.sample(("Nightly", "hourly", "monthly", LOCK), chance.choice((0, 2, 3, 4)))
    waiter = RunPlan(1, 0.5, ttl, chance.choice((chance.uniform(4.0, 12.0), 90.0, 90.0)), 1.0)
    waiter = waiter._replace(locks=tuple(chance.sample((*names, "weekly"), len(names) + 1)))
    told = Fault("signal", 1, chance.uniform(0.6, 14.0), chance.choice(ENDS_A_WAIT))
    faults = (told,) if waiter.wait == 90.0 else ()
    return plan._replace(fastest=0.8 * slowest, slowest=slowest, runs=(holder, waiter), faults=faults)


def killed_together(chance: random.Random, plan: Plan) -> Plan:
    """Keeper and guard of a job are killed at once, which leaves a process behind that nobody ends; another run waits."""
    ttl = chance.choice((10.0, 30.0))
    first = RunPlan(0, 0.0, ttl, 90.0, chance.uniform(3.0, 6.0), outlived=chance.uniform(1.0, 12.0))
    at = chance.choice((0.05, 3.0)) * chance.random()
    faults = [Fault("pause", 0, at + 0.001 * chance.random(), INFINITE, which) for which in (KEEPER, GUARD)]
    return plan._replace(
        runs=(first, first._replace(host=1, start=chance.uniform(0.3, 3.0), length=0.5)), faults=tuple(faults)
    )


def waits_with_one(chance: random.Random, plan: Plan) -> Plan:
    """Who has one lock and waits for another one for longer than a lease, and who wants the first one meanwhile."""
    ttl = chance.choice((6.0, 10.0))
    first = RunPlan(0, 0.0, ttl, 60.0, ttl * chance.uniform(1.1, 2.0), locks=("weekly",))
    waiting = first._replace(host=1, start=0.3, length=0.5, locks=chance.choice(((LOCK, "weekly"), ("weekly", LOCK))))
    return plan._replace(runs=(first, waiting, first._replace(start=0.6, length=0.5, locks=(LOCK,))))


def refused_now_and_then(chance: random.Random, plan: Plan) -> Plan:
    """A server that refuses for a moment, again and again, and who answers in its place; a second run waits."""
    ttl = chance.choice((6.0, 10.0, 20.0))
    first = RunPlan(0, 0.0, ttl, 60.0, chance.uniform(0.5, 1.5) * ttl)
    runs = (first, first._replace(host=1, start=chance.uniform(0.2, 2.0), length=0.5))
    times = [chance.uniform(0.0, first.length + 1.0) for _ in range(chance.choice((2, 4, 6)))]
    return plan._replace(
        runs=runs, faults=tuple([Fault("busy", 0, at, chance.uniform(0.02, 0.1) * ttl) for at in times])
    )


def killed_before_it_starts(chance: random.Random, plan: Plan) -> Plan:
    """A run that waits, of which somebody kills the process that is to become its command."""
    first = RunPlan(0, 0.0, 10.0, 60.0, chance.uniform(0.5, 4.0))
    killed = Fault("pause", 1, chance.uniform(0.3, first.length + 0.05), INFINITE, PARKED)
    return plan._replace(runs=(first, first._replace(host=1, start=0.2, length=0.5)), faults=(killed,))


OF_A_HOST = (
    *(stopped_in_turn, worse, taken_back, signalled_in_line, signalled, hard_to_kill, not_executable, no_threads),
    *(
        asked_while_stopped,
        asked_of_one_of_several,
        asked_while_kept,
        clock_back,
        next_hold,
        around_a_period,
        forgotten_while_kept,
        forgotten_in_peace,
    ),
    *(stopped_at_the_end, in_other_modes, freed_as_it_is_kept, asked_too_late, sleeping_host, asleep_now_and_then),
    *(clock_ahead, fenced, left_alone, comes_as_it_is_freed, ends_as_it_is_renewed, killed_in_line),
    *(killed_together, killed_before_it_starts, waits_with_one),
)
OF_ALL = (
    *(*OF_A_HOST, lost_now_and_then, long_lease, signalled_far_away, granted_late, cut_in_line, freed_in_line),
    *(asked_of_a_long_lease, freed_beside_a_late_one, away_at_first, taken_as_it_is_forgotten),
    *(signalled_as_it_is_renewed, unanswered_as_it_ends, stopped_on_its_terminal, several_far_away),
    signalled_after_a_late_grant,
    *(asked_as_it_is_cut, comes_for_nobody, comes_for_nobody),
)
OF_CELLS = (slow_for_long, removed_by_hand)  # where a renewal takes as many messages as the last one
OF_STREAMS = (
    refused_now_and_then,
    refused_in_line_now_and_then,
    refused_then_silent,
    refused_then_silent,
    refused_for_long,
    late_then_silent,
    asked_before_it_is_known,
    granted_again,
    freed_before_it_is_known,
    forgotten_late,
)  # where a server that is down refuses at once
