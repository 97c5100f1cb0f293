"""Readers and semaphores: several holders at once, in the same queue as all others.

A reader has the lock when no key that is older than its own lies outside the readers' room. One of N has it when
fewer than N keys are older, all of them in the room of those who say N, too. Whatever is in no room, be it a
writer's or another program's, is alone. So nobody overtakes anybody whom it would keep out.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import SHARED
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.protocol import LeaseGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim, Grant
    from lockctl.stores.etcd.layout import Entry
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

LONGEST_COUNT = 6  # digits of a number of slots


def enter(backend: Client, claim: Claim, deadline: Deadline) -> Grant | None:
    """``Backend.try_acquire`` for a claim that others may hold the lock beside.

    A reader's key is written if at that moment nothing is outside the readers' room: one transaction decides.
    One of N counts first, and writes its key if since then no other was created; that keys went does no harm.
    """
    lease = backend.lease_of(claim)
    directory, room = backend.layout.directory(claim.name), layout.room(claim.mode, claim.slots)
    place = backend.layout.place(claim.name, lease, room)
    others = outside(directory, room)
    decisive = others if claim.mode == SHARED else (layout.below(directory),)
    asked = [layout.get(place), layout.get_in_order(directory, 1)]
    asked += [layout.oldest(each, 1) for each in others]
    if claim.mode != SHARED:
        asked.append(layout.oldest(decisive[0], claim.slots))
    ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)
    seen = 0  # revision of the store in which there was room for us
    while True:
        document = documents.describe(claim, {"acquired_at": wall()})
        request = {
            "compare": [layout.is_created_at(place, 0), *(_nothing_since(each, seen) for each in decisive)],
            "success": [layout.put(place, document, lease)],
            "failure": asked,
        }
        try:
            answer = backend.cluster.call("/v3/kv/txn", request, deadline)
            token = layout.revision(answer)
            if layout.term(answer) != term:  # a leader that was deposed may have prolonged the lease for nobody
                ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)
                continue
            if answer.get("succeeded") is not True:
                own, first, left, right, *oldest = layout.steps(answer, len(asked))
                if not own and oldest and not left and not right and len(oldest[0]) < claim.slots:
                    seen = token
                    continue
                if not own or not _is_let_in(own[0], left + right, oldest):
                    if first:
                        demand_agreement(backend, claim, first[0], deadline)
                    return None
                token = own[0].created
                if not backend.mark_as_holder(place, own[0], document, lease, deadline):
                    continue
        except LeaseGone:
            backend.lease_ended(lease)  # it ran out between two requests: begin again
            ttl, term = backend.fresh_lease(claim.ttl, lease, deadline)
            continue
        return backend.granted(claim, token, lease, ttl, answer)


def demand_agreement(backend: Client, claim: Claim, first: Entry, deadline: Deadline) -> None:
    """Raise ``ConfigError``, with nothing left of the claim, if the holder *first* says another number of slots."""
    room = room_of(backend.layout.directory(claim.name), first.key)
    if not room and documents.read(first.value) is None:
        return  # another program, which says nothing
    wrong = documents.disagreement(backend.layout.lock(claim.name), slots_of(room), claim)
    if wrong is not None:
        try:
            backend.withdraw(claim, timeout=deadline.left())
        except BackendUnavailable:
            pass  # our place goes with its lease
        raise ConfigError(wrong)


def outside(directory: bytes, room: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two ranges of all keys of a lock that are not in a room."""
    whole = layout.below(directory)
    inside = layout.below(directory + room)
    return (
        {"key": whole["key"], "range_end": inside["key"]},
        {"key": inside["range_end"], "range_end": whole["range_end"]},
    )


def room_of(directory: bytes, key: bytes) -> bytes:
    """The room that a key of a lock is in; empty: none, its owner wants the lock alone."""
    first, slash, _ = key[len(directory) :].partition(b"/")
    return first + slash if slash and (first + slash == layout.READERS or _count(first + slash)) else b""


def slots_of(room: bytes) -> int:
    """How many may be inside together with one in this room, as ``Claim.slots`` has it."""
    return _count(room) or 1


def holders(directory: bytes, queue: list[Entry]) -> int:
    """How many at the beginning of a queue have the lock."""
    rooms = [room_of(directory, entry.key) for entry in queue]
    if not rooms or not rooms[0]:
        return len(rooms[:1])
    most = len(rooms) if rooms[0] == layout.READERS else slots_of(rooms[0])
    inside = 0
    while inside < min(most, len(rooms)) and rooms[inside] == rooms[0]:
        inside += 1
    return inside


def _is_let_in(own: Entry, others: list[Entry], oldest: list[list[Entry]]) -> bool:
    """Whether who has the key *own* has the lock; *oldest*, for slots, has a list of as many keys as there are."""
    if any(each.created < own.created for each in others):
        return False
    return not oldest or any(each.key == own.key for each in oldest[0])


def _count(room: bytes) -> int:
    """The number in the name of a room; 0: it is not one for slots."""
    word, _, digits = room[:-1].partition(b"-")
    number = int(digits) if digits.isdigit() and len(digits) <= LONGEST_COUNT else 0
    return number if word == b"slots" and digits == b"%d" % number else 0


def _nothing_since(among: dict[str, Any], revision: int) -> dict[str, Any]:
    """The condition that no key of a range was created after *revision*; 0: that there is none."""
    return {**among, "target": "CREATE", "result": "LESS", "create_revision": str(revision + 1)}
