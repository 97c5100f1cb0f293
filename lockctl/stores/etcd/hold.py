"""Keeping a lock when its job has ended: its key goes over to a lease that nobody prolongs.

So whoever looks at the queue sees it held, other programs, too. The key is not made anew: its create revision, and
with it the position of all others, stays.
"""

from __future__ import annotations

from lockctl.clock import wall
from lockctl.documents import describe
from lockctl.errors import BackendUnavailable
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.connection import LeaseExists, LeaseGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Grant
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

HELD = 1 << 62  # added to the token: no attempt of an owner has so high a number, and none that lease


def keep(backend: Client, grant: Grant, lease: int, seconds: float, deadline: Deadline) -> None:
    """Have the lock of a grant, whose key the name of *lease* is in, end so many seconds from now, if it is still ours.

    Raises ``BackendUnavailable``: it is not known whether it will be kept, and its own lease may still run.
    """
    claim = grant.claim
    claim_key, last = backend.layout.claim_key(claim.name, lease), layout.lease_id(claim.owner, HELD + grant.token)
    document = describe(claim, {"acquired_at": grant.at, "token": grant.token, "ended_at": wall()})
    request = {
        "compare": [layout.is_created_at(claim_key, backend.created(grant))],
        "success": [layout.put(claim_key, document, last)],
    }
    while True:
        try:
            backend.cluster.call("/v3/lease/grant", {"ID": str(last), "TTL": str(-int(-seconds // 1))}, deadline)
        except LeaseExists:
            pass  # an answer was lost: the hold has begun then, and is not prolonged
        try:
            answer = backend.cluster.call("/v3/kv/txn", request, deadline)
            break
        except LeaseGone:
            pass  # it ran out between two requests: begin again
    if answer.get("succeeded") is not True:
        try:
            backend.cluster.call("/v3/lease/revoke", {"ID": str(last)}, deadline)
        except (LeaseGone, BackendUnavailable):
            pass  # no key is attached to it
