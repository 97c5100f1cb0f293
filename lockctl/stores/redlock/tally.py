"""Counting the answers of several servers: what a majority says."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.stores.redis.entry import ENDED, Seen
from lockctl.stores.redlock.nodes import PATIENCE, ask_all
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from lockctl.stores.redis.entry import Record
    from lockctl.stores.redlock.nodes import Node
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

FOR_EVER = float("inf")


class Majority(Value):
    """All nodes, the prefix of the keys there, and how many of them are a majority."""

    nodes: list[Node]
    prefix: str
    size: int

    def answers(
        self,
        ask: Callable[[Node, Deadline], T],
        deadline: Deadline,
        what: str = "answered",
        *,
        wait_for_all: bool = False,
    ) -> list[T | LockctlError | None]:
        """What each node answers; raises when less than a majority did *what*.

        When a majority has, the others are waited for shortly, or with *wait_for_all* for half of the time.
        """
        patience = deadline.timeout / 2 if wait_for_all else PATIENCE
        found = ask_all(self.nodes, ask, deadline, lambda so_far: patience if len(so_far) >= self.size else None)
        if len(usable(found)) < self.size:
            raise too_few(found, what, self.size)
        return found


def usable(answers: Sequence[T | LockctlError | None]) -> list[T]:
    """The answers that are one."""
    return [answer for answer in answers if answer is not None and not isinstance(answer, LockctlError)]


def refusals(answers: Sequence[T | LockctlError | None], agrees: Callable[[T], bool], said: str) -> list[object]:
    """The same answers, with those that do not agree as an error of that text."""
    return [
        answer if answer is None or isinstance(answer, LockctlError) or agrees(answer) else BackendUnavailable(said)
        for answer in answers
    ]


def too_few(answers: Sequence[object], what: str, needed: int) -> LockctlError:
    """The error that says that no majority did *what*, with the reason of the first node that has one.

    A mistake in the configuration is named before a server that is away, and can only be mended by a person.
    """
    errors = [answer for answer in answers if isinstance(answer, LockctlError)]
    mistakes = [error for error in errors if isinstance(error, ConfigError)]
    said = len(usable(answers))
    kind = ConfigError if len(mistakes) > len(answers) - needed else BackendUnavailable
    reason = next((f": {error}" for error in [*mistakes, *errors]), "")
    return kind(f"redlock: {said} of {len(answers)} nodes {what}, {needed} are needed{reason}")


def combine(answers: Sequence[Seen | None], quorum: int) -> Seen:
    """One lock as a majority sees it; a node that was silent (``None``) may be on the holder's side."""
    silent = sum(answer is None for answer in answers)
    said = [answer for answer in answers if answer is not None and answer.value is not None]
    records: dict[bytes | None, Record | None] = {}  # the nodes mostly say the same, which is read once
    holders: dict[str | None, list[Seen]] = {}
    for answer in said:
        if answer.value not in records:
            records[answer.value] = answer.record
        found = records[answer.value]
        holders.setdefault(found.owner if found else None, []).append(answer)
    most = max(holders.values(), key=len, default=[])
    if not most or len(most) + silent < quorum:
        return Seen(None, None, ())
    # a node that answered late has its own token, until it joins the others; among equals the one whose hold has
    # begun: the others did not hear of it yet
    tokens = [found.token if (found := records[each.value]) else 0 for each in most]
    ranks = [(tokens.count(token), token, _is_kept(each)) for token, each in zip(tokens, most, strict=True)]
    newest = most[ranks.index(max(ranks))]
    lives = sorted((FOR_EVER if each.left is None else each.left for each in most), reverse=True)
    left = lives[min(quorum, len(lives)) - 1]
    return Seen(newest.value, None if left == FOR_EVER else left, ())


def _is_kept(each: Seen) -> bool:
    return each.value is not None and each.value.startswith(ENDED)


def middle(clocks: list[float]) -> float:
    """The middle one of what some clocks say: between two right ones while more than half of them are right."""
    return sorted(clocks)[len(clocks) // 2]


def certain_floor(floors: list[int], nodes: int, quorum: int) -> int:
    """The smallest token that a majority can give later, when some nodes were told to stay above a floor each.

    A later majority may avoid ``nodes - quorum`` of them, so at least the others of these count.
    """
    return sorted(floors)[max(0, len(floors) - (nodes - quorum) - 1)]
