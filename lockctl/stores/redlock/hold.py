"""Locks that nobody is granted for a while after their holder has gone: kept by a majority of the nodes."""

from __future__ import annotations

from lockctl.stores.redis.hold import document_of
from lockctl.stores.redis.lock import milliseconds
from lockctl.stores.redlock import tally
from lockctl.stores.redlock.rounds import Patience, ask_all, blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant
    from lockctl.wire.deadline import Deadline


def begin(majority: tally.Majority, identity: str, grant: Grant, seconds: float, deadline: Deadline) -> None:
    """Keep everybody out for so long after *grant*, where the lock is still ours; *identity* is that of the nodes.

    Raises ``BackendUnavailable`` or ``ConfigError`` if no majority said that it does, or that the lock is lost.
    """
    document = document_of(grant, {"nodes": identity})
    kept, ttl = milliseconds(seconds), milliseconds(grant.claim.ttl)
    patience = Patience(grant.claim.ttl)
    answers = ask_all(
        majority.nodes,
        blocking(lambda node, until: node.hold(grant, document, kept, ttl, until)),
        deadline,
        lambda so_far: patience.until(settled=sum(so_far) >= majority.size),
    )
    said = tally.usable(answers)
    # as with a renewal: where a majority says that it is lost, there is nothing to keep
    if sum(said) < majority.size and len(said) - sum(said) <= len(majority.nodes) - majority.size:
        kept_it = tally.refusals(answers, bool, "a node does not have the lock any more")
        raise tally.too_few(kept_it, "kept the lock for its hold", majority.size)
