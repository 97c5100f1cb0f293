"""A resource whose mark is in a store of its own, and what must hold of `run --fence` there."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lockctl.fence import registration
from lockctl.fence.location import Location
from lockctl.fence.stores.cells import CellMarks
from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from tests.simulation import excuses
from tests.simulation.cells import CellServer, ExactCells
from tests.simulation.modules import put
from tests.simulation.processes import me
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.history import History
    from tests.simulation.network import Network
    from tests.simulation.plan import Plan
    from tests.simulation.record import RunRecord

ENDS = 2.0  # seconds in which a run ends that has asked for its mark for long enough
QUICK = 0.1  # seconds of a message, with which a mark is written in time
OUT_OF_REACH = {"cut", "lose", "late", "slow", "twice", "marks", "threads", "stop", "pause"}  # what can have that told


class MarkServer(CellServer):
    """Where the marks are, one for each lock. It keeps the tokens that were registered there, and when."""

    def __init__(self, network: Network, plan: Plan) -> None:
        super().__init__(0, plan.rates[-1], whole_seconds=False)
        self.name = "resource"
        self.tokens: dict[str, list[tuple[float, int]]] = {}
        self._network = network
        put(registration, "locate", self._location)
        for fault in plan.faults:
            if fault.kind == "marks":
                Here.world.at(fault.at, self.fail, fault.value, fault.more, None)

    def _location(self, resource: str) -> Location:
        """Stands for ``fence.location.locate``, on the host of who asks."""
        return Location(CellMarks(ExactCells(self._network, self._network.host_of(me().clock), self)), resource)

    def answer(self, request: Any) -> Any:
        """See ``Server``."""
        answer = super().answer(request)
        if request[0] == "write" and answer is not None:
            _, key, _, data = request
            self.tokens.setdefault(key, []).append((Here.world.now, int(data.rpartition(b";")[2])))
        return answer


def violations(history: History) -> Iterator[str]:
    """What is wrong, each in one line that begins with its kind."""
    for name, tokens in history.marks.tokens.items():
        for (_, before), (at, token) in pairwise(tokens):
            if token < before:
                yield f"mark: that of {name} is {token} at {at:.3f}, and was {before}"
    for record in history.records:
        if record.plan.fence and record.granted:
            yield from _registered(history, record)


def _registered(history: History, record: RunRecord) -> Iterator[str]:
    """What is wrong with a run that had its lock, and then a mark to advance."""
    name, grant = record.plan.locks[0], record.granted[-1]
    tokens, mine = history.marks.tokens.get(name, []), record.last_grants[name].token
    begun = INFINITE if record.span is None else record.span[0]
    if begun < INFINITE and mine not in [token for at, token in tokens if at <= begun]:
        yield f"mark: the job of {record.name} begins at {begun:.3f}, and {mine} is not registered"
    why = "" if record.outcome is None else record.outcome.fence
    if why and begun < INFINITE:
        yield f"mark: that of {record.name} was refused ({why}), and its job begins at {begun:.3f}"
    kinds, outcome = {each.kind for each in history.plan.faults}, record.outcome
    # too little was left of its lease, and it asked for the lock again
    again = outcome is not None and outcome.kind in ("held", "unavailable") and not why and outcome.interrupted is None
    told = [at for at in record.asked_to_end if grant.known < at]
    for since, longest in ((grant.known, min(record.plan.ttl, ACQUIRE_TIMEOUT)), *((at, 0.0) for at in told[:1])):
        late = record.ended > since + longest + ENDS + 20 * history.plan.slowest
        if late and begun == INFINITE and not again and kinds <= {"marks", "signal"}:
            yield f"mark: {record.name} asks for it, is to end from {since:.3f} on, and does at {record.ended:.3f}"
    if excuses.forgot(history):
        return  # the tokens are of another domain now
    if why == "stale" and not any(at < record.ended and token > mine for at, token in tokens):
        yield f"mark: {record.name} is told that {mine} is old, and nothing newer was registered"
    if why == "unavailable" and history.plan.slowest < QUICK and OUT_OF_REACH.isdisjoint(kinds):
        yield f"mark: {record.name} is told that it is out of reach, and it was not"
    if why == "config":
        yield f"mark: {record.name} is told that somebody must mend it, and nobody has harmed it"
