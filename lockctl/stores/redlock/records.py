"""What a majority of the nodes keeps of a lock when nobody holds it: when the last success began, the last runs."""

from __future__ import annotations

from lockctl import history as runs
from lockctl.stores.redis import records
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.nodes import PATIENCE, ask_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.model import Run
    from lockctl.stores.redlock.nodes import Node
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

NEVER = 0.0  # seconds since the epoch: earlier than any success


def last_success(nodes: list[Node], prefix: str, name: str, deadline: Deadline, quorum: int) -> float | None:
    """See ``Backend.last_success``. Any majority has a node of the one that took the newest."""
    said = _majority(
        nodes,
        lambda node, until: records.last_success(node.session, prefix, name, until) or NEVER,
        deadline,
        quorum,
        "answered",
    )
    return max(said) or None


def note_success(nodes: list[Node], prefix: str, name: str, at: float, deadline: Deadline, quorum: int) -> None:
    """See ``Backend.note_success``; *at* in seconds since the epoch."""

    def note(node: Node, until: Deadline) -> bool:
        records.note_success(node.session, prefix, name, at, until)
        return True

    _majority(nodes, note, deadline, quorum, "noted the success")


def remember(nodes: list[Node], prefix: str, name: str, run: Run, deadline: Deadline, quorum: int) -> None:
    """See ``Backend.remember``."""

    def note(node: Node, until: Deadline) -> bool:
        records.remember(node.session, prefix, name, run, until)
        return True

    _majority(nodes, note, deadline, quorum, "remembered the run")


def history(nodes: list[Node], prefix: str, name: str, deadline: Deadline, quorum: int) -> tuple[Run, ...]:
    """See ``Backend.history``: what the nodes of a majority remember, each run once."""
    said = _majority(
        nodes,
        lambda node, until: records.runs(node.session, prefix, name, until),
        deadline,
        quorum,
        "answered",
    )
    known = {document: run for each in said for document in each if (run := runs.read(document)) is not None}
    found: list[Run] = []
    for started in (True, False):
        orders = [[text for text in each if text in known and known[text].started is started] for each in said]
        found += _merged(orders, known)[: runs.KEPT]
    return runs.in_order(found)


def unused(
    nodes: list[Node], prefix: str, pattern: str, older_than: float, deadline: Deadline, quorum: int
) -> list[tuple[str, float]]:
    """See ``Backend.unused``: what is in use on one node, or was used there, is not among them."""
    from lockctl.stores.redis import retire

    said = _all(
        nodes,
        lambda node, until: retire.last_uses(node.session, prefix, pattern, until),
        deadline,
        quorum,
        "answered",
    )
    found = []
    for name in sorted(set().union(*said)):
        uses = [each[name] for each in said if name in each]
        known = [use for use in uses if use is not None and use[1] >= older_than]
        if len(known) == len(uses):
            found.append((name, max(at for at, _ in known)))
    return found


def forget(nodes: list[Node], prefix: str, name: str, older_than: float, deadline: Deadline, quorum: int) -> bool:
    """See ``Backend.forget``. A node forgets its counter only when its own clock has passed that."""
    from lockctl.stores.redis import retire

    if not unused(nodes, prefix, name, older_than, deadline, quorum):
        return False
    said = _all(
        nodes,
        lambda node, until: retire.forget(node.session, prefix, name, older_than, until),
        deadline,
        quorum,
        "answered",
    )
    return sum(said) >= quorum or all(said)


def _all(nodes: list[Node], ask: Callable[[Node, Deadline], T], deadline: Deadline, quorum: int, what: str) -> list[T]:
    """As :func:`_majority`, and the others are waited for as well, for half of the time."""
    answers = ask_all(nodes, ask, deadline, lambda so_far: None if len(so_far) < quorum else deadline.timeout / 2)
    said = tally.usable(answers)
    if len(said) < quorum:
        raise tally.too_few(answers, what, quorum)
    return said


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


def _majority(
    nodes: list[Node], ask: Callable[[Node, Deadline], T], deadline: Deadline, quorum: int, what: str
) -> list[T]:
    """The answers of the nodes that have one; raises when they are less than a majority."""
    answers = ask_all(nodes, ask, deadline, lambda so_far: PATIENCE if len(so_far) >= quorum else None)
    said = tally.usable(answers)
    if len(said) < quorum:
        raise tally.too_few(answers, what, quorum)
    return said
