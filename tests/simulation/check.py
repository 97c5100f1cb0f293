"""What must hold in every history, whatever went wrong in it, and what is excused by what went wrong.

Excused is what the manual admits: keeper and guard of a job stopped or dead at the same time, a server that lost
acknowledged data or whose wall clock went ahead, a lock that an operator freed at once. Tokens must rise even then.
"""

from __future__ import annotations

import os
from signal import SIGCONT
from typing import TYPE_CHECKING, NamedTuple

from lockctl.lease import period
from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.lease.schedule import FIRST_PATIENCE
from tests.simulation import waits
from tests.simulation.plan import KEPT, LOCK, LOST, OLD, OLDER
from tests.simulation.waits import HANDED_OVER, NOTICED
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.plan import Fault
    from tests.simulation.record import RunRecord

MILD = 0.8  # part of what a request may take at first that a fault may take without harm to a healthy job
TOO_EARLY = 0.05  # seconds from the order to start until the command lives
HOLD_ERROR = 0.1  # seconds that a hold may be shorter, beside what clocks differ by


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    return [
        *(f"bug: {each}" for each in history.wrong if "gave the lock back" not in each),
        *(f"given back: {each}" for each in history.wrong if "gave the lock back" in each),
        *_unended(history),
        *_overlaps(history),
        *_beside_others(history),
        *_holds(history),
        *_needless_holds(history),
        *_forgotten(history),
        *_unremembered(history),
        *_told(history),
        *_tokens(history),
        *_unhealthy(history),
        *_left(history),
        *_kept(history),
        *_revoked(history),
        *_overtime(history),
        *_unnoticed(history),
        *_untold(history),
        *_orphaned(history),
        *_disconnected(history),
        *_unheard(history),
        *waits.violations(history),
        *_successes(history),
        *_statuses(history),
    ]


def _unended(history: History) -> Iterator[str]:
    for record in history.records:
        for process in (record.keeper, record.guard):
            if process is not None and not process.dead and not process.stopped:
                yield f"endless: {process.name} has not ended"


def _forgot(history: History, *, until: float = INFINITE) -> bool:
    """Whether a server lost data."""
    return any(at <= until for server in history.servers for at in server.ever_forgot)


def _went_ahead(history: History, *, until: float = INFINITE) -> bool:
    return any(each.kind == "jump" and each.value > 0 and each.at <= until for each in history.plan.faults)


def _went_back(history: History) -> bool:
    return any(each.kind == "jump" and each.value < 0 for each in history.plan.faults)


def _conflict(one: RunRecord, other: RunRecord) -> bool:
    alone = "exclusive" in (one.plan.mode, other.plan.mode) or one.plan.slots != other.plan.slots
    return alone and not set(one.plan.locks).isdisjoint(other.plan.locks)


def _overlaps(history: History) -> Iterator[str]:
    ran = sorted((record for record in history.records if record.span), key=lambda each: each.span or (0.0, 0.0))
    for number, later in enumerate(ran):
        begin = (later.span or (0.0, 0.0))[0]
        if _forgot(history, until=begin) or _went_ahead(history, until=begin):
            return
        inside = [each for each in ran[:number] if (each.span or (0.0, 0.0))[1] > begin]
        inside = [each for each in inside if not _may_outlive_its_lock(history, each, begin)]
        if _may_outlive_its_lock(history, later, begin):
            continue
        for each in inside:
            if _conflict(each, later):
                end = (each.span or (0.0, 0.0))[1]
                yield f"overlap: {later.name} starts at {begin:.3f}, but the job of {each.name} lives until {end:.3f}"
        if later.plan.mode == "slot" and len(inside) >= later.plan.slots:
            yield f"overlap: {later.name} starts at {begin:.3f} beside {len(inside)} others"


def _beside_others(history: History) -> Iterator[str]:
    """Jobs that lived while a program that is not lockctl had their lock."""
    for program in history.programs:
        for record in history.records:
            if LOCK not in record.plan.locks:
                continue
            if program.span is None or record.span is None or any(each.now for each in history.revoked):
                continue
            begin = max(program.span[0], record.span[0])
            unable = _may_outlive_its_lock(history, record, begin)
            if begin < min(program.span[1], record.span[1]) and not (unable or _went_ahead(history)):
                yield f"overlap: another program has the lock from {program.span[0]:.3f}, and {record.name} runs"


def _holds(history: History) -> Iterator[str]:
    """Grants while the end of another's job is not long enough ago for its --min-hold."""
    if _forgot(history) or any(each.kind == "jump" for each in history.plan.faults):
        return
    if any(each.now for each in history.revoked):
        return
    for record in history.records:
        for name, hold in record.holds.items():
            if not hold.in_time:
                continue
            sent, until = hold.sent, hold.sent + hold.seconds * (1 - history.capabilities.rate_error) - HOLD_ERROR
            for other in history.records:
                for grant in other.granted:
                    if other is not record and grant.name == name and sent < grant.known < until:
                        yield f"hold: {other.name} has the lock at {grant.known:.3f}, before {until:.3f}"


def _needless_holds(history: History) -> Iterator[str]:
    """Locks that were kept by --min-hold although they are another's, or were asked for."""
    for record in history.records:
        if record.outcome is not None and record.outcome.kind in ("lost", "revoked") and record.holds:
            longest = max(each.seconds for each in record.holds.values())
            yield f"hold: {record.name} is {record.outcome.kind}, and keeps the lock for {longest:.3f} s"


def _forgotten(history: History) -> Iterator[str]:
    """What a run that came to its end has to do for each of its locks, and did not do."""
    for record in history.records:
        outcome, span, plan = record.outcome, record.span, record.plan
        if outcome is None or span is None or outcome.kind != "exited" or outcome.not_released or outcome.error:
            continue
        kept_until = record.granted[-1].known + plan.min_hold - HOLD_ERROR
        for name in plan.locks:
            if record.ended < kept_until and name not in record.holds:
                yield f"hold: {record.name} ends at {record.ended:.3f}, and does not keep {name} until {kept_until:.3f}"
            noted = name in record.noted or plan.once_per is None or outcome.status != 0
            if not (noted or history.plan.faults):
                yield f"success: {record.name} has noted none of {name}"


def _unremembered(history: History) -> Iterator[str]:
    """Runs that are not in the history of each of their locks, or not as they were."""
    hosts = history.network.hosts
    for name, runs in history.remembered.items():
        found = sorted([(each.token or 0, each.outcome, each.exit_code, each.host) for each in runs if each.started])
        wanted = sorted(
            (
                each.last_grants[name].token,
                each.outcome.kind,
                _exit_code(each.outcome.status),
                hosts[each.plan.host].name,
            )
            for each in history.records
            if each.span and each.outcome is not None and name in each.plan.locks and each.outcome.status is not None
        )
        if found != wanted:
            yield f"history: that of {name} is {found}, but it was {wanted}"


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _told(history: History) -> Iterator[str]:
    """Commands that were told other tokens than those of their locks."""
    for record in history.records:
        told = dict([each.decode().split("=", 1) for each in record.told])
        if "LOCKCTL_TOKEN" not in told:
            continue
        granted = {name: str(each.token) for name, each in record.last_grants.items()}
        several = told.get("LOCKCTL_TOKENS", f"{record.plan.locks[0]}={told['LOCKCTL_TOKEN']}")
        if several != " ".join([f"{name}={granted[name]}" for name in record.plan.locks]):
            yield f"told: {record.name} has {granted}, and its command is told {several}"
        elif told["LOCKCTL_TOKEN"] != granted[record.plan.locks[0]]:
            yield f"told: {record.name} has {granted}, and its command is told {told['LOCKCTL_TOKEN']}"


def _may_outlive_its_lock(history: History, record: RunRecord, until: float) -> bool:
    """Whether nobody could have ended a job before; where the job itself has the lock, nobody needs to."""
    if _was_freed(history, record):
        return True
    if history.capabilities.kernel_held:
        return False
    return _both_unable(record, until) or _was_cut_off(history, record, until)


def _was_freed(history: History, record: RunRecord) -> bool:
    """Whether an operator may have freed the lock of a job at once: also those of others who have it beside one."""
    freed = [each.answered for each in history.revoked if each.now]
    return bool(freed and record.granted) and record.granted[-1].sent <= max(freed)


def _both_unable(record: RunRecord, until: float) -> bool:
    """Whether at one moment of a lease neither keeper nor guard could do anything."""
    if record.keeper is None or record.guard is None or not record.granted:
        return False
    since = record.granted[-1].sent
    return any(
        max(one[0], other[0], since) < min(one[1], other[1], until)
        for one in record.keeper.unable
        for other in record.guard.unable
    )


def _was_cut_off(history: History, record: RunRecord, until: float) -> bool:
    """Whether the lock was that of a connection, which a restart of the server has ended."""
    if not (history.capabilities.connection_held and record.granted):
        return False
    since = record.granted[-1].sent
    return any(since <= at <= until for server in history.servers for at in server.went_down)


def _tokens(history: History) -> Iterator[str]:
    if _forgot(history) and (_went_back(history) or history.plan.store == "redlock"):
        return
    forgotten = any(each.kind == "forget" for each in history.plan.faults)
    if history.capabilities.fencing != "strict" and forgotten and _went_back(history):
        return  # there only the clock keeps a counter that was forgotten
    # there the clock of the host that takes the lock counts, and here those of two hosts differ by minutes
    hosts_count = history.plan.store in ("etcd", "consul", "zookeeper") and (forgotten or _forgot(history))
    if hosts_count and any(each.kind == "wrong" for each in history.plan.faults):
        return
    clocks = [host.clock for host in history.network.hosts]
    grants = sorted((grant.known, grant, record) for record in history.records for grant in record.granted)
    for number, (_, later, record) in enumerate(grants):
        for _, earlier, other in grants[:number]:
            if earlier.owner == later.owner or earlier.name != later.name:
                continue
            if history.plan.store == "seconds" and _forgot(history) and later.known < earlier.known + 1.0:
                continue  # the clock of the store may not have moved since the grant that it lost
            clock = clocks[record.plan.host]
            if hosts_count and earlier.token >= int((clock.wall_base + clock.rate * later.sent) * 1e6):
                continue
            if earlier.token == later.token or (earlier.known <= later.sent and earlier.token > later.token):
                yield (
                    f"tokens: {record.name} has {later.token} at {later.known:.3f}, after {other.name} had"
                    f" {earlier.token} at {earlier.known:.3f}"
                )


class Promised(NamedTuple):
    """Times in seconds that the manual names, calculated here once more: those of the product may be wrong."""

    interval: float  # between two renewals
    signal: float  # from a request to the first signal, if no other one is answered
    grace: float  # from the first signal to KILL


def _promised(history: History, record: RunRecord) -> Promised:
    ttl, capabilities = record.plan.ttl, history.capabilities
    margin, grace = min(max(ttl / 20, 0.25), 2.0), min(5.0, ttl / 4)
    signal = ttl * (1 - capabilities.rate_error) - 0.05 - margin - grace
    return Promised(min(ttl / 6, capabilities.heartbeat), signal, grace)


def _hurt(history: History, record: RunRecord) -> tuple[int, float] | None:
    """How many faults a run met and how long they took together; ``None``: they excuse anything."""
    if len({each.slots for each in history.plan.runs}) > 1:
        return None  # who comes second is refused
    met, took = 0, 0.0
    beside = history.capabilities.kernel_held and record.plan.mode != "exclusive"
    for fault in history.plan.faults:
        kind, value = fault.kind, fault.value
        if kind in ("stop", "pause", "signal"):
            # who is stopped while it changes what is written there keeps out those beside it
            if fault.whom != record.number and not (beside and kind != "signal"):
                continue
            if kind == "signal" or value == INFINITE:
                return None
        elif (kind == "down" and fault.more in (LOST, OLD)) or (kind == "jump" and value > 0):
            return None
        elif kind == "down" and history.capabilities.connection_held:
            return None  # a restart ends the connections, and the jobs whose locks they held
        elif not _touches(fault, record):
            continue
        met += 1
        took += {"lose": 0.0, "slow": 4 * value}.get(kind, value)
    # a file is taken from all who have locked it
    if any(each.owner in record.owners or (beside and each.now) for each in history.revoked):
        return None
    return met, took


def _touches(fault: Fault, record: RunRecord) -> bool:
    if fault.kind in ("lose", "late", "cut", "slow", "deposed"):
        return fault.whom == record.plan.host
    return fault.kind == "down" and fault.more == KEPT


def _unhealthy(history: History) -> Iterator[str]:
    for record in history.records:
        hurt = _hurt(history, record)
        if hurt is None or record.keeper is None:
            continue
        promised = _promised(history, record)
        spare = 0.5 * (promised.signal - promised.interval)
        # two requests, and all holders write to one place
        renewal = 4 * history.plan.slowest * len(history.plan.runs)
        met, took = hurt
        if renewal > MILD * min(spare, FIRST_PATIENCE) or met > 1 or took > MILD * spare - (3 if met else 0) * renewal:
            continue
        kind = record.outcome.kind if record.outcome is not None else record.failure or "nothing"
        if record.span and kind == "timed_out" and _is_out_of_time(record):
            continue
        if record.lived and record.command_status not in (0, 256):
            yield f"healthy: the job of {record.name} was ended: {kind}, status {record.command_status}"
        elif not met and history.plan.slowest < 0.1 and kind not in ("exited", "held"):
            yield f"healthy: {record.name} came to nothing: {kind}"
        elif record.plan.waits_for_rest and any(signum != SIGCONT for _, signum in record.signalled):
            yield f"healthy: what outlives the command of {record.name} is sent {record.signalled}"


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
        if span[1] > span[0] + longest + _promised(history, record).grace + NOTICED:
            yield f"overtime: the job of {record.name} lives until {span[1]:.3f}, but it has {longest:.3f} s"


def _very_late(history: History) -> bool:
    """Whether a request came so late that the server refused it no more: then it has a lease for nobody."""
    ttl = min(each.ttl for each in history.plan.runs)
    late = (each.value for each in history.plan.faults if each.kind in ("late", "slow", "twice"))
    return history.capabilities.fencing != "strict" and any(value > ttl for value in late)


def _left(history: History) -> Iterator[str]:
    if any(fault.kind == "down" and fault.more != KEPT for fault in history.plan.faults):
        return
    if _went_back(history):
        return  # what was over lives again
    for record in history.records:
        if history.drained and record.owners.keys() & history.left_for_ever and not _very_late(history):
            yield f"left: something of {record.name} is there when all is over"
        if record.outcome is not None and record.outcome.not_released:
            continue  # it was said, and ends with its lease
        left = record.left - record.asked_back
        if not history.capabilities.keeps_place:  # an attempt that is lost gives back by itself
            left &= {grant.owner for grant in record.granted}
        for owner in sorted(left):
            yield f"left: {record.name} ended at {record.ended:.3f} without giving back what {owner[:6]} has"
        if _very_late(history):
            continue
        for owner in sorted((record.left | history.left_at_end) & set(record.given_back)):
            yield f"left: what {record.name} gave back of {owner[:6]} is there"


def _kept(history: History) -> Iterator[str]:
    """Locks that were not given back although the store could be reached again soon enough."""
    faults = history.plan.faults
    if not all(each.is_outage for each in faults):
        return
    for record in history.records:
        outcome, span = record.outcome, record.span
        if outcome is None or span is None or not outcome.not_released or outcome.kind not in ("exited", "signaled"):
            continue
        patience = min(min(record.kept.values()) + 0.9 * record.plan.ttl - span[1], ACQUIRE_TIMEOUT)
        if patience < 0.8 * ACQUIRE_TIMEOUT or history.plan.slowest > 0.05:
            continue
        if all(each.at + each.value < span[1] + 0.3 * patience for each in faults):
            yield f"kept: {record.name} did not give the lock back that it needed until {span[1]:.3f}"


def _revoked(history: History) -> Iterator[str]:
    asked = {each.owner for each in history.revoked if not each.now}
    for record in history.records:
        revoked = record.outcome is not None and record.outcome.kind == "revoked"
        if revoked and asked.isdisjoint(each.owner for each in record.last_grants.values()):
            yield f"revoked: {record.name}, but nobody has asked for its lock"


def _unnoticed(history: History) -> Iterator[str]:
    """Runs that tell of no loss, although another one had their lock before their command ended."""
    if history.capabilities.kernel_held or _forgot(history) or _went_ahead(history):
        return
    for record in history.records:
        outcome, grants = record.outcome, record.last_grants
        if outcome is None or outcome.kind not in ("exited", "signaled") or _was_freed(history, record):
            continue
        for other in history.records:
            for grant in other.granted if other is not record and _conflict(record, other) else ():
                mine = grants.get(grant.name)
                if mine is not None and mine.known < grant.sent and grant.known < record.command_ended:
                    ended = f"{outcome.kind} at {record.command_ended:.3f}"
                    yield f"unnoticed: {record.name} is {ended}, but {other.name} has {grant.name} from {grant.known:.3f}"


def _untold(history: History) -> Iterator[str]:
    """Jobs that went on for too long after somebody had asked for their lock."""
    kinds = {each.kind for each in history.plan.faults}
    for asked in history.revoked:
        for record in history.records:
            grant = record.last_grants.get(LOCK)
            if not (asked.done and kinds == {"revoke"} and grant is not None and grant.token == asked.token):
                continue
            promised = _promised(history, record)
            longest = promised.interval * 1.2 + 12 * history.plan.slowest * len(history.plan.runs) + NOTICED
            longest += 0 if asked.now else promised.grace
            if record.span is not None and record.span[1] > asked.asked + longest:
                yield f"revoked: {record.name} lives until {record.span[1]:.3f}, but it was asked at {asked.asked:.3f}"


def _orphaned(history: History) -> Iterator[str]:
    """Jobs that went on for too long after their keeper was killed."""
    for record in history.records:
        keeper, guard, span = record.keeper, record.guard, record.span
        killed = [since for since, until in keeper.unable if until == INFINITE] if keeper is not None else []
        if not killed or span is None or guard is None or any(since < span[1] for since, _ in guard.unable):
            continue
        if span[1] > max(span[0], killed[0]) + _promised(history, record).grace + NOTICED:
            yield f"orphaned: the job of {record.name} lives until {span[1]:.3f}, its keeper until {killed[0]:.3f}"


def _disconnected(history: History) -> Iterator[str]:
    """Jobs that went on for too long after a restart of the server, which ends the connection that held their lock."""
    faults = history.plan.faults
    if not history.capabilities.connection_held or any(each.kind != "down" for each in faults):
        return
    told = len(faults) == 1 and all(server.tells for server in history.servers)
    for record in history.records:
        for fault in faults:
            at, away = (fault.at, fault.value) if fault.more == KEPT else (fault.at + OLDER, max(fault.value, OLDER))
            if not (record.granted and record.span and record.granted[-1].known < at < record.span[1]):
                continue
            # who is not told asks again; what could not be sent is repeated after twice the time at most
            longest = HANDED_OVER if told else 2 * away + _promised(history, record).interval * 1.2 + NOTICED
            if record.span[1] > at + longest + 12 * history.plan.slowest:
                yield f"disconnected: the job of {record.name} lives until {record.span[1]:.3f}, its lock until {at:.3f}"


def _unheard(history: History) -> Iterator[str]:
    for record in history.records:
        met = [each for each in history.plan.faults if each.kind in ("stop", "pause") and each.whom == record.number]
        heard = any(signum == 15 for _, signum in record.signalled)
        excused = heard or len(met) > 1 or any(each.value > 1.0 for each in met)
        status, span, sent = record.command_status, record.span, record.passed_on
        if sent is None or span is None or excused or span[1] < sent + 1.5:
            continue
        if status is not None and os.WIFEXITED(status):
            yield f"signal: the job of {record.name} was not told of the signal that its keeper got"


def _successes(history: History) -> Iterator[str]:
    jumps = ("forget", "jump", "wrong") if history.capabilities.kernel_held else ("forget", "jump")
    if _forgot(history) or any(each.kind in jumps for each in history.plan.faults):
        return
    for name in history.plan.locks:
        noted = [(*record.noted[name], record) for record in history.records if name in record.noted]
        kept = history.store.success(history.servers, name)
        if noted and (kept is None or kept < max(each[0] for each in noted)):
            yield f"success: {max(each[0] for each in noted)} was noted of {name}, but there is {kept}"
        for at, known, first in noted:
            for record in history.records:
                period_length, asked = record.plan.once_per, record.plan.locks[0] == name
                if record is first or record.span is None or period_length is None or not (asked and record.granted):
                    continue
                sent = max(each.sent for each in record.granted if each.name == name)
                now = max(record.last_grants.values(), key=lambda each: each.at).at
                if sent >= known and period.is_done(at, now, period_length):
                    yield f"success: {record.name} runs although {first.name} succeeded in this period"


def _statuses(history: History) -> Iterator[str]:
    """Commands of which another end is told than they had."""
    for record in history.records:
        outcome, status = record.outcome, record.command_status
        stopped = any(each.kind in ("stop", "pause") and each.whom == record.number for each in history.plan.faults)
        if status is None or outcome is None or stopped:
            continue  # who is killed may not tell
        if outcome.kind in ("exited", "signaled") and outcome.status != status:
            yield f"status: that of the command of {record.name} is {status}, and {outcome.status} is told"
        if record.noted and status != 0:
            yield f"success: {record.name} has noted one, but its command ended with {status}"
