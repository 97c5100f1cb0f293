"""The turn of a claim that waits alone: the lock is taken in one round trip, as soon as its holder has made way.

What the transaction needs was read while the lock was held: nobody but its holder changes the counter then. Whether
that is still so, and the claim still the first in the queue, the transaction finds out; else a usual attempt follows.
The session is renewed before it, in the same round trip: the lease is counted from there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.consul.claim import Attempt, Claims
    from lockctl.stores.consul.layout import Counter, Entry
    from lockctl.wire.deadline import Deadline


def take(claims: Claims, claim: Claim, seen: tuple[Entry | None, Counter], deadline: Deadline) -> Attempt:
    """An attempt of *claim* with what its wait has *seen*: the key of the lock, and the counter."""
    session, queue = claims.sessions.get(claim.owner), claims.queue
    place = None if queue is None else queue.place_of(claim)
    if session is None or place is None:
        return None, False
    return claims.lock(claim, session, *seen, deadline, place)
