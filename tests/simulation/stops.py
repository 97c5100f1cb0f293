"""What must hold of the stop of a job, and of a run that is told to end before its job: who is told, when, and for how long.

Promised are the grace from the first signal to KILL, SIGCONT beside that signal, KILL at once after a certain loss, and
that a signal ends the wait for a lock.
"""

from __future__ import annotations

from signal import SIGCONT, SIGKILL
from typing import TYPE_CHECKING

from lockctl.lease.acquire import ACQUIRE_TIMEOUT, HURRIED_TIMEOUT
from lockctl.lease.attempts import BROKEN_OFF, LONGEST_GIVE_BACK
from lockctl.lease.schedule import FIRST_TIMEOUT, RENEWALS_PER_TTL
from tests.simulation import excuses
from tests.simulation.plan import ENDS_A_WAIT, GUARD
from tests.simulation.processes import SLOWEST_KILL
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.processes import Process
    from tests.simulation.record import RunRecord

STARTED = 0.05  # seconds from the order to start until the command lives
KILLED = 0.6  # seconds from the answer that a lease is lost until nothing lives, also where the guard is stuck
TOGETHER = 0.001  # seconds between two signals of one stop
CLOCKS = 0.01  # part of a time by which clocks may differ, and more
SETTLES = 0.15  # seconds in which what outlives a command ends by itself, and is not to be stopped
WAIT_ENDS = 1.0  # seconds from a signal to the end of a run that waits, beside its requests
FAILS = 1.5  # seconds more than a store is asked that fails
SHORTEST = {"consul": 10.0, "etcd": 2.0, "etcd-cluster": 2.0}  # seconds of a lease that their servers grant


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    return [
        *_graces(history),
        *_discontinued(history),
        *_misworded(history),
        *_beside(history),
        *_lost(history),
        *_woken(history),
        *_outlived(history),
        *_bereaved(history),
        *_too_mild(history),
        *_hurried(history),
        *_asked(history),
        *_frightened(history),
        *_started(history),
        *_unstarted(history),
        *_told_to_end(history),
        *_insistent(history),
    ]


def _unable(process: Process | None, since: float, until: float) -> bool:
    """Whether a process was stopped or dead at any time between these."""
    return process is None or any(begin <= until and end >= since for begin, end in process.unable)


def _is_stopped_at_a_step(history: History, record: RunRecord) -> bool:
    return any((each.kind, each.whom, each.more) == ("stop", record.number, GUARD) for each in history.plan.faults)


def _graces(history: History) -> Iterator[str]:
    """Jobs that were killed too soon after they had been told to end, although nothing but that was wrong."""
    for record in history.records:
        times = [at for at, signum in record.signalled if signum == SIGKILL]
        if not times or _unable(record.guard, 0.0, times[0]):
            continue
        killed = times[0]
        if record.lost_at is not None and record.lost_at <= killed and not _is_mild(record, killed):
            continue
        if excuses.was_cut_off(history, record, killed) or _is_disconnected(history, record):
            continue
        conts = [at for at, signum in record.signalled if signum == SIGCONT]
        terms = [at for at, signum in record.signalled if signum == record.plan.first_signal]
        asked = [at for at in terms if at <= killed and any(abs(at - each) < TOGETHER for each in conts)]
        if asked and killed < asked[0] + record.plan.grace * (1 - CLOCKS) - STARTED:
            yield f"grace: {record.name} is asked to end at {asked[0]:.3f} and killed at {killed:.3f}"
        elif record.plan.grace and not (asked or terms or _was_silent(record, killed)):
            yield f"grace: {record.name} is killed at {killed:.3f} without having been asked to end"


def _was_silent(record: RunRecord, killed: float) -> bool:
    """Whether a keeper stood still, or was dead for so long that the lease was nearly over."""
    assert record.keeper is not None
    nearly_over = min(record.kept.values()) + 0.95 * record.plan.ttl * (1 - 1 / RENEWALS_PER_TTL) - record.plan.margin
    return any(begin <= killed and (end < INFINITE or killed > nearly_over) for begin, end in record.keeper.unable)


def _is_mild(record: RunRecord, killed: float) -> bool:
    """Whether a job has its grace although its lock is lost, as nothing but the loss calls for its end."""
    plan = record.plan
    return not plan.kills_on_loss and killed < min(record.kept.values()) + 0.95 * plan.ttl - plan.margin


def _is_disconnected(history: History, record: RunRecord) -> bool:
    """Whether a lock was lost that was a connection's, of which the kernel tells, and no renewal."""
    held = history.capabilities.connection_held
    # what outlives the command is no part of the outcome
    freed = record.command_status is not None and any(each.now for each in history.revoked)
    return held and (freed or (record.outcome is not None and record.outcome.kind == "lost"))


def _discontinued(history: History) -> Iterator[str]:
    """Jobs that were told to end without SIGCONT: who is stopped would not hear of it."""
    for record in history.records:
        signalled = any((each.kind, each.whom) == ("signal", record.number) for each in history.plan.faults)
        if signalled or _is_stopped_at_a_step(history, record):
            continue
        conts = [at for at, signum in record.signalled if signum == SIGCONT]
        for at, signum in record.signalled:
            if signum == record.plan.first_signal and not any(abs(at - each) < TOGETHER for each in conts):
                yield f"continued: {record.name} is told to end at {at:.3f}, and not continued"


def _misworded(history: History) -> Iterator[str]:
    """Jobs that were told to end by another signal than the one that is for that."""
    for record in history.records:
        if any((each.kind, each.whom) == ("signal", record.number) for each in history.plan.faults):
            continue
        for at, signum in record.signalled:
            if signum in ENDS_A_WAIT and signum != record.plan.first_signal:
                yield f"first signal: {record.name} gets {signum} at {at:.3f}, not {record.plan.first_signal}"


def _beside(history: History) -> Iterator[str]:
    """Signals that were passed on to more of a job than its command, which is what they are for while it lives."""
    for record in history.records:
        if _is_stopped_at_a_step(history, record):
            continue  # maybe between the two signals of a stop
        conts = [at for at, signum in record.signalled if signum == SIGCONT]
        for at, signum in record.signalled_beside:
            is_alive = record.command_status is None or at < record.command_ended
            is_stop = signum in (SIGKILL, SIGCONT) or any(abs(at - each) < TOGETHER for each in conts)
            if is_alive and not is_stop:
                yield f"passed on: the command of {record.name} lives at {at:.3f}, and another process gets {signum}"


def longest(record: RunRecord) -> float:
    """Seconds for which a job may live on when it is known that another may have its lock."""
    return KILLED + record.plan.dying + record.plan.grace_at_loss * (1 + CLOCKS)


def _lost(history: History) -> Iterator[str]:
    """Jobs that lived on although it was known that another may have their lock, and somebody was awake."""
    for record in history.records:
        lost, span = record.lost_at, record.span
        if lost is None or span is None or span[1] <= lost + longest(record):
            continue
        # who is stopped just now may not have read the answer; later, the guard has the order, or the keeper looks
        if _unable(record.keeper, lost, lost + STARTED):
            continue
        until = lost + longest(record)
        if not (_unable(record.keeper, lost, until) and _unable(record.guard, lost, until)):
            yield f"lost: it is known at {lost:.3f}, and the job of {record.name} lives until {span[1]:.3f}"


def _woken(history: History) -> Iterator[str]:
    """Jobs that lived on when their host woke up, and their lease was over."""
    for record in history.records:
        for fault in () if history.capabilities.kernel_held else history.plan.faults:
            if fault.kind != "sleep" or fault.whom != record.plan.host or record.span is None:
                continue
            awake, kept = fault.at + fault.value, max(record.kept.values())
            is_over = kept < fault.at and kept + 1.01 * record.plan.ttl < awake
            if is_over and record.span[0] < fault.at and record.span[1] > awake + KILLED + record.plan.dying:
                yield f"woken: the lease of {record.name} is over at {awake:.3f}, and its job lives until {record.span[1]:.3f}"


def _outlived(history: History) -> Iterator[str]:
    """Jobs that lived on when the lease was over that the last answered request had prolonged, however short it was."""
    if history.capabilities.kernel_held or history.capabilities.connection_held:
        return
    shortest = SHORTEST.get(history.plan.store, 0.0)
    for record in history.records:
        if record.span is None or excuses.may_outlive_its_lock(history, record, record.span[1]):
            continue
        kept = min(record.kept.values())
        if record.span[1] > kept + max(record.plan.ttl, shortest) * (1 + CLOCKS) + KILLED:
            yield f"outlived: the lease of {record.name} is of {kept:.3f}, and its job lives until {record.span[1]:.3f}"


def _bereaved(history: History) -> Iterator[str]:
    """Commands that lived on when their guard was dead, whoever else was: the kernel ends them with it."""
    for record in history.records:
        if not record.lived or record.guard is None:
            continue
        (begin, end), ended = record.lived[0], [since for since, until in record.guard.unable if until == INFINITE]
        dead = min(ended, default=INFINITE)
        if end > max(begin, dead) + SLOWEST_KILL + TOGETHER + record.plan.dying:
            yield f"bereaved: the guard of {record.name} is dead at {dead:.3f}, and its command lives until {end:.3f}"


def _hurried(history: History) -> Iterator[str]:
    """Jobs of which something was stopped that would have ended by itself a moment after the command."""
    if any(each.kind not in ("twice", "wrong", "busy") for each in history.plan.faults):
        return
    for record in history.records:
        plan, outcome = record.plan, record.outcome
        settles = 0.0 < plan.outlived < SETTLES and outcome is not None and outcome.kind == "exited"
        stopped = [at for at, _ in record.signalled if at >= record.command_ended]
        if settles and stopped and not plan.leaves_rest:
            yield f"hurried: {record.name} is told to end at {stopped[0]:.3f}, its command at {record.command_ended:.3f}"


def _too_mild(history: History) -> Iterator[str]:
    """Runs that tell another cause, although their job was killed after it was known that their lock was lost."""
    for record in history.records:
        lost, outcome = record.lost_at, record.outcome
        if lost is None or outcome is None or record.command_status != SIGKILL or not record.lived:
            continue
        killed = min([at for at, signum in record.signalled if signum == SIGKILL], default=0.0)
        if (
            record.plan.kills_on_loss
            and killed >= lost
            and outcome.kind != "lost"
            and not _unable(record.keeper, lost, killed)
        ):
            yield f"cause: {record.name} has lost its lock at {lost:.3f}, is killed at {killed:.3f}, and is {outcome.kind}"


def _asked(history: History) -> Iterator[str]:
    """Jobs that went on for too long after a renewal had said that their lock is asked for, though their keeper was awake.

    A guard that is stopped just then is ended when the grace is over; if it goes on before, it gives that once more.
    """
    for record in history.records:
        asked, span = record.revoked_at, record.span
        if asked is None or span is None or asked < span[0]:
            continue
        longest = record.plan.grace * (1 + CLOCKS) + record.plan.margin / 2 + KILLED + record.plan.dying
        if _unable(record.keeper, asked, asked + longest):
            continue
        if _unable(record.guard, asked, asked + longest):
            longest += record.plan.grace * (1 + CLOCKS)
        if span[1] > asked + longest:
            yield f"asked: it is known at {asked:.3f}, and the job of {record.name} lives until {span[1]:.3f}"


def _frightened(history: History) -> Iterator[str]:
    """Runs that say that their lock is lost, and end well, though nobody took it."""
    kinds = {each.kind for each in history.plan.faults}
    if excuses.forgot(history) or not kinds <= {"twice", "stop", "pause", "signal"}:
        return
    for record in history.records:
        well = record.outcome is not None and record.outcome.kind == "exited"
        lost = [each for each in record.said if each.startswith("the lease is lost")]
        if well and lost and not _unable(record.keeper, 0.0, record.ended - TOGETHER):
            yield f"frightened: {record.name} has come to its end, and says: {lost[0]}"


def _started(history: History) -> Iterator[str]:
    """Jobs that began although the order to start them was taken back, or who gave it was dead."""
    for record in history.records:
        if record.span is None or record.keeper is None or _is_stopped_at_a_step(history, record):
            continue
        if record.lost_at is not None and record.lost_at <= record.ordered < INFINITE:
            yield f"started: {record.name} has lost its lock at {record.lost_at:.3f}, and orders the start after that"
        killed = [since for since, until in record.keeper.unable if until == INFINITE]
        for at in (record.lost_at, record.revoked_at, *killed[:1]):
            # that it was asked for before the order to start is told again later
            if at is not None and _unable(record.guard, at, at) and record.span[0] > at + STARTED:
                yield f"started: the job of {record.name} begins at {record.span[0]:.3f}, taken back at {at:.3f}"


def _unstarted(history: History) -> Iterator[str]:
    """Runs that lost their lock before their command could start: who has too little of a lease left asks for it again."""
    if history.capabilities.connection_held or {"stop", "pause", "sleep"} & {each.kind for each in history.plan.faults}:
        return
    for record in history.records:
        outcome, plan = record.outcome, record.plan
        asks_more = plan.once_per or plan.fence  # which takes time
        if outcome is not None and outcome.kind == "lost" and not (record.span or record.lost_at or asks_more):
            yield f"lost: {record.name} is lost at {record.ended:.3f} before it has started its job"


def _told_to_end(history: History) -> Iterator[str]:
    """Runs that went on after a signal that came before they had their locks."""
    for record in history.records:
        known = record.granted[-1].known if record.granted else INFINITE
        for at in record.asked_to_end:
            if record.span is not None and at < known:
                yield f"signal: {record.name} was told to end at {at:.3f}, has its lock at {known:.3f}, and its job starts"
            elif record.span is not None and at < record.span[0] - STARTED and _is_undisturbed(record, record.span[0]):
                yield f"signal: {record.name} was told to end at {at:.3f}, and its job starts at {record.span[0]:.3f}"
            early = record.granted[0].known if record.granted else INFINITE
            bound = WAIT_ENDS + 16 * history.plan.slowest * len(record.plan.locks)
            # who had to wait for an answer, or broke an attempt off, waits longer until it has given back what it has
            bound += max(min(2 * max(record.longest_answer, BROKEN_OFF), LONGEST_GIVE_BACK) - HURRIED_TIMEOUT, 0.0)
            if at >= known and record.span is None and _is_undisturbed(record, at + bound):
                early, bound = INFINITE, bound + FIRST_TIMEOUT  # a renewal before the job starts is not broken off
            if at < early and record.ended > at + bound and not _unable(record.keeper, at, at + bound):
                yield f"signal: {record.name} was told to end at {at:.3f}, and waits until {record.ended:.3f}"


def _is_undisturbed(record: RunRecord, until: float) -> bool:
    """Whether nothing comes between the lock of a run and the order to start, which is given by then."""
    return not (record.plan.once_per or _unable(record.keeper, 0.0, until) or _unable(record.guard, 0.0, until))


def _insistent(history: History) -> Iterator[str]:
    """Runs that asked a store for longer than it may fail, or again, although a person must change something first."""
    for record in history.records:
        if record.refused_at_first and record.attempts > 1:
            yield f"insistent: {record.name} was refused at first, and asks {record.attempts} times"
        over, again = record.plan.start + record.plan.wait * (1 + CLOCKS), record.asked_again
        is_late = again > over + FAILS + 4 * history.plan.slowest and len(record.plan.locks) == 1
        if is_late and not _unable(record.keeper, 0.0, again):
            yield f"insistent: {record.name} asks a store at {again:.3f} that fails, and its wait is over at {over:.3f}"
        for first, last in record.silences:
            longest = ACQUIRE_TIMEOUT + FAILS + 4 * history.plan.slowest
            if last > first + longest and not _unable(record.keeper, first, last):
                yield f"insistent: {record.name} asks a store until {last:.3f} that fails since {first:.3f}"
