"""Waiting in the queue of a lock: each waiter watches the key before its own, and nobody else's.

A release so wakes one waiter, and a waiter that gives up wakes the one behind it. The watch is a hint:
what counts is read anew after every hint, and now and then without one.
"""

from __future__ import annotations

import select

from lockctl import json_text
from lockctl.backends.etcd import wording
from lockctl.backends.etcd.cluster import LeaseGone
from lockctl.clock import boottime, wall
from lockctl.documents import describe
from lockctl.errors import BackendUnavailable
from lockctl.value import Value
from lockctl.wire.stream import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.backends.etcd import EtcdBackend
    from lockctl.model import Claim
    from lockctl.wire.deadline import Deadline

BEATS_PER_TTL = 3  # how often a waiter's lease is prolonged: two may fail
LONGEST_STEP = 5.0  # seconds for one request, or the lease may be over before another member is asked
PAUSE = 0.05  # seconds before the queue is read again after a watch that failed, doubled each time up to
LONGEST_PAUSE = 1.0


class Place(Value):
    """A place in the queue, and who is before it."""

    key: bytes
    lease: int
    before: bytes | None  # None: nobody
    revision: int  # of the store, when that was read
    beat: float  # seconds between two prolongations of the lease
    next_beat: float  # when the next is due


def wait_for_turn(backend: EtcdBackend, claim: Claim, whole: Deadline) -> None:
    """Return when nobody is before us. Raises ``BackendUnavailable``, also at the end of *whole*."""
    pause = PAUSE
    while True:
        place = _queue_up(backend, claim, whole)
        if place.before is None:
            return
        if _watch(backend, place, whole):
            pause = PAUSE
        else:
            _sleep(min(pause, whole.left()), whole.interrupt)
            pause = min(2 * pause, LONGEST_PAUSE)
        whole.check(backend.cluster.where)


def _queue_up(backend: EtcdBackend, claim: Claim, whole: Deadline) -> Place:
    """Take a place at the end of the queue, or find the one that we have, and see who is before it."""
    lease = backend.lease_of(claim)
    key = backend.layout.place(claim.name, lease)
    request = {
        "compare": [wording.is_created_at(key, 0)],
        "success": [wording.put(key, describe(claim, {"since": wall()}), lease)],
        "failure": [wording.get(key)],
    }
    while True:
        sent = boottime()
        ttl, _ = backend.fresh_lease(claim, lease, whole.sooner(LONGEST_STEP))
        try:
            answer = backend.cluster.call("/v3/kv/txn", request, whole.sooner(LONGEST_STEP))
        except LeaseGone:
            continue  # it ran out between two requests; each is bounded, and so is this loop
        created = wording.revision(answer)
        if answer.get("succeeded") is not True:
            found = wording.reads(answer)
            if not found or not found[0]:
                raise BackendUnavailable(f"{backend.cluster.where}: an answer without the key that is there")
            created = found[0][0].created
        earlier = wording.newest_before(backend.layout.directory(claim.name), created)
        answer = backend.cluster.call("/v3/kv/range", earlier, whole.sooner(LONGEST_STEP))
        before = wording.entries(answer)
        beat = max(ttl, 1.0) / BEATS_PER_TTL
        return Place(key, lease, before[0].key if before else None, wording.revision(answer), beat, sent + beat)


def _watch(backend: EtcdBackend, place: Place, whole: Deadline) -> bool:
    """Return when the queue must be read again, ``False``: because the watch failed."""
    assert place.before is not None
    cluster = backend.cluster
    next_beat = place.next_beat
    try:
        lines = cluster.watch((place.before, place.key), place.revision + 1, whole.sooner(LONGEST_STEP))
    except BackendUnavailable:
        return False
    watched_at = cluster.turn
    try:
        while True:
            step = whole.sooner(max(0.0, next_beat - boottime()))
            try:
                line = lines.next(step)
            except Closed:
                return False
            except BackendUnavailable:
                if step.left() > 0:
                    return False
                if whole.left() <= 0:
                    raise
                next_beat = boottime() + place.beat
                if not _beat(backend, place, whole) or cluster.turn != watched_at:
                    return True  # a watch at a member that answers nothing else is worth nothing
                continue
            news = _read(line)
            if news is not None:
                return news
    finally:
        lines.close()


def _beat(backend: EtcdBackend, place: Place, whole: Deadline) -> bool:
    """Prolong our lease; whether all is as it was, which a watch that died silently would not tell."""
    assert place.before is not None
    step = whole.sooner(min(place.beat, LONGEST_STEP))
    if backend.keep_alive(place.lease, step)[0] <= 0:
        return False
    request: dict[str, Any] = {"key": wording.coded(place.before), "keys_only": True}
    return bool(wording.entries(backend.cluster.call("/v3/kv/range", request, step)))


def _read(line: bytes | None) -> bool | None:
    """``True``: a key was deleted; ``False``: the watch has ended (compaction, no leader); ``None``: no news."""
    if line is None:
        return False
    if not line:
        return None
    try:
        content = json_text.parse(line)
    except ValueError:
        return False
    result = content.get("result") if isinstance(content, dict) else None
    if not isinstance(result, dict) or result.get("canceled"):
        return False
    return True if result.get("events") else None


def _sleep(pause: float, interrupt: int | None) -> None:
    poll = select.poll()
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    poll.poll(pause * 1000)
