"""Asking the holder of a lock for it, or taking it away."""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable, LockctlError, another_program, only_a_hold
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseGone
from lockctl.stores.etcd.inspect import holder, read_queue, token_of
from lockctl.stores.etcd.share import holders, is_of_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Holder, Revocation
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline


def revoke(backend: Client, name: str, seen: Holder, wanted: Revocation, deadline: Deadline) -> int | None:
    """See ``Backend``. What is asked of a holder is attached to its lease: it ends with the grant."""
    directory = backend.layout.directory(name)
    (found,) = read_queue(backend, name, deadline)
    for current in found[: holders(directory, found)]:
        document = documents.read(current.value)
        owner = document["owner"] if document is not None else None
        token = token_of(current, document) if document is not None else None
        if holder(current).identity == seen.identity and is_of_lock(directory, current.key):
            break
    else:
        return None
    if wanted.now:
        action = layout.delete(current.key)
    elif owner is None:
        raise another_program(name)
    elif documents.seconds((document or {}).get("ended_at")) is not None:
        raise only_a_hold(name)
    elif not current.lease:
        raise LockctlError(f"the key of {name} was overwritten by another client and belongs to no lease: use --now")
    else:
        told = backend.layout.revocation(name, current.key)
        action = layout.put(told, documents.describe_revocation(owner, wanted.by, wanted.reason), current.lease)
    # who has just got its turn, or is another program, has no token that later ones are above
    looks = tokens.Counter(backend.layout, name).looks
    request = {"compare": [layout.is_created_at(current.key, current.created)], "success": [action, *looks]}
    try:
        answer = backend.cluster.call("/v3/kv/txn", request, deadline)
        if answer.get("succeeded") is not True:
            return None
    except LeaseGone:
        return None  # it has left in this moment
    if wanted.now and owner is not None and current.lease:
        # the lock is free already; without its lease the holder learns of it by one request less. That of
        # another program may keep more than this lock alive, and is left to it.
        try:
            backend.cluster.call("/v3/lease/revoke", {"ID": str(current.lease)}, deadline)
        except (LeaseGone, BackendUnavailable):
            pass
    _, counter, floor = layout.steps(answer, 1 + len(looks))
    return max(token or 0, tokens.last(counter) or tokens.last(floor)) + 1
