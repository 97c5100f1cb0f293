"""What must hold for those who wait: nobody waits for longer than others, or a fault, keep it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.lease.attempts import LONGEST_PAUSE
from lockctl.locks.cell import CellBackend
from tests.simulation import excuses
from tests.simulation.others import Other
from tests.simulation.plan import HELPER, NEAR
from tests.simulation.sqlite import Database
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.plan import Fault
    from tests.simulation.record import Granted, RunRecord

HANDED_OVER = 0.5  # seconds more than the requests take until a waiter has the lock
CLOSED = 3.0  # seconds more than was asked for that a lock may be kept closed after its job: some count whole ones
LOOKED_AT = 1.0  # seconds between two looks at a hold by who sleeps until it is over
STEPPED_OVER = 4.0  # seconds until somebody who waits for a file goes before others who are stopped
NOTICED = 2.0  # seconds more than it must take until a job has ended
SILENT = 8.0  # seconds after the lease of another program in which it is found out that its record stands still
ROUNDS = 4.0  # seconds of the two rounds of an attempt with Redlock, at most
ASKED_FIRST = 2.5  # seconds until another member is asked than one that answers nothing
NETWORK = 0.3  # seconds of a message: over a slower network a run may not come to its locks in time
CLOCKS = 1.01  # by how much faster one clock is than another
CLOCK_ERROR = 4.0  # seconds for which a lease may seem to last longer by clocks of whole ones, or of several servers
FIRST_LOOKS = 2.0  # seconds of a wait in which who comes may look often
LOOKS, FEW = 2.8, 12  # statements per second of who is told of an end, and so many as it is handed over


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    return [
        *_unused(history),
        *_kept_waiting(history),
        *_stuck(history),
        *_apart(history),
        *_kept_out(history),
        *_overtaken(history),
        *_overtaken_after(history),
        *_own_remains(history),
        *_inherited(history),
        *_lost_in_line(history),
        *_taken_again(history),
        *_restless(history),
        *_kept_for_nobody(history),
    ]


def _kept_for_nobody(history: History) -> Iterator[str]:
    """Locks, and places in queues, that a run leaves behind when a signal, or its time, ends its wait.

    The store could be reached all the time: it is not enough that it was asked to take them back.
    """
    if not _is_quiet(history, "signal", holds=True) or history.plan.slowest > NEAR or history.capabilities.kernel_held:
        return
    for record in history.records:
        ended = record.outcome is not None and record.outcome.kind == "held" and record.span is None
        for owner in sorted(record.left) if ended else ():
            yield f"left: {record.name} has waited until {record.ended:.3f}, and what {owner[:6]} has is there"


def _is_quiet(history: History, *others: str, holds: bool = False) -> bool:
    """Whether nothing keeps runs out but each other, faults of *others* of these kinds, and *holds*."""
    if any(each.kind not in ("twice", "wrong", *others) for each in history.plan.faults):
        return False
    return holds or not any(each.min_hold for each in history.plan.runs)


def _restless(history: History) -> Iterator[str]:
    """Runs that look into a database again and again, and do not wait for the end of who is before them."""
    database, runs = history.servers[0], history.plan.runs
    alone = all(each.mode == "exclusive" and len(each.locks) == 1 for each in runs)
    if not (isinstance(database, Database) and alone and _is_quiet(history)):
        return
    for record in history.records:
        since = record.plan.start + FIRST_LOOKS
        until = record.granted[0].known if record.granted else record.ended
        asked = sum(who is record.keeper and since < at < until for who, at in database.asked)
        if asked > LOOKS * (until - since) + FEW:
            yield f"restless: {record.name} executes {asked} statements from {since:.3f} until {until:.3f}"


def _own_remains(history: History) -> Iterator[str]:
    """Time in which somebody waited, long after the last outage, and only its own earlier attempts may be in its way."""
    faults, runs, slowest = history.plan.faults, history.plan.runs, history.plan.slowest
    if not faults or not all(map(_passes, faults)) or slowest > 0.1:
        return
    alike = len({(each.mode, each.slots) for each in runs}) == 1 and runs[0].mode != "shared"
    if not alike or any(len(each.locks) > 1 for each in runs):
        return
    attempt = ROUNDS if history.plan.store == "redlock" else ACQUIRE_TIMEOUT
    bound = attempt + LONGEST_PAUSE + HANDED_OVER + history.store.looks + 30 * slowest
    over = max(each.at + each.value for each in faults)
    for record in history.records:
        others = [each for each in history.records if each is not record]
        if any(each.left or not each.granted for each in others):
            continue  # who gave up in an outage may have left something
        taken = [(grant.known, freed(history, each, grant)) for each in others for grant in each.granted]
        until = record.granted[0].known if record.granted else record.ended
        for free_since, free_until in _times_with_room(taken, runs[0].slots):
            since = max(record.plan.start, free_since, over)
            if min(free_until, until) - since > bound:
                yield f"unused: {record.name} waits, and nobody else keeps it out, from {since:.3f} until {until:.3f}"


def _passes(fault: Fault) -> bool:
    """Whether something is out of reach only for a while, or a connection ends."""
    return fault.is_outage or fault.kind == "ended"


def _overtaken_after(history: History) -> Iterator[str]:
    """Grants to who came long after the last outage, before another who has waited for longer."""
    faults, slowest = history.plan.faults, history.plan.slowest
    alike = len({(each.mode, each.slots, each.locks) for each in history.plan.runs}) == 1
    if not (history.capabilities.fair and alike and faults and all(each.is_outage for each in faults)):
        return
    if slowest > 0.1 or history.plan.runs[0].mode != "exclusive" or excuses.forgot(history):
        return
    again = max(each.at + each.value for each in faults) + ACQUIRE_TIMEOUT + LONGEST_PAUSE + NOTICED + 30 * slowest
    granted = [record for record in history.records if record.granted]
    for first in granted:
        for later in granted:
            came_later = later.plan.start > max(again, first.plan.start + NOTICED)
            if came_later and later.granted[0].known < first.granted[0].known:
                yield f"overtaken: {first.name} came before {later.name}, and long after the outage it has the lock after it"


def _inherited(history: History) -> Iterator[str]:
    """Time in which somebody waited although the lease was over of the only one before it, which was killed."""
    faults, runs, slowest = history.plan.faults, history.plan.runs, history.plan.slowest
    capabilities = history.capabilities
    if capabilities.kernel_held or capabilities.connection_held or slowest > NEAR or len(runs) != 2:
        return
    if not faults or any(each.kind != "pause" or each.value < INFINITE for each in faults):
        return
    if any((each.mode, each.min_hold, len(each.locks)) != ("exclusive", 0.0, 1) for each in runs):
        return
    for first, second in (history.records, history.records[::-1]):
        dead = max([each.at for each in faults if each.whom == first.number], default=None)
        if dead is None or any(each.whom == second.number for each in faults) or not first.granted:
            continue
        if first.given_back or (second.granted and second.granted[0].known < first.granted[0].known):
            continue
        until = second.granted[0].known if second.granted else second.ended
        store, ttl, looks = history.store, first.plan.ttl, history.store.looks
        lasts = store.freed(ttl)
        if issubclass(store.backend, CellBackend):  # there it knows when the lease ends, and need not look before
            lasts, looks = ttl * CLOCKS + (0.0 if history.plan.store == "exact" else CLOCK_ERROR), 0.0
        since = max(second.plan.start, dead + lasts)  # a renewal may have been on its way
        if until - since > looks + store.messages * slowest + HANDED_OVER:
            yield f"unused: {second.name} waits until {until:.3f}, and {first.name}, which had the lock, is dead at {dead:.3f}"


def _lost_in_line(history: History) -> Iterator[str]:
    """Locks that were granted anew to who waits for another one, and should have kept them."""
    if not (history.plan.has_several and _is_quiet(history)) or history.plan.slowest > NEAR:
        return
    for record in history.records:
        names = [each.name for each in record.granted]
        for name in sorted({each for each in names if names.count(each) > 1}):
            yield f"lost: {record.name} is granted {name} {names.count(name)} times, and nothing was wrong"


def _taken_again(history: History) -> Iterator[str]:
    """Time in which somebody who wants several locks had not the first one, which only its own attempts may have."""
    faults, runs, slowest = history.plan.faults, history.plan.runs, history.plan.slowest
    is_over = [each.at + each.value for each in faults if each.is_outage]
    others = [each for each in faults if not each.is_outage]
    # where a connection takes fourteen messages, one cannot be made in the time for giving back
    farthest = NEAR if history.plan.store == "mysql" else NETWORK
    if not is_over or any(each.kind != "revoke" or each.more for each in others) or slowest > farthest:
        return
    bound = ACQUIRE_TIMEOUT + LONGEST_PAUSE + HANDED_OVER + history.store.looks
    bound += 2 * history.store.messages * slowest  # some connect again for each of two attempts
    for record in history.records:
        first = min(record.plan.locks)
        if len(record.plan.locks) == 1 or sum(first in each.locks for each in runs) > 1:
            continue
        mine = [each for each in record.granted if each.name == first]
        gaps = [record.plan.start, *[record.let_go.get(each.owner, INFINITE) for each in mine]]
        for since, until in zip(gaps, [*[each.known for each in mine], record.ended], strict=True):
            if until - max(since, *is_over) > bound:
                yield f"unused: {record.name} waits for its own remains from {since:.3f} until {until:.3f}"


def _overtaken(history: History) -> Iterator[str]:
    """Grants to who came later than another, where the backend promises the order."""
    slowest = history.plan.slowest
    alike = len({each.locks for each in history.plan.runs}) == 1
    kernel_held = history.capabilities.kernel_held  # there only those who share it do not pass by who wants it alone
    if not ((history.capabilities.fair or kernel_held) and alike and _is_quiet(history, "revoke")) or slowest > 0.1:
        return
    granted = [record for record in history.records if record.granted]
    for first in granted:
        for later in granted:
            if kernel_held and not _joins(history, later):
                continue
            came_later = later.plan.start > first.plan.start + NOTICED + 30 * slowest
            # of two who both get a slot, the one that was told later may be faster
            least = 0.0 if later.excludes(first) else HANDED_OVER + 30 * slowest
            beside = later.plan.mode == first.plan.mode == "slot"
            before = later.granted[0].known + least < first.granted[0].known
            if came_later and before and (beside or later.excludes(first)):
                yield f"overtaken: {first.name} came before {later.name}, and has the lock after it"


def _joins(history: History, record: RunRecord) -> bool:
    """Whether others shared the lock when somebody came, until it was let in."""
    came, got = record.plan.start, record.granted[0].known
    shared = [each for each in history.records if each.plan.mode == record.plan.mode == "shared" and each.granted]
    return any(each.granted[0].known < came and got < freed(history, each, each.granted[0]) for each in shared)


def _unused(history: History) -> Iterator[str]:
    """Time in which somebody waited although there was room."""
    runs, slowest = history.plan.runs, history.plan.slowest
    alike = len({(each.mode, each.slots, each.locks) for each in runs}) == 1 and runs[0].mode != "shared"
    # who is stopped is forgotten when it was silent for a lease
    if not alike or history.plan.has_several:
        return
    away = _away(history)
    beside = history.programs and all(isinstance(each, Other) and not each.by_force for each in history.programs)
    quiet = _is_quiet(history, "stop", "pause") or _is_quiet(history, "revoke", "forget", "look", holds=True)
    if not (away or quiet or (beside and _is_quiet(history, "other"))):
        return
    if history.plan.store == "zookeeper" and slowest > 0.3:
        return  # a third of a short session is too short there for a connection that takes four such messages
    stopped = {each.whom for each in history.plan.faults if each.kind in ("stop", "pause")}
    # the first one of all makes some cells; an attempt may run out of time in the middle of it
    bound = (
        history.store.looks + history.store.messages * slowest + HANDED_OVER + (ACQUIRE_TIMEOUT if slowest > 0.2 else 0)
    )
    taken = [(grant.known, freed(history, record, grant)) for record in history.records for grant in record.granted]
    taken += [(span[0], span[1] + SILENT) for span in (each.span for each in history.programs) if span is not None]
    bound += sum(_kept_in_line(history, history.records[number], taken) for number in stopped) + ASKED_FIRST * away
    if any(each.now for each in history.revoked) and any(each.holds for each in history.records):
        bound += LOOKED_AT  # it was ended by an operator, of which nobody is told
    if history.capabilities.kernel_held:
        bound += sum(_stopped_in_the_way(history.records[number]) for number in stopped)
    for free_since, free_until in _times_with_room(taken, runs[0].slots):
        for record in history.records:
            if record.number in stopped:
                continue
            since = max(record.plan.start, free_since)
            until = min(free_until, record.granted[0].known if record.granted else record.ended)
            if until - since > bound + excuses.kept_out(history, record):
                yield f"unused: {record.name} waits while there is room from {since:.3f} until {until:.3f}"


def _away(history: History) -> int:
    """How many members of several are away all the time, and nothing else is wrong: each is asked once, and not again."""
    faults = history.plan.faults
    throughout = all(each.kind == "down" and each.value == INFINITE and each.whom and not each.at for each in faults)
    return len(faults) if throughout and history.plan.store == "etcd-cluster" else 0


def _kept_waiting(history: History) -> Iterator[str]:
    """Time in which somebody waited although nobody was inside, or had come before, who must not be beside it."""
    runs, slowest = history.plan.runs, history.plan.slowest
    modes = {(each.mode, each.slots) for each in runs}
    if history.plan.has_several or len(modes) == 1 or not modes <= {("shared", 1), ("exclusive", 1)}:
        return
    if not _is_quiet(history) or slowest > 0.1:
        return
    bound = history.store.looks + 30 * slowest + HANDED_OVER
    for record in history.records:
        taken = []
        for other in history.records:
            if other is record or "exclusive" not in (record.plan.mode, other.plan.mode):
                continue
            taken += [(grant.known, freed(history, other, grant)) for grant in other.granted]
            if other.plan.start < record.plan.start + NOTICED or not history.capabilities.fair:
                taken.append((other.plan.start, other.granted[0].known if other.granted else other.ended))
        until = record.granted[0].known if record.granted else record.ended
        for free_since, free_until in _times_with_room(taken, 1):
            since = max(record.plan.start, free_since)
            if min(free_until, until) - since > bound:
                yield f"unused: {record.name} waits although nobody keeps it out from {since:.3f} until {until:.3f}"


def _stuck(history: History) -> Iterator[str]:
    """Time in which some wait for several locks, and nobody has all that it wants."""
    slowest, records = history.plan.slowest, history.records
    if not (history.plan.has_several and _is_quiet(history, "revoke")) or slowest > 0.1:
        return
    if any(each.now for each in history.revoked):
        return
    # whoever has a lock and waits for another one looks for it again when it renews
    bound = history.store.looks + max(each.ttl for each in history.plan.runs) / 6 + 100 * slowest + HANDED_OVER
    spans = [(_complete(each), each.ended if each.span else INFINITE) for each in records]
    for since in [each.plan.start for each in records] + [end for _, end in spans if end < INFINITE]:
        if any(begin <= since < end for begin, end in spans):
            continue
        until = min([begin for begin, _ in spans if begin > since], default=INFINITE)
        waiting = [each for each in records if each.plan.start <= since and each.ended > since]
        if waiting and min(until, *(each.ended for each in waiting)) - since > bound:
            yield f"stuck: {waiting[0].name} waits from {since:.3f} until {until:.3f}, and nobody has all of its locks"


def _complete(record: RunRecord) -> float:
    """When a run had all of its locks."""
    return max(each.known for each in record.last_grants.values()) if record.span else INFINITE


def _kept_in_line(history: History, record: RunRecord, taken: list[tuple[float, float]]) -> float:
    """Seconds for which others may be behind the place in the queue of a run that was stopped."""
    store, ttl, keeper = history.store, record.plan.ttl, record.keeper
    if keeper is None:
        return store.freed(ttl)
    if history.capabilities.kernel_held:
        # the kernel ends the helper of who is killed in a wait, and with both of them what they have
        helped = any(each.more == HELPER for each in history.plan.faults)
        is_killed = not helped and all(until == INFINITE for _, until in keeper.unable)
        return NOTICED if is_killed and not record.granted else store.freed(ttl)
    first = record.granted[0] if record.granted else None
    if first is not None and all(since > first.known for since, _ in keeper.unable):
        # it had the lock; what is given back when the lease may be over does not tell when it is free
        in_time = record.given_back.get(first.owner, 0.0) < record.kept[first.name] + 0.9 * ttl
        return NOTICED if in_time else store.freed(ttl)  # a renewal may be on its way when it is stopped
    if record.granted or record.plan.slots > 1:
        return store.freed(ttl)
    # who is stopped while another one has the lock cannot have been granted it without knowing that
    apart = HANDED_OVER + 20 * history.plan.slowest
    waits = all(any(begin < since and since + apart < end for begin, end in taken) for since, _ in keeper.unable)
    return store.place(ttl) if waits else store.freed(ttl)


def _stopped_in_the_way(record: RunRecord) -> float:
    """Seconds for which a run may have kept others from a file, because one of its processes was stopped meanwhile."""
    if record.keeper is None or record.guard is None:
        return 0.0
    stopped = STEPPED_OVER + sum(end - begin for begin, end in record.guard.unable if end < INFINITE)
    started, ended = record.span or (INFINITE, INFINITE)
    killed = any(until == INFINITE and since < ended for since, until in record.guard.unable)
    for begin, end in record.keeper.unable:
        freed = started < begin < ended and not killed  # by the guard
        if end < INFINITE and not (freed or begin in record.stopped_waiting):
            stopped += end - begin
    return stopped


def freed(history: History, record: RunRecord, grant: Granted) -> float:
    """When a lock that was granted is free again."""
    given_back = record.given_back.get(grant.owner, 0.0)
    freed = [each for each in history.revoked if each.now and each.done and each.owner == grant.owner]
    taken_away = [each.answered for each in freed if each.answered > grant.known]
    if taken_away:
        return taken_away[0]
    was_given_back = given_back >= grant.known  # and not what was left of an attempt before
    ended = record.kept[grant.name] + history.store.freed(record.plan.ttl)
    hold = record.holds.get(grant.name)
    if hold is not None and not _was_passed_on(history, record, grant, hold.sent):
        return given_back + hold.seconds + CLOSED
    if history.capabilities.kernel_held and record.span is not None:
        # the guard of a keeper that is stopped frees a file
        return min(given_back, max(ended, record.span[1])) if was_given_back else record.span[1]
    return given_back if was_given_back else ended


def _was_passed_on(history: History, record: RunRecord, grant: Granted, until: float) -> bool:
    """Whether another one, who must not be beside it, was granted the lock after that, and knew it by then."""
    others = [each for each in history.records if each is not record and record.excludes(each)]
    return any(
        each.name == grant.name and grant.known < each.sent and each.known < until
        for other in others
        for each in other.granted
    )


def _times_with_room(taken: list[tuple[float, float]], places: int) -> Iterator[tuple[float, float]]:
    """From when until when fewer than so many had the lock, of those who had it at these times."""
    since, inside = 0.0, 0
    for at, change in sorted([(begin, 1) for begin, _ in taken] + [(end, -1) for _, end in taken]):
        if inside < places <= inside + change:
            yield since, at
        elif inside + change < places <= inside:
            since = at
        inside += change
    yield since, INFINITE


def _apart(history: History) -> Iterator[str]:
    """Runs that waited although all may be inside together."""
    runs, slowest = history.plan.runs, history.plan.slowest
    together = all(each.mode == "shared" or each.slots >= len(runs) for each in runs)
    if not together or slowest > 0.2 or any(each.kind not in ("twice", "wrong") for each in history.plan.faults):
        return
    for record in history.records:
        known = record.granted[0].known if record.granted else record.ended
        if known - record.plan.start > history.store.looks + (history.store.messages + 10) * slowest + HANDED_OVER:
            yield f"apart: {record.name} waits until {known:.3f}, and nobody keeps it out"


def _kept_out(history: History) -> Iterator[str]:
    """A run that is alone, and waits for what it was granted itself before the server was restarted."""
    faults, slowest = history.plan.faults, history.plan.slowest
    told = [server.tells for server in history.servers if server.went_down]
    # a connection that died in silence costs all the time for an attempt where nobody else is asked meanwhile
    is_cut = any(each.kind == "cut" for each in faults)
    others = len(history.servers) > 1 and not (is_cut and history.plan.store == "zookeeper")
    if not (told or others) or not all(told) or not faults or len(history.records) > 1:
        return
    if not all(each.is_outage for each in faults) or slowest > 0.1:
        return
    downs = [each.at for each in faults if each.kind == "down"]
    cuts = [(each.at, each.at + each.value) for each in faults if each.kind == "cut"]
    if len(history.servers) == 1 and any(since - slowest <= at <= until for at in downs for since, until in cuts):
        return  # nor is it told
    record = history.records[0]
    known = record.granted[0].known if record.granted else record.ended
    if known > max(each.at + each.value for each in faults) + 30 * slowest + LONGEST_PAUSE + HANDED_OVER:
        yield f"kept out: {record.name} waits until {known:.3f}, and nobody else is there"
