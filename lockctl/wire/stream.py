"""Byte streams to a server: TCP over IPv4 and IPv6, Unix sockets, with TLS when asked. Never blocking."""

from __future__ import annotations

import _socket
import errno
import os

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.value import Value
from lockctl.wire.deadline import READABLE, WRITABLE, Deadline, bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from lockctl.wire.deadline import Steps
    from lockctl.wire.tls import TlsLayer
    from lockctl.wire.tls_settings import TlsSettings

    Address = tuple[int, Any]  # family and what connect(2) takes

    A = TypeVar("A")
    B = TypeVar("B")

CHUNK = 65536  # bytes read at once
# bytes of all that one request brings, with its framing: many times what a backend of ours asks for at once; a listing
# asks for less when this was too much
LARGEST_ANSWER = 8 << 20


class Closed(BackendUnavailable):
    """The server closed or reset the connection: a request that was not answered may be sent again on a new one."""


class Nobody(BackendUnavailable):
    """No server is there, as our own host says at once."""


class TooLarge(BackendUnavailable):
    """The server sent more than a request may bring."""

    def __init__(self, where: str) -> None:
        """*where*: the server, as messages name it."""
        super().__init__(f"{where}: the answer is larger than {LARGEST_ANSWER >> 20} MiB")


def in_parts(ask: Callable[[list[A]], list[B]], wanted: list[A]) -> list[B]:
    """What *ask* answers to a list, asked for in halves of it where the answer to the whole is too large."""
    try:
        return ask(wanted)
    except TooLarge:
        if len(wanted) < 2:
            raise
        middle = len(wanted) // 2
        return in_parts(ask, wanted[:middle]) + in_parts(ask, wanted[middle:])


class Endpoint(Value):
    """Where a server is. *where* names it in messages; never a secret."""

    where: str
    host: str
    port: int = 0
    unix: str | None = None
    tls: TlsSettings | None = None

    def connect(self, deadline: Deadline) -> Stream:
        """A connected stream. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError`` (TLS)."""
        if self.unix is not None:
            addresses: list[Address] = [(_socket.AF_UNIX, self.unix)]
        else:
            addresses = resolve(self.host, self.port, deadline, self.where)
        problem: BackendUnavailable | None = None
        for (family, address), share in zip(addresses, deadline.shares(len(addresses)), strict=True):
            try:
                connecting = _connecting(family, address, self.where)
                stream = Stream(share.drive(connecting, self.where), self.where)
                break
            except BackendUnavailable as failure:
                problem = failure
        else:
            raise problem or BackendUnavailable(f"{self.where}: the name has no address")
        if self.tls is not None:
            try:
                stream.secured = secure(stream, self.tls, self.host, deadline)
            except BaseException:
                stream.close()
                raise
        return stream

    def connecting(self, deadline: Deadline) -> Steps[Stream]:
        """The steps of :meth:`connect`, see ``Deadline.drive``."""
        address = None if self.unix or self.tls else numeric(self.host, self.port)
        if address is None:
            yield None
            return self.connect(deadline)
        return Stream((yield from _connecting(*address, self.where)), self.where)


def secure(stream: Stream, settings: TlsSettings, host: str, deadline: Deadline) -> TlsLayer:
    """A complete handshake on a fresh stream. Raises ``ConfigError``, ``BackendUnavailable``."""
    from lockctl.wire.tls import TlsLayer

    layer = TlsLayer(settings, host, stream.where, Closed)
    while True:
        try:
            done = layer.handshake()
        except ConfigError:
            try:
                stream.send_raw(layer.to_send(), deadline)  # the alert, so that the server's log says why
            except BackendUnavailable:
                pass
            raise
        stream.send_raw(layer.to_send(), deadline)
        if done:
            return layer
        try:
            layer.feed(stream.receive_raw(deadline))
        except Closed as failure:
            raise BackendUnavailable(f"{stream.where}: closed during the TLS handshake (is TLS on there?)") from failure
        except BackendUnavailable as failure:
            raise BackendUnavailable(f"{failure}, in the TLS handshake (is TLS on there?)") from None


def resolve(host: str, port: int, deadline: Deadline, where: str) -> list[Address]:
    """The addresses of *host*: families and what ``connect(2)`` takes. Raises ``BackendUnavailable``."""
    address = numeric(host, port)
    if address is not None:
        return [address]

    def ask() -> list[Address]:
        # as bytes: a str loads the codec for international names, which takes as long as a lock
        name = host.encode("ascii") if host.isascii() else host.encode("idna")
        found = _socket.getaddrinfo(name, port, 0, _socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]

    try:
        return bounded(ask, deadline, f"{where}: resolving {printable(host)}")
    except (OSError, UnicodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "not a host name"
        raise Nobody(f"{where}: cannot resolve {printable(host)}: {reason}") from None


def numeric(host: str, port: int) -> Address | None:
    """The address, unless *host* is a name."""
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    return None


def _connecting(family: int, address: Any, where: str) -> Steps[_socket.socket]:
    try:
        sock = _socket.socket(family, _socket.SOCK_STREAM)
    except OSError as failure:
        raise BackendUnavailable(f"{where}: no socket: {failure.strerror}") from None
    try:
        sock.setblocking(False)
        if family != _socket.AF_UNIX:
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code in (errno.EINPROGRESS, errno.EINTR):
            yield sock.fileno(), WRITABLE
            code = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if code:
            failed = Closed if code in (errno.ECONNRESET, errno.EPIPE) else Nobody
            raise failed(f"{where}: cannot connect: {os.strerror(code)}")
    except OSError as failure:
        sock.close()
        raise Nobody(f"{where}: cannot connect: {failure.strerror or failure}") from None
    except BaseException:
        sock.close()
        raise
    return sock


class Stream:
    """One connection. After any error it is of no more use: an answer may come late."""

    __slots__ = ("_sock", "secured", "where")

    def __init__(self, sock: _socket.socket, where: str) -> None:
        """Use a connected socket that does not block."""
        self._sock = sock
        self.where = where
        self.secured: TlsLayer | None = None  # between the bytes of a request and those of the socket

    def fileno(self) -> int:
        """The descriptor, for a poll of several; with TLS, :meth:`receive` may have more than it shows."""
        return self._sock.fileno()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send everything. Raises ``Closed``, ``BackendUnavailable``, ``RequestInterrupted``."""
        if self.secured is None:
            self.send_raw(data, deadline)
            return
        try:
            self.send_raw(self.secured.wrap(data), deadline)
        except Closed:
            # a server that refuses our certificate says why and closes, maybe before it has read what we send
            self.secured.unwrap(self.receive_raw(deadline))
            raise

    def send_raw(self, data: bytes, deadline: Deadline) -> None:
        """Send bytes as they are, below TLS."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view, _socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                deadline.wait(self.fileno(), WRITABLE, self.where)
            except OSError as failure:
                raise Closed(f"{self.where}: {failure.strerror}") from None

    def receive(self, deadline: Deadline) -> bytes:
        """Some bytes, at least one. Raises ``Closed``, ``BackendUnavailable``, ``RequestInterrupted``."""
        if self.secured is None:
            return self.receive_raw(deadline)
        data = self.secured.unwrap(b"")
        while not data:
            data = self.secured.unwrap(self.receive_raw(deadline))
            self.send_raw(self.secured.to_send(), deadline)
        return data

    def receive_raw(self, deadline: Deadline) -> bytes:
        """Some bytes as they came, below TLS."""
        deadline.wait(self.fileno(), READABLE, self.where)
        return self.take()

    def take(self) -> bytes:
        """The bytes that have come, when the descriptor is readable. Raises ``Closed``."""
        try:
            data = self._sock.recv(CHUNK)
        except OSError as failure:
            raise Closed(f"{self.where}: {failure.strerror}") from None
        if not data:
            raise Closed(f"{self.where}: the server closed the connection")
        return data

    def close(self) -> None:
        """Close; idempotent."""
        self._sock.close()
