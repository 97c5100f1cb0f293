"""What is kept of a lock when nobody holds it: when a run last succeeded, and the last runs.

It lies beside the locks, where neither lockctl nor another program takes it for one. All of it is attached to a
lease of the lock that lasts a year from the last time that something was written, so what nobody uses any more goes.
So is the counter of its tokens, unless it is so far ahead of the clock that this would still be behind it then. The
next grant takes it from that lease again.
"""

from __future__ import annotations

import os

from lockctl import clock, documents, history
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.native import pause_for_next
from lockctl.model import MICROSECONDS, Grant, Run
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.connection import LeaseGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

SPARE = 20  # runs above the number that is kept at which the oldest are deleted: once for so many
AT_ONCE = 100  # runs that are deleted at once, if others left so many: etcd allows 128 steps


def last_success(backend: Client, name: str, deadline: Deadline) -> float | None:
    """See ``Backend``. What is no time that we noted counts as none."""
    answer = backend.cluster.call("/v3/kv/range", layout.only(backend.layout.success(name)), deadline)
    found = layout.entries(answer)
    return history.success_in(found[0].value) if found else None


def note_success(backend: Client, grant: Grant, deadline: Deadline) -> None:
    """See ``Backend``: ``BackendUnavailable``, too, when the lock is not that grant's any more."""
    key = backend.layout.success(grant.claim.name)
    claim, lease = grant.claim, backend.lease_of_grant(grant)
    claim_key = backend.layout.claim_key(claim.name, lease, layout.group(claim.mode, claim.slots))
    value, created = history.describe_success(grant), backend.created(grant)

    while True:
        steps = [layout.get(key), layout.get(claim_key)]
        found, mine = layout.steps(backend.cluster.call("/v3/kv/txn", {"success": steps}, deadline), 2)
        if not mine or created not in (None, mine[0].created):
            raise BackendUnavailable(f"{backend.cluster.where}: the lock is not ours any more: no success was noted")
        if found and not documents.is_newer(grant.at, history.success_in(found[0].value), clock.wall()):
            return
        unchanged = layout.has_value(key, found[0].value) if found else layout.is_created_at(key, 0)

        def note(attached: int, _now: float, unchanged: dict[str, Any] = unchanged) -> dict[str, Any]:
            return {
                "compare": [layout.is_created_at(claim_key, created), unchanged],
                "success": [layout.put(key, value, attached)],
            }

        if _write(backend, claim.name, note, deadline).get("succeeded") is True:
            return


def remember(backend: Client, name: str, run: Run, deadline: Deadline) -> None:
    """See ``Backend``: a key for each run. The order is that of their writing, whatever the clocks of hosts say."""
    answer = _write(backend, name, lambda attached, now: _added(backend, name, run, attached, now), deadline)
    _drop_surplus(backend, name, run, answer, deadline)


def add_after_release(backend: Client, grant: Grant, run: Run, deadline: Deadline) -> bool:
    """End the lease of a grant, and add a run to the history; whether it was added. Raises as ``Backend.release`` does.

    Of a short job that is one round trip. After a longer one whoever waits takes its turn first: a write at etcd waits
    for the one before it.
    """
    owner, lease, attached = grant.claim.owner, backend.lease_of_grant(grant), _lease(backend, grant.claim.name)

    def requests() -> Requests:
        now = grant.at + (run.duration or 0.0)  # by the clock of the cluster
        added = _added(backend, grant.claim.name, run, attached, now)
        return (layout.KEEP_ALIVE, {"ID": str(attached)}), ("/v3/kv/txn", added)

    pause = pause_for_next(run)
    answers = backend.end(owner, {lease}, deadline, None if pause else requests)
    try:
        if not answers:
            clock.pause(min(pause, deadline.left()))
            answers = backend.cluster.call_for(requests(), slice(1), deadline)
        written = answers[-1]
        if isinstance(written, LeaseGone):  # nothing was kept of the lock yet
            *_, written = backend.lease_and(history.AGE, attached, requests()[-1][1], deadline)
        if isinstance(written, Exception):
            return False
    except (BackendUnavailable, ConfigError):
        return False
    try:
        _drop_surplus(backend, grant.claim.name, run, written, deadline)
    except (BackendUnavailable, ConfigError):
        pass  # the next one does
    return True


def _added(backend: Client, name: str, run: Run, attached: int, now: float) -> dict[str, Any]:
    """The transaction that adds a run, and counts those that are there; the counter ends with them.

    Repeated, it writes the same key: a lock grants no token twice.
    """
    directory = backend.layout.history(name, started=run.started)
    key = f"{run.token:016x}" if run.started and run.token is not None else os.urandom(8).hex()
    value = history.describe(run, now)  # our clock, and that of the run, do not count
    # their keys, in every answer, would take longer than all the rest
    count = {"request_range": {**layout.below(directory), "count_only": True}}
    steps = [layout.put(directory + key.encode(), value, attached), count]
    counter = backend.layout.counter(name)
    latest = int((now + history.AGE / 2) * MICROSECONDS)
    return {
        "compare": [tokens.is_below(counter, latest)],
        "success": [*steps, tokens.end_with(counter, attached)],
        "failure": steps,
    }


def _drop_surplus(backend: Client, name: str, run: Run, answer: dict[str, Any], deadline: Deadline) -> None:
    if _counted(answer) < history.KEPT + SPARE:
        return
    # another client may have deleted some meanwhile
    directory = backend.layout.history(name, started=run.started)
    look = layout.oldest(layout.below(directory), history.KEPT + SPARE + AT_ONCE)
    (kept,) = layout.steps(backend.cluster.call("/v3/kv/txn", {"success": [look]}, deadline), 1)
    surplus = [layout.delete(entry.key) for entry in kept[: -history.KEPT]]
    if surplus:
        backend.cluster.call("/v3/kv/txn", {"success": surplus[:AT_ONCE]}, deadline)


def _counted(answer: dict[str, Any]) -> int:
    """How many runs there were when one was added. Raises ``BackendUnavailable``."""
    layout.steps(answer, 3 if answer.get("succeeded") is True else 2)
    counted = answer["responses"][1]
    found = counted.get("response_range") if isinstance(counted, dict) else None
    return layout.whole(found.get("count")) if isinstance(found, dict) else 0


def read_history(backend: Client, name: str, deadline: Deadline) -> tuple[Run, ...]:
    """See ``Backend``."""
    most = history.KEPT + SPARE
    steps = [layout.newest(backend.layout.history(name, started=started), most) for started in (True, False)]
    answer = backend.cluster.call("/v3/kv/txn", {"success": steps}, deadline)
    started, refused = layout.steps(answer, len(steps))
    return history.runs_in(entry.value for entry in started + refused)


def _write(
    backend: Client, name: str, request: Callable[[int, float], dict[str, Any]], deadline: Deadline
) -> dict[str, Any]:
    """Have the lease of what is kept of a lock run from now on, and write something that is attached to it.

    *request* is told the lease, and what time it is at the member that answered.
    """
    lease = _lease(backend, name)
    while True:
        kept = backend.cluster.call(layout.KEEP_ALIVE, {"ID": str(lease)}, deadline)
        if layout.whole(kept.get("TTL")) <= 0:
            backend.fresh_lease(history.AGE, lease, deadline)
        try:
            return backend.cluster.call("/v3/kv/txn", request(lease, layout.moment(kept)), deadline)
        except LeaseGone:
            backend.lease_ended(lease)  # revoked by another client, or at its end


def _lease(backend: Client, name: str) -> int:
    """The lease that all is attached to that is kept of a lock."""
    return layout.lease_id(f"{backend.layout.prefix}{name}", 0)
