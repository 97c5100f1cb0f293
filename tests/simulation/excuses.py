"""What is excused by what went wrong in a history: what the manual admits.

That is keeper and guard of a job stopped or dead at the same time, a server that lost acknowledged data or whose wall
clock went ahead, a lock that an operator freed at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from lockctl.lease.schedule import HELD_UP, RENEWALS_PER_TTL
from tests.simulation.http import HttpServer
from tests.simulation.plan import GUARD, JOINED, KEEPER, KEPT, LOST, NEAR, NODES, OLD, OLDER, PARKED
from tests.simulation.sqlite import Database
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.plan import Fault
    from tests.simulation.record import Granted, RunRecord

TOGETHER = 0.01  # seconds between two pauses by one cause
UNHURT = ("revoke", "signal", "threads", "wrong")  # with these, a lease is renewed as long as something lives
IN_A_TRANSACTION = 1.0  # seconds: no transaction takes so long unless who is in it is stopped
LATER = 0.05  # of a ttl: by which one process may wake up after the other


def forgot(history: History, *, until: float = INFINITE) -> bool:
    """Whether a server lost data."""
    return any(at <= until for server in history.servers for at in server.ever_forgot)


def was_undone(history: History, grant: Granted) -> bool:
    """Whether a server came back with what it had known before it granted a lock."""
    old = [each.at for each in history.plan.faults if (each.kind, each.more) == ("down", OLD)]
    return any(at < grant.known and grant.sent < at + OLDER for at in old)


def went_ahead(history: History, *, until: float = INFINITE) -> bool:
    """Whether the wall clock of a server did."""
    return any(each.kind == "jump" and each.value > 0 and each.at <= until for each in history.plan.faults)


def went_back(history: History, since: float = 0.0) -> bool:
    """Whether the wall clock of a server did, from then on."""
    return any(each.kind == "jump" and each.value < 0 and each.at >= since for each in history.plan.faults)


def another_led(history: History, since: float, until: float) -> bool:
    """Whether the clock of the leader, by which holds end, may have been another member's at the end."""
    return any(since <= at <= until for server in history.servers for at in server.elected)


def hangs_up_from_afar(history: History) -> bool:
    """Whether a server may end connections over a network in which a new one takes a good part of a renewal."""
    return history.plan.slowest > NEAR and any(isinstance(each, HttpServer) and each.closes for each in history.servers)


def was_untold(history: History, since: float = 0.0, until: float = INFINITE) -> bool:
    """Whether a server hung up in that time although it had done what was asked: who asked has asked once more."""
    return any(since <= at <= until for server in history.servers for at in server.untold)


def may_outlive_its_lock(history: History, record: RunRecord, until: float) -> bool:
    """Whether nobody could have ended a job before; where the job itself has the lock, nobody needs to."""
    if was_freed(history, record):
        return True
    if history.capabilities.kernel_held:
        return False
    if record.plan.dying and any(each.kind not in UNHURT for each in history.plan.faults):
        return True  # no program can end it before its lease is over
    return _both_unable(record, until) or was_cut_off(history, record, until)


def was_freed(history: History, record: RunRecord) -> bool:
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


def was_cut_off(history: History, record: RunRecord, until: float) -> bool:
    """Whether the lock was that of a connection, which a restart of the server, or an administrator, has ended."""
    if not (history.capabilities.connection_held and record.granted):
        return False
    since = record.granted[-1].sent
    return any(since <= at <= until for server in history.servers for at in (*server.went_down, *server.cut_off))


def kept_out(history: History, record: RunRecord) -> float:
    """Seconds for which a run waited for a database, as another one was stopped in the middle of what it writes there."""
    database = history.servers[0]
    stopped = any(each.kind in ("stop", "pause") and each.whom != record.number for each in history.plan.faults)
    if not (stopped and isinstance(database, Database)):
        return 0.0
    waited = sum(database.waited[each] for each in (record.keeper, record.guard) if each is not None)
    return waited if waited > IN_A_TRANSACTION else 0.0


def hurt(history: History, record: RunRecord) -> tuple[int, float] | None:
    """How many faults a run met and how long they took together; ``None``: they excuse anything."""
    if len({each.slots for each in history.plan.runs}) > 1 or "another set of nodes" in record.failure:
        return None  # who comes second is refused
    took = kept_out(history, record)
    met, times = (1, [(0.0, INFINITE)]) if took else (0, [])
    beside = history.capabilities.kernel_held and record.plan.mode != "exclusive"
    for fault in history.plan.faults:
        kind, value = fault.kind, fault.value
        has_it = history.capabilities.kernel_held and record.granted and record.granted[0].known < fault.at
        parked = fault.more == PARKED and fault.at < record.ordered  # then another one is forked
        # the kernel has the lock meanwhile
        if kind == "pause" and (parked or (has_it and not beside and _asleep(history, record, fault))):
            continue
        if kind in ("stop", "pause", "signal", "halt"):
            # who is stopped while it changes what is written there keeps out those beside it
            if fault.whom != record.number and not (beside and kind != "signal"):
                continue
            if kind in ("signal", "halt") or value == INFINITE:
                return None
        elif (kind == "down" and fault.more in (LOST, OLD)) or (kind == "jump" and value > 0):
            return None
        elif kind in ("down", "ended") and history.capabilities.connection_held:
            return None  # with the connections end the jobs whose locks they held
        elif kind == "replaced" or (kind == "other" and fault.more):
            return None
        elif kind in ("removed", "parted") and fault.whom == record.plan.host:
            return None  # with the server of a host, its sessions end; and it may be cut off for any time
        elif not _touches(fault, record, history):
            continue
        met += not _is_refused(history, fault)
        took += {"lose": 0.0, "slow": 4 * value}.get(kind, value)
        times.append((fault.at, fault.at + value if fault.is_outage or kind == "sleep" else INFINITE))
    # a file is taken from all who have locked it
    if any(each.owner in record.owners or (beside and each.now) for each in history.revoked):
        return None
    if _are_apart(record, sorted(times)):
        return 1, max(end - begin for begin, end in times)
    return met, took


def _is_refused(history: History, fault: Fault) -> bool:
    """Whether an outage costs no more than its time: who asks is refused at once, and need not wait for an answer."""
    server = history.servers[0]
    is_told = (fault.kind, fault.more) == ("down", KEPT) and len(server.went_down) == 1 and server.tells
    return is_told or fault.kind in ("busy", "expired", "failover")


def _are_apart(record: RunRecord, times: list[tuple[float, float]]) -> bool:
    """Whether outages are so far apart that the lease was renewed after each of them."""
    pairs = list(pairwise(times))
    return bool(pairs) and all(begin - end >= record.plan.ttl for (_, end), (begin, _) in pairs)


def _others_suffice(history: History, fault: Fault) -> bool:
    """Whether a lock is kept by servers that are not away, or were so long ago that they have it again.

    Of three that are away, only the last one may be missed.
    """
    plan = history.plan
    if plan.store == "etcd-cluster":
        return True
    again = JOINED * max(each.ttl for each in plan.runs)
    spans = [(each.at, each.at + each.value + again) for each in plan.faults if each.kind == "down"]
    times = [fault.at] if len(spans) <= 3 else [at for at, _ in spans]
    together = max(sum(begin <= at < end for begin, end in spans) for at in times)
    return plan.store == "redlock" and together <= NODES // 2


def _asleep(history: History, record: RunRecord, fault: Fault) -> bool:
    """Whether a pause is one of both processes of a run, with which its host slept."""
    pauses = [each for each in history.plan.faults if each.kind == "pause" and each.whom == record.number]
    near = [each for each in pauses if abs(each.at - fault.at) < TOGETHER]
    if _wakes_in_time(record, fault):
        return False
    both = {each.more for each in near if abs(each.value - fault.value) < LATER * record.plan.ttl}
    return fault.value < INFINITE and both == {KEEPER, GUARD} and len(pauses) == len(both)


def _wakes_in_time(record: RunRecord, fault: Fault) -> bool:
    """Whether the guard was frozen, and goes on as its time is over: then it cannot know that the keeper was, too."""
    plan, guard = record.plan, record.guard
    signal = plan.ttl - plan.margin - plan.grace
    # of the deadlines that it is told, not each is new
    is_near = signal - plan.ttl / RENEWALS_PER_TTL - HELD_UP < fault.value < signal + HELD_UP
    return is_near and guard is not None and any(abs(at - fault.at - fault.value) < TOGETHER for at in guard.untold)


def _touches(fault: Fault, record: RunRecord, history: History) -> bool:
    if fault.kind in ("lose", "late", "cut", "slow", "deposed", "removed", "ended"):
        return fault.whom == record.plan.host
    if fault.kind == "sleep":  # the kernel has the lock meanwhile, or it is a server that has it
        return fault.whom == record.plan.host and not history.capabilities.kernel_held
    if fault.kind in ("table", "busy", "expired", "failover"):
        return True
    if fault.kind == "other":
        return history.plan.store == "mysql"  # there another program locks the rows, and not what the lock is
    return fault.kind == "down" and fault.more == KEPT and not _others_suffice(history, fault)


def very_late(history: History) -> bool:
    """Whether a request came so late that the server refused it no more: then it has a lease for nobody."""
    ttl = min(each.ttl for each in history.plan.runs)
    late = [each.value for each in history.plan.faults if each.kind in ("late", "slow", "twice")]
    return history.capabilities.fencing != "strict" and any(value > ttl for value in late)
