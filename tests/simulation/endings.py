"""What must hold of the end of a run: what it keeps, notes, remembers and tells."""

from __future__ import annotations

import os
from itertools import pairwise
from signal import SIGKILL
from typing import TYPE_CHECKING

from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.model import EXCLUSIVE
from tests.simulation import excuses
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Run
    from tests.simulation.history import History
    from tests.simulation.record import RunRecord

GUARD_KILLED = "the guard process was killed"
BY_ITSELF = ("exited", "signaled")  # outcomes of a command that nobody stopped
ENDED_HERE = (*BY_ITSELF, "timed_out")  # those of which the lock was not another's, or wanted by one
NO_LOSS = (*BY_ITSELF, "timed_out", "revoked")  # those that tell of none
LATE = 1.0  # seconds until a run that was granted its lock counts its hold, beside a renewal
SAID = 0.1  # seconds from the end of a command until its guard has told of it
CLOCKS = 0.01  # by which a span may differ between two clocks
ENDED = 0.1  # seconds that a run may be remembered for less than it lasted
NOTICED = 2.0  # seconds more, for what must be done when it has ended
HOLD_ERROR = 0.1  # seconds that a hold may be shorter, beside what clocks differ by


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    return [
        *_holds(history),
        *_needless_holds(history),
        *_undone(history),
        *_unremembered(history),
        *_remembered_twice(history),
        *_told(history),
        *_kept(history),
        *_unnoted(history),
        *_unsaid(history),
        *_unnoticed(history),
        *_successes(history),
        *_skipped(history),
        *_statuses(history),
        *_ended_before(history),
        *_killed(history),
        *_left_alone(history),
    ]


def _holds(history: History) -> Iterator[str]:
    """Grants while the end of another's job is not long enough ago for its --min-hold.

    One that is known so late that its lease has ended was given before, and nobody starts a job with it.
    """
    if excuses.forgot(history) or any(each.kind == "jump" for each in history.plan.faults):
        return
    for record in history.records:
        for name, hold in record.holds.items():
            if any(each.now and each.owner in (None, *record.owners) for each in history.revoked):
                continue
            if not hold.in_time or excuses.was_cut_off(history, record, hold.sent):
                continue
            if _was_taken_before(history, record, name):
                continue
            sent, until = hold.sent, hold.sent + hold.seconds * (1 - history.capabilities.rate_error) - HOLD_ERROR
            ended = min(sent, record.span[1]) if record.span else sent  # from then on its lease keeps it closed
            for other in history.records:
                for grant in other.granted:
                    if other is record or grant.name != name or grant.known > grant.asked + other.plan.ttl:
                        continue
                    if ended < grant.known < until and not excuses.another_led(history, sent, grant.known):
                        yield f"hold: {other.name} has the lock at {grant.known:.3f}, before {until:.3f}"


def _was_taken_before(history: History, record: RunRecord, name: str) -> bool:
    """Whether the connection of a lock ended while it was given back, and another had it before that was answered."""
    answered = record.given_back.get(record.last_grants[name].owner, INFINITE)
    if not excuses.was_cut_off(history, record, answered):
        return False
    grants = [each for other in history.records if other is not record for each in other.granted if each.name == name]
    return any(record.releasing[record.last_grants[name].owner] < each.known < answered for each in grants)


def _needless_holds(history: History) -> Iterator[str]:
    """Locks that were kept by --min-hold although they are another's, or were asked for, or for longer than they need."""
    for record in history.records:
        if record.outcome is None or not record.holds:
            continue
        longest = max(each.seconds for each in record.holds.values())
        if not record.plan.min_hold:
            yield f"hold: {record.name} keeps the lock for {longest:.3f} s, and nobody has asked for that"
        if record.outcome.kind in ("lost", "revoked", "not_executed"):
            yield f"hold: {record.name} is {record.outcome.kind}, and keeps the lock for {longest:.3f} s"
        if any(each.kind not in ("twice", "wrong") for each in history.plan.faults):
            continue  # the time in which nobody answers is added
        for name, hold in record.holds.items():
            needed = max(each.known for each in record.granted) + record.plan.min_hold - hold.sent
            if hold.seconds > needed + LATE + 12 * history.plan.slowest:
                yield f"hold: {record.name} keeps {name} for {hold.seconds:.3f} s, and needs {needed:.3f} s"


def _undone(history: History) -> Iterator[str]:
    """What a run that came to its end has to do for each of its locks, and did not do."""
    for record in history.records:
        outcome, span, plan = record.outcome, record.span, record.plan
        if outcome is None or span is None or outcome.kind not in ENDED_HERE or outcome.not_released or outcome.error:
            continue
        kept_until = record.granted[-1].known + plan.min_hold - HOLD_ERROR
        for name in plan.locks:
            if record.ended < kept_until and name not in record.holds:
                yield f"hold: {record.name} ends at {record.ended:.3f}, and does not keep {name} until {kept_until:.3f}"
            noted = name in record.noted or plan.once_per is None or (outcome.kind, outcome.status) != ("exited", 0)
            # who has a lock together with others is in their way when it writes
            alone = plan.mode == EXCLUSIVE or history.plan.slowest <= 0.05
            if not (noted or history.plan.faults) and alone:
                yield f"success: {record.name} has noted none of {name}"


def _ended(record: RunRecord) -> tuple[float, float]:
    """When a run was over, which may end its session after another one has the lock: from when on, and at the latest."""
    command = record.span[1] if record.span else record.ended
    return min(command, record.ended), record.ended


def _remembered_twice(history: History) -> Iterator[str]:
    """Runs that are in a history more than once, as by a repeated request."""
    for name, runs in history.remembered.items():
        tokens = [each.token for each in runs if each.started]
        if len(tokens) != len(set(tokens)):
            yield f"history: that of {name} has a run twice: {sorted(token or 0 for token in tokens)}"


def _unremembered(history: History) -> Iterator[str]:
    """Runs that are not in the history of each of their locks, or not as they were."""
    if not {each.kind for each in history.plan.faults} <= {"marks"}:
        return
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
        others = sorted(each.outcome for each in runs if not each.started)
        had_all = [each for each in history.records if each.last_grants.keys() >= set(each.plan.locks)]
        unstarted = [each for each in had_all if name in each.plan.locks and not each.span]
        came_to = sorted(each.outcome.kind for each in unstarted if each.outcome is not None)
        if others != came_to:
            yield f"history: that of {name} has {others} of runs that did not start, but they came to {came_to}"
        had_it = [each for each in history.records if name in each.last_grants]
        ends = {each.last_grants[name].token: _ended(each) for each in had_it}
        ended = [ends.get(each.token or 0, (0.0, 0.0)) for each in runs if each.started]
        apart = ENDED + 20 * history.plan.slowest
        if any(after[0] > before[1] + apart for before, after in pairwise(ended)):
            yield f"history: that of {name} has runs that ended in another order: {ended}"
        yield from _misremembered(history, name, [each for each in runs if each.started])


def _misremembered(history: History, name: str, runs: list[Run]) -> Iterator[str]:
    """Runs whose times are not what they told themselves, of which this was the first lock."""
    outcomes = [each.outcome for each in history.records if each.outcome and each.outcome.name == name]
    told = {(each.token, each.kind): each for each in outcomes}
    for run in runs:
        outcome = told.get((run.token, run.outcome))
        if outcome is None:
            continue
        same = (run.started_at, run.duration, run.waited, run.command)
        if same != (outcome.started_at, outcome.duration, outcome.waited, outcome.words):
            yield f"history: a run is remembered as {same}, and was {outcome}"
        length = (run.ended_at or 0.0) - (run.started_at or 0.0)
        if not (outcome.duration or 0.0) * (1 - CLOCKS) - ENDED < length < (outcome.duration or 0.0) + NOTICED:
            yield f"history: a run is remembered for {length:.3f} s, and lasted {outcome.duration}"


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


def _kept(history: History) -> Iterator[str]:
    """Locks that were not given back although the store could be reached again soon enough."""
    for record in history.records:
        outcome, span = record.outcome, record.span
        if outcome is None or span is None or not outcome.not_released or outcome.kind not in BY_ITSELF:
            continue
        if _is_reached_in_time(history, record, span[1]):
            yield f"kept: {record.name} did not give the lock back that it needed until {span[1]:.3f}"


def _unnoted(history: History) -> Iterator[str]:
    """Successes that were not noted although the store could be reached again soon enough."""
    for record in history.records:
        outcome, span, plan = record.outcome, record.span, record.plan
        if outcome is None or span is None or plan.once_per is None or (outcome.kind, outcome.status) != ("exited", 0):
            continue
        if not record.noted.keys() >= set(plan.locks) and _is_reached_in_time(history, record, span[1]):
            yield f"success: {record.name} ended at {span[1]:.3f}, and has noted {sorted(record.noted)}"


def _is_reached_in_time(history: History, record: RunRecord, ended: float) -> bool:
    """Whether nothing but outages happened that were over soon after the end of a job, long before that of its lease."""
    faults = history.plan.faults
    if not all(each.is_outage for each in faults) or history.plan.slowest > 0.05:
        return False
    patience = min(min(record.kept.values()) + 0.9 * record.plan.ttl - ended, ACQUIRE_TIMEOUT)
    return patience >= 0.8 * ACQUIRE_TIMEOUT and all(each.at + each.value < ended + 0.3 * patience for each in faults)


def _unsaid(history: History) -> Iterator[str]:
    """Runs of which it is not known whether a lock was given back, and who do not tell it."""
    for record in history.records:
        outcome = record.outcome
        if outcome is None or outcome.kind not in BY_ITSELF or outcome.not_released or not record.span:
            continue
        for name, grant in record.last_grants.items():
            if grant.owner not in record.given_back and not record.plan.min_hold:
                yield f"unsaid: {record.name} tells nothing of {name}, whose release was not answered"


def _unnoticed(history: History) -> Iterator[str]:
    """Runs that tell of no loss, although another one had their lock before their command ended."""
    if history.capabilities.kernel_held or excuses.forgot(history) or excuses.went_ahead(history):
        return
    for record in history.records:
        outcome, grants = record.outcome, record.last_grants
        if outcome is None or outcome.kind not in NO_LOSS or excuses.was_freed(history, record):
            continue
        if excuses.was_cut_off(history, record, record.command_ended):
            continue  # who is not told of it learns it with the next renewal
        for other in history.records:
            for grant in other.granted if other is not record and record.excludes(other) else ():
                mine = grants.get(grant.name)
                if mine is not None and mine.known < grant.sent and grant.known < record.command_ended:
                    ended = f"{outcome.kind} at {record.command_ended:.3f}"
                    yield f"unnoticed: {record.name} is {ended}, but {other.name} has {grant.name} from {grant.known:.3f}"


def _successes(history: History) -> Iterator[str]:
    jumps = ("forget", "jump", "wrong") if history.capabilities.kernel_held else ("forget", "jump")
    if excuses.forgot(history) or any(each.kind in jumps for each in history.plan.faults):
        return
    for name in history.plan.locks:
        # one that has several locks began with the last of them
        noted = [
            (max(each.at for each in record.last_grants.values()), record.noted[name], record)
            for record in history.records
            if name in record.noted
        ]
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
                if sent >= known and is_done(at, now, period_length):
                    yield f"success: {record.name} runs although {first.name} succeeded in this period"


def is_done(at: float, now: float, span: float) -> bool:
    """Whether a success that began at one time is one of the period of another, or of the one after it.

    Calculated here once more: that of the product may be wrong.
    """
    return 0 <= at // span - now // span <= 1


def _skipped(history: History) -> Iterator[str]:
    """Runs that did not start for a success, although there is none of their period, by the clock that counts."""
    for record in history.records:
        span, grants = record.plan.once_per, record.last_grants
        if span is None or record.outcome is None or not record.outcome.detail.startswith("skipped"):
            continue
        now = max(grants.values(), key=lambda each: each.at).at
        # what was noted without an answer counts, too
        begun = [each.at for other in history.records if other is not record for each in other.granted if other.span]
        if not any(is_done(at, now, span) for at in begun):
            yield f"success: {record.name} is skipped at {now:.3f}, and others had the lock at {begun}"


def _statuses(history: History) -> Iterator[str]:
    """Commands of which another end is told than they had."""
    for record in history.records:
        outcome, status = record.outcome, record.command_status
        if status is None or outcome is None:
            continue
        stopped = any(each.kind in ("stop", "pause") and each.whom == record.number for each in history.plan.faults)
        untold = stopped and outcome.status is None  # a guard that is killed may not tell
        if outcome.kind in BY_ITSELF and outcome.status != status and not untold:
            yield f"status: that of the command of {record.name} is {status}, and {outcome.status} is told"
        if record.noted and (status != 0 or outcome.kind != "exited"):
            yield f"success: {record.name} has noted one, but it is {outcome.kind}, and its command ended with {status}"


def _ended_before(history: History) -> Iterator[str]:
    """Runs of which it is told that they were stopped, although their command had ended by itself, in time, and alone.

    Who waits for the rest of a job is told of its end.
    """
    for record in history.records:
        outcome, status, ended, guard = record.outcome, record.command_status, record.command_ended, record.guard
        if outcome is None or outcome.kind in BY_ITSELF or status is None or guard is None or not record.granted:
            continue
        if record.plan.waits_for_rest or not os.WIFEXITED(status) or any(at <= ended for at, _ in record.signalled):
            continue
        # it may not have said it; the keeper gets the status of a command whose guard is killed
        told = GUARD_KILLED in " ".join(record.said) and (outcome.kind, outcome.status) == ("lost", status)
        told = told and record.lost_at is None
        unable = not told and any(since < ended + SAID for since, _ in guard.unable)
        if not unable and ended < min(record.kept.values()) + 0.9 * record.plan.ttl:
            yield f"status: the command of {record.name} has ended with {status}, and {outcome.kind} is told"


def _killed(history: History) -> Iterator[str]:
    """Runs that are told to have come to their end although what they waited for was stopped, or killed."""
    for record in history.records:
        passed_on = any((each.kind, each.whom) == ("signal", record.number) for each in history.plan.faults)
        first = record.plan.first_signal
        killed = any(signum == SIGKILL or (signum == first and not passed_on) for _, signum in record.signalled)
        if killed and record.plan.waits_for_rest and record.outcome is not None and record.outcome.kind == "exited":
            yield f"status: what outlives the command of {record.name} is stopped, and {record.outcome.kind} is told"


def _left_alone(history: History) -> Iterator[str]:
    """Processes that were to be let alone when their command had ended by itself, and were stopped."""
    if any(each.kind in ("stop", "pause", "sleep") for each in history.plan.faults):
        return
    for record in history.records:
        outcome, ended = record.outcome, record.command_ended
        if not record.plan.leaves_rest or outcome is None or outcome.kind != "exited":
            continue
        stopped = [
            at for at, signum in record.signalled if signum in (SIGKILL, record.plan.first_signal) and at > ended
        ]
        if stopped:
            yield f"left alone: what outlives the command of {record.name} was to go on, and is stopped at {stopped[0]:.3f}"
