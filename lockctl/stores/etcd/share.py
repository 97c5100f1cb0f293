"""Readers and semaphores: several holders at once, in the same queue as all others.

A reader has the lock when no key that is older than its own lies outside the readers' group. One of N has it when
fewer than N keys are older, all of them in the group of those who say N, too. Whatever is in no group, be it a
writer's or another program's, is alone. So nobody overtakes anybody whom it would keep out.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import SHARED, Claim, Grant
from lockctl.names import printable
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseGone
from lockctl.stores.etcd.session import Client, as_holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.etcd.layout import Entry
    from lockctl.wire.deadline import Deadline

LONGEST_COUNT = 6  # digits of a number of slots
LONGEST_SHOWN = 300  # bytes of a key in a message


def enter(backend: Client, claim: Claim, deadline: Deadline) -> Grant | None:
    """``Backend.try_acquire`` for a claim that others may hold the lock beside.

    A reader's key is written if at that moment nothing is outside the readers' group: one transaction decides.
    One of N counts first, and writes its key if since then no other was created; that keys went does no harm.
    """
    lease = backend.lease_of(claim)
    directory, group = backend.layout.directory(claim.name), layout.group(claim.mode, claim.slots)
    claim_key = backend.layout.claim_key(claim.name, lease, group)
    others = outside(directory, group)
    decisive = others if claim.mode == SHARED else (layout.below(directory),)
    counter = tokens.Counter(backend.layout, claim.name)
    asked = [*counter.looks, layout.get(claim_key), layout.get_in_order(directory, 1)]
    asked += [layout.oldest(each, 1) for each in others]
    if claim.mode != SHARED:
        asked.append(layout.oldest(decisive[0], claim.slots))
    ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)
    is_new = [layout.is_created_at(claim_key, 0), backend.goes_on(lease)]
    at = 0  # revision of the store in which a slot was free for us
    while True:
        following = counter.next()
        alone = [_nothing_since(each, at) for each in decisive]
        request = {
            "compare": [*is_new, *alone, *following.conditions],
            "success": [layout.put(claim_key, as_holder(claim, following.token), lease), following.write],
            "failure": asked,
        }
        try:
            answer = backend.cluster.call("/v3/kv/txn", request, deadline)
            if layout.term(answer) != term:  # a leader that was deposed may have prolonged the lease for nobody
                ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)
                continue
            if answer.get("succeeded") is True:
                return backend.granted(claim, following.token, lease, layout.revision(answer), ttl, answer)
            seen, floor, own, first, left, right, *oldest = layout.steps(answer, len(asked))
            counter.see(seen, floor)
            if not own and not left and not right and (not oldest or len(oldest[0]) < claim.slots):
                at = layout.revision(answer) if oldest else 0  # of readers it was the counter that was in the way
                continue
            if not own or not _is_let_in(own[0], left + right, oldest):
                if first:
                    demand_agreement(backend, claim, first[0], deadline)
                return None
            token = backend.mark_as_holder(claim, own[0], counter, deadline)
            if token is not None:
                return backend.granted(claim, token, lease, own[0].created, ttl, answer)
        except LeaseGone:
            backend.lease_ended(lease)  # it ran out between two requests: begin again
            ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)


def demand_agreement(backend: Client, claim: Claim, first: Entry, deadline: Deadline) -> None:
    """Raise ``ConfigError``, with nothing left of the claim, if the holder *first* says another number of slots.

    So it does if that key is not one of this lock.
    """
    group = group_of(backend.layout.directory(claim.name), first.key)
    try:
        check_is_of_lock(backend.layout, claim.name, first.key)
        if group or documents.read(first.value) is not None:  # else another program, which says nothing
            documents.check_agrees(backend.layout.lock(claim.name), slots_of(group), claim)
    except ConfigError:
        try:
            backend.withdraw(claim, timeout=deadline.left())
        except BackendUnavailable:
            pass  # our key goes with its lease
        raise


def outside(directory: bytes, group: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two ranges of all keys of a lock that are not in a group."""
    whole = layout.below(directory)
    inside = layout.below(directory + group)
    return (
        {"key": whole["key"], "range_end": inside["key"]},
        {"key": inside["range_end"], "range_end": whole["range_end"]},
    )


def group_of(directory: bytes, key: bytes) -> bytes:
    """The group that a key of a lock is in; empty: none, its owner wants the lock alone."""
    first, slash, _ = key[len(directory) :].partition(b"/")
    return first + slash if slash and (first + slash == layout.READERS or _count(first + slash)) else b""


def is_of_lock(directory: bytes, key: bytes) -> bool:
    """Whether a key is that of somebody who holds the lock or waits for it: one more part, by itself or in a group.

    Others are of a longer prefix, or of a lock of another program with a longer name.
    """
    return b"/" not in key[len(directory) + len(group_of(directory, key)) :]


def check_is_of_lock(places: layout.Layout, name: str, key: bytes) -> None:
    """Raise ``ConfigError`` for a key that is not: it keeps all out, and no end of a job removes it."""
    if not is_of_lock(places.directory(name), key):
        shown = printable(key[:LONGEST_SHOWN].decode("utf-8", "replace"))
        raise ConfigError(
            f"{printable(places.lock(name))} cannot be locked: the key {shown} is not one of this lock;"
            " a prefix must not be another prefix followed by the name of a lock"
        )


def slots_of(group: bytes) -> int:
    """How many may be inside together with one in this group, as ``Claim.slots`` has it."""
    return _count(group) or 1


def holders(directory: bytes, queue: list[Entry]) -> int:
    """How many at the beginning of a queue have the lock."""
    groups = [group_of(directory, entry.key) for entry in queue]
    if not groups or not groups[0]:
        return len(groups[:1])
    most = len(groups) if groups[0] == layout.READERS else slots_of(groups[0])
    inside = 0
    while inside < min(most, len(groups)) and groups[inside] == groups[0]:
        inside += 1
    return inside


def _is_let_in(own: Entry, others: list[Entry], oldest: list[list[Entry]]) -> bool:
    """Whether who has the key *own* has the lock; *oldest*, for slots, has a list of as many keys as there are."""
    if any(each.created < own.created for each in others):
        return False
    return not oldest or any(each.key == own.key for each in oldest[0])


def _count(group: bytes) -> int:
    """The number in the name of a group; 0: it is not one for slots."""
    word, _, digits = group[:-1].partition(b"-")
    number = int(digits) if digits.isdigit() and len(digits) <= LONGEST_COUNT else 0
    return number if word == b"slots" and digits == b"%d" % number else 0


def _nothing_since(among: dict[str, Any], revision: int) -> dict[str, Any]:
    """The condition that no key of a range was created after *revision*; 0: that there is none."""
    return {**among, "target": "CREATE", "result": "LESS", "create_revision": str(revision + 1)}
