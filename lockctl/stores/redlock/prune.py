"""Names that nobody uses any more on any node that answers, and removing what is kept of them."""

from __future__ import annotations

from lockctl.stores.redis import prune
from lockctl.stores.redlock import tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.stores.redlock.tally import Majority
    from lockctl.wire.deadline import Deadline


def unused(majority: Majority, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend.unused``: what is in use on one node, or was used there, is not among them."""
    said = tally.usable(
        majority.answers(lambda node, until: prune.last_uses(node.session, pattern, until), deadline, wait_for_all=True)
    )
    found = []
    for name in sorted(set().union(*said)):
        uses = [each[name] for each in said if name in each]
        known = [use for use in uses if use is not None and use[1] >= older_than]
        if len(known) == len(uses):
            found.append((name, max(at for at, _ in known)))
    return iter(found)


def forget(majority: Majority, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend.forget``. A node forgets its counter only when its own clock has passed that.

    Each node compares for itself. What one that is away still has, it forgets after a year.
    """
    if not any(unused(majority, name, older_than, deadline)):
        return False
    said = tally.usable(
        majority.answers(
            lambda node, until: prune.forget(node.session, name, older_than, until), deadline, wait_for_all=True
        )
    )
    return sum(said) >= majority.size or all(said)
