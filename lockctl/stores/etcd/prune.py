"""Names that nobody uses any more: finding them, and removing what is kept of them.

The counter of a name goes, too, once the clock has passed it, and in the same transaction the floor is raised above
it, unless it is above: no clock has to keep the tokens in their order. A counter ahead of the clock is kept, so that
the floor is not. The lease of a name's records stays until it runs out: whoever ended it could end it with a record
that was attached to it a moment ago.
"""

from __future__ import annotations

from lockctl import history
from lockctl.clock import wall
from lockctl.locks.inspect import matching
from lockctl.model import MICROSECONDS
from lockctl.stores.etcd import layout, tokens
from lockctl.stores.etcd.inspect import names_below
from lockctl.wire.stream import in_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline

STEPS = 5  # to read the last use of a name
NAMES_AT_ONCE = 25  # in one transaction: etcd allows 128 steps


def unused(backend: Client, pattern: str, older_than: float, deadline: Deadline) -> Iterator[tuple[str, float]]:
    """See ``Backend``: by the clock of the member that answers, in whole seconds."""
    folders = (layout.HISTORY, layout.SUCCESSES, layout.TOKENS)
    names = matching((name for folder in folders for name, _ in names_below(backend, folder, deadline)), pattern)

    def ask(some: list[str]) -> list[float | None]:
        answer = backend.cluster.call("/v3/kv/txn", {"success": _looks(backend, some)}, deadline)
        found = layout.steps(answer, STEPS * len(some))
        uses = [_last_use(found[start : start + STEPS]) for start in range(0, len(found), STEPS)]
        return [at if at is not None and _age(at, answer) >= older_than else None for at in uses]

    for start in range(0, len(names), NAMES_AT_ONCE):
        some = names[start : start + NAMES_AT_ONCE]
        for name, at in zip(some, in_parts(ask, some), strict=True):
            if at is not None:
                yield name, at


def forget(backend: Client, name: str, older_than: float, deadline: Deadline) -> bool:
    """See ``Backend``: one transaction, which does nothing once the lock has a key, or a record is newer."""
    places = backend.layout
    floor_key = places.counter(tokens.FLOOR)
    looks = [*_looks(backend, [name]), layout.get(floor_key)]
    answer = backend.cluster.call("/v3/kv/txn", {"success": looks}, deadline)
    *found, floor = layout.steps(answer, len(looks))
    at, token, now = _last_use(found), tokens.last(found[1]), int(wall() * MICROSECONDS)
    if at is None or _age(at, answer) < older_than or token >= now:
        return False
    raises = token > tokens.last(floor)
    records = (
        layout.below(places.records(name)),
        layout.only(places.success(name)),
        layout.only(places.counter(name)),
    )
    request = {
        "compare": [
            layout.is_free(places.directory(name)),
            *[layout.is_unchanged_since(each, layout.revision(answer)) for each in records],
            *([tokens.is_as_seen(floor_key, floor)] if raises else []),
        ],
        "success": [
            *[{"request_delete_range": each} for each in records],
            *([layout.put(floor_key, tokens.written(now), 0)] if raises else []),  # once for many names
        ],
    }
    return backend.cluster.call("/v3/kv/txn", request, deadline).get("succeeded") is True


def _age(at: float, answer: dict[str, Any]) -> float:
    """How many seconds ago that was; the clock of a host, which raised a counter, may be ahead of the member's."""
    return max(0.0, layout.moment(answer) - at)


def _looks(backend: Client, names: list[str]) -> list[dict[str, Any]]:
    """The steps that read who is at some locks, and when each was used last."""
    steps: list[dict[str, Any]] = []
    for name in names:
        steps += [
            layout.oldest(layout.below(backend.layout.directory(name)), 1),
            layout.get(backend.layout.counter(name)),
            layout.get(backend.layout.success(name)),
            *[layout.newest(backend.layout.history(name, started=started), 1) for started in (True, False)],
        ]
    return steps


def _last_use(found: list[list[layout.Entry]]) -> float | None:
    """When a name was used last, by the answers to its steps; ``None``: it is in use, or nothing is known of it."""
    at_lock, counter, *records = found
    if at_lock or not (counter or any(records)):
        return None
    granted = float(tokens.last(counter) // MICROSECONDS)
    # of a record that does not say when it was written, as that of another program, it was long ago
    fields = ("noted_at", "at", "ended_at")
    return max([granted, *(history.time_in(entry.value, *fields) or 0.0 for record in records for entry in record)])
