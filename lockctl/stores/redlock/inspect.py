"""Looking at locks on all nodes, and showing what a majority says."""

from __future__ import annotations

from lockctl import history
from lockctl.stores.redis.inspect import info, look
from lockctl.stores.redis.inspect import names_of as names_on
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.nodes import PATIENCE, ask_all
from lockctl.stores.redlock.records import newness
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.errors import LockctlError
    from lockctl.model import Capabilities, LockInfo
    from lockctl.stores.redis.entry import Seen
    from lockctl.stores.redlock.nodes import Node
    from lockctl.wire.deadline import Deadline


def look_at(
    nodes: list[Node],
    prefix: str,
    names: list[str],
    deadline: Deadline,
    quorum: int,
    *,
    with_run: bool = False,
) -> list[list[Seen] | LockctlError | None]:
    """What each node says about some locks, with their last runs if asked. Raises when less than a majority answers."""
    answers = ask_all(
        nodes,
        lambda node, until: look(node.session, prefix, names, until, with_run=with_run),
        deadline,
        lambda so_far: PATIENCE if len(so_far) >= quorum else None,
    )
    if len(tally.usable(answers)) < quorum:
        raise tally.too_few(answers, "answered", quorum)
    return answers


def names_of(nodes: list[Node], prefix: str, pattern: str, deadline: Deadline, quorum: int) -> list[str]:
    """The names that match a glob on any node that answers, in order."""
    answers = ask_all(
        nodes,
        lambda node, until: names_on(node.session, prefix, pattern, until),
        deadline,
        lambda so_far: None if len(so_far) < quorum else deadline.timeout / 2,
    )
    found = tally.usable(answers)
    if len(found) < quorum:
        raise tally.too_few(answers, "answered", quorum)
    return sorted(set().union(*found))


def inspect(
    nodes: list[Node],
    prefix: str,
    names: list[str],
    deadline: Deadline,
    quorum: int,
    capabilities: Capabilities,
    *,
    with_run: bool = False,
) -> Iterator[LockInfo]:
    """Some locks as a majority sees them, with the newest of their last runs if asked."""
    answers = look_at(nodes, prefix, names, deadline, quorum, with_run=with_run)
    for number, name in enumerate(names):
        each_says = [answer[number] if isinstance(answer, list) else None for answer in answers]
        shown = info(capabilities, prefix, name, tally.combine(each_says, quorum))
        runs = filter(None, (history.read(each.last_run) for each in each_says if each is not None))
        yield replace(shown, waiters=None, last_run=max(runs, key=newness, default=None))
