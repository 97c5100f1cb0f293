"""Locks as an operator sees them."""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import wall
from lockctl.locks.inspect import lock_info, matching
from lockctl.model import SHARED, Holder, LockInfo, Waiter
from lockctl.names import printable
from lockctl.stores.zookeeper import hold, multiread, queue, records, share, tokens
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline

AT_ONCE = 200  # requests under way at a time
MOST_WAITERS = 1000  # of one lock that are shown
LOOKS = 3  # at one lock, while it passes from one to the next: who waits would be shown as the holder
LONGEST_IDENTIFIER = 128  # characters of what another tool says about itself


def inspect(session: Session, name: str, deadline: Deadline) -> LockInfo:
    """One lock as it is now, with its last run."""
    runs = session.place.runs(name)
    sight, (names,) = settled(session, name, deadline, beside=(runs,))
    lock = sight.lock(name, session.place)
    started = records.in_order(names, records.STARTED)
    for node in reversed(started[-2:]):  # the second if somebody removed the newest meanwhile, or spoilt it
        path = f"{runs}/{node}"
        (found,) = session.ask(deadline, lambda client: client.get(path))  # noqa: B023
        last = records.read(found)
        if last is not None:
            return replace(lock, last_run=last)
    return lock


def look(session: Session, name: str, deadline: Deadline) -> LockInfo:
    """The same without its last run."""
    return settled(session, name, deadline)[0].lock(name, session.place)


def list_locks(session: Session, pattern: str, deadline: Deadline) -> Iterator[LockInfo]:
    """The locks that anybody ever took and that match, as they are now, without their last runs."""
    names = matching(children(session, deadline), pattern)
    found: list[LockInfo] = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        sights, _ = see(session, some, deadline)
        for name, sight in zip(some, sights, strict=True):
            seen = settled(session, name, deadline)[0] if sight.changed else sight
            found.append(seen.lock(name, session.place))
    return iter(found)


def children(session: Session, deadline: Deadline) -> list[str]:
    """The nodes below the root: those of locks, and what else is there."""
    root = session.place.root
    _, found = session.ask(deadline, lambda client: client.sync(root), lambda client: client.children(root))
    return [] if isinstance(found, Exception) else found


class Sight:
    """One lock as it was found: who holds it, who waits, and the record of a hold."""

    def __init__(self, line: list[str], nodes: dict[str, Any], record: tuple[bytes, Any] | None) -> None:
        """*nodes* are data and stat of those in *line* that were still there."""
        there = [(name, *nodes[name]) for name in line if nodes.get(name) is not None]
        inside = set(share.holders([name for name, _, _ in there]))
        self.changed = len(there) < len(line)  # while it was looked at: others may have moved up unseen
        self.record = record
        self.kept: Holder | None = None
        if record is not None and tokens.Record(*record).until:
            # every stat has the leader's clock: one that is ahead of ours shows that a hold is over
            now = max([wall(), *(stat.mtime / 1000 for _, _, stat in there)])
            self.kept = hold.holder(*record, now)
            # ours wait for its end by the leader's clock, which may be behind ours; another program knows of no hold
            inside = {name for name, data, _ in there if name in inside and not self._waits(_document(data))}
        self.inside = [each for each in there if each[0] in inside]
        self.waiting = [each for each in there if each[0] not in inside]

    def _waits(self, document: dict[str, Any] | None) -> bool:
        return document is not None and (self.kept is not None or not documents.was_granted(document))

    def lock(self, name: str, place: Place) -> LockInfo:
        """As an operator sees it."""
        holders = [holder(*each) for each in self.inside]
        if self.kept is not None:
            holders.insert(0, self.kept)
        slots = 1 if self.kept is not None or not self.inside else max(share.kind(self.inside[0][0]), 1)
        waiters = [_waiter(data, stat) for _, data, stat in self.waiting]
        return lock_info("zookeeper", "strict", name, place.key(name), holders, waiters, slots=slots)


def settled(session: Session, name: str, deadline: Deadline, **more: Any) -> tuple[Sight, list[list[str]]]:
    """One lock as :func:`see` has it, which takes *more*; looks again if it passed from one to the next meanwhile."""
    for _ in range(LOOKS):
        (sight,), beside = see(session, [name], deadline, **more)
        if not sight.changed:
            break
    return sight, beside


def see(
    session: Session,
    names: list[str],
    deadline: Deadline,
    *,
    waiters: int = MOST_WAITERS,
    beside: tuple[str, ...] = (),
) -> tuple[list[Sight], list[list[str]]]:
    """Some locks, in two round trips, and the names below the nodes *beside*, which are read with the first."""
    place = session.place
    lines = [place.key(name) for name in names]
    kept = [place.kept(name) for name in names]
    # a record after the queue, or a holder that makes way for a hold could be missing in both
    answers = multiread.read(session, [*lines, *beside], kept, deadline, sync=place.root)
    found = [[] if isinstance(answer, Exception) else answer for answer in answers]
    queues = [queue.in_order(line) for line in found[: len(lines)]]
    shown = [line[: len(share.holders(line)) + waiters] for line in queues]
    paths = [f"{path}/{node}" for path, line in zip(lines, shown, strict=True) for node in line]
    data = multiread.read(session, [], paths, deadline)
    nodes = {path: None if isinstance(got, Exception) else got for path, got in zip(paths, data, strict=True)}
    sights = [
        Sight(line, {node: nodes[f"{path}/{node}"] for node in line}, record or None)
        for path, line, record in zip(lines, shown, found[len(lines) + len(beside) :], strict=True)
    ]
    return sights, found[len(lines) : len(lines) + len(beside)]


def _document(data: bytes) -> dict[str, Any] | None:
    """What one of ours wrote into its node, without a request to give the lock back."""
    return documents.read(data.partition(b"\n")[0])


def holder(name: str, data: bytes, stat: Any) -> Holder:
    """Who has made a node that holds the lock."""
    document = _document(data)
    if document is None:
        found = documents.foreign_holder(stat.czxid, host=_identifier(data), acquired_at=stat.ctime / 1000)
        return replace(found, mode=SHARED) if share.kind(name) == share.READERS else found
    # when it renewed last is known by the leader's clock alone, which may differ from ours
    token = tokens.token_in(data)
    if token is None and documents.was_granted(document):
        token = stat.czxid  # that of lockctl 0.1
    return documents.holder(document, token=token, expires_in=None)


def _waiter(data: bytes, stat: Any) -> Waiter:
    document = _document(data)
    since = stat.ctime / 1000
    if document is None:
        return Waiter(_identifier(data), None, None, since)
    return documents.waiter(document, since=since)


def _identifier(data: bytes) -> str | None:
    """What another tool says about itself: kazoo's identifier, Curator's address."""
    return printable(data[: 4 * LONGEST_IDENTIFIER].decode("utf-8", "replace"))[:LONGEST_IDENTIFIER] or None
