"""The turn of a claim that waits alone: the transaction that makes it the holder, sent as soon as there is a hint.

Nothing is believed of the hint. The claim has the lock if the transaction finds its key the oldest; the request before
it on the connection prolongs the lease. What can be made ready is made ready while it waits.
"""

from __future__ import annotations

from lockctl.clock import boottime
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseGone
from lockctl.stores.etcd.session import as_holder
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim, Grant
    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline


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

    def begin(self, deadline: Deadline) -> None:
        """Send the transaction: :meth:`take` finds out what came of it."""
        requests, token = self._requests()
        asked = boottime()
        self._backend.cluster.begin(requests, deadline)
        self._begun = requests, token, asked

    def take(self, deadline: Deadline) -> Grant | None:
        """The grant if the key is the oldest by now; its lease is prolonged with it.

        ``None``: it is not, or something has changed that a usual attempt finds out.
        """
        backend, now = self._backend, boottime()
        while True:
            begun, self._begun = self._begun, None
            requests, token, asked = begun or (*self._requests(), now)
            try:
                kept, answer = backend.cluster.call_in_turn(requests, deadline)
            except LeaseGone:
                backend.lease_ended(self._lease)
                return None
            ttl, term = backend.kept_alive(self._lease, kept)
            if ttl <= 0 or term != layout.term(answer):
                return None
            if answer.get("succeeded") is True:
                grant = backend.granted(self._claim, token, self._lease, self._created, ttl, answer)
                return replace(grant, age=now - asked)
            *seen, first = layout.steps(answer, len(self._looks))
            self._counter.see(*seen)
            if not first or (first[0].key, first[0].created) != (self._key, self._created):
                return None  # else it was the counter, and it is our turn

    def _requests(self) -> tuple[Requests, int]:
        """In this order: the lease was prolonged by the leader that then found the key to be the oldest. The token."""
        following = self._counter.next()
        document = as_holder(self._claim, following.token)
        transaction: dict[str, Any] = {
            "compare": [*self._is_first, *following.conditions],
            "success": [layout.put(self._key, document, self._lease), following.write],
            "failure": self._looks,
        }
        return ((layout.KEEP_ALIVE, {"ID": str(self._lease)}), ("/v3/kv/txn", transaction)), following.token
