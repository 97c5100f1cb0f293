"""A client of etcd with its leases: what every part of the backend works on.

A lease is used for one attempt of an owner alone, so that what ends it can never end the next one.
"""

from __future__ import annotations

import os

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
REFUSED = 300  # seconds for which a late request is: kernels try for two minutes to send what a closed connection has
ENDED = f"{layout.REVOCATIONS}.ended/"  # below what a user may write who was given no more than takers needed so far
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
        # while an earlier attempt is not known to have ended, nothing is asked for by the present one
        self.end(claim.owner, set() if claim.owner in self.unended else {self.lease_of(claim)}, Deadline(timeout))

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
        self, owner: str, leases: set[int], deadline: Deadline, then: Callable[[], Requests] | None = None
    ) -> list[dict[str, Any] | Exception]:
        """End leases with all their keys; those of which that is not known are ended again before the next attempt.

        What is asked *then*, and made ready while the server is at it, takes no further round trip; the answers to it.
        """
        self.turns.pop(owner, None)
        attempt = self._attempts.get(owner, 0)
        unended = self.unended.setdefault(owner, set())
        unended |= leases
        if layout.lease_id(owner, attempt) in leases:
            self._attempts[owner] = attempt + 1
            if owner in self._waiting:
                unended.add(self._waiting.pop(owner))
        for lease in unended:
            self.lease_ended(lease)
        refusal = self._refusal(unended) if self.cluster.unanswered else ()
        ending = (*refusal, *map(_revoke, [*leases, *(unended - leases)]))
        if then is not None:
            self.cluster.begin(ending, deadline)
        # a lease that had ended before is as good; and where nothing can be written, nothing that is late can be
        asked = (*ending, *(then() if then is not None else ()))
        answers = self.cluster.call_for(asked, slice(len(refusal), len(ending)), deadline)
        del self.unended[owner]
        return answers[len(ending) :]

    def goes_on(self, lease: int) -> dict[str, Any]:
        """The condition that the attempt with that lease has not ended, for each transaction that makes a key for it.

        That the lease is there does not say so: it may have been granted after its end, by a request that came late.
        """
        return layout.is_created_at(self._ended(lease), 0)

    def _ended(self, lease: int) -> bytes:
        """The key that says that the attempt with that lease has ended."""
        return layout.as_bytes(f"{self.layout.prefix}{ENDED}{lease:x}")

    def _refusal(self, leases: set[int]) -> Requests:
        """What has the requests of attempts refused that are still on their way; to be done before their leases end."""
        lease = layout.lease_id(os.urandom(16).hex(), 0)
        puts = [layout.put(self._ended(each), b"", lease) for each in sorted(leases)]
        grant = {"ID": str(lease), "TTL": str(REFUSED)}
        return ("/v3/lease/grant", grant), ("/v3/kv/txn", {"success": puts})


def _revoke(lease: int) -> tuple[str, dict[str, Any]]:
    return "/v3/lease/revoke", {"ID": str(lease)}


def as_holder(claim: Claim, token: int) -> bytes:
    """The document of a claim that has the lock from now on."""
    return describe(claim, {"acquired_at": wall(), "token": token})
