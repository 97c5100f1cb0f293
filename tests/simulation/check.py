"""What must hold in every history, whatever went wrong in it; ``excuses`` says what is excused by that.

Tokens must rise even then.
"""

from __future__ import annotations

import os
from signal import SIGCONT
from typing import TYPE_CHECKING, NamedTuple

from lockctl.lease.schedule import FIRST_TIMEOUT
from tests.simulation import (
    between_runs,
    endings,
    excuses,
    forgetting,
    marks,
    mysql_waits,
    outages,
    reports,
    rubbish,
    stops,
    waits,
)
from tests.simulation.kubernetes import KubernetesServer
from tests.simulation.network import SLOW
from tests.simulation.objects import ObjectServer
from tests.simulation.others import Other
from tests.simulation.outages import ANSWERED
from tests.simulation.plan import DISK, GUARD, KEEPER, KEPT, LOCK, NEAR, OLDER
from tests.simulation.rare import LATEST, LONG
from tests.simulation.waits import CLOSED, HANDED_OVER, LOOKED_AT, NOTICED
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.plan import Fault
    from tests.simulation.record import RunRecord

SET_BACK = 30.0  # seconds that a clock may be, and a lease seems to last for as long, which those who come wait for
OF_OPERATORS = ("revoke", "look", "twice", "wrong", "signal")  # faults beside which servers do what operators ask for
HARMLESS = {"table", "slow", "late", "twice", "busy", "revoke", "look", "wrong", "signal"}  # to a connection
MILD = 0.8  # part of what a request may take at first that a fault may take without harm to a healthy job
ASKED_AGAIN = 0.10  # part of a ttl that is left for that when a server answers again
APART = 0.4  # part of a ttl in which a renewal comes through after an outage
LEFT = 2.2  # seconds from the end of an outage until nodes that were away, and may be asked to join, can give back
SETTLE = 0.2  # seconds in which what outlives its command may end by itself
DAY = 86400.0  # seconds: a hold from so far ahead of the clock of the host is not believed
NOTICED_LATE = 0.3  # seconds until the command lives, and by which clocks may differ until then
TOO_EARLY = 0.05  # seconds from the order to start until the command lives


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    if any(isinstance(each, ObjectServer) and each.ignores for each in history.servers):
        return [*_unended(history), *_unproven(history)]  # there nothing keeps a lock
    found = [
        *(f"bug: {each}" for each in history.wrong if "gave the lock back" not in each),
        *(f"given back: {each}" for each in history.wrong if "gave the lock back" in each),
        *_unended(history),
        *_overlaps(history),
        *_beside_others(history),
        *_tokens(history),
        *_domains(history),
    ]
    if any(each.kind == "power" for each in history.plan.faults):
        # of runs that end with their host nothing else is promised
        return [*found, *_locked_out(history), *_kept_over(history)]
    return [
        *found,
        *_late_starts(history),
        *_unhealthy(history),
        *_impatient(history),
        *_disagreed(history),
        *_misnamed(history),
        *_lost_too_soon(history),
        *_left(history),
        *_left_on_nodes(history),
        *_removed_of_others(history),
        *_unleft(history),
        *rubbish.violations(history),
        *forgetting.violations(history),
        *_revoked(history),
        *_unfreed(history),
        *_freed_of_another(history),
        *_unrevoked(history),
        *_overtime(history),
        *_untold(history),
        *_orphaned(history),
        *_lingering(history),
        *_disconnected(history),
        *_overwritten(history),
        *_unheard(history),
        *waits.violations(history),
        *outages.violations(history),
        *mysql_waits.violations(history),
        *marks.violations(history),
        *endings.violations(history),
        *stops.violations(history),
        *between_runs.violations(history),
        *reports.violations(history),
    ]


def _unproven(history: History) -> Iterator[str]:
    """Locks that were granted by a server that ignores conditions, which is to be refused."""
    for record in history.records:
        for grant in record.granted:
            yield f"unproven: {record.name} is granted {grant.name} at {grant.known:.3f}, and the server compares nothing"


def _unended(history: History) -> Iterator[str]:
    for record in history.records:
        for process in (record.keeper, record.guard):
            if process is not None and not process.dead and not process.stopped:
                yield f"endless: {process.name} has not ended"


def _overlaps(history: History) -> Iterator[str]:
    ran = sorted((record for record in history.records if record.span), key=lambda each: each.span or (0.0, 0.0))
    for number, later in enumerate(ran):
        begin = (later.span or (0.0, 0.0))[0]
        if excuses.forgot(history, until=begin) or excuses.went_ahead(history, until=begin):
            return
        inside = [each for each in ran[:number] if (each.span or (0.0, 0.0))[1] > begin]
        inside = [each for each in inside if not excuses.may_outlive_its_lock(history, each, begin)]
        if excuses.may_outlive_its_lock(history, later, begin):
            continue
        for each in inside:
            if each.excludes(later):
                end = (each.span or (0.0, 0.0))[1]
                yield f"overlap: {later.name} starts at {begin:.3f}, but the job of {each.name} lives until {end:.3f}"
        if later.plan.mode == "slot" and len(inside) >= later.plan.slots:
            yield f"overlap: {later.name} starts at {begin:.3f} beside {len(inside)} others"


def _late_starts(history: History) -> Iterator[str]:
    """Jobs that began when their lease was over: a guard that was stopped looks at its deadline first."""
    if history.capabilities.kernel_held:
        return
    # at a step, it may have been stopped after it had looked
    stopped = {each.whom for each in history.plan.faults if each.kind == "stop"}
    for record in history.records:
        if record.span is None or record.number in stopped:
            continue
        ended = max(record.kept.values()) + 1.01 * record.plan.ttl
        # of the time until it is told to end, the guard knows what came before the order to start
        told = min(record.kept_at_first.values(), default=INFINITE) + _promised(history, record).signal + NOTICED_LATE
        if record.span[0] > told:
            yield f"late: the job of {record.name} begins at {record.span[0]:.3f}, and is told to end from {told:.3f} on"
        if record.span[0] > ended:
            yield f"late: the job of {record.name} begins at {record.span[0]:.3f}, its lease was over at {ended:.3f}"


def _beside_others(history: History) -> Iterator[str]:
    """Jobs that lived while a program that is not lockctl had their lock."""
    for program in history.programs:
        for record in () if isinstance(program, Other) and program.by_force else history.records:
            if LOCK not in record.plan.locks:
                continue
            if program.span is None or record.span is None or any(each.now for each in history.revoked):
                continue
            begin = max(program.span[0], record.span[0])
            unable = excuses.may_outlive_its_lock(history, record, begin)
            if begin < min(program.span[1], record.span[1]) and not (unable or excuses.went_ahead(history)):
                yield f"overlap: another program has the lock from {program.span[0]:.3f}, and {record.name} runs"


def _tokens(history: History) -> Iterator[str]:
    if excuses.forgot(history) and (excuses.went_back(history) or history.plan.store == "redlock"):
        return
    forgotten = [each.at for each in history.plan.faults if each.kind == "forget"]
    if history.capabilities.fencing != "strict" and forgotten and excuses.went_back(history, since=min(forgotten)):
        return  # there only the clock keeps a counter that was forgotten, and none is forgotten that it has not passed
    # there the clock of the host that takes the lock counts, and here those of two hosts differ by minutes
    by_hosts = history.capabilities.scheme in ("etcd", "consul", "zookeeper")
    hosts_count = by_hosts and excuses.forgot(history)
    if hosts_count and any(each.kind == "wrong" for each in history.plan.faults):
        return
    clocks = [host.clock for host in history.network.hosts]
    grants = sorted((grant.known, grant, record) for record in history.records for grant in record.granted)
    for number, (_, later, record) in enumerate(grants):
        for _, earlier, other in grants[:number]:
            if earlier.owner == later.owner or earlier.name != later.name:
                continue
            if excuses.forgot(history) and later.known < earlier.known + history.store.tick:
                continue  # the clock of the store may not have moved since the grant that it lost
            clock = clocks[record.plan.host]
            if hosts_count and earlier.token >= int((clock.wall_base + clock.rate * later.sent) * 1e6):
                continue
            if earlier.token == later.token or (earlier.known <= later.sent and earlier.token > later.token):
                yield (
                    f"tokens: {record.name} has {later.token} at {later.known:.3f}, after {other.name} had"
                    f" {earlier.token} at {earlier.known:.3f}"
                )


def _domains(history: History) -> Iterator[str]:
    """Tokens of one store that are said to come from several, so that a resource would not compare them."""
    if excuses.forgot(history) or any(each.kind == "renamed" for each in history.plan.faults):
        return
    found = {grant.domain: record for record in history.records for grant in record.granted}
    if len(found) > 1:
        told = ", ".join(f"{record.name} is told {domain}" for domain, record in found.items())
        yield f"tokens: there is one store, and {told}"


class Promised(NamedTuple):
    """Times in seconds that the manual names, calculated here once more: those of the product may be wrong."""

    interval: float  # between two renewals
    signal: float  # from a request to the first signal, if no other one is answered
    grace: float  # from the first signal to KILL


def _promised(history: History, record: RunRecord) -> Promised:
    plan, capabilities = record.plan, history.capabilities
    signal = plan.ttl * (1 - capabilities.rate_error) - 0.05 - plan.margin - plan.grace
    return Promised(min(plan.ttl / 6, capabilities.heartbeat), signal, plan.grace + plan.dying)


def _unhealthy(history: History) -> Iterator[str]:
    for record in history.records:
        hurt = excuses.hurt(history, record)
        if hurt is None or record.keeper is None or excuses.hangs_up_from_afar(history):
            continue
        promised = _promised(history, record)
        spare = 0.5 * (promised.signal - promised.interval)
        # two requests, and all holders write to one place
        renewal = 4 * history.plan.slowest * len(history.plan.runs)
        met, took = hurt
        most = MILD * spare - (3 if met else 0) * renewal
        if len(history.plan.faults) == 1 and not met:
            # who is refused at once asks again when a quarter of what is left is over, at the latest
            most = max(most, promised.signal - 1.1 * promised.interval - ASKED_AGAIN * record.plan.ttl - 2 * renewal)
        if renewal > MILD * min(spare, FIRST_TIMEOUT) or met > 1 or took > most:
            continue
        kind = record.outcome.kind if record.outcome is not None else record.failure or "nothing"
        if record.span and kind == "timed_out" and _is_out_of_time(record):
            continue
        if record.lived and record.command_status not in (0, 256):
            yield f"healthy: the job of {record.name} was ended: {kind}, status {record.command_status}"
        elif not (met or took) and history.plan.slowest < 0.1 and kind not in ("exited", "held", "not_executed"):
            yield f"healthy: {record.name} came to nothing: {kind}"
        elif (
            record.plan.waits_for_rest
            and record.plan.max_runtime is None
            and any(signum != SIGCONT for _, signum in record.signalled)
        ):
            yield f"healthy: what outlives the command of {record.name} is sent {record.signalled}"


def _impatient(history: History) -> Iterator[str]:
    """Jobs with a long lease that were ended although all answers came, each of them late."""
    late = all(each.kind == "slow" and each.value <= LATEST for each in history.plan.faults)
    if not (history.plan.faults and late and history.plan.store in ("exact", "seconds")):
        return
    for record in history.records:
        if record.plan.ttl >= LONG and record.lived and record.command_status not in (0, 256):
            yield f"healthy: the job of {record.name} was ended, and its answers were late"


def _locked_out(history: History) -> Iterator[str]:
    """Runs that come after their host has started again, and wait in vain for what those before it had."""
    moved = [each for each in history.plan.faults if each.kind in ("power", "wrong")]
    if min(each.value for each in moved) < -SET_BACK or any(each.min_hold for each in history.plan.runs):
        return
    for record in history.records:
        after = record.plan.start > max(each.at for each in moved)
        if after and not record.granted:
            yield f"locked out: {record.name} is not granted the lock, and all others are gone"


def _kept_over(history: History) -> Iterator[str]:
    """Holds of files that a loss of power ended, or that lasted longer after it than the clock of the host explains."""
    moved = [each for each in history.plan.faults if each.kind in ("power", "wrong")]
    power, kept = moved[0], list[float]()
    if history.plan.store != "file" or len(moved) > 1 or power.more == DISK:
        return
    after = [each for each in history.records if each.plan.start > power.at]
    for record in history.records:
        for name, hold in record.holds.items():
            owner = record.last_grants[name].owner
            if record.given_back.get(owner, INFINITE) < power.at:
                kept.append(hold.sent + hold.seconds - power.value if power.value > -DAY else power.at)
    if not (kept and after) or max(kept) < power.at:
        return
    first = min(each.granted[0].known if each.granted else each.ended for each in after)
    free = max(*kept, min(each.plan.start for each in after))
    if first < max(kept) - LOOKED_AT and any(each.granted and each.granted[0].known == first for each in after):
        yield f"hold: the lock is granted at {first:.3f}, and it is kept until {max(kept):.3f}"
    if first > free + CLOSED + NOTICED:
        yield f"locked out: nobody is granted the lock before {first:.3f}, and it is kept until {max(kept):.3f}"


def _disagreed(history: History) -> Iterator[str]:
    """Runs that are refused for another number of slots than others say, and none of those can have the lock."""
    if excuses.forgot(history) or any(each.kind in ("jump", "other") for each in history.plan.faults):
        return
    for record in history.records:
        if "the same --slots" not in record.failure:
            continue
        others = [each for each in history.records if each.plan.slots != record.plan.slots]
        if all(_is_apart(history, each, record) for each in others):
            yield f"refused: {record.name} says {record.plan.slots} slots, and nobody else is there: {record.failure}"


def _is_apart(history: History, one: RunRecord, other: RunRecord) -> bool:
    """Whether a run has come when another one was over, or had nothing any more when that came."""
    until = max([waits.freed(history, one, each) for each in one.granted], default=one.ended)
    return one.plan.start > other.ended or until < other.plan.start


def _lost_too_soon(history: History) -> Iterator[str]:
    """Locks that are said to be lost while the server has them, and their connections."""
    capabilities, kinds = history.capabilities, {each.kind for each in history.plan.faults}
    if capabilities.kernel_held:
        yield from _lost_to_nobody(history)
        return
    if capabilities.connection_held and not kinds <= HARMLESS:
        return
    for record in history.records:
        for at, owner in record.lost_too_soon:
            if excuses.was_undone(history, next(each for each in record.granted if each.owner == owner)):
                continue  # what the server has is its place in the queue
            if any(each.now and each.owner == owner and each.asked <= at for each in history.revoked):
                continue  # of several servers, some have not been asked yet to free it
            yield f"lost: {record.name} is told at {at:.3f} that its lock is lost, and the server has it"


def _lost_to_nobody(history: History) -> Iterator[str]:
    """Files that the kernel has locked for a run, which is told that they were freed, and nobody can have done that."""
    if any(each.kind not in ("stop", "pause", "signal", "look", "wrong") for each in history.plan.faults):
        return
    for record in history.records:
        lost = record.lost_at
        spans = [span for each in (record.keeper, record.guard) if each is not None for span in each.unable]
        if lost is not None and not any(since < lost for since, _ in spans):
            yield f"lost: {record.name} is told at {lost:.3f} that its lock was freed, and nobody has done that"


def _misnamed(history: History) -> Iterator[str]:
    """Runs that come while a client has the lock whose URL names its nodes otherwise, and are not told."""
    renamed = {each.whom for each in history.plan.faults if each.kind == "renamed"}
    for record in history.records:
        for other in history.records if renamed else ():
            if (record.plan.host in renamed) == (other.plan.host in renamed):
                continue
            for grant in other.granted:
                until = min(other.given_back.get(grant.owner, INFINITE), other.span[1] if other.span else 0.0)
                came_inside = grant.known < record.plan.start < until - ANSWERED
                if came_inside and "another set of nodes" not in record.failure:
                    yield f"misnamed: {record.name} is not told that {other.name} names other nodes: {record.failure}"


def _is_out_of_time(record: RunRecord) -> bool:
    span, longest, guard = record.span, record.plan.max_runtime, record.guard
    if span is None or longest is None or guard is None:
        return False
    # a guard that is stopped may have counted from before
    stopped = sum(until - since for since, until in guard.unable if until < INFINITE)
    return span[1] - span[0] > longest - TOO_EARLY - stopped


def _overtime(history: History) -> Iterator[str]:
    """Jobs that are ended for their time before it is over, or not after it."""
    for record in history.records:
        outcome, span, longest = record.outcome, record.span, record.plan.max_runtime
        if outcome is not None and outcome.kind == "timed_out" and not _is_out_of_time(record):
            yield f"overtime: {record.name} is ended for its time, but it lived for {record.span}"
        if (
            span is None
            or longest is None
            or record.guard is None
            or any(since < span[1] for since, _ in record.guard.unable)
        ):
            continue
        if span[1] > span[0] + longest + _promised(history, record).grace + HANDED_OVER:
            yield f"overtime: the job of {record.name} lives until {span[1]:.3f}, but it has {longest:.3f} s"


def _left(history: History) -> Iterator[str]:
    if any(fault.kind == "down" and fault.more != KEPT for fault in history.plan.faults):
        return
    if excuses.went_back(history):
        return  # what was over lives again
    for record in history.records:
        if history.drained and record.owners.keys() & history.left_for_ever and not excuses.very_late(history):
            yield f"left: something of {record.name} is there when all is over"
        if record.outcome is not None and record.outcome.not_released:
            continue  # it was said, and ends with its lease
        left = record.left - record.asked_back
        if not history.capabilities.keeps_place:  # an attempt that is lost gives back by itself
            left &= {grant.owner for grant in record.granted}
        for owner in sorted(left):
            yield f"left: {record.name} ended at {record.ended:.3f} without giving back what {owner[:6]} has"
        if excuses.very_late(history):
            continue
        for owner in sorted((record.left | history.left_at_end) & set(record.given_back)):
            yield f"left: what {record.name} gave back of {owner[:6]} is there"
        if history.capabilities.kernel_held:
            continue  # what waits for a file may be there for others for a moment
        for owner in sorted(record.there_after):
            yield f"left: what {record.name} gave back of {owner[:6]} is there when that is answered"
        for owner, given_back in record.given_back.items():
            again = next((at for at, there in history.there if at > given_back and owner in there), None)
            if again is not None:
                yield f"left: what {record.name} gave back of {owner[:6]} is there again at {again:.3f}"


def _left_on_nodes(history: History) -> Iterator[str]:
    """What only some nodes have of a run that has ended: others wait for the end of its lease there."""
    for record in history.records:
        settled = all(each.is_outage and each.at + each.value < record.ended - LEFT for each in history.plan.faults)
        if settled and history.plan.slowest <= NEAR and not record.plan.min_hold:
            for owner in sorted(record.on_nodes):
                yield f"left: {record.name} ended at {record.ended:.3f}, and a node has something of {owner[:6]}"


def _removed_of_others(history: History) -> Iterator[str]:
    for server in history.servers:
        for what in server.removed_of_others if isinstance(server, KubernetesServer) else ():
            yield f"removed: {what}"


def _unleft(history: History) -> Iterator[str]:
    """Sessions and leases that nobody has ended."""
    quiet = all(each.kind in ("twice", "wrong") for each in history.plan.faults) and not excuses.was_untold(history)
    held = any(each.min_hold or each.max_runtime for each in history.plan.runs)
    if quiet and not held and history.plan.slowest <= NEAR and history.sessions_left:
        yield f"left: {history.sessions_left} sessions are there, and everybody has ended"


def _revoked(history: History) -> Iterator[str]:
    asked = {each.owner for each in history.revoked if not each.now}
    for record in history.records:
        revoked = record.outcome is not None and record.outcome.kind == "revoked"
        if revoked and asked.isdisjoint(each.owner for each in record.last_grants.values()):
            yield f"revoked: {record.name}, but nobody has asked for its lock"


def _unfreed(history: History) -> Iterator[str]:
    """Locks that are said to have been freed, and their holders have them."""
    if not all(each.kind in OF_OPERATORS or each.is_outage for each in history.plan.faults):
        return
    for asked in history.revoked:
        if asked.now and asked.done and asked.stays and not excuses.forgot(history, until=asked.answered):
            yield f"revoked: the lock is said to be free at {asked.answered:.3f}, and its holder has it"


def _freed_of_another(history: History) -> Iterator[str]:
    """Locks that an operator took from another program than the one that it had seen."""
    spans = [each.span for each in history.programs if isinstance(each, Other) and each.span is not None]
    for asked in history.revoked:
        if asked.owner is not None or not (asked.now and asked.done):
            continue
        seen = any(begin <= asked.seen <= end for begin, end in spans)
        has_it = [begin for begin, end in spans if begin <= asked.asked and asked.answered <= end]
        if seen and has_it and min(has_it) > asked.seen:
            yield f"revoked: another program has had the lock since {min(has_it):.3f}, and who had it before was seen"


def _unrevoked(history: History) -> Iterator[str]:
    """Locks that are said to have changed hands when somebody asks for them, or takes them away, and have not."""
    if not all(each.kind in OF_OPERATORS for each in history.plan.faults):
        return
    taken_away: set[str | None] = set()
    for asked in history.revoked:
        # where the answer is not told, it is asked for again, and then there is nothing to do
        is_known = asked.done or excuses.was_untold(history, asked.asked, asked.answered)
        for record in () if is_known or asked.owner in taken_away else history.records:
            grant, span = record.last_grants.get(LOCK), record.span
            if grant is None or span is None or (grant.owner, grant.token) != (asked.owner, asked.token):
                continue
            if max(grant.known, span[0]) < asked.asked <= asked.answered < span[1]:
                yield f"revoked: {record.name} has its lock at {asked.asked:.3f}, and it is not taken from it"
        taken_away |= {asked.owner} if asked.now else set()


def _untold(history: History) -> Iterator[str]:
    """Jobs that went on for too long after somebody had asked for their lock."""
    slow_until = [each.at + SLOW + each.value for each in history.plan.faults if each.kind == "slow"]
    for asked in history.revoked:
        for record in history.records:
            grant = record.last_grants.get(LOCK)
            if not (asked.done and grant is not None and grant.owner == asked.owner):
                continue
            # it may have been asked for before its holder knew that it has it, or had a token: what is freed then is
            # its place in the queue, and it takes another one
            if grant.token != asked.token and (asked.now or asked.token is not None):
                continue
            others = [each for each in history.plan.faults if each.kind not in ("revoke", "slow")]
            if not all(_is_over(each, grant.known, asked.asked - APART * record.plan.ttl) for each in others):
                continue
            promised = _promised(history, record)
            longest = promised.interval * 1.2 + 12 * history.plan.slowest * len(history.plan.runs) + NOTICED
            longest += record.plan.grace_at_loss if asked.now else promised.grace
            since = max(asked.asked, grant.known, *slow_until)
            if record.span is not None and record.span[1] > since + longest:
                yield f"revoked: {record.name} lives until {record.span[1]:.3f}, but it was asked at {asked.asked:.3f}"


def _is_over(fault: Fault, granted: float, asked: float) -> bool:
    """Whether something was out of reach, or locked, but not any more when a lock was granted or asked for."""
    return (fault.is_outage or fault.kind == "table") and fault.at + fault.value <= max(granted, asked)


def _orphaned(history: History) -> Iterator[str]:
    """Jobs that went on for too long after their keeper was killed."""
    for record in history.records:
        keeper, guard, span = record.keeper, record.guard, record.span
        killed = [since for since, until in keeper.unable if until == INFINITE] if keeper is not None else []
        if not killed or span is None or guard is None or any(since < span[1] for since, _ in guard.unable):
            continue
        if span[1] > max(span[0], killed[0]) + _promised(history, record).grace + NOTICED:
            yield f"orphaned: the job of {record.name} lives until {span[1]:.3f}, its keeper until {killed[0]:.3f}"


def _lingering(history: History) -> Iterator[str]:
    """Processes that outlived their command for too long, and were not to be waited for."""
    for record in history.records:
        plan, guard, span = record.plan, record.guard, record.span
        if span is None or guard is None or record.command_status is None or plan.waits_for_rest or plan.leaves_rest:
            continue
        stood_still = any(since < span[1] for since, _ in guard.unable)
        if stood_still or any(each.kind == "sleep" for each in history.plan.faults):
            continue
        if span[1] > record.command_ended + SETTLE + _promised(history, record).grace + HANDED_OVER:
            yield f"lingering: the job of {record.name} lives until {span[1]:.3f}, its command until {record.command_ended:.3f}"


def _disconnected(history: History) -> Iterator[str]:
    """Jobs that went on for too long after the end of the connection that held their lock, as by a restart of the server."""
    faults = [each for each in history.plan.faults if each.kind in ("down", "ended")]
    others = [each for each in history.plan.faults if each.kind not in ("down", "ended")]
    # where the keeper is stopped, the guard is there, and the other way round
    alone = all((each.kind, each.more) == ("pause", KEEPER) and each.value < INFINITE for each in others)
    alone = alone or all((each.kind, each.more) == ("pause", GUARD) for each in others)
    if not (history.capabilities.connection_held and alone):
        return
    told = len(faults) == 1 and all(server.tells or server.cut_off for server in history.servers)
    stopped = sum(each.value for each in others)
    for record in history.records:
        for fault in faults:
            if fault.kind == "ended" and fault.whom != record.plan.host:
                continue
            at, away = (fault.at, fault.value) if fault.more == KEPT else (fault.at + OLDER, max(fault.value, OLDER))
            if not (record.granted and record.span and record.granted[-1].known < at < record.span[1]):
                continue
            # who is not told asks again; what could not be sent is repeated after twice the time at most
            slow = 2 * away + _promised(history, record).interval * 1.2 + NOTICED + stopped
            slow = (HANDED_OVER if told else slow) + record.plan.dying + record.plan.grace_at_loss
            if record.span[1] > at + slow + 12 * history.plan.slowest:
                yield f"disconnected: the job of {record.name} lives until {record.span[1]:.3f}, its lock until {at:.3f}"


def _overwritten(history: History) -> Iterator[str]:
    """Jobs that went on for too long after another program had written over the record of their lock, or removed it."""
    if any(each.kind not in ("other", "replaced") for each in history.plan.faults):
        return
    forced = [each.span for each in history.programs if isinstance(each, Other) and each.by_force and each.span]
    forced += [(each.at, INFINITE) for each in history.plan.faults if each.kind == "replaced"]
    for since, until in forced:
        for record in history.records:
            known = since + _promised(history, record).interval * 1.2 + 12 * history.plan.slowest
            latest = known + record.plan.grace_at_loss + record.plan.dying + NOTICED
            had_it = record.granted and record.granted[-1].known < since
            if had_it and known < until and record.span is not None and record.span[1] > latest:
                yield f"lost: from {since:.3f} on the lock of {record.name} is not its any more, and its job lives"


def _unheard(history: History) -> Iterator[str]:
    for record in history.records:
        met = [each for each in history.plan.faults if each.kind in ("stop", "pause") and each.whom == record.number]
        wanted = {int(each.value) for each in history.plan.faults if each.kind == "signal"}
        heard = any(signum in wanted for _, signum in record.signalled)
        excused = heard or len(met) > 1 or any(each.value > 1.0 for each in met)
        status, span, sent = record.command_status, record.span, record.passed_on
        if sent is None or span is None or excused or span[1] < sent + 1.5:
            continue
        if status is not None and os.WIFEXITED(status):
            yield f"signal: the job of {record.name} was not told of the signal that its keeper got"
