"""What a majority of the nodes keeps of a lock when nobody holds it: when the last success began, the last runs."""

from __future__ import annotations

from lockctl import history
from lockctl.stores.redis import records
from lockctl.stores.redlock import tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant, Run
    from lockctl.stores.redlock.nodes import Node
    from lockctl.wire.deadline import Deadline

NEVER = 0.0  # seconds since the epoch: earlier than any success


def last_success(majority: tally.Majority, name: str, deadline: Deadline) -> float | None:
    """See ``Backend.last_success``. Any majority has a node of the one that took the newest."""
    said = majority.answers(lambda node, until: records.last_success(node.session, name, until) or NEVER, deadline)
    return max(tally.usable(said)) or None


def note_success(majority: tally.Majority, grant: Grant, deadline: Deadline) -> None:
    """See ``Backend.note_success``."""

    def note(node: Node, until: Deadline) -> bool:
        records.note_success(node.session, grant, until)
        return True

    majority.answers(note, deadline, "noted the success")


def remember(majority: tally.Majority, name: str, run: Run, deadline: Deadline) -> None:
    """See ``Backend.remember``."""

    def note(node: Node, until: Deadline) -> bool:
        records.remember(node.session, name, run, until)
        return True

    majority.answers(note, deadline, "remembered the run")


def read_history(majority: tally.Majority, name: str, deadline: Deadline) -> tuple[Run, ...]:
    """See ``Backend.history``: what the nodes of a majority remember, each run once."""
    said = tally.usable(majority.answers(lambda node, until: records.runs(node.session, name, until), deadline))
    known = {document: run for each in said for document in each if (run := history.read(document)) is not None}
    found: list[Run] = []
    for started in (True, False):
        orders = [[text for text in each if text in known and known[text].started is started] for each in said]
        found += _merged(orders, known)[: history.KEPT]
    return history.in_order(found)


def _merged(orders: list[list[bytes]], known: dict[bytes, Run]) -> list[Run]:
    """Each run of several lists once, in an order that contradicts none of them unless they contradict each other."""
    merged = []
    while heads := {order[0] for order in orders if order}:
        free = [text for text in heads if not any(text in order[1:] for order in orders)]
        newest = max(free or heads, key=lambda text: newness(known[text]))
        merged.append(known[newest])
        orders = [[text for text in order if text != newest] for order in orders]
    return merged


def newness(run: Run) -> tuple[int, float]:
    """The greater, the newer: by the token, which rises whatever the clocks of the hosts say, then by those."""
    return run.token or 0, run.ended_at or 0.0
