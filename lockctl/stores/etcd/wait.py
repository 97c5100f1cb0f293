"""Waiting in the queue of a lock: each waiter watches one key before its own, and nobody else's.

Who wants the lock alone watches the key before its own; a reader the last one before it that is not a reader's. A
release so wakes one waiter, or the readers that now get in, and a waiter that gives up wakes the one behind it.
For a slot the end of any holder counts: the first who waits watches them all, and each other one the key before
its own, also for the write by which the one before it says that it is in. So a release wakes two.

The watch is a hint: what counts is read anew after every hint, and now and then without one. After the hint that a
holder has ended the transaction that takes the turn is sent at once, which succeeds only if the key is the oldest then.
"""

from __future__ import annotations

from lockctl import clock, json_text
from lockctl.clock import boottime, wall
from lockctl.documents import describe
from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE, Claim
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.queue import View, is_held, look
from lockctl.stores.etcd.turn import Turn
from lockctl.value import Value, replace
from lockctl.wire.stream import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

BEATS_PER_TTL = 3  # how often a waiter's lease is prolonged: two may fail
BEATS_OF_NEXT = 10  # the same of who is next: its job can start with the lease that it has
LONGEST_STEP = 5.0  # seconds for one request, or the lease may be over before another member is asked
PAUSE = 0.05  # seconds before the queue is read again after a watch that failed, doubled each time up to
LONGEST_PAUSE = 1.0


class Position(Value):
    """A position in the queue, and who is before it."""

    claim: Claim
    key: bytes
    lease: int  # that the key is attached to
    created: int  # revision in which the key came to be
    view: View
    ttl: float  # seconds of the lease
    since: float  # when it was prolonged for the last time

    @property
    def next_beat(self) -> float:
        """When it is to be prolonged again."""
        pause = max(self.ttl, 1.0) / BEATS_PER_TTL
        if self.view.held:
            pause = min(pause, max(self.claim.ttl, 1.0) / BEATS_OF_NEXT)
        return self.since + pause


def wait_for_turn(backend: Client, claim: Claim, has_lined_up: Callable[[], None], whole: Deadline) -> None:
    """Return when nobody before us is in the way. Raises ``BackendUnavailable``, also at the end of *whole*."""
    pause = PAUSE
    while True:
        position = _queue_up(backend, claim, whole)
        has_lined_up()
        if position.view.is_clear:
            return
        is_our_turn = _watch(backend, position, whole)
        if is_our_turn:
            return
        if is_our_turn is not None:
            pause = PAUSE
        else:
            clock.pause(min(pause, whole.left()), whole.interrupt)
            pause = min(2 * pause, LONGEST_PAUSE)
        whole.check(backend.cluster.where)


def _queue_up(backend: Client, claim: Claim, whole: Deadline) -> Position:
    """Take a position at the end of the queue, or find the one that we have, and see who is before it."""
    own = backend.lease_of(claim)
    lease, seconds = backend.waiting_lease(claim, whole.sooner(LONGEST_STEP))
    key = backend.layout.claim_key(claim.name, own, layout.group(claim.mode, claim.slots))
    request = {
        "compare": [layout.is_created_at(key, 0), backend.goes_on(own)],
        "success": [layout.put(key, describe(claim, {"since": wall()}), lease)],
        "failure": [layout.get(key)],
    }
    sent = boottime()
    ttl, term, answer = backend.lease_and(seconds, lease, request, whole.sooner(LONGEST_STEP))
    created = layout.revision(answer)
    if answer.get("succeeded") is not True:
        found = layout.reads(answer)
        if not found or not found[0]:
            raise BackendUnavailable(f"{backend.cluster.where}: an answer without the key that is there")
        created = found[0][0].created
    if claim.mode == EXCLUSIVE:
        turn = backend.turns[claim.owner] = Turn(backend, claim, created)
        if lease == own and term == layout.term(answer):
            turn.prolonged(sent, ttl)
    view = look(backend, claim, created, whole.sooner(LONGEST_STEP))
    return Position(claim, key, lease, created, view, ttl, sent)


def _watches(backend: Client, position: Position) -> tuple[dict[str, Any], ...]:
    """What is to be told of."""
    view = position.view
    watches = [layout.ends_of(layout.only(position.key))]
    if view.before is not None:
        before = {**layout.only(view.before), "prev_kv": not view.held}  # else what it had is known
        watches.append(before if view.writes else layout.ends_of(before))
    if view.inside:
        claim = position.claim
        group = backend.layout.directory(claim.name) + layout.group(claim.mode, claim.slots)
        watches.append(layout.ends_of(layout.below(group)))
    return tuple(watches)


def _watch(backend: Client, position: Position, whole: Deadline) -> bool | None:
    """Return when it is our turn, or else (``False``) the queue must be read again; ``None``: the watch failed."""
    cluster, view = backend.cluster, position.view
    telling = {position.key, view.before, *view.inside}  # other keys are of those behind us
    try:
        lines = cluster.watch(_watches(backend, position), view.revision + 1, whole.sooner(LONGEST_STEP))
    except BackendUnavailable:
        return None
    watched_at = cluster.turn
    try:
        while True:
            step = whole.sooner(max(0.0, position.next_beat - boottime()))
            try:
                line = lines.next(step)
            except Closed:
                return None
            except BackendUnavailable:
                if step.left() > 0:
                    return None
                if whole.left() <= 0:
                    raise
                seen = _beat(backend, position, whole)
                if seen is None or cluster.turn != watched_at:
                    return False  # a watch at a member that answers nothing else is worth nothing
                position = seen
                continue
            if line is None or (event := _read(line, telling)) is None:
                return None
            if event:
                is_our_turn = _is_end_of_holder(event, position)
                if is_our_turn:
                    backend.turns[position.claim.owner].begin(whole)
                return is_our_turn
    finally:
        lines.close()


def _beat(backend: Client, position: Position, whole: Deadline) -> Position | None:
    """Prolong our lease; the position, or ``None`` if it has changed, which a watch that died silently would not tell.

    Only for a slot, where several can make way, the queue must be read. The lease of the job is to be there, too.
    """
    claim, view, sent = position.claim, position.view, boottime()
    own = backend.lease_of(claim)
    step = whole.sooner(min(position.ttl / BEATS_PER_TTL, LONGEST_STEP))
    if view.before is None or view.writes:
        if backend.keep_alive(position.lease, step)[0] <= 0:
            return None
        now = look(backend, claim, position.created, step)
        return replace(position, since=sent) if (now.before, now.inside) == (view.before, view.inside) else None
    request = {"compare": [layout.is_created_at(view.before, view.created)], "success": [layout.get(view.before)]}
    # in this order: if the term is the same, who prolonged the lease was still the leader in the transaction
    leases = dict.fromkeys((position.lease, own))
    keep: Requests = tuple([(layout.KEEP_ALIVE, {"ID": str(lease)}) for lease in leases])
    *kept, answer = backend.cluster.call_in_turn((*keep, ("/v3/kv/txn", request)), step)
    if backend.kept_alive(position.lease, kept[0])[0] <= 0 or answer.get("succeeded") is not True:
        return None
    (ahead,) = layout.steps(answer, 1)
    ttl, term = backend.kept_alive(own, kept[-1])
    if ttl <= 0:
        backend.lease_ended(own)
        backend.fresh_lease(claim.ttl, own, step)
    elif claim.mode == EXCLUSIVE and term == layout.term(answer):
        backend.turns[claim.owner].prolonged(sent, ttl)
    return replace(position, since=sent, view=replace(view, held=claim.mode == EXCLUSIVE and is_held(ahead)))


def _is_end_of_holder(event: dict[str, Any], position: Position) -> bool:
    """Whether the key before ours is gone, and had the lock: who gave up waiting leaves us behind the one before it."""
    view = position.view
    if position.claim.mode != EXCLUSIVE or layout.decoded(event["kv"].get("key")) != view.before:
        return False
    return view.held or is_held(layout.entries({"kvs": [event.get("prev_kv")]}))


def _read(line: bytes, telling: set[bytes | None]) -> dict[str, Any] | None:
    """The event of one of the keys *telling*, or empty; ``None``: the watch has ended (compaction)."""
    if not line:
        return {}
    result = (json_text.an_object(line) or {}).get("result")
    if not isinstance(result, dict) or result.get("canceled"):
        return None
    events = result.get("events")
    for event in events if isinstance(events, list) else ():
        entry = event.get("kv") if isinstance(event, dict) else None
        if isinstance(entry, dict) and layout.decoded(entry.get("key")) in telling:
            return dict(event)
    return {}
