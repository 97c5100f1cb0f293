"""Asking the holder for its lock, or taking it away, on a majority of the nodes."""

from __future__ import annotations

from lockctl.errors import another_program, only_a_hold
from lockctl.stores.redis.inspect import holders
from lockctl.stores.redis.revoke import revoke as revoke_one
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.inspect import read_locks
from lockctl.stores.redlock.rounds import PATIENCE, ask_all, blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Holder, Revocation
    from lockctl.wire.deadline import Deadline


def revoke(majority: tally.Majority, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend.revoke``; each node compares before it acts."""
    nodes, quorum = majority.nodes, majority.size
    if seen.ended_at is not None and not wanted.now:
        raise only_a_hold(name)
    if seen.owner is None:
        answers = read_locks(majority, [name], deadline)
        present = tally.combine([answer[0] if isinstance(answer, list) else None for answer in answers], quorum)
        if seen.identity not in [each.identity for each in holders(present)]:
            return None
        if not wanted.now:
            raise another_program(name)
    # each node's answer is a token, or 0 for "not the one that was seen"
    said = ask_all(
        nodes,
        blocking(lambda node, until: revoke_one(node.session, name, seen, wanted, until) or 0),
        deadline,
        lambda so_far: PATIENCE if sum(floor > 0 for floor in so_far) >= quorum else None,
    )
    floors = [floor for floor in tally.usable(said) if floor > 0]
    if len(floors) >= quorum:
        return tally.certain_floor(floors, len(nodes), quorum)
    if len(tally.usable(said)) - len(floors) > len(nodes) - quorum:
        return None
    raise tally.too_few(said, "answered", quorum)
