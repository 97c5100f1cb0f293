"""Locks as a majority of the nodes sees them."""

from __future__ import annotations

from lockctl import history
from lockctl.stores.redis import inspect as one
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.records import newness
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.errors import LockctlError
    from lockctl.model import LockInfo
    from lockctl.stores.redis.layout import Seen
    from lockctl.stores.redlock.nodes import Node
    from lockctl.stores.redlock.tally import Majority
    from lockctl.wire.deadline import Deadline

LISTED = 200  # locks that a list reads ahead


def inspect(majority: Majority, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with the newest of the last runs."""
    (lock,) = _shown(majority, [name], deadline, with_run=True)
    return lock


def look(majority: Majority, name: str, deadline: Deadline) -> LockInfo:
    """The same without its last run."""
    (lock,) = _shown(majority, [name], deadline)
    return lock


def list_locks(majority: Majority, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """All locks that match on any node that answers."""
    found = tally.usable(
        majority.answers(lambda node, until: one.names_of(node.session, pattern, until), deadline, wait_for_all=True)
    )
    names = sorted(set().union(*found))
    for start in range(0, len(names), LISTED):
        yield from _shown(majority, names[start : start + LISTED], deadline)


def read_locks(
    majority: Majority, names: list[str], deadline: Deadline, *, with_run: bool = False, wait_for_all: bool = False
) -> list[list[Seen] | LockctlError | None]:
    """What each node says about some locks, with their last runs if asked; see ``Majority.answers``."""

    def ask(node: Node, until: Deadline) -> list[Seen]:
        return one.read_locks(node.session, names, until, with_run=with_run, with_waiters=False)

    return majority.answers(ask, deadline, wait_for_all=wait_for_all)


def _shown(majority: Majority, names: list[str], deadline: Deadline, *, with_run: bool = False) -> Iterator[LockInfo]:
    answers = read_locks(majority, names, deadline, with_run=with_run)
    if any(map(tally.is_undecided, _of_each(answers, len(names)))):
        answers = read_locks(majority, names, deadline, with_run=with_run, wait_for_all=True)
    for name, each_says in zip(names, _of_each(answers, len(names)), strict=True):
        shown = one.shown("redlock", majority.prefix + name, name, tally.combine(each_says, majority.size))
        runs = filter(None, (history.read(each.last_run) for each in each_says if each is not None))
        yield replace(shown, waiters=None, last_run=max(runs, key=newness, default=None))


def _of_each(answers: list[list[Seen] | LockctlError | None], names: int) -> Iterator[list[Seen | None]]:
    """The answers by the number of the lock."""
    for number in range(names):
        yield [answer[number] if isinstance(answer, list) else None for answer in answers]
