"""Locks in etcd, version 3, through its JSON gateway: no client library is needed.

A lock is a queue of keys, each attached to a lease of its own; the oldest key is the holder's. That is
the layout of ``etcdctl lock`` and Go's ``concurrency.Mutex``, so that they exclude and are excluded.
The token comes from a counter beside the lock, see :mod:`lockctl.stores.etcd.tokens`.
"""

from __future__ import annotations

from lockctl.documents import read_revocation
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.locks.native import NativeBackend
from lockctl.model import EXCLUSIVE, Capabilities, Claim, Grant, Run
from lockctl.stores.etcd import address, layout, tokens
from lockctl.stores.etcd.connection import LeaseGone
from lockctl.stores.etcd.session import Client, as_holder
from lockctl.url import Url, take_params
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.etcd import inspect, prune, records, revoke

    FILES: Files[Client] = (inspect, revoke, records, prune)


class EtcdBackend(Client, NativeBackend):
    """A ``Backend``: locks below one prefix of one cluster. Not for two threads at once, except :meth:`renew`."""

    parameters: ClassVar[dict[str, str]] = address.PARAMETERS
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="etcd",
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its lease has run out (etcd looks twice a second)",
        token_from="a counter beside the lock, never below the host's clock in microseconds; breaks if data is"  # noqa: S106
        " lost, or put back to an earlier state, while clocks go back",
        survives="the failure of a minority of the members, restarts, another leader",
        clocks="no clock's time of day counts; the members' must not run faster than ours by more than 0.2 %",
        period_clock="that of the member that answered, in whole seconds",
        usual_latency=(0.010, 0.020),
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        return url.user is not None

    @classmethod
    def from_url(cls, url: Url) -> EtcdBackend:
        """``etcd://[USER:PASSWORD@]HOST[:2379],.../?prefix=P``, ``etcds://`` with TLS; raises ``ConfigError``."""
        params = take_params(url, cls.parameters)
        return cls(address.cluster(url, params), params["prefix"])

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        if claim.owner in self.unended:
            self.end(claim.owner, set(), deadline)  # else our own old key would be before us in the queue
        if claim.mode != EXCLUSIVE:
            from lockctl.stores.etcd.share import enter

            return enter(self, claim, deadline)
        turn = self.turns.pop(claim.owner, None)
        if turn is not None and (grant := turn.take(deadline)) is not None:
            return grant
        lease = self.lease_of(claim)
        directory, claim_key = self.layout.directory(claim.name), self.layout.claim_key(claim.name, lease)
        counter = tokens.Counter(self.layout, claim.name)
        while True:
            following = counter.next()
            request = {
                "compare": [layout.is_free(directory), self.goes_on(lease), *following.conditions],
                "success": [layout.put(claim_key, as_holder(claim, following.token), lease), following.write],
                "failure": [*counter.looks, layout.get(claim_key), layout.get_in_order(directory, 1)],
            }
            ttl, term, answer = self.lease_and(claim.ttl, lease, request, deadline)
            if layout.term(answer) != term:
                continue  # a leader that was deposed may have prolonged the lease for nobody
            if answer.get("succeeded") is True:
                return self.granted(claim, following.token, lease, layout.revision(answer), ttl, answer)
            *seen, own, first = layout.steps(answer, len(counter.looks) + 2)
            counter.see(*seen)
            if not first:
                continue  # it is free: the counter was in the way
            if not own or own[0].key != first[0].key:
                if b"/" in first[0].key[len(directory) :]:
                    from lockctl.stores.etcd.share import demand_agreement

                    demand_agreement(self, claim, first[0], deadline)
                return None
            try:
                token = self.mark_as_holder(claim, own[0], counter, deadline)
            except LeaseGone:
                self.lease_ended(lease)  # it ran out between two requests: begin again
                continue
            if token is not None:
                return self.granted(claim, token, lease, own[0].created, ttl, answer)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``: the lease first, whose clock counts, then whether the key is still there."""
        deadline = Deadline(timeout)
        claim, lease = grant.claim, self.lease_of_grant(grant)
        own = self.layout.claim_key(claim.name, lease, layout.group(claim.mode, claim.slots))
        asked = self.layout.revocation(claim.name, own)
        request = {"compare": [layout.is_created_at(own, self.created(grant))], "success": [layout.get(asked)]}
        try:
            # in this order: the leader that prolonged the lease was still the leader when the key was looked at
            requests = ((layout.KEEP_ALIVE, {"ID": str(lease)}), ("/v3/kv/txn", request))
            kept, answer = self.cluster.call_beside(requests, deadline)
            ttl, term = self.kept_alive(lease, kept)
        except LeaseGone as odd:
            raise BackendUnavailable(f"{self.cluster.where}: {odd}") from None
        except ConfigError as denied:
            raise BackendUnavailable(str(denied)) from None  # an error of somebody else's: not a reason to stop a job
        if answer.get("succeeded") is not True:
            how = "was deleted by another client" if ttl > 0 else "went with its lease, which ran out or was revoked"
            raise LeaseLost(f"the key of the lock {how}")
        if ttl <= 0 or term != layout.term(answer):
            # a leader that was deposed and does not know it yet speaks for nobody: only the transaction asked a quorum
            raise BackendUnavailable(f"{self.cluster.where}: the leader changed during the renewal")
        for entry in (entry for found in layout.reads(answer) for entry in found):
            wanted = read_revocation(entry.value, claim.owner)
            if wanted is not None:
                raise LeaseRevoked(*wanted)
        return Grant(claim, grant.token, grant.domain, grant.key, ttl, grant.at)

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``: the lease is of this grant alone, and takes the key with it.

        A *hold* ends with a lease, too: after whole seconds, rounded up, and at least the shortest lease.
        """
        deadline, lease = Deadline(timeout), self.lease_of_grant(grant)
        if hold > 0 and lease == self.lease_of(grant.claim):  # else it was given back before
            from lockctl.stores.etcd.hold import keep

            keep(self, grant, lease, hold, deadline)
            try:
                self.end(grant.claim.owner, {lease}, deadline)
            except BackendUnavailable:
                pass  # it runs out by itself, and the key is not attached to it any more
            return
        self.end(grant.claim.owner, {lease}, deadline)

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        from lockctl.stores.etcd.records import add_after_release

        return add_after_release(self, grant, run, Deadline(timeout))

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        """Between two waits a position in the queue lasts as long as the lease of who waits."""
        from lockctl.stores.etcd.wait import wait_for_turn

        wait_for_turn(self, claim, self._has_lined_up, deadline)

    def close(self) -> None:
        self.cluster.close()
