"""The turn of a claim that waits alone: the transaction that makes it the holder, sent as soon as there is a hint.

Nothing is believed of the hint. The claim has the lock if the transaction finds its key the oldest, and attaches it to
the lease of the job, also if it waited with a shorter one. The lease of the job runs as long as it did when it was last
prolonged for certain: by a leader that was still the leader in a request after that. If that was too long ago for a job
to start with, the request before the transaction prolongs it once more.
"""

from __future__ import annotations

from lockctl.clock import boottime
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseGone
from lockctl.stores.etcd.session import Client, as_holder
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim, Grant
    from lockctl.stores.etcd.connection import Requests
    from lockctl.wire.deadline import Deadline


FRESH = 1 / 8  # of a lease: when that much of it is over it is prolonged before a job starts


class Turn:
    """A claim whose key was created at a known revision."""

    def __init__(self, backend: Client, claim: Claim, created: int) -> None:
        """Nothing is asked yet."""
        self._backend = backend
        self._claim = claim
        self._created = created
        self._lease = backend.lease_of(claim)
        places = backend.layout
        directory, self._key = places.directory(claim.name), places.claim_key(claim.name, self._lease)
        self._counter = tokens.Counter(places, claim.name)
        self._is_first = [layout.is_created_at(self._key, created), layout.is_not_older(directory, created)]
        self._looks = [*self._counter.looks, layout.oldest(layout.below(directory), 1)]
        self._begun: tuple[Requests, int, float] | None = None
        self._since, self._ttl = 0.0, 0.0

    def prolonged(self, since: float, ttl: float) -> None:
        """Know that the lease certainly runs so many seconds from then on, on the clock since boot."""
        self._since, self._ttl = since, ttl

    def begin(self, deadline: Deadline) -> None:
        """Send the transaction: :meth:`take` finds out what came of it."""
        asked = boottime()
        requests, token = self._requests(asked)
        self._backend.cluster.begin(requests, deadline)
        self._begun = requests, token, asked

    def take(self, deadline: Deadline) -> Grant | None:
        """The grant if the key is the oldest by now.

        ``None``: it is not, or something has changed that a usual attempt finds out.
        """
        backend, now = self._backend, boottime()
        while True:
            begun, self._begun = self._begun, None
            requests, token, asked = begun or (*self._requests(now), now)
            try:
                *kept, answer = backend.cluster.call_in_turn(requests, deadline)
            except LeaseGone:
                backend.lease_ended(self._lease)
                return None
            if kept:
                ttl, term = backend.kept_alive(self._lease, kept[0])
                if ttl <= 0 or term != layout.term(answer):
                    return None
                self.prolonged(asked, ttl)
            if answer.get("succeeded") is True:
                grant = backend.granted(self._claim, token, self._lease, self._created, self._ttl, answer)
                return replace(grant, age=now - self._since)
            *seen, first = layout.steps(answer, len(self._looks))
            self._counter.see(*seen)
            if not first or (first[0].key, first[0].created) != (self._key, self._created):
                return None  # else it was the counter, and it is our turn

    def _requests(self, now: float) -> tuple[Requests, int]:
        """What is asked, and the token. In this order: who prolongs the lease still leads in the transaction."""
        following = self._counter.next()
        document = as_holder(self._claim, following.token)
        transaction: dict[str, Any] = {
            "compare": [*self._is_first, *following.conditions],
            "success": [layout.put(self._key, document, self._lease), following.write],
            "failure": self._looks,
        }
        asked: Requests = (("/v3/kv/txn", transaction),)
        if now - self._since > self._ttl * FRESH:
            asked = ((layout.KEEP_ALIVE, {"ID": str(self._lease)}), *asked)
        return asked, following.token
