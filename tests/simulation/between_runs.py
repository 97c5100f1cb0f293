"""What must hold between runs whatever else is promised: the order of their tokens, one success in a period, and no bustle.

Tokens are compared in the order in which jobs start, which is what a resource sees of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import excuses
from tests.simulation.endings import is_done
from tests.simulation.plan import LOCK
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.record import RunRecord
    from tests.simulation.world import Clock

MOST_ATTEMPTS = 30  # and so many per second of a wait:
ATTEMPTS_PER_SECOND = 4.0
REFUSED_PER_SECOND = 10  # messages more while a server refuses: each time a connection is made anew
# twice what the busiest of a thousand runs sent, per second and run; of some stores that is packets
MESSAGES_PER_SECOND = {
    "exact": 10,
    "seconds": 12,
    "s3": 12,
    "azblob": 12,
    "gcs": 12,
    "dynamodb": 12,
    "kubernetes": 12,
    "nats": 16,
    "sqlite": 1,
    "redis": 6,
    "etcd": 8,
    "etcd-cluster": 8,
    "consul": 10,
    "zookeeper": 12,
    "postgresql": 30,
    "transaction": 30,
    "mysql": 16,
    "redlock": 44,
    "file": 1,
}
CLOCKS_MOVED = ("jump", "wrong", "winter", "power", "replaced")
EXACT = 0.001  # seconds that numbers with fractions may be wrong
# seconds by which a time may be before that of a server: whole seconds, and how far apart the servers of a name are
BEHIND = {
    **dict.fromkeys(("exact", "redis", "redlock", "postgresql", "transaction", "mysql", "sqlite"), EXACT),
    **dict.fromkeys(("etcd", "etcd-cluster", "consul"), 1.0),
    **dict.fromkeys(("s3", "azblob", "gcs", "dynamodb", "kubernetes", "seconds"), 1.9),
    "nats": 0.9 + EXACT,
}
BEGINNING = 5.0  # seconds: at first, a run sends more


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    return [*_fenced(history), *_floors(history), *_twice(history), *_busy(history), *_dated(history)]


def _dated(history: History) -> Iterator[str]:
    """Grants with a time at which it was not, by the clock that says when a period begins."""
    behind = BEHIND.get(history.plan.store)
    if behind is None or any(each.kind in CLOCKS_MOVED for each in history.plan.faults):
        return
    for record in history.records:
        first, last = _clocks_of_periods(history, record)
        for grant in record.granted:
            asked, known = first.wall_base + first.rate * grant.sent, last.wall_base + last.rate * grant.known
            if not asked - behind <= grant.at <= known + EXACT:
                yield f"dated: {record.name} is granted the lock between {asked:.3f} and {known:.3f}, as of {grant.at:.3f}"


def _clocks_of_periods(history: History, record: RunRecord) -> tuple[Clock, Clock]:
    """The clock that is furthest behind of those that may say when a period begins, and the one that is furthest ahead."""
    if history.plan.store == "redlock":  # the middle one of three or more
        servers = sorted([each.clock for each in history.servers], key=lambda each: each.wall_base)
        return servers[1], servers[-2]
    is_hosts = history.capabilities.period_clock == "the host's"
    clock = history.network.hosts[record.plan.host].clock if is_hosts else history.servers[0].clock
    return clock, clock


def _fenced(history: History) -> Iterator[str]:
    """Jobs that start after another one with the same lock, and have no higher token."""
    if excuses.forgot(history) or excuses.went_back(history) or any(each.now for each in history.revoked):
        return
    at_a_step = {each.whom for each in history.plan.faults if each.kind == "stop"}
    ran = sorted((each for each in history.records if each.span), key=lambda each: each.span or (0.0, 0.0))
    for number, later in enumerate(ran):
        for earlier in ran[:number]:
            if not earlier.excludes(later) or later.number in at_a_step:
                continue
            for name, grant in later.last_grants.items():
                before = earlier.last_grants.get(name)
                if before is not None and before.token >= grant.token and not _is_late(history, later):
                    yield f"tokens: {later.name} starts with {grant.token}, after {earlier.name} with {before.token}"


def _floors(history: History) -> Iterator[str]:
    """Operators who are told another token than the smallest that may come: a resource is advanced to it."""
    if excuses.forgot(history) or any(each.kind == "forget" for each in history.plan.faults):
        return
    for asked in history.revoked:
        if not asked.done:
            continue
        grants = [each for record in history.records for each in record.granted if each.name == LOCK]
        before = [each.token for each in grants if asked.now and each.known < asked.asked]
        later = [each.token for each in grants if each.sent > asked.answered]
        if asked.floor <= max([asked.token or 0, *before]):
            yield f"floor: the operator is told {asked.floor}, after {max([asked.token or 0, *before])}"
        if not any(each.mode != "exclusive" for each in history.plan.runs):
            # a token that others have beside it may be above; who is alone has it when the one before has gone
            later += [each.token for each in grants if each.token > (asked.token or asked.floor)]
        if later and min(later) < asked.floor:
            yield f"floor: the operator is told {asked.floor}, and then {min(later)} is granted"


def _is_late(history: History, record: RunRecord) -> bool:
    """Whether a job may start when its lease is over: its guard looks at the clock, and not at the server."""
    begin = (record.span or (0.0, 0.0))[0]
    return excuses.may_outlive_its_lock(history, record, begin) or excuses.went_ahead(history, until=begin)


def _twice(history: History) -> Iterator[str]:
    """Jobs that run although another one, which has given the lock back, had succeeded in their period before."""
    kinds = {each.kind for each in history.plan.faults}
    if excuses.forgot(history) or excuses.went_ahead(history):
        return
    if not kinds.isdisjoint(("wrong", "forget", "revoke", "other")):
        return
    for first in history.records:
        outcome, span = first.outcome, first.span
        if outcome is None or span is None or (outcome.kind, outcome.status) != ("exited", 0) or outcome.not_released:
            continue
        for later in history.records:
            period = later.plan.once_per
            alike = (
                first.plan.once_per == period and first.plan.locks == later.plan.locks and len(later.plan.locks) == 1
            )
            if period is None or not alike or later.span is None or not later.excludes(first):
                continue
            name = later.plan.locks[0]
            noted, now, at = first.noted.get(name), later.last_grants[name].at, first.last_grants[name].at
            in_time = noted is not None and noted < first.kept[name] + 0.9 * first.plan.ttl
            if in_time and later.span[0] > span[1] and is_done(at, now, period):
                yield f"success: {later.name} runs at {later.span[0]:.3f}, and {first.name} succeeded at {span[1]:.3f}"


def _busy(history: History) -> Iterator[str]:
    """Runs that ask again and again, in a wait or later."""
    last = 0.0
    for record in history.records:
        until = record.granted[-1].known if record.granted else min(record.ended, history.world.now)
        waited = max(0.0, until - record.plan.start)
        if record.attempts > (MOST_ATTEMPTS + ATTEMPTS_PER_SECOND * waited) * len(record.plan.locks):
            yield f"busy: {record.name} asks {record.attempts} times for its lock, until {until:.3f}"
        last = max(last, record.ended if record.ended < INFINITE else history.world.now)
    sent = sum(host.sent[0] for host in history.network.hosts)
    locks = sum(len(record.plan.locks) for record in history.records)
    refused = sum(each.value for each in history.plan.faults if each.kind == "busy")
    most = (MESSAGES_PER_SECOND[history.plan.store] * (last + BEGINNING) + REFUSED_PER_SECOND * refused) * locks
    if sent > most:
        yield f"busy: {sent} messages are sent until {last:.3f}, and {most:.0f} are many"
