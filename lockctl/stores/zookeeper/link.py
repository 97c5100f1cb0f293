"""The connection of a session: made anew at one server after the other, with deadlines, and without a thread.

See :mod:`lockctl.stores.zookeeper.session` for why it counts how long it was silent.
"""

from __future__ import annotations

import math
import os

from lockctl import clock
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, RequestInterrupted
from lockctl.stores.zookeeper.errors import NotAccepted, Servers, SessionLost
from lockctl.wire.deadline import Deadline
from lockctl.wire.stream import Closed, Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.connection import Connection
    from lockctl.stores.zookeeper.errors import Server

LONGEST_SILENCE = 1 / 4  # of the session timeout
LONGEST_GAP = 1 / 5  # of the session timeout, from the sending of one request to the answer to the next
PING_PART = 8  # of the session timeout: so dense that who was asked to listen has no gap
LONGEST = (2**31 - 1) / 1000  # seconds: the protocol has an int32 of milliseconds
SHORTEST_ATTEMPT = 0.3  # seconds to connect to one server: three round trips around the globe
LONGEST_ATTEMPT = 3.0
ATTEMPT_PART = 6  # of the session timeout: some servers may be dead before it is over
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25  # seconds after all servers were tried


class Link:
    """The way of one session to the servers. For one thread at a time."""

    def __init__(self, place: Place, timeout: float, server: Server | None) -> None:
        """Ask for a session of *timeout* seconds, first at this *server*. Nothing is sent yet."""
        from lockctl.stores.zookeeper.protocol import PASSWORD, Requests

        self.place = place
        self.requests = Requests(place)
        self.asked = min(math.ceil(timeout * 1000) / 1000, LONGEST)
        self.timeout = 0.0  # seconds, as the server granted it; 0: there is no session yet
        self.identity, self.expired = (0, PASSWORD), False  # of the session; whether the server said that it ended it
        self.servers = Servers(place, server)
        self.told: set[tuple[str, bool]] = set()  # by watches: the path of a node, and whether it has gone
        self._connection: Connection | None = None
        self.opening: tuple[Connection, Server] | None = None  # one whose answer is to come
        self._opened = 0.0  # when a connection was asked for last; CLOCK_BOOTTIME
        self._heard = 0.0  # when the last request was sent on this connection that was answered, or itself asked for
        self._had_gap = False  # whether more time than a part of the session timeout lay between two of them
        self._last_zxid = 0  # before this connection

    @property
    def last_zxid(self) -> int:
        """The last transaction of the ensemble that an answer has shown."""
        return self._last_zxid if self._connection is None else self._connection.last_zxid

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self._connection is not None

    def is_silent(self) -> bool:
        """Whether the silence of the connection was too long to count on it."""
        return self._had_gap or boottime() - self._heard > self.timeout * LONGEST_SILENCE

    @property
    def descriptor(self) -> int | None:
        """That of the connection, if there is one or will be."""
        connection = self._connection or (self.opening and self.opening[0])
        return None if connection is None else connection.fileno()

    def connect(self, deadline: Deadline, *, once: bool = False) -> None:
        """Have a connection that was not closed as far as can be known, after *once* an attempt at each server.

        Raises ``SessionLost``, and as :meth:`ask`.
        """
        if self.expired:
            raise SessionLost
        self.read()
        if self._connection is None:
            self._try_servers(deadline, once=once)

    def ask(self, requests: list[Any], deadline: Deadline) -> list[Any]:
        """What is answered. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""
        sent = boottime()
        answers: list[Any] = self._try(lambda connection: connection.ask(requests, deadline))
        self._note_answer(sent)
        return answers

    def read(self) -> None:
        """Take what has come by now."""
        connection = self._connection
        try:
            if connection is not None:
                connection.receive(Deadline(0.0))
            elif self.opening is not None:
                self.await_welcome(Deadline(0.0))
        except (Closed, ConfigError):
            self.drop()
        except (BackendUnavailable, SessionLost):
            pass  # nothing, or only a part of a message or of a record of TLS
        if connection is not None:
            self._hear(connection)

    def keep_alive(self, deadline: Deadline) -> float:
        """Send a ping if it is time for one; seconds until the next one. Without a connection, see :meth:`seek`."""
        connection = self._connection
        if connection is None:
            return self.seek(deadline)
        left = max(self._heard, connection.pinged) + self.timeout / PING_PART - boottime()
        if left > 0:
            return left
        if connection.pinged:
            self.servers.avoided = self.servers.last  # it does not answer any more
            self.drop()
            return 0.0
        try:
            self._try(lambda connection: connection.ping(deadline))
        except (BackendUnavailable, ConfigError):
            pass  # there is no connection now
        return 0.0

    def seek(self, deadline: Deadline) -> float:
        """Ask one server for a connection, which :meth:`read` finds later; seconds until another one is to be asked."""
        limit = self._limit
        if self.expired:
            return limit
        if self._opened and (left := self._opened + limit - boottime()) > 0:
            return left
        if self.opening is not None:
            self.servers.avoided = self.opening[1]
            self.drop()
        server = self.servers.in_turn()[0]
        try:
            self._open(server, deadline.sooner(SHORTEST_ATTEMPT))
        except (BackendUnavailable, ConfigError):
            self.servers.avoided = server
            self.drop()
        return limit

    def await_welcome(self, deadline: Deadline) -> None:
        """Take the answer of the server that was asked for a connection; raises ``Closed``, and as :meth:`connect`."""
        assert self.opening is not None
        connection, server = self.opening
        timeout, number, password = connection.welcome(deadline)
        if timeout <= 0:
            raise self.lost()
        self.opening, self._connection = None, connection
        self.timeout, self.identity = timeout / 1000, (number, password)
        self.servers.last, self._heard, self._had_gap = server, self._opened, False

    def drop(self) -> None:
        """End the connection."""
        if self.opening is not None:
            self.opening[0].close()
            self.opening = None
        if self._connection is not None:
            self._last_zxid = self._connection.last_zxid
            self._connection.close()
            self._connection = None

    def lost(self) -> SessionLost:
        """The error that says that the session is over."""
        self.drop()
        self.expired = True
        return SessionLost()

    def _try(self, use: Callable[[Connection], Any]) -> Any:
        """Use the connection; after a failure there is none any more."""
        connection = self._connection
        assert connection is not None
        try:
            return use(connection)
        except Closed:
            self.drop()
            raise BackendUnavailable(f"{self.place}: the connection was lost") from None
        except BaseException:
            self.servers.avoided = self.servers.last
            self.drop()  # a late answer must never be taken for one to a later request
            raise
        finally:
            self._hear(connection)

    def _hear(self, connection: Connection) -> None:
        """Know of a ping that was answered."""
        if connection.ponged > self._heard:
            self._note_answer(connection.ponged)

    def _note_answer(self, sent: float) -> None:
        """Know that a request that was sent at *sent* on this connection has been answered."""
        if boottime() - self._heard > self.timeout * LONGEST_GAP:
            self._had_gap = True
        self._heard = max(self._heard, sent)

    def _try_servers(self, deadline: Deadline, *, once: bool) -> None:
        """Connect to one after the other, *once* or again and again; raises as :meth:`connect`."""
        rounds, span = 0, FIRST_PAUSE
        while True:
            if any(self._has_opened(server, deadline) for server in self.servers.in_turn()):
                return
            rounds, known = rounds + 1, self.last_zxid > 0
            self.servers.check(known=known, begun=rounds > 1 and not self.timeout)
            if once or deadline.left() <= 0:
                raise BackendUnavailable(f"{deadline.passed(str(self.place))}: {self.servers.in_words(known=known)}")
            if clock.pause(min(span * (1 + os.urandom(1)[0] / 1280), deadline.left()), deadline.interrupt):
                raise RequestInterrupted(f"{self.place}: interrupted")
            span = min(2 * span, LONGEST_PAUSE)

    def _has_opened(self, server: Server, deadline: Deadline) -> bool:
        """Whether there is a connection to this server now, or to the one that was asked before."""
        try:
            if self.opening is None:
                self._open(server, deadline.sooner(self._limit))
            else:
                server = self.opening[1]
            until = deadline.sooner(max(self._opened + self._limit - boottime(), 0.0))
            until.timeout = until.until - self._opened  # for messages: an earlier call has waited, too
            self.await_welcome(until)
        except NotAccepted:
            self.drop()
            raise
        except (BackendUnavailable, ConfigError) as failure:
            if self.timeout or deadline.left() > 0:
                self.drop()  # else it may tell yet which session it has begun
            self.servers.note(server, failure, deadline)
            return False
        self.servers.failures.clear()
        self.servers.avoided = None
        return True

    @property
    def _limit(self) -> float:  # seconds for an attempt to connect to one server
        return min(max((self.timeout or self.asked) / ATTEMPT_PART, SHORTEST_ATTEMPT), LONGEST_ATTEMPT)

    def _open(self, server: Server, deadline: Deadline) -> None:
        """Connect to a server, and ask it to begin or continue the session."""
        from lockctl.stores.zookeeper.connection import Connection

        self._opened, (host, port) = boottime(), server
        stream = Endpoint(self.place.shown(server), host, port, tls=self.place.tls).connect(deadline)
        connection = Connection(stream, self.place, self._last_zxid, self.told)
        self.opening = connection, server
        hello = self.requests.hello(self._last_zxid, self.asked, *self.identity)
        connection.greet(hello, self.requests.login, deadline)
