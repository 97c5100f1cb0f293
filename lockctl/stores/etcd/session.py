"""A client of etcd with its leases: what every part of the backend works on.

A lease is used for one attempt of an owner alone, so that what ends it can never end the next one.
"""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.documents import describe, read
from lockctl.errors import BackendUnavailable
from lockctl.model import Capabilities, Claim, Grant
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseExists, LeaseGone
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Protocol

    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.protocol import Cluster

    class Turn(Protocol):
        """See :mod:`lockctl.stores.etcd.turn`."""

        def begin(self, deadline: Deadline) -> None:
            """Ask for the lock."""

        def prolonged(self, since: float, ttl: float) -> None:
            """Know of the lease."""

        def take(self, deadline: Deadline) -> Grant | None:
            """The grant, if it is ours."""


TRIES = 4  # to make a lease: two are enough when one answer was lost
LONGEST_WAITING = 30.0  # seconds of the lease of who waits: one that vanished keeps its position for no longer
WAITING = 1 << 61  # added to the attempt: no attempt of an owner has so high a number, and no hold so low a one


class Client:
    """Locks below one prefix of one cluster, and the leases that they live by."""

    capabilities: ClassVar[Capabilities]

    def __init__(self, cluster: Cluster, prefix: str = "lockctl/") -> None:
        """Nothing is opened before it is needed."""
        self.cluster = cluster
        self.layout = layout.Layout(prefix)
        self._attempts: dict[str, int] = {}  # owner -> number of its present attempt; absent: the first
        # owner, token -> lease of that attempt, and the revision that its key was created at
        self._keys: dict[tuple[str, int], tuple[int, int]] = {}
        self.unended: dict[str, set[int]] = {}  # owner -> leases of which we do not know whether they ended
        self._granted: set[int] = set()  # leases that we have asked for
        self._waiting: dict[str, int] = {}  # owner -> lease that it waits with, if not with that of its attempt
        self.turns: dict[str, Turn] = {}  # owner that waits alone -> how it takes its turn

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``: whatever there is of this claim ends with its leases."""
        deadline = Deadline(timeout)
        waiting = self._waiting.pop(claim.owner, self.lease_of(claim))
        leases = {self.lease_of(claim), waiting, *self.unended.get(claim.owner, ())}
        self.unended[claim.owner] = set(leases)
        for lease in sorted(leases):
            self.end(claim.owner, lease, deadline)

    def lease_of(self, claim: Claim) -> int:
        """The lease of the present attempt of a claim."""
        return layout.lease_id(claim.owner, self._attempts.get(claim.owner, 0))

    def waiting_lease(self, claim: Claim, deadline: Deadline) -> tuple[int, float]:
        """The lease of the key of a claim while it waits, and its seconds: one that vanished must not block for longer.

        It is there when this returns: what attaches the key to it, and comes late, finds it gone after a withdrawal.
        Whatever grants the lock attaches the key to :meth:`lease_of`, so no job lives by this one.
        """
        if claim.ttl <= LONGEST_WAITING:
            return self.lease_of(claim), claim.ttl
        lease = layout.lease_id(claim.owner, WAITING + self._attempts.get(claim.owner, 0))
        self._waiting[claim.owner] = lease
        if lease not in self._granted:
            self.fresh_lease(LONGEST_WAITING, lease, deadline)
        return lease, LONGEST_WAITING

    def fresh_lease(self, seconds: float, lease: int, deadline: Deadline) -> tuple[float, int]:
        """Have the lease run from now on, made or prolonged; for how many seconds, and the leader's term."""
        request = {"ID": str(lease), "TTL": str(-int(-seconds // 1))}
        for _ in range(TRIES):
            if lease in self._granted:
                ttl, term = self.keep_alive(lease, deadline)
                if ttl > 0:
                    return ttl, term
            try:
                answer = self.cluster.call("/v3/lease/grant", request, deadline)
            except LeaseExists:
                self._granted.add(lease)  # the answer to an earlier request was lost
                continue
            self._granted.add(lease)
            return float(max(0, layout.whole(answer.get("TTL")))), layout.term(answer)
        raise BackendUnavailable(f"{self.cluster.where}: a lease that exists for some members and not for others")

    def lease_and(
        self, seconds: float, lease: int, request: dict[str, Any], deadline: Deadline
    ) -> tuple[float, int, dict[str, Any]]:
        """As :meth:`fresh_lease`, with the answer to a transaction that follows it in the same round trip.

        The transaction may have been done before, without an answer to us.
        """
        grant = {"ID": str(lease), "TTL": str(-int(-seconds // 1))}
        for _ in range(TRIES):
            first = (layout.KEEP_ALIVE, {"ID": str(lease)}) if lease in self._granted else ("/v3/lease/grant", grant)
            try:
                # in this order: the leader that let the lease run was still the leader when the transaction was done
                kept, answer = self.cluster.call_in_turn((first, ("/v3/kv/txn", request)), deadline)
            except LeaseExists:
                self._granted.add(lease)  # the answer to an earlier request was lost
                continue
            except LeaseGone:
                self.lease_ended(lease)
                continue
            self._granted.add(lease)
            ttl, term = self.kept_alive(lease, kept)
            if ttl > 0:
                return ttl, term, answer
            self.lease_ended(lease)
        raise BackendUnavailable(f"{self.cluster.where}: a lease that exists for some members and not for others")

    def keep_alive(self, lease: int, deadline: Deadline) -> tuple[float, int]:
        """Prolong a lease; for how many seconds, 0 when it has ended, and the leader's term."""
        return self.kept_alive(lease, self.cluster.call(layout.KEEP_ALIVE, {"ID": str(lease)}, deadline))

    def kept_alive(self, lease: int, answer: dict[str, Any]) -> tuple[float, int]:
        """The same from an answer."""
        if layout.whole(answer.get("ID")) != lease:
            raise BackendUnavailable(f"{self.cluster.where}: the answer is about another lease")
        return float(max(0, layout.whole(answer.get("TTL")))), layout.term(answer)

    def lease_ended(self, lease: int) -> None:
        """Know that a lease that we had asked for is no more."""
        self._granted.discard(lease)

    def granted(self, claim: Claim, token: int, lease: int, created: int, ttl: float, answer: dict[str, Any]) -> Grant:
        """The grant that an answer of the cluster means, by a key that was created at that revision."""
        self._keys[claim.owner, token] = lease, created
        domain = f"etcd:{layout.whole(answer['header'].get('cluster_id')):x}"
        return Grant(claim, token, domain, self.layout.lock(claim.name), ttl, layout.moment(answer))

    def mark_as_holder(
        self, claim: Claim, own: layout.Entry, counter: tokens.Counter, deadline: Deadline
    ) -> int | None:
        """The token of a claim that has waited, and has the lock by its key *own* now; ``None``: that key is gone.

        It is written down, and since when we have the lock, unless that was done before.
        """
        while (token := tokens.in_document(read(own.value))) is None:
            following = counter.next()
            document = as_holder(claim, following.token)
            request = {
                "compare": [layout.is_created_at(own.key, own.created), *following.conditions],
                "success": [layout.put(own.key, document, self.lease_of(claim)), following.write],
                "failure": [*counter.looks, layout.get(own.key)],
            }
            answer = self.cluster.call("/v3/kv/txn", request, deadline)
            if answer.get("succeeded") is True:
                return following.token
            *seen, again = layout.steps(answer, len(counter.looks) + 1)
            counter.see(*seen)
            if not again or again[0].created != own.created:
                return None
            own = again[0]
        return token

    def lease_of_grant(self, grant: Grant) -> int:
        """The lease that a grant lives by."""
        known = self._keys.get((grant.claim.owner, grant.token))
        return layout.lease_id(grant.claim.owner, 0) if known is None else known[0]

    def created(self, grant: Grant) -> int | None:
        """The revision that the key of a grant was created at; ``None``: not known, because another client took it."""
        known = self._keys.get((grant.claim.owner, grant.token))
        return None if known is None else known[1]

    def end(
        self, owner: str, lease: int, deadline: Deadline, then: Callable[[], Requests] | None = None
    ) -> list[dict[str, Any] | Exception]:
        """End a lease with all its keys; one of which that is not known is ended again before the next attempt.

        What is asked *then*, and made ready while the server is at it, takes no further round trip; the answers to it.
        """
        revoke = _revoke(lease)
        if then is not None:
            self.cluster.begin((revoke,), deadline)
        self.turns.pop(owner, None)
        attempt = self._attempts.get(owner, 0)
        waited: Requests = ()
        if lease == layout.lease_id(owner, attempt):
            self._attempts[owner] = attempt + 1
            if owner in self._waiting:  # no key is attached to it since the grant
                waiting = self._waiting.pop(owner)
                waited = (_revoke(waiting),)
                self.lease_ended(waiting)
        self.lease_ended(lease)
        unended = self.unended.setdefault(owner, set())
        unended.add(lease)
        # a lease that had ended before is as good
        _, *answers = self.cluster.call_first((revoke, *waited, *(then() if then is not None else ())), deadline)
        unended.discard(lease)
        if not unended:
            del self.unended[owner]
        return answers[len(waited) :]


def _revoke(lease: int) -> tuple[str, dict[str, Any]]:
    return "/v3/lease/revoke", {"ID": str(lease)}


def as_holder(claim: Claim, token: int) -> bytes:
    """The document of a claim that has the lock from now on."""
    return describe(claim, {"acquired_at": wall(), "token": token})
