"""Locks as an operator sees them, and taking one away."""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.errors import LockctlError
from lockctl.model import SHARED, LockInfo, Waiter
from lockctl.names import check_name, printable
from lockctl.stores.zookeeper import hold, queue, records, share
from lockctl.stores.zookeeper.claim import with_revocation
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Capabilities, Holder
    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline

AT_ONCE = 200  # requests under way at a time
MOST_WAITERS = 1000  # of one lock that are shown
LONGEST_IDENTIFIER = 128  # characters of what another tool says about itself


def names_below(session: Session, place: Place, deadline: Deadline) -> list[str]:
    """The names of all locks that anybody ever took."""
    _, names = session.ask(
        deadline, lambda client: client.sync_async(place.root), lambda client: client.get_children_async(place.root)
    )
    if isinstance(names, Exception):
        return []
    found = []
    for name in names:
        try:
            found.append(check_name(name))
        except ValueError:
            continue  # another tool's node: no lock of ours can have this name
    return sorted(found)


class _Sight:
    """One lock as it was found: who holds it, who waits, and the record of a hold."""

    def __init__(self, line: list[str], nodes: dict[str, Any], record: tuple[bytes, Any] | None) -> None:
        """*nodes* are data and stat of those in *line* that were still there."""
        there = [(name, *nodes[name]) for name in line if nodes.get(name) is not None]
        inside = set(share.holders([name for name, _, _ in there]))
        self.changed = len(there) < len(line)  # while it was looked at: others may have moved up unseen
        self.record = record
        self.kept: Holder | None = None
        if record is not None and record[0]:
            # every stat has the leader's clock: one that is ahead of ours shows that a hold is over
            now = max([wall(), *(stat.mtime / 1000 for _, _, stat in there)])
            self.kept = hold.holder(*record, now)
        if self.kept is not None:
            # ours wait for the end of the hold; another program does not know of it
            inside = {name for name, data, _ in there if name in inside and _document(data) is None}
        self.inside = [each for each in there if each[0] in inside]
        self.waiting = [each for each in there if each[0] not in inside]

    def lock(self, name: str, place: Place, promised: Capabilities) -> LockInfo:
        """As an operator sees it."""
        holders = [_holder(*each) for each in self.inside]
        if self.kept is not None:
            holders.insert(0, self.kept)
        state = "free" if not holders else "foreign" if any(each.owner is None for each in holders) else "held"
        slots = 1 if self.kept is not None or not self.inside else max(share.kind(self.inside[0][0]), 1)
        waiters = tuple(_waiter(data, stat) for _, data, stat in self.waiting)
        key = place.key(name)
        return LockInfo(name, promised.scheme, key, state, promised.fencing, slots, tuple(holders), waiters, None)


def look(
    session: Session, place: Place, names: list[str], promised: Capabilities, deadline: Deadline
) -> list[LockInfo]:
    """The locks of these names as they are now, without their last runs."""
    found = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        sights, _ = _see(session, place, some, deadline)
        found += [sight.lock(name, place, promised) for name, sight in zip(some, sights, strict=True)]
    return found


def look_closely(session: Session, place: Place, name: str, promised: Capabilities, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    runs = records.container(session, name)
    (sight,), (names,) = _see(session, place, [name], deadline, beside=(runs,))
    lock = sight.lock(name, place, promised)
    started = records.in_order(names, records.STARTED)
    for node in reversed(started[-2:]):  # the second if somebody removed the newest meanwhile, or spoilt it
        path = f"{runs}/{node}"
        (found,) = session.ask(deadline, lambda client: client.get_async(path))  # noqa: B023
        last = records.read(found)
        if last is not None:
            return replace(lock, last_run=last)
    return lock


def take_away(
    session: Session, place: Place, name: str, seen: Holder, deadline: Deadline, *, now: bool, by: str, reason: str
) -> int | None:
    """See ``Backend.revoke``."""
    from kazoo.exceptions import BadVersionError, NoNodeError

    while True:
        (sight,), _ = _see(session, place, [name], deadline, waiters=1)
        if sight.changed:
            continue
        floor = session.last_zxid + 1  # a token is the number of the transaction that grants it
        if sight.kept is not None and _same(sight.kept, seen) and sight.record is not None:
            if not now:
                message = f"the job of {name} has ended, and --min-hold keeps the lock: nobody can be told; use --now"
                raise LockctlError(message)
            if hold.end(session, place.kept(name), sight.record[1], deadline):
                return floor
            continue
        held = next((each for each in sight.inside if _same(_holder(*each), seen)), None)
        if held is None:
            return None
        node, data, stat = held
        path, holder = f"{place.key(name)}/{node}", _holder(*held)
        if now:
            # the path is of this holder alone, so this compares and deletes; its renewals change the version
            (answer,) = session.ask(deadline, lambda client: client.delete_async(path))  # noqa: B023
        elif holder.owner is None:
            message = f"{name} is held by another program, which cannot be told: end it, or use --now"
            raise LockctlError(message)
        else:
            asked = with_revocation(data, holder.owner, by, reason)
            (answer,) = session.ask(deadline, lambda client: client.set_async(path, asked, stat.version))  # noqa: B023
        if isinstance(answer, NoNodeError):
            return None
        if isinstance(answer, BadVersionError):
            continue  # it renewed meanwhile
        if isinstance(answer, Exception):
            raise session.strange(answer, path)
        return floor


def _same(holder: Holder, seen: Holder) -> bool:
    """Whether it is the holder that was seen; another program is known by when it came."""
    if holder.owner is None:
        return (seen.owner, seen.token, seen.acquired_at) == (None, None, holder.acquired_at)
    return (holder.owner, holder.token) == (seen.owner, seen.token)


def _see(
    session: Session,
    place: Place,
    names: list[str],
    deadline: Deadline,
    *,
    waiters: int = MOST_WAITERS,
    beside: tuple[str, ...] = (),
) -> tuple[list[_Sight], list[list[str]]]:
    """Some locks, in two round trips, and the names below the nodes *beside*, which are read with the first."""
    lines = [place.key(name) for name in names]
    kept = [place.kept(name) for name in names]
    # a record after the queue, or a holder that makes way for a hold could be missing in both
    answers = session.ask(
        deadline,
        lambda client: client.sync_async(place.root),
        *[lambda client, path=path: client.get_children_async(path) for path in (*lines, *beside)],
        *[lambda client, path=path: client.get_async(path) for path in kept],
    )[1:]
    found = [[] if isinstance(answer, Exception) else answer for answer in answers]
    queues = [queue.in_order(line) for line in found[: len(lines)]]
    shown = [line[: len(share.holders(line)) + waiters] for line in queues]
    paths = [f"{path}/{node}" for path, line in zip(lines, shown, strict=True) for node in line]
    nodes = _read(session, deadline, paths)
    sights = [
        _Sight(line, {node: nodes[f"{path}/{node}"] for node in line}, record or None)
        for path, line, record in zip(lines, shown, found[len(lines) + len(beside) :], strict=True)
    ]
    return sights, found[len(lines) : len(lines) + len(beside)]


def _read(session: Session, deadline: Deadline, paths: list[str]) -> dict[str, Any]:
    """Data and stat of each of some nodes; ``None`` for one that has gone."""
    nodes: dict[str, Any] = {}
    for start in range(0, len(paths), AT_ONCE):
        some = paths[start : start + AT_ONCE]
        answers = session.ask(deadline, *[lambda client, path=path: client.get_async(path) for path in some])
        nodes.update(
            (path, None if isinstance(got, Exception) else got) for path, got in zip(some, answers, strict=True)
        )
    return nodes


def _document(data: bytes) -> dict[str, Any] | None:
    """What one of ours wrote into its node, without a request to give the lock back."""
    return documents.read(data.partition(b"\n")[0])


def _holder(name: str, data: bytes, stat: Any) -> Holder:
    document = _document(data)
    if document is None:
        found = documents.foreign_holder(host=_identifier(data), acquired_at=stat.ctime / 1000)
        return replace(found, mode=SHARED) if share.kind(name) == share.READERS else found
    # when it renewed last is known by the leader's clock alone, which may differ from ours
    return documents.holder(document, token=stat.czxid, expires_in=None)


def _waiter(data: bytes, stat: Any) -> Waiter:
    document = _document(data)
    since = stat.ctime / 1000
    if document is None:
        return Waiter(_identifier(data), None, None, since)
    return documents.waiter(document, since=since)


def _identifier(data: bytes) -> str | None:
    """What another tool says about itself: kazoo's identifier, Curator's address."""
    return printable(data[: 4 * LONGEST_IDENTIFIER].decode("utf-8", "replace"))[:LONGEST_IDENTIFIER] or None
