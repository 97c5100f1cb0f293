"""What must hold of what is told: to a command about its lock, by a run about itself, and to who looks at a lock."""

from __future__ import annotations

import os
from itertools import combinations
from signal import SIGKILL
from typing import TYPE_CHECKING, Any

from lockctl.cli import exit_status
from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.lease.schedule import RENEWALS_PER_TTL
from tests.simulation import excuses
from tests.simulation.plan import NEAR
from tests.simulation.waits import CLOSED, NOTICED
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.record import RunRecord

CLOCKS = 0.002  # part of a time by which clocks differ
ERROR = 0.1  # seconds by which a time may be wrong that is told
SETTLED = 0.3  # seconds after a command in which what outlives it may end by itself
LINED_UP = 30  # messages until somebody has a place in a queue
CONFLICT = 75  # the status of a run whose lock another has
# of the others, by what became of them
OF_KIND = {"held": (CONFLICT,), "unavailable": (69,), "lost": (76,), "revoked": (76,), "timed_out": (124,)}
OF_FENCE = {"unavailable": (69,), "stale": (77,)}
SHOWN = 2.0  # seconds: a look begins so long after a release, or the end of a lease, if that is to be seen
OF_A_LEASE = ("LeaseLost", "LeaseRevoked", "RequestInterrupted", "Interrupted")  # which a run never ends with


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    found = [*_variables(history), *_shown(history), *_hidden(history), *_last(history), *_waiting(history)]
    found += [*_times(history), *_came(history), *_of_the_dead(history), *_exits(history)]
    for record in history.records:
        if record.outcome is not None and record.keeper is not None and record.guard is not None:
            found += [f"report: {record.name} {each}" for each in (*_patience(history, record), *_end(history, record))]
    return found


def _exits(history: History) -> Iterator[str]:
    """Runs with another exit status than the manual has for what became of them."""
    for record in history.records:
        outcome, status = record.outcome, record.command_status
        if record.failure.startswith(OF_A_LEASE):
            yield f"failure: {record.name} ends with {record.failure}"
        if outcome is None:
            continue
        wanted: tuple[int, ...] = OF_KIND.get(outcome.kind, (126, 127))
        wanted = OF_FENCE.get(outcome.fence, wanted)
        if outcome.interrupted is not None:
            wanted = (128 + outcome.interrupted,)
        elif outcome.kind in ("exited", "signaled"):
            # what became of a command whose guard was killed it may not have told
            wanted = () if status is None else (128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else status >> 8,)
            wanted = wanted if outcome.status is not None else (128 + SIGKILL,)
        told = exit_status.of_outcome(outcome, conflict=CONFLICT)
        if told not in wanted:
            yield f"status: {record.name} is {outcome.kind} and exits with {told}, not {wanted}"


def _undisturbed(record: RunRecord) -> bool:
    """Whether no process of a run was stopped, or killed, before it had come to its end."""
    assert record.keeper is not None
    assert record.guard is not None
    spans = [*record.keeper.unable, *record.guard.unable]
    return all(since >= record.ended or until == INFINITE for since, until in spans) and record.ended < INFINITE


def _patience(history: History, record: RunRecord) -> Iterator[str]:
    """What is wrong with the end of a wait, or with what is told of it."""
    outcome, plan = record.outcome, record.plan
    assert outcome is not None
    if not _undisturbed(record):
        return
    skipped, wait = outcome.detail.startswith("skipped"), plan.wait
    waited = record.ended - plan.start
    told_to_end = [at for at in record.asked_to_end if at < record.ended - ERROR]
    if outcome.kind == "held" and not skipped and outcome.interrupted is None:
        if waited < wait * (1 - CLOCKS) - ERROR:
            yield f"gives up after {waited:.3f} s, and was to wait for {wait:g}"
        if told_to_end and not record.granted and told_to_end[0] < plan.start + wait - NOTICED:
            yield f"was told to end at {told_to_end[0]:.3f}, and says nothing of it"
    sent = {int(each.value) for each in history.plan.faults if (each.kind, each.whom) == ("signal", record.number)}
    if outcome.interrupted is not None and not (record.asked_to_end and outcome.interrupted in sent):
        yield f"says that signal {outcome.interrupted} has ended its wait, and it was sent {sent}"
    longest = wait * (1 + CLOCKS) + 2 * ACQUIRE_TIMEOUT + NOTICED + 20 * history.plan.slowest
    if not record.granted and waited > longest:
        yield f"waits for {waited:.3f} s, and was to do so for {wait:g}"
    if record.span is not None:
        least, most = record.granted[-1].known - plan.start, record.span[0] - plan.start
        if not least * (1 - CLOCKS) - ERROR < outcome.waited < most * (1 + CLOCKS) + ERROR:
            yield f"has waited for {least:.3f} to {most:.3f} s, and says {outcome.waited:.3f}"


def _end(history: History, record: RunRecord) -> Iterator[str]:
    """What is wrong with what a run tells of its job."""
    outcome, span = record.outcome, record.span
    assert outcome is not None
    if span is None or span[1] == INFINITE or not _undisturbed(record):
        return
    least, most = span[1] - span[0], record.ended - record.granted[-1].known
    if outcome.duration is None or not least * (1 - CLOCKS) - ERROR < outcome.duration < most * (1 + CLOCKS) + ERROR:
        yield f"had a job for {least:.3f} s, and says {outcome.duration}"
    if not any(each.kind == "wrong" for each in history.plan.faults):
        clock = history.network.hosts[record.plan.host].clock
        began = clock.wall_base + clock.rate * span[0]
        if outcome.started_at is None or not -NOTICED < outcome.started_at - began < ERROR:
            yield f"has started its job at {began:.3f}, and says {outcome.started_at}"
    inside = [at for at in record.told_to_end if span[0] + ERROR < at < record.command_ended - ERROR]
    if inside and not outcome.asked_to_end:
        yield f"was told to end at {inside[0]:.3f}, and says nothing of it"
    if outcome.asked_to_end and not record.told_to_end:
        yield "says that it was told to end, and nobody did so"
    first = record.plan.first_signal
    stopped = [at for at, signum in record.signalled if signum == first and at > record.command_ended + ERROR]
    if outcome.kind == "exited" and stopped and not outcome.leftovers and not record.asked_to_end:
        yield f"has stopped what outlived its command at {stopped[0]:.3f}, and says nothing of it"
    if outcome.leftovers and span[1] <= record.command_ended:
        yield f"says that {outcome.leftovers} processes outlived the command, and none did"


def _variables(history: History) -> Iterator[str]:
    """Commands that are told another lock, or another owner, than theirs."""
    capabilities = history.capabilities
    for record in history.records:
        if not record.told or not record.granted:
            continue
        told = dict([each.decode().split("=", 1) for each in record.told])
        name = record.plan.locks[0]
        wanted = {
            "LOCKCTL_LOCK": name,
            "LOCKCTL_FENCING": capabilities.fencing,
            "LOCKCTL_BACKEND": capabilities.scheme,
        }
        if len(record.plan.locks) == 1:
            wanted["LOCKCTL_OWNER"] = record.last_grants[name].owner
        wrong = {each: told.get(each) for each, content in wanted.items() if told.get(each) != content}
        if wrong:
            yield f"told: the command of {record.name} is told {wrong}, and it is {wanted}"


def _last(history: History) -> Iterator[str]:
    """Locks whose last run is shown as another one than it was."""
    if not {each.kind for each in history.plan.faults} <= {"look"} or history.plan.slowest > NEAR:
        return
    if any(each.mode != "exclusive" for each in history.plan.runs):
        return  # of those beside each other, the one that ended last counts
    for asked, _, info in history.looks:
        ended = [each for each in history.records if each.span and each.ended + SHOWN < asked and each.outcome]
        tokens = {each.last_grants[info.name].token: each for each in ended if info.name in each.plan.locks}
        shown = None if info.last_run is None else info.last_run.token
        last = max(tokens, default=0)
        if (shown or 0) >= last:
            continue
        # a lock is given back before its run is recorded: a short run after it may be recorded first
        if shown not in tokens or tokens[shown].ended < tokens[last].command_ended:
            yield f"shown: the last run of {info.name} is shown with token {shown} at {asked:.3f}, and had {last}"


def _is_usual(history: History, *others: str, outages: bool = False) -> bool:
    """Whether servers have what they were told, and tell what they have; faults of *others* and *outages* may be there."""
    usual = ("look", "twice", "wrong", "signal", "revoke", "threads", *others)
    expected = all(each.kind in usual or (outages and each.is_outage) for each in history.plan.faults)
    return expected and not excuses.forgot(history)


def _shown(history: History) -> Iterator[str]:
    """Holders who are shown, and are none."""
    if not _is_usual(history):
        return
    owners = {owner: record for record in history.records for owner in record.owners}
    # there, who looks compares the end of a hold with its own clock
    servers = history.servers if history.plan.store == "zookeeper" else ()
    apart = [server.clock.wall_base - host.clock.wall_base for server in servers for host in history.network.hosts]
    over = CLOSED + max([0.0, *apart])
    for asked, answered, info in (*history.looks, *history.listed):
        inside = [owners[each.owner] for each in info.holders if each.owner in owners]
        too_many = any(each.plan.mode == "slot" and len(inside) > each.plan.slots for each in inside)
        if too_many or any(one.excludes(other) for one, other in combinations(inside, 2)):
            yield f"shown: {', '.join(each.name for each in inside)} are shown inside together at {asked:.3f}"
        for holder in info.holders:
            if holder.owner is None:
                continue
            record = owners.get(holder.owner)
            if record is None:
                yield f"shown: {holder.owner[:6]} is shown at {asked:.3f}, and was nobody"
                continue
            if holder.command is None and holder.token is None:
                # it has the lock, and has not said yet who it is, or does not say so any more
                if record.span is not None and record.span[0] < asked < answered < record.span[1]:
                    yield f"shown: {record.name} is shown at {asked:.3f} without a token, and its job runs"
                continue
            if holder.host != history.network.hosts[record.plan.host].name or holder.command != ("job",):
                yield f"shown: {record.name} is shown as {holder.command} on {holder.host}"
            # one that it has not got to know may have been replaced at once, or be that of its next attempt
            grants = [each for each in record.granted if each.owner == holder.owner]
            tokens = [each.token for each in grants if each.known < asked]
            asks_again = any(each.sent < answered and each.known >= asked for each in grants)
            if tokens and holder.token not in tokens and not asks_again:
                yield f"shown: {record.name} is shown with {holder.token}, and has {tokens}"
            kept = holder.ended_at is not None and info.name in record.holds
            shown = record.holds[info.name].seconds + over if kept else SHOWN
            if history.plan.store == "redlock" and history.plan.slowest > NEAR:
                # some nodes had not heard of that when the run ended, and who looks does not wait for all others
                shown = max(shown, history.store.freed(record.plan.ttl))
            least = record.plan.ttl - 1.2 * min(record.plan.ttl / RENEWALS_PER_TTL, history.capabilities.heartbeat)
            least -= SHOWN + 20 * history.plan.slowest
            expires_in = INFINITE if holder.expires_in is None else holder.expires_in
            if expires_in < least and _holds(history, record, asked, answered):
                yield f"shown: {record.name} is shown to have {expires_in:.3f} s at {asked:.3f}, and renews its lease"
            if record.given_back.get(holder.owner, INFINITE) + shown < asked:
                yield f"shown: {record.name} is shown at {asked:.3f}, and has given its lock back"


def _times(history: History) -> Iterator[str]:
    """Holders who are shown with their lock since, or for, another time than it is."""
    if not {each.kind for each in history.plan.faults} <= {"look"} or history.plan.slowest > NEAR:
        return
    granted = {(each.owner, each.token): (record, each) for record in history.records for each in record.granted}
    for asked, answered, info in (*history.looks, *history.listed):
        for holder in info.holders:
            record, grant = granted.get((holder.owner or "", holder.token or 0), (None, None))
            if record is None or grant is None or not _holds(history, record, asked, answered):
                continue
            since, left = holder.acquired_at, holder.expires_in
            # by its own clock, or by that of a server
            clocks = [history.network.hosts[record.plan.host].clock, *[each.clock for each in history.servers]]
            walls = [each.wall_base + each.rate * grant.known for each in clocks]
            least = grant.known - grant.asked + SHOWN
            if since is not None and not any(wall - least < since < wall + SHOWN for wall in walls):
                yield f"shown: {record.name} is shown with its lock since {since}, and was granted it at {grant.known:.3f}"
            if left is not None and left >= history.store.freed(record.plan.ttl) + SHOWN:
                yield f"shown: {record.name} is shown with its lock for {left:.3f} s at {asked:.3f}, and renews it"


def _waiting(history: History) -> Iterator[str]:
    """Locks that are shown with fewer who wait than there are."""
    if not {each.kind for each in history.plan.faults} <= {"look"}:
        return
    for asked, answered, info in (*history.looks, *history.listed):
        waiting = []
        for record in history.records:
            until = record.granted[0].known if record.granted else record.ended
            if record.plan.start + SHOWN + LINED_UP * history.plan.slowest < asked and answered < until - SHOWN:
                waiting.append(record.name)
        if info.waiters is not None and len(info.waiters) < len(waiting):
            yield f"hidden: {', '.join(waiting)} wait at {asked:.3f}, and {len(info.waiters)} are shown"


def _came(history: History) -> Iterator[str]:
    """Those who wait, and are shown to have come at another time."""
    plan = history.plan
    if not {each.kind for each in plan.faults} <= {"look"} or plan.has_several or not history.capabilities.keeps_place:
        return
    clocks = [each.clock for each in history.network.hosts] + [each.clock for each in history.servers]
    came: dict[str, list[float]] = {}
    for record in history.records:
        times = [clock.wall_base + clock.rate * record.plan.start for clock in clocks]
        came.setdefault(history.network.hosts[record.plan.host].name, []).extend(times)
    latest = SHOWN + LINED_UP * plan.slowest
    for asked, _, info in (*history.looks, *history.listed):
        for waiter in info.waiters or ():
            times = came.get(waiter.host or "", [])
            if waiter.since is None or not times:
                continue
            if not any(-SHOWN < waiter.since - at < latest for at in times):
                yield f"shown: somebody on {waiter.host} waits at {asked:.3f} since {waiter.since}, nobody came then"


def _of_the_dead(history: History) -> Iterator[str]:
    """Locks that are shown with more who wait than there can be, or with who is dead, and whose lease is over."""
    if not {each.kind for each in history.plan.faults} <= {"look", "pause", "signal"} or history.plan.has_several:
        return
    owners = {owner: record for record in history.records for owner in record.owners}
    for asked, answered, info in (*history.looks, *history.listed):
        waiting = [each for each in history.records if each.plan.start < answered and _may_wait(history, each) > asked]
        if info.waiters is not None and len(info.waiters) > len(waiting):
            yield f"shown: {len(info.waiters)} wait at {asked:.3f}, and there are {len(waiting)}"
        for record in [owners[each.owner] for each in info.holders if each.owner in owners and each.ended_at is None]:
            renewed = max(record.kept.values(), default=INFINITE)
            if not history.capabilities.kernel_held and renewed + history.store.freed(record.plan.ttl) + SHOWN < asked:
                yield f"shown: {record.name} is shown at {asked:.3f}, and was renewed at {renewed:.3f}"


def _may_wait(history: History, record: RunRecord) -> float:
    """Until when a run may be shown among those who wait."""
    stopped = [] if record.keeper is None else [since for since, _ in record.keeper.unable]
    over = [since + history.store.place(record.plan.ttl) for since in stopped]
    if record.granted:
        over = [record.granted[0].known]
    elif record.ended < INFINITE or not over:
        over.append(record.ended)
    return max(over) + SHOWN + LINED_UP * history.plan.slowest


def _holds(history: History, record: RunRecord, asked: float, answered: float) -> bool:
    """Whether a job ran, and had its lock, all that time."""
    runs = record.span is not None and record.span[0] < asked < answered < record.span[1]
    return runs and not excuses.may_outlive_its_lock(history, record, answered)


def _hidden(history: History) -> Iterator[str]:
    """Holders who are not shown while their jobs run."""
    if not _is_usual(history, "pause", "stop", "lose", "late", "slow", outages=True):
        return
    if any(each.now for each in history.revoked):
        return
    for asked, answered, info in (*history.looks, *history.listed):
        shown = {each.owner for each in info.holders}
        for record in history.records:
            grant: Any = record.last_grants.get(info.name)
            if grant is not None and grant.owner not in shown and _holds(history, record, asked, answered):
                yield f"hidden: {record.name} has {info.name} from {asked:.3f} to {answered:.3f}, and is not shown"
    for asked, answered in history.unused:
        for record in history.records:
            if _holds(history, record, asked, answered):
                yield f"hidden: {record.name} runs from {asked:.3f} to {answered:.3f}, and its lock is said to be unused"
