"""What must hold for those who come to wait while a server is out of reach for a short time: they outlast it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.lease.attempts import LONGEST_PAUSE
from tests.simulation.plan import DENIED, KEPT, NEAR
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.plan import Fault
    from tests.simulation.record import RunRecord

ANSWERED = 1.0  # seconds after which a run has had an answer
LONGEST = 0.8 * ACQUIRE_TIMEOUT  # seconds of outages that count as one
APART = 2 * LONGEST_PAUSE + 0.5  # seconds between two that do not: it asks again, and has waited for long enough
QUICK = 0.002  # seconds of a message in a network in which a whole attempt takes none of that
REFUSALS = ("busy", "expired", "failover")  # outages in which each request is refused at once


def violations(history: History) -> Iterator[str]:
    """Runs that came to wait and came to nothing, each in one line that begins with its kind."""
    outages = history.plan.faults
    if not outages or history.plan.slowest > NEAR or not all(_is_told(history, each) for each in outages):
        return
    slowest = history.plan.slowest
    attempt = history.store.messages * slowest if slowest > QUICK else 0.0  # the last one must come to its end in time
    if _longest(outages) > LONGEST - attempt:
        return
    for record in history.records:
        failed = record.failure or (record.outcome is not None and record.outcome.kind == "unavailable")
        if failed and record.plan.wait >= ACQUIRE_TIMEOUT and not _must_fail(history, record):
            yield f"given up: {record.name} fails at {record.ended:.3f}: {record.failure or record.outcome}"


def _is_told(history: History, fault: Fault) -> bool:
    """Whether it is an outage of which everybody is told who asks."""
    if (fault.kind, fault.more) == ("down", KEPT):
        return all(server.tells for server in history.servers if server.went_down)
    return fault.kind in REFUSALS


def _longest(outages: tuple[Fault, ...]) -> float:
    """Seconds; one that begins again before anybody can have seen that it was over has lasted."""
    longest, begin, end = 0.0, -INFINITE, -INFINITE
    for each in sorted(outages, key=lambda each: each.at):
        begin = begin if each.at <= end + APART else each.at
        end = max(end, each.at + each.value)
        longest = max(longest, end - begin)
    return longest


def _must_fail(history: History, record: RunRecord) -> bool:
    """Whether a run is refused for what a person must change before it was answered, or has a lease that is too short."""
    outages, plan = history.plan.faults, record.plan
    denied = [
        each.at
        for each in outages
        if (each.kind, each.more) == ("busy", DENIED) or (each.kind == "expired" and each.value)
    ]
    if denied and (min(denied) < plan.start + ANSWERED or record.refused_at_first):
        return True  # whoever was never answered does not ask again
    span = max(each.at + each.value for each in outages) - min(each.at for each in outages)
    signal = plan.ttl * (1 - history.capabilities.rate_error) - plan.margin - plan.grace
    # who asks for the last success asks for as long as its lease allows
    return plan.once_per is not None and span > signal - LONGEST_PAUSE
