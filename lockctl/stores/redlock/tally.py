"""Counting the answers of several servers: what a majority says."""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from lockctl.names import printable
from lockctl.stores.redis import layout
from lockctl.stores.redis.layout import ENDED, Record, Seen
from lockctl.stores.redlock.rounds import PATIENCE, ask_all, blocking
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from lockctl.model import Claim, Grant
    from lockctl.stores.redlock.nodes import Attempt, Node
    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

FOR_EVER = float("inf")
LONGEST_ROUND = 2.0  # seconds that a majority has for one step of an attempt
ROUNDS_PER_TTL = 4  # an attempt has two, and what is left of its ttl must be worth the trouble


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
        found = ask_all(
            self.nodes, blocking(ask), deadline, lambda so_far: patience if len(so_far) >= self.size else None
        )
        if len(usable(found)) < self.size:
            raise too_few(found, what, self.size)
        return found


def longest_round(ttl: float) -> float:
    """Seconds that a majority has for one step of an attempt."""
    return min(ttl / ROUNDS_PER_TTL, LONGEST_ROUND)


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


def check_renewed(answers: Sequence[tuple[bool, bytes] | LockctlError | None], grant: Grant, quorum: int) -> None:
    """Return if a majority renewed *grant* and nobody asked for it back.

    Raises ``LeaseLost``, ``LeaseRevoked``, and ``BackendUnavailable`` as long as a majority may still have it.
    """
    said = usable(answers)
    kept = sum(ours for ours, _ in said)
    if kept < quorum:
        if len(said) - kept > len(answers) - quorum:
            raise LeaseLost(f"{printable(grant.key)} is ours on {kept} of {len(answers)} nodes only")
        renewed = refusals(answers, lambda answer: answer[0], "a node does not have the lock any more")
        raise BackendUnavailable(str(too_few(renewed, "renewed the lock", quorum)))
    for _, document in said:
        asked = documents.read_revocation(document, grant.claim.owner)
        if asked is not None:
            raise LeaseRevoked(*asked)


def check_same_nodes(answers: Sequence[Attempt | LockctlError | None], claim: Claim, identity: str) -> None:
    """Raise ``ConfigError`` if who holds the lock names other nodes than *identity*."""
    for answer in usable(answers):
        found = layout.read(answer.value)
        other = documents.text(found.document.get("nodes")) if found else None
        if other is not None and other != identity:
            raise ConfigError(
                f"redlock: the lock {claim.name} is held by a client whose URL names another set of nodes, or"
                " names them otherwise: all clients of a lock must name the same ones"
            )


def combine(answers: Sequence[Seen | None], quorum: int) -> Seen:
    """One lock as a majority sees it; a node that was silent (``None``) may be on the holder's side."""
    silent = sum(answer is None for answer in answers)
    most, tokens = _of_one_holder(answers)
    if not most or len(most) + silent < quorum:
        return Seen(None, None, ())
    # among equals the one whose hold has begun: the others did not hear of it yet; what another program
    # wrote has no token, and counts by the nodes that have it
    values = [each.value for each in most]
    ranks = [
        (tokens.count(token), token, _is_kept(each), values.count(each.value))
        for token, each in zip(tokens, most, strict=True)
    ]
    newest = most[ranks.index(max(ranks))]
    lives = sorted((FOR_EVER if each.left is None else each.left for each in most), reverse=True)
    left = lives[min(quorum, len(lives)) - 1]
    return Seen(newest.value, None if left == FOR_EVER else left, ())


def is_undecided(answers: Sequence[Seen | None]) -> bool:
    """Whether nodes name a holder, and as many of them one token as another: more have to be asked."""
    if len({answer.value for answer in answers if answer is not None}) < 2:
        return False  # as nearly always, and a list has thousands: nothing has to be read for that
    _, tokens = _of_one_holder(answers)
    counts = sorted(map(tokens.count, set(tokens)))
    return len(counts) > 1 and counts[-1] == counts[-2]


def _of_one_holder(answers: Sequence[Seen | None]) -> tuple[list[Seen], list[int]]:
    """What those nodes say that name the same holder as most do, and the token that each has.

    A node that answered late to a claim has its own token, until it joins the others.
    """
    records: dict[bytes | None, Record | None] = {}  # the nodes mostly say the same, which is read once
    holders: dict[str | None, list[Seen]] = {}
    for answer in answers:
        if answer is None or answer.value is None:
            continue
        if answer.value not in records:
            records[answer.value] = answer.record
        found = records[answer.value]
        holders.setdefault(found.owner if found else None, []).append(answer)
    most = max(holders.values(), key=len, default=[])
    return most, [found.token if (found := records[each.value]) else 0 for each in most]


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
