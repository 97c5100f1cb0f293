"""Who is before a claim in the queue of a lock, as far as it must be known to wait."""

from __future__ import annotations

from lockctl.documents import read
from lockctl.model import EXCLUSIVE, SLOT, Claim
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.share import check_is_of_lock, is_of_lock, outside
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.etcd.session import Client
    from lockctl.wire.deadline import Deadline


class View(Value):
    """Who is before a position, as far as it must be known to wait."""

    before: bytes | None  # the key whose end is waited for
    inside: tuple[bytes, ...]  # those who have all slots: the end of any of them is waited for
    writes: bool  # whether *before* makes way already when it is written, because its owner is inside then
    revision: int  # of the store, when that was read
    created: int = 0  # the revision that *before* was created at
    held: bool = False  # whether *before* is known to have the lock

    @property
    def is_clear(self) -> bool:
        """Whether nobody is in the way."""
        return self.before is None and not self.inside


def look(backend: Client, claim: Claim, created: int, deadline: Deadline) -> View:
    """Who is in the way of a key that was created then. Raises ``ConfigError`` if no end of a job can make way.

    Behind a key that is not one of this lock, the first of all is waited for: once that key is the first, it is known
    that there is nothing to wait for.
    """
    directory = backend.layout.directory(claim.name)
    view = _nearest(backend, claim, created, deadline)
    if view.before is None or is_of_lock(directory, view.before):
        return view
    request = {**layout.in_order(layout.below(directory), 1), "max_create_revision": str(created - 1)}
    answer = backend.cluster.call("/v3/kv/range", request, deadline)
    first = layout.entries(answer)
    for entry in first:
        check_is_of_lock(backend.layout, claim.name, entry.key)
    return _behind(first, layout.revision(answer))


def _nearest(backend: Client, claim: Claim, created: int, deadline: Deadline) -> View:
    """Who is in the way, of those before it the nearest."""
    directory = backend.layout.directory(claim.name)
    if claim.mode == EXCLUSIVE:
        request = {**layout.newest_before(layout.below(directory), created), "keys_only": False}
        answer = backend.cluster.call("/v3/kv/range", request, deadline)
        ahead = layout.entries(answer)
        return replace(_behind(ahead, layout.revision(answer)), held=is_held(ahead))
    group = layout.group(claim.mode, claim.slots)
    ranges = [layout.newest_before(each, created) for each in outside(directory, group)]
    if claim.mode == SLOT:
        ranges.append(layout.newest_before(layout.below(directory + group), created, claim.slots + 1))
    answer = backend.cluster.call("/v3/kv/txn", {"success": [{"request_range": each} for each in ranges]}, deadline)
    left, right, *same = layout.steps(answer, len(ranges))
    now = layout.revision(answer)
    if left or right:
        return _behind(sorted(left + right, key=lambda entry: -entry.created), now)
    ahead = same[0] if same else []
    if len(ahead) > claim.slots:
        return _behind(ahead, now, writes=True)
    return View(None, tuple(entry.key for entry in ahead) if len(ahead) == claim.slots else (), False, now)


def _behind(ahead: list[layout.Entry], revision: int, *, writes: bool = False) -> View:
    """The view of who waits for the first of the keys *ahead*, if there is one."""
    if not ahead:
        return View(None, (), False, revision)
    return View(ahead[0].key, (), writes, revision, ahead[0].created)


def is_held(found: list[layout.Entry]) -> bool:
    """Whether who has this key has the lock, as far as it says so."""
    return bool(found) and "acquired_at" in (read(found[0].value) or {})
