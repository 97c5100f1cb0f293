"""kazoo's connection, with time limits of our own.

See :mod:`lockctl.stores.zookeeper.protocol` for what is replaced, and why.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionDropped,
    SessionExpiredError,
    SystemZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler

from lockctl.clock import boottime
from lockctl.wire.stream import LARGEST_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.retry import KazooRetry

SHORTEST_ATTEMPT = 0.3  # seconds to connect to one server: three round trips around the globe
LONGEST_ATTEMPT = 3.0
ATTEMPT_PART = 6  # of the session timeout: some servers may be dead before it is over
PING_PART = 8  # of the session timeout: see `session` for why pings are so dense
GAP_PART = 5  # of the session timeout, from the sending of one request to the answer to the next: see `session`
SESSION_REQUIRES_AUTH = -124  # an error that kazoo does not know; it says so by closing the connection
QUOTA_EXCEEDED = -125  # one that older kazoos do not know: inside of a transaction it would end the connection
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: discard what was not sent yet, so that no request arrives late

logging.getLogger("kazoo").addHandler(logging.NullHandler())  # else its warnings end up on stderr
logging.getLogger("kazoo").propagate = False
EXCEPTIONS.setdefault(QUOTA_EXCEEDED, SystemZookeeperError)


class Silence:
    """A logger that says nothing; what matters is reported by ``Session``."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return self._ignore

    def _ignore(self, *_args: object, **_kwargs: object) -> None:
        pass


class Connection(ConnectionHandler):  # type: ignore[misc]
    """The loop that connects, sends and reads, in a thread of its own."""

    def __init__(self, client: Any, sleeper: KazooRetry) -> None:
        """*client* is a ``Client`` of :mod:`lockctl.stores.zookeeper.protocol`."""
        super().__init__(client, sleeper, logger=Silence())
        self.pinging = False
        self.session_timeout = 0.0  # seconds, as the server granted it; 0: no session yet
        # when the last request was sent on this connection that was answered, or the connection itself was asked for;
        # seconds on CLOCK_BOOTTIME
        self.heard = 0.0
        self.had_gap = False  # whether more time than a part of the session timeout lay between two of them
        self._pinged = 0.0  # when the last ping was sent; CLOCK_BOOTTIME
        self.failures: dict[str, BaseException] = {}  # of the last attempt at each server
        self.rounds = 0  # that have begun: in each, all servers are tried
        self._server: tuple[str, int] | None = None
        self._avoid: tuple[str, int] | None = None
        self._dropped: socket.socket | None = None

    def zk_loop(self) -> None:
        """As kazoo's; at its end, nothing of the connection is left."""
        try:
            super().zk_loop()
        finally:
            self.close()  # the socket pair; nobody else is sure when it is not needed any more
            self.client.tell()
            if self.client.dismissed:
                self.handler.stop()

    def drop(self, *, avoid: bool = True) -> None:
        """End the connection, so that another is made, with *avoid* to another server. From any thread."""
        if avoid:
            self._avoid = self._server
        sock = self._socket
        if sock is not None:
            self._dropped = sock
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                # of the socket below TLS: the thread may be reading
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass  # not connected, or closed meanwhile

    @property
    def dropped(self) -> bool:
        """Whether the connection was ended with :meth:`drop`, and its thread may not know it yet."""
        return self._dropped is not None and self._dropped is self._socket

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """The addresses of all servers by chance, but the one that failed last at the end."""
        self.rounds += 1
        found = []
        for host, port in self.client.hosts:
            try:
                addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                self.failures[f"{host}:{port}"] = OSError(errno.ENOENT, "the name has no address")
                continue
            found += [(host, str(address[0]), port) for *_, address in addresses]
        if not found:
            self.client.tell()
        chance = random.SystemRandom()
        found.sort(key=lambda each: ((each[0], each[2]) == self._avoid, chance.random()))
        return found

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        asked: float = self.client._session_timeout / 1000  # noqa: SLF001
        known = self.session_timeout or asked
        limit = min(max(known / ATTEMPT_PART, SHORTEST_ATTEMPT), LONGEST_ATTEMPT)
        self.handler.attempt_until = time.monotonic() + limit
        self._server = (host, port)
        self.handler.host = host
        begun = boottime()
        try:
            read_timeout, _ = super()._connect(host, hostip, port)
        except (SessionExpiredError, AuthFailedError):
            raise
        except Exception as failure:
            self._avoid = self._server
            cause = failure.__context__ if isinstance(failure.__context__, OSError) else failure
            self.failures[f"{host}:{port}"] = cause
            self.client.tell()
            raise ConnectionDropped(str(failure)) from failure
        finally:
            self.handler.attempt_until = None
        self.failures.clear()
        self.session_timeout = read_timeout * 1.5 / 1000  # kazoo gives two thirds of it, in milliseconds
        self.heard = begun
        self.had_gap = False
        self.client.tell()
        # what kazoo derives its pings from: one each half of this, and an end when one was not answered
        return self.session_timeout * 1000 * 2 / PING_PART, limit * 1000

    def _read_socket(self, read_timeout: float) -> Any:
        pinged = self.ping_outstanding.is_set()
        try:
            response = super()._read_socket(read_timeout)
        except (ConnectionDropped, SessionExpiredError, AuthFailedError, KazooTimeoutError):
            raise
        except Exception as garbage:
            # kazoo would end its thread, and with it the session
            raise ConnectionDropped("not an answer of ZooKeeper") from garbage
        if pinged and not self.ping_outstanding.is_set():
            self.note_answer(self._pinged)
        return response

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        if header.err == SESSION_REQUIRES_AUTH:
            header = header._replace(err=AuthFailedError.code)
        elif header.err and header.err not in EXCEPTIONS:
            header = header._replace(err=SystemZookeeperError.code)
        return super()._read_response(header, buffer, offset)

    def note_answer(self, sent: float) -> None:
        """Know that a request that was sent at *sent* on this connection has been answered."""
        if boottime() - self.heard > self.session_timeout / GAP_PART:
            self.had_gap = True
        self.heard = max(self.heard, sent)

    def _send_ping(self, connect_timeout: float) -> None:
        if self.pinging:
            if not self.ping_outstanding.is_set():
                self._pinged = boottime()
            super()._send_ping(connect_timeout)

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= LARGEST_ANSWER:
            raise ConnectionDropped("not an answer of ZooKeeper")
        data: bytes = super()._read(length, timeout)
        return data
