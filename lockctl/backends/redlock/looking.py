"""Looking at locks on all nodes, and showing what a majority says."""

from __future__ import annotations

from lockctl.backends.redis import looking, record
from lockctl.backends.redlock import tally
from lockctl.backends.redlock.nodes import PATIENCE, ask_all
from lockctl.model import LockInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backends.redis.record import Seen
    from lockctl.backends.redlock.nodes import Node
    from lockctl.errors import LockctlError
    from lockctl.model import Capabilities
    from lockctl.wire.deadline import Deadline


def look_at(
    nodes: list[Node], prefix: str, names: list[str], deadline: Deadline, quorum: int, *, patience: float
) -> list[list[Seen] | LockctlError | None]:
    """What each node says about some locks. Raises when less than a majority answers."""
    answers = ask_all(
        nodes,
        lambda node, until: looking.look(node.session, prefix, names, until),
        deadline,
        lambda so_far: patience if len(so_far) >= quorum else None,
    )
    if len(tally.usable(answers)) < quorum:
        raise tally.too_few(answers, "answered", quorum)
    return answers


def names_of(nodes: list[Node], prefix: str, pattern: str, deadline: Deadline, quorum: int) -> list[str]:
    """The names that match a glob on any node that answers, in order."""
    answers = ask_all(
        nodes,
        lambda node, until: looking.names_of(node.session, prefix, pattern, until),
        deadline,
        lambda so_far: None if len(so_far) < quorum else deadline.timeout / 2,
    )
    found = tally.usable(answers)
    if len(found) < quorum:
        raise tally.too_few(answers, "answered", quorum)
    return sorted(set().union(*found))


def inspect(
    nodes: list[Node], prefix: str, names: list[str], deadline: Deadline, quorum: int, capabilities: Capabilities
) -> Iterator[LockInfo]:
    """Some locks as a majority sees them."""
    answers = look_at(nodes, prefix, names, deadline, quorum, patience=PATIENCE)
    for number, name in enumerate(names):
        each_says = [answer[number] if isinstance(answer, list) else None for answer in answers]
        holder = record.holder(tally.combine(each_says, quorum))
        yield LockInfo(
            name=name,
            backend=capabilities.scheme,
            key=prefix + name,
            state="free" if holder is None else "foreign" if holder.owner is None else "held",
            fencing=capabilities.fencing,
            slots=1,
            holders=() if holder is None else (holder,),
            waiters=None,
            last_run=None,
        )
