"""One claim: its session, its node in the queue of the lock, and what becomes of it.

The node's data is the document of the holder or waiter on the first line. Who wants the lock back adds a
second line (:func:`with_revocation`): it is gone with the node, and can hit nobody else.
"""

from __future__ import annotations

import os

from lockctl import documents
from lockctl.backends.zookeeper import queue
from lockctl.backends.zookeeper.session import Session, SessionLost
from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, LeaseLost, LeaseRevoked
from lockctl.model import Grant
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.backends.zookeeper.place import Place
    from lockctl.backends.zookeeper.session import Bell
    from lockctl.model import Claim
    from lockctl.wire.deadline import Deadline

SAFE_PART = 0.5  # of the session timeout: see `session`
BY_CURATOR = b"__REVOKE__"  # what Curator's Revoker writes into the node of a holder


class Candidate:
    """One claim, from its first request until its session has ended."""

    def __init__(self, place: Place, claim: Claim) -> None:
        """Nothing is sent yet."""
        self.claim = claim
        self._place = place
        self._parent = place.key(claim.name)
        self._session: Session | None = None
        self._stem = ""
        self._node: str | None = None  # the name of our node, once its creation was answered
        self._version = -1
        self._data = b""
        self._acquired_at: float | None = None
        self._asked: tuple[str, str] | None = None
        self.token: int | None = None  # once granted

    def take(self, deadline: Deadline) -> Grant | None:
        """See ``Backend.try_acquire``."""
        while True:
            try:
                return self._take(self._open(), deadline)
            except (SessionLost, _Vanished):
                deadline.check(str(self._place))

    def wait(self, deadline: Deadline) -> None:
        """See ``Backend.wait``; returns early, or when the deadline has passed."""
        session = self._open()
        session.keep_alive(wanted=True)
        bell = session.bell()
        try:
            self._wait(session, deadline, bell)
        except (SessionLost, _Vanished):
            pass  # a new place in the queue is needed: the next attempt sees to it
        finally:
            session.unhang(bell)
            session.keep_alive(wanted=False)

    def renew(self, grant: Grant, deadline: Deadline) -> Grant:
        """See ``Backend.renew``."""
        if self._session is None or self._node is None or self.token != grant.token:
            raise LeaseLost("the lock was given back")
        session = self._session
        try:
            session.refresh(deadline)
            self._write(session, deadline, self._data)
        except SessionLost:
            raise LeaseLost("the server has ended the session: it had not heard of us for too long") from None
        except _Vanished:
            raise LeaseLost("the node of the lock was deleted") from None
        if self._asked is not None:
            raise LeaseRevoked(*self._asked)
        return Grant(grant.claim, grant.token, grant.domain, grant.key, session.timeout * SAFE_PART)

    def end(self, deadline: Deadline) -> None:
        """Leave nothing at the server. Raises ``BackendUnavailable``, ``ConfigError``; may be repeated."""
        if self._session is not None:
            self._session.end(deadline)
            self._forget()

    def abandon(self) -> None:
        """Tell nobody: what there is ends with the session."""
        if self._session is not None:
            self._session.abandon()
            self._forget()

    def _open(self) -> Session:
        """The session; a new one if there is none, or the server ended it."""
        if self._session is not None and self._session.expired:
            self._session.abandon()
            self._forget()
        if self._session is None:
            self._session = Session(self._place, self.claim.ttl / SAFE_PART)
            # new for each session, so that a node by this name is ours and no other's
            self._stem = queue.prefix(os.urandom(16).hex(), self._place.layout)
        return self._session

    def _forget(self) -> None:
        self._session = self._node = self.token = None
        self._version = -1

    def _take(self, session: Session, deadline: Deadline) -> Grant | None:
        session.refresh(deadline)
        from kazoo.exceptions import NoNodeError

        names, root = session.ask(
            deadline,
            lambda client: client.get_children_async(self._parent),
            lambda client: client.exists_async(self._place.root),
        )
        line = [] if isinstance(names, NoNodeError) else queue.in_order(names)
        self._node = queue.mine(line, self._stem)
        if self._node is None:
            # what a follower shows may be old: nobody is refused for that
            if line and self._line(session, deadline):
                return None
            stat = self._create(session, deadline, granted=True)
            if stat is None:
                return None
        elif line[0] != self._node:
            return None
        else:
            stat = self._write(session, deadline, self._describe(granted=True))
        if root is None or isinstance(root, Exception):
            (root,) = session.ask(deadline, lambda client: client.exists_async(self._place.root))
            if root is None:
                raise _Vanished
        self.token = stat.czxid
        # the node above all locks is as old as the ensemble's data: made anew after a loss, it is another
        domain = f"zookeeper:{root.czxid:x}-{root.ctime:x}"
        return Grant(self.claim, stat.czxid, domain, self._parent, session.timeout * SAFE_PART)

    def _wait(self, session: Session, deadline: Deadline, bell: Bell) -> None:
        from kazoo.exceptions import NoNodeError

        line = self._line(session, deadline)
        self._node = queue.mine(line, self._stem)
        if self._node is None:
            self._create(session, deadline, granted=False)
        while True:
            line = self._line(session, deadline)
            if self._node not in line:
                raise _Vanished
            position = line.index(self._node)
            if position == 0:
                return
            # only the one before us: when it leaves, it wakes nobody else
            before = f"{self._parent}/{line[position - 1]}"
            (found,) = session.ask(deadline, lambda client: client.get_async(before, watch=bell.ring))  # noqa: B023
            if isinstance(found, NoNodeError):
                continue
            bell.wait(deadline, str(self._place))
            self._outlast(session, deadline, bell)

    def _outlast(self, session: Session, deadline: Deadline, bell: Bell) -> None:
        """Wait until there is a connection again, for as long as the session may still be there."""
        if session.connected or session.expired:
            return
        patience = deadline.sooner(session.timeout)
        while not session.connected and not session.expired:
            bell.wait(patience, str(self._place))

    def _line(self, session: Session, deadline: Deadline) -> list[str]:
        """The queue as the leader knows it."""
        from kazoo.exceptions import NoNodeError

        _, names = session.ask(
            deadline,
            lambda client: client.sync_async(self._parent),
            lambda client: client.get_children_async(self._parent),
        )
        return [] if isinstance(names, NoNodeError) else queue.in_order(names)

    def _create(self, session: Session, deadline: Deadline, *, granted: bool) -> Any:
        """Make our node. With *granted*: its stat if it is the first; else it is removed again, and ``None``."""
        from kazoo.exceptions import KazooException, NoNodeError

        self._acquired_at = self._asked = None  # of an earlier node, if there was one
        data = self._describe(granted=granted)
        path = f"{self._parent}/{self._stem}"
        while True:
            made, names = session.ask(
                deadline,
                lambda client: client.create_async(path, data, ephemeral=True, sequence=True, include_data=True),
                lambda client: client.get_children_async(self._parent),
            )
            if not isinstance(made, NoNodeError):
                break
            self._make_parents(session, deadline)
        if isinstance(made, KazooException):
            message = f"{self._place}: cannot make a node below {self._parent}: {type(made).__name__}"
            raise BackendUnavailable(message)
        full, stat = made
        self._node = full.rpartition("/")[2]
        self._data, self._version = data, stat.version
        if isinstance(names, KazooException):
            raise _Vanished
        if granted and queue.in_order(names)[:1] != [self._node]:
            session.ask(deadline, lambda client: client.delete_async(full))
            self._node = None
            return None
        return stat

    def _make_parents(self, session: Session, deadline: Deadline) -> None:
        """Make the lock's own node, and what is missing above: only that, for there we may not be allowed to."""
        from kazoo.exceptions import NoNodeError

        parts = self._parent[1:].split("/")
        missing = ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
        wanted = len(missing) - 1
        while 0 <= wanted < len(missing):
            path = missing[wanted]
            (answer,) = session.ask(deadline, lambda client: client.create_async(path))  # noqa: B023
            wanted += -1 if isinstance(answer, NoNodeError) else 1  # one that is there already answers so

    def _write(self, session: Session, deadline: Deadline, data: bytes) -> Any:
        """Renew the session by a write to our node, whose stat is given back; notices a revocation.

        Raises ``_Vanished`` when the node is not there, and what ``Session.ask`` raises.
        """
        from kazoo.exceptions import BadVersionError, NoNodeError

        path = f"{self._parent}/{self._node}"
        version, self._data = self._version, data
        (stat,) = session.ask(deadline, lambda client: client.set_async(path, data, version))
        if isinstance(stat, BadVersionError):
            # a write of ours whose answer was lost, or a revocation: the refusal renewed the session all the same
            (found,) = session.ask(deadline, lambda client: client.get_async(path))
            if isinstance(found, NoNodeError):
                raise _Vanished
            if isinstance(found, Exception):
                raise self._strange(found)
            there, stat = found
            asked = revocation(there, self.claim.owner)
            if asked is not None:
                self._asked = asked
                self._data = with_revocation(data, self.claim.owner, *asked)  # for others to see
        elif isinstance(stat, NoNodeError):
            raise _Vanished
        elif isinstance(stat, Exception):
            raise self._strange(stat)
        self._version = stat.version
        return stat

    def _describe(self, *, granted: bool) -> bytes:
        if not granted:
            return documents.describe(self.claim, {"since": wall()})
        if self._acquired_at is None:
            self._acquired_at = wall()
        return documents.describe(self.claim, {"acquired_at": self._acquired_at})

    def _strange(self, failure: Exception) -> BackendUnavailable:
        return BackendUnavailable(f"{self._place}: {type(failure).__name__}")


class _Vanished(Exception):
    """Our node, or what is above it, is not there any more."""


def with_revocation(data: bytes, owner: str, by: str, reason: str) -> bytes:
    """The data of a holder's node with a request to give the lock back."""
    return data.partition(b"\n")[0] + b"\n" + documents.describe_revocation(owner, by, reason)


def revocation(data: bytes, owner: str) -> tuple[str, str] | None:
    """Who wants the lock back from *owner*, and why; ``None``: nobody."""
    if data == BY_CURATOR:
        return "a Curator client", ""
    asked = documents.read_revocation(data.partition(b"\n")[2], owner)
    return None if asked is None else (printable(asked[0]), printable(asked[1]))
