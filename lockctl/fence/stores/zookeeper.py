"""Marks in a ZooKeeper ensemble: one node for each resource, written on condition of its version.

What a quorum of the servers has on disk is what counts. A read may come from a server that is behind, so that a mark
which need not be written is confirmed by a transaction.
"""

from __future__ import annotations

import time

from lockctl.backends.zookeeper.place import read_url
from lockctl.backends.zookeeper.session import Session, SessionLost, client_class
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.stores import text
from lockctl.fence.stores.conditional import ConditionalStore, Seen
from lockctl.url import take_params
from lockctl.wire.deadline import Deadline
from lockctl.wire.tls_settings import PARAMETERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from lockctl.backends.zookeeper.connection import Client
    from lockctl.backends.zookeeper.place import Place
    from lockctl.backends.zookeeper.session import Call
    from lockctl.url import Url

FENCE = ".fence"  # below the root: no lock can have this name
# in the place of a mark that was removed: the node stays, or its versions would begin again
REMOVED = b"no mark"
MISSING = -1  # the version of a node that there is not
SESSION_TIMEOUT = 6.0  # seconds, should it not be ended
FAREWELL = 0.5  # seconds for ending the session
PAUSE = 0.05  # seconds before a request is sent again


class ZooKeeperStore(ConditionalStore):
    """See ``Store``. Marks are below ``ROOT/.fence``, so that locks and marks can have the same URL."""

    parameters: ClassVar[dict[str, str]] = dict(PARAMETERS)

    def __init__(self, place: Place) -> None:
        """Nothing is opened before it is needed."""
        self._place = place
        self.where = str(place)
        self._session: Session | None = None

    @classmethod
    def from_url(cls, url: Url) -> ZooKeeperStore:
        """``zookeeper://H1:2181,H2:2181/ROOT``; raises ``ConfigError``."""
        take_params(url, cls.parameters)
        place = read_url(url)
        client_class()  # says so when kazoo is missing
        return cls(place)

    def close(self) -> None:
        """See ``Store``."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if session.connected:
                session.end(Deadline(FAREWELL))
        except (BackendUnavailable, ConfigError):
            pass  # it ends by itself
        session.abandon()

    def _key(self, resource: str) -> str:
        return f"{self._place.root}/{FENCE}/{text.escaped(resource)}"

    def _read(self, key: str, deadline: Deadline) -> Seen:
        from kazoo.exceptions import NoNodeError

        _, found = self._ask(deadline, lambda client: client.sync_async(key), lambda client: client.get_async(key))
        if isinstance(found, NoNodeError):
            return Seen(None, MISSING)
        if isinstance(found, Exception):
            raise self._strange(found, key)
        data, stat = found
        return Seen(None if data == REMOVED else data or b"", stat.version)

    def _write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

        content = REMOVED if data is None else data
        if seen.version != MISSING:
            (answer,) = self._ask(deadline, lambda client: client.set_async(key, content, seen.version))
        else:
            (answer,) = self._ask(deadline, lambda client: client.create_async(key, content))
            if isinstance(answer, NoNodeError):
                self._make_parent(key.rpartition("/")[0], deadline)
        if isinstance(answer, (BadVersionError, NodeExistsError, NoNodeError)):
            return False
        if isinstance(answer, Exception):
            raise self._strange(answer, key)
        return True

    def _confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        from kazoo.exceptions import BadVersionError, NoNodeError

        def commit(client: Client) -> Any:
            transaction = client.transaction()
            transaction.check(key, seen.version)
            return transaction.commit_async()

        (answers,) = self._ask(deadline, commit)
        answer = answers[0] if isinstance(answers, list) and answers else answers
        if isinstance(answer, (BadVersionError, NoNodeError)):
            return False
        if isinstance(answer, Exception) or answer is not True:
            raise self._strange(answer if isinstance(answer, Exception) else ValueError(), key)
        return True

    def _make_parent(self, node: str, deadline: Deadline) -> None:
        try:
            self._open().make(node, deadline)
        except SessionLost:
            self._forget()  # the next request has another session

    def _ask(self, deadline: Deadline, *calls: Call) -> list[Any]:
        """As ``Session.ask``; again when the connection or the session was lost, for requests that stand it."""
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

    def _strange(self, failure: Exception, key: str) -> BackendUnavailable:
        return self._open().strange(failure, key)
