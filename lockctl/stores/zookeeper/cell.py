"""Cells in nodes of a ZooKeeper ensemble, written on condition of the version of the node.

What a quorum of the servers has on disk is what counts. A read may come from a server that is behind, so what is to be
relied on and is not written is confirmed by a transaction.
"""

from __future__ import annotations

import _thread
import time
import urllib.parse

from lockctl.clock import wall
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.driver import Cells, Seen, TimedMutex, escaped
from lockctl.stores.zookeeper.errors import SessionLost, or_none, refusal, usable
from lockctl.stores.zookeeper.session import Session
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.session import Call

# in the place of a cell that was removed, and so no content of one: the node stays, or its versions would begin again
REMOVED = b"no mark"
MISSING = -1  # the version of a node that there is not
SESSION_TIMEOUT = 6.0  # seconds, should it not be ended
FAREWELL = 0.5  # seconds for ending the session
PAUSE = 0.05  # seconds before a request is sent again


class ZooKeeperCells(Cells):
    """The nodes below one, each with the escaped key for its name."""

    longest_look = 0.2

    def __init__(self, place: Place, folder: str) -> None:
        """*folder* is the whole path of the node above. Nothing is opened before it is needed."""
        self._place = place
        self._folder = folder
        self._mutex = _thread.allocate_lock()  # for the session, which a thread may replace
        self._session: Session | None = None
        self.where = str(place)

    def shown(self, key: str) -> str:
        """See ``Cells``: the node."""
        return f"{self._folder}/{escaped(key)}"

    def read(self, key: str, deadline: Deadline) -> Seen:
        """See ``Cells``: as new as a server can say, see :meth:`confirm`."""
        node = self.shown(key)
        _, answer = self._ask(deadline, lambda client: client.sync(node), lambda client: client.get(node))
        found = or_none(self._place, answer, node)
        if found is None:
            return Seen(None, MISSING, wall())
        data, stat = found
        # answers do not tell the time: the servers' clocks show in the times of changes alone
        return Seen(None if data == REMOVED else data or b"", stat.version, max(wall(), stat.mtime / 1000))

    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

        node, content = self.shown(key), REMOVED if data is None else data
        if seen.version != MISSING:
            (answer,) = self._ask(deadline, lambda client: client.put(node, content, seen.version))
        else:
            (answer,) = self._ask(deadline, lambda client: client.create(node, content))
            if isinstance(answer, NoNodeError):
                self._make_folder(deadline)
        if isinstance(answer, (BadVersionError, NodeExistsError, NoNodeError)):
            return False
        usable(self._place, answer, node)
        return True

    def confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        """See ``Cells``: by a transaction that writes nothing, of which only the leader knows the outcome."""
        from kazoo.exceptions import BadVersionError, NoNodeError

        node = self.shown(key)
        (answers,) = self._ask(deadline, lambda client: client.transaction(client.check(node, seen.version)))
        answer = answers[0] if isinstance(answers, list) and answers else answers
        if isinstance(answer, (BadVersionError, NoNodeError)):
            return False
        if usable(self._place, answer, node) is not True:
            raise refusal(self._place, ValueError(), node)
        return True

    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """See ``Cells``: a request for each cell."""
        folder = self._folder
        _, names = self._ask(deadline, lambda client: client.sync(folder), lambda client: client.children(folder))
        for name in or_none(self._place, names, folder) or ():
            key = urllib.parse.unquote(name, errors="surrogateescape")
            if key.startswith(prefix) and escaped(key) == name:
                seen = self.read(key, deadline)
                if seen.data is not None:
                    yield key, seen

    def close(self) -> None:
        with self._mutex:
            session, self._session = self._session, None
        if session is None:
            return
        try:
            if session.connected:
                session.end(Deadline(FAREWELL))
        except (BackendUnavailable, ConfigError):
            pass  # it ends by itself
        session.abandon()

    def _make_folder(self, deadline: Deadline) -> None:
        with TimedMutex(self._mutex, deadline, self.where):
            try:
                self._open().make(self._folder, deadline)
            except SessionLost:
                self._forget()  # the next request has another session

    def _ask(self, deadline: Deadline, *calls: Call) -> list[Any]:
        """As ``Session.ask``; again when the connection or the session was lost, for requests that stand it."""
        with TimedMutex(self._mutex, deadline, self.where):
            while True:
                session = self._open()
                try:
                    session.refresh(deadline)
                    return session.ask(deadline, *calls)
                except SessionLost:
                    self._forget()
                except BackendUnavailable:
                    if deadline.left() <= PAUSE:
                        raise
                    time.sleep(PAUSE)
                deadline.check(self.where)

    def _open(self) -> Session:
        if self._session is None:
            self._session = Session(self._place, SESSION_TIMEOUT)
        return self._session

    def _forget(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()
