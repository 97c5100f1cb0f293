"""kazoo's client with the parts replaced that have no time limit, hide what is needed, or talk.

- Connecting: kazoo waits as long as a session for a server that does not answer, and verifies certificates
  but not names. Here every attempt is short, and TLS is that of all backends.
- The session timeout that the server granted: kazoo keeps it to itself.
- Pings: kazoo keeps a session alive as long as the process runs. Here only a waiter's is; a holder's
  session lives by its renewals, or a lease would not end with them.
- A dead server: kazoo notices one only when it sends nothing itself. Here a request without an answer
  ends the connection (:meth:`Connection.drop`), and the next attempt goes to another server first.
- Threads die silently, nothing is logged, and nothing waits for them at exit.

Uses what kazoo keeps to itself (checked with 2.10 and 2.11); tests against real servers hold it to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Close
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from lockctl.stores.zookeeper.connection import Connection, Silence
from lockctl.stores.zookeeper.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from lockctl.stores.zookeeper.address import Place

RECONNECT = {"delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 0.25}  # seconds between two rounds


class CloseSession(Close):  # type: ignore[misc]
    """The end of a session, with an answer that can be waited for."""

    def __bool__(self) -> bool:
        return True  # kazoo gives no answer to a request that is an empty tuple

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> bool:
        """The answer has no content."""
        return True


class Client(KazooClient):  # type: ignore[misc]
    """One session, connected and reconnected in the background until :meth:`abandon`."""

    def __init__(
        self,
        place: Place,
        session_timeout: float,
        tell: Callable[[], None],
        *,
        context: Callable[[], SSLContext] | None,
    ) -> None:
        """*context* is asked for at each connection. *tell* is called from other threads whenever something changed.

        Nothing is sent before ``start_async``.
        """
        self.tell = tell
        self.expired = False
        self.refused = False
        self.dismissed = False  # nobody waits for its end
        handler = Handler(context, place.tls.tls_name if place.tls is not None else None)
        retry = KazooRetry(max_tries=-1, sleep_func=handler.sleep_func, **RECONNECT)
        auth = [("digest", f"{place.user}:{place.password}")] if place.user is not None else None
        super().__init__(
            hosts=place.addresses,
            timeout=session_timeout,
            handler=handler,
            default_acl=CREATOR_ALL_ACL if auth else None,
            auth_data=auth,
            connection_retry=retry,
            command_retry=retry,
            logger=Silence(),
        )
        self._connection = Connection(self, self._conn_retry.copy())

    @property
    def link(self) -> Connection:
        """The connection, for what only it knows."""
        found: Connection = self._connection
        return found

    @property
    def connected(self) -> bool:
        """Whether a request may be sent now: one on a connection that was dropped would be lost with it."""
        return bool(super().connected) and not self.link.dropped

    def _session_callback(self, state: Any) -> None:
        if state == KeeperState.EXPIRED_SESSION:
            self.expired = True
            self._stopped.set()  # kazoo would go on with a new session, of which nobody here knows
        if state == KeeperState.AUTH_FAILED:
            self.refused = True
        super()._session_callback(state)
        self.tell()

    def close_session_async(self) -> Any:
        """Ask the server to end the session with all that belongs to it."""
        result = self.handler.async_result()
        self._call(CloseSession(), result)
        return result

    def dismiss(self) -> None:
        """Have the session ended in the background, if the server is in reach; then close the connection."""
        self.dismissed = True
        if self.connected:
            self.link.pinging = True  # shows it when the server does not answer any more
            self.close_session_async()
            self._stopped.set()  # without a connection it is given up
        else:
            self.abandon()

    def abandon(self) -> None:
        """Connect no more, and tell the server nothing: as if the process had died. Does not wait."""
        self._stopped.set()
        self.link.drop()
        self.handler.stop()
