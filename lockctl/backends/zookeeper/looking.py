"""Locks as an operator sees them, and taking one away."""

from __future__ import annotations

from lockctl import documents
from lockctl.backends.zookeeper import queue
from lockctl.backends.zookeeper.candidate import with_revocation
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import LockInfo, Waiter
from lockctl.names import check_name, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.backends.zookeeper.place import Place
    from lockctl.backends.zookeeper.session import Call, Session
    from lockctl.model import Capabilities, Holder
    from lockctl.wire.deadline import Deadline

AT_ONCE = 200  # requests under way at a time
MOST_WAITERS = 1000  # of one lock that are shown
LONGEST_IDENTIFIER = 128  # characters of what another tool says about itself


def names_below(session: Session, place: Place, deadline: Deadline) -> list[str]:
    """The names of all locks that anybody ever took."""
    names = _children(session, deadline, [place.root])[0]
    found = []
    for name in names:
        try:
            found.append(check_name(name))
        except ValueError:
            continue  # another tool's node: no lock of ours can have this name
    return sorted(found)


def look(
    session: Session, place: Place, names: list[str], promised: Capabilities, deadline: Deadline
) -> list[LockInfo]:
    """The locks of these names as they are now."""
    found = []
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        queues = [queue.in_order(line) for line in _children(session, deadline, [place.key(name) for name in some])]
        paths = [
            f"{place.key(name)}/{node}"
            for name, line in zip(some, queues, strict=True)
            for node in line[: MOST_WAITERS + 1]
        ]
        nodes = _read(session, deadline, paths)
        for name, line in zip(some, queues, strict=True):
            there = [nodes[f"{place.key(name)}/{node}"] for node in line[: MOST_WAITERS + 1]]
            found.append(_lock(name, place, promised, [node for node in there if node is not None]))
    return found


def take_away(
    session: Session, place: Place, name: str, seen: Holder, deadline: Deadline, *, now: bool, by: str, reason: str
) -> int | None:
    """See ``Backend.revoke``."""
    from kazoo.exceptions import BadVersionError, NoNodeError

    while True:
        (names,) = _children(session, deadline, [place.key(name)])
        paths = [f"{place.key(name)}/{node}" for node in queue.in_order(names)[:2]]
        nodes = _read(session, deadline, paths)
        there = [(path, nodes[path]) for path in paths if nodes[path] is not None]
        if not there:
            return None
        path, (data, stat) = there[0]
        holder = _holder(data, stat)
        same = (holder.owner, holder.token, holder.acquired_at) == (seen.owner, seen.token, seen.acquired_at)
        if not same and (holder.owner is None or (holder.owner, holder.token) != (seen.owner, seen.token)):
            return None
        # whoever waits has a token already; who comes later gets one after the last transaction that was seen
        floor = there[1][1][1].czxid if len(there) > 1 else session.last_zxid + 1
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
            message = f"{place}: {type(answer).__name__}"
            raise BackendUnavailable(message)
        return int(floor)


def _children(session: Session, deadline: Deadline, paths: list[str]) -> list[list[str]]:
    """The names below each of some nodes, as the leader knows them; none below a node that is not there."""
    calls: list[Call] = [lambda client: client.sync_async(paths[0])]
    calls += [lambda client, path=path: client.get_children_async(path) for path in paths]  # type: ignore[misc]
    answers = session.ask(deadline, *calls)[1:]
    return [[] if isinstance(answer, Exception) else answer for answer in answers]


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


def _lock(name: str, place: Place, promised: Capabilities, nodes: list[tuple[bytes, Any]]) -> LockInfo:
    holders = tuple(_holder(*node) for node in nodes[:1])
    state = "free" if not holders else "held" if holders[0].owner is not None else "foreign"
    waiters = tuple(_waiter(*node) for node in nodes[1:])
    return LockInfo(name, promised.scheme, place.key(name), state, promised.fencing, 1, holders, waiters, None)


def _holder(data: bytes, stat: Any) -> Holder:
    document = documents.read(data.partition(b"\n")[0])
    if document is None:
        return documents.foreign_holder(host=_identifier(data), acquired_at=stat.ctime / 1000)
    # when it renewed last is known by the leader's clock alone, which may differ from ours
    return documents.holder(document, token=stat.czxid, expires_in=None)


def _waiter(data: bytes, stat: Any) -> Waiter:
    document = documents.read(data.partition(b"\n")[0])
    since = stat.ctime / 1000
    if document is None:
        return Waiter(_identifier(data), None, None, since)
    return documents.waiter(document, since=since)


def _identifier(data: bytes) -> str | None:
    """What another tool says about itself: kazoo's identifier, Curator's address."""
    return printable(data[: 4 * LONGEST_IDENTIFIER].decode("utf-8", "replace"))[:LONGEST_IDENTIFIER] or None
