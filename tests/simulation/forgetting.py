"""What must hold of names that an operator has forgotten: nobody used them, and nothing of them is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import between_runs, excuses
from tests.simulation.plan import LOCK, NEAR
from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import Forgotten, History

MILD = 0.8  # of the time for which a name was not to be used
BY_HOSTS = ("etcd", "consul", "zookeeper", "file", "sqlite")  # stores that have no clock but those of their clients
SURELY_IN_LINE = 2.0  # seconds until somebody has a place in the queue
SETTLED = 4  # leases after the last run in which what it had at the server has surely ended


def violations(history: History) -> list[str]:
    """What is wrong, each in one line that begins with its kind."""
    if not history.forgets:
        return []
    found = [*_too_soon(history), *_forgotten_in_use(history), *_forgotten_in_line(history)]
    return [*found, *_unforgotten(history), *_lost(history)]


def _done(history: History) -> list[Forgotten]:
    return [each for each in history.forgets if each.done]


def _too_soon(history: History) -> Iterator[str]:
    """Names that were forgotten although they had been used shortly before."""
    if any(each.kind in ("jump", "wrong") for each in history.plan.faults) or excuses.forgot(history):
        return
    for asked, answered, older_than, _ in _done(history):
        since = answered - MILD * older_than + between_runs.BEHIND.get(history.plan.store, between_runs.EXACT)
        for record in history.records:
            for grant in record.granted:
                was_given_back = record.given_back.get(grant.owner, INFINITE) < asked
                used = record.let_go[grant.owner] if was_given_back else grant.known
                if grant.name == LOCK and since < used < asked:
                    yield f"too soon: {record.name} has used the lock at {used:.3f}, it is forgotten by {answered:.3f}"


def _forgotten_in_use(history: History) -> Iterator[str]:
    """Names that were forgotten while a job ran that had their lock."""
    for asked, answered, _, _ in _done(history):
        if excuses.forgot(history, until=answered) or excuses.went_ahead(history, until=answered):
            continue
        for record in history.records:
            span = record.span
            if span is None or LOCK not in record.plan.locks or not span[0] < asked <= answered < span[1]:
                continue
            if not excuses.may_outlive_its_lock(history, record, answered):
                yield f"in use: {record.name} runs from {span[0]:.3f} on, and its lock is forgotten by {answered:.3f}"


def _forgotten_in_line(history: History) -> Iterator[str]:
    """Names that were forgotten while somebody waited who has a place in the queue."""
    near = {each.kind for each in history.plan.faults} == {"forget"} and history.plan.slowest <= NEAR
    if not near or history.plan.has_several or not (history.capabilities.fair and history.capabilities.keeps_place):
        return
    for asked, answered, _, _ in _done(history):
        for record in history.records:
            until = record.granted[0].asked if record.granted else record.ended
            if record.plan.start + SURELY_IN_LINE < asked and answered < until:
                yield f"in use: {record.name} waits from {record.plan.start:.3f} on, it is forgotten by {answered:.3f}"


def _lost(history: History) -> Iterator[str]:
    """Runs that are not remembered any more, although their name was not forgotten."""
    faults = history.plan.faults
    if any(each.kind != "forget" for each in faults) or any(each.done for each in history.forgets):
        return
    untold = any(excuses.was_untold(history, each.asked, each.answered) for each in history.forgets)
    if len(history.forgets) < len(faults) or untold or not history.left_of_forgotten:
        return  # what failed may have been done, and so may what was asked for again
    remembered = {each.token for each in history.left_of_forgotten[0]}
    for record in history.records:
        grant = record.last_grants.get(LOCK)
        if grant is not None and record.span and record.outcome is not None and grant.token not in remembered:
            yield f"forgotten: {record.name} is not remembered, and the name was not forgotten"


def _unforgotten(history: History) -> Iterator[str]:
    """Names that nobody had used for long, and that were not forgotten, or of which something is remembered."""
    users = [each for each in history.records if LOCK in each.plan.locks]
    if {each.kind for each in history.plan.faults} != {"forget"} or not any(each.granted for each in users):
        return
    last = max(max(each.ended, *(hold.sent + hold.seconds for hold in each.holds.values()), 0.0) for each in users)
    # a counter may be that of another clock, and is forgotten when the own one has passed it
    hosts, servers = ([each.clock.wall() for each in some] for some in (history.network.hosts, history.servers))
    clocks = servers + hosts if history.capabilities.scheme in BY_HOSTS else servers
    ahead = max(clocks) - min(servers or hosts)
    settled = (
        last + ahead + SETTLED * max(each.plan.ttl for each in users) + between_runs.BEHIND.get(history.plan.store, 0.0)
    )
    late = [each for each in history.forgets if each.asked > settled + each.older_than]
    # where the answer is not told, it is asked for again, and then there is nothing to do
    late = [each for each in late if not excuses.was_untold(history, each.asked, each.answered)]
    if late and not any(each.done for each in history.forgets if each.asked > last):
        yield f"kept: nobody has used the lock since {last:.3f}, and it is not forgotten at {late[0].asked:.3f}"
    if any(each.done for each in late) and any(history.left_of_forgotten):
        yield f"kept: of a forgotten name there is {history.left_of_forgotten}"
