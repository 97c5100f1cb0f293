"""Requests in HTTP/1.1 (RFC 9112) as far as lock servers need it: kept connections, one answer after the other."""

from __future__ import annotations

from lockctl import clock
from lockctl.errors import ConfigError
from lockctl.url import endpoint
from lockctl.wire.answer import Malformed, Parser, Response
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Endpoint, Stream, TooLarge
from lockctl.wire.tls_settings import of_endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines

    Fields = tuple[tuple[str, str], ...]  # of a head: name and content
    Requests = tuple[tuple[str, str, bytes], ...]  # method, target and body of each

UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
SKEW = 60.0  # seconds that our clock may be wrong: who checks the date of a request refuses it from 300 on


class Client:
    """Requests to one server, one after the other, on a connection that is kept."""

    def __init__(self, endpoint: Endpoint, headers: Fields = ()) -> None:
        """*headers* go with every request. Nothing is sent yet."""
        self.endpoint = endpoint
        self.headers = headers
        self._stream: Stream | None = None
        self._begun = 0  # requests that were sent, and whose answers nobody has read
        self.connected = False  # whether there ever was a connection

    def request(
        self, method: str, target: str, deadline: Deadline, *, body: bytes = b"", headers: Fields = ()
    ) -> Response:
        """One request and its whole answer, whatever its status.

        A kept connection that turns out to be closed is replaced, and the request sent again: what is sent
        here must stand being done twice. Raises ``BackendUnavailable``, ``RequestInterrupted``,
        ``ConfigError`` (TLS).
        """
        return self.pipeline(((method, target, body),), deadline, headers=headers)[0]

    def pipeline(self, requests: Requests, deadline: Deadline, *, headers: Fields = ()) -> list[Response]:
        """The answers to several requests (method, target, body) that take one round trip together.

        The server does them in this order, each when the one before it is done, unless all are only looks
        (RFC 9112, 9.3.2). Those that it closed the connection before are sent again. Raises as :meth:`request` does.
        """
        answers: list[Response] = []
        kept = self._stream is not None
        while len(answers) < len(requests):
            deadline.check(self.endpoint.where)
            before = len(answers)
            try:
                self._exchange(requests[before:], headers, deadline, answers)
            except Closed:
                self.close()
                if not kept and len(answers) == before:
                    raise
                kept = False
            except BaseException:
                self.close()
                raise
        return answers

    def begin(self, requests: Requests, deadline: Deadline, *, headers: Fields = ()) -> None:
        """Send the first requests of the next :meth:`pipeline` without reading their answers.

        Nothing is sent if there is no connection. Raises ``BackendUnavailable``, ``RequestInterrupted``.
        """
        if self._stream is not None:
            self._stream.send(self._written(requests, headers), deadline)
            self._begun = len(requests)

    def stream(self, method: str, target: str, deadline: Deadline, *, body: bytes = b"", headers: Fields = ()) -> Lines:
        """An answer without end, line by line, on a connection of its own. Raises as :meth:`request` does."""
        from lockctl.wire.lines import Lines  # only who waits listens

        stream = self.endpoint.connect(deadline)
        try:
            stream.send(self._head(method, target, body, headers) + body, deadline)
            lines = Lines(stream)
            lines.read_head(deadline)
        except BaseException:
            stream.close()
            raise
        return lines

    def close(self) -> None:
        """Close the connection that is kept; the next request opens one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._begun = 0

    @property
    def host(self) -> str:
        """The header field Host: without the usual port, which a signature would not have."""
        host, port = self.endpoint.host, self.endpoint.port
        if ":" in host:
            host = f"[{host}]"
        return host if port == (443 if self.endpoint.tls else 80) else f"{host}:{port}"

    def _head(self, method: str, target: str, body: bytes, headers: Fields) -> bytes:
        fields = [("Host", self.host), *self.headers, *headers, ("Content-Length", str(len(body)))]
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {content}" for name, content in fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def _written(self, requests: Requests, headers: Fields) -> bytes:
        return b"".join([self._head(method, target, body, headers) + body for method, target, body in requests])

    def _exchange(self, requests: Requests, headers: Fields, deadline: Deadline, answers: list[Response]) -> None:
        """Send requests and add what is answered to them, until the server closes the connection."""
        if self._stream is None:
            self._stream = self.endpoint.connect(deadline)
            self.connected = True
        stream = self._stream
        stream.send(self._written(requests[self._begun :], headers), deadline)
        self._begun = 0
        rest = b""
        for method, _, _ in requests:
            parser = Parser(has_body=method != "HEAD")
            try:
                answer, rest = self._answer(stream, parser, rest, deadline)
            except Malformed as wrong:
                raise Malformed(f"{stream.where}: {wrong}") from None
            answers.append(answer)
            if not parser.reusable:
                self.close()
                return
        if rest:
            self.close()  # more than was asked for

    def _answer(self, stream: Stream, parser: Parser, data: bytes, deadline: Deadline) -> tuple[Response, bytes]:
        """One answer that begins with *data*, and what came behind it."""
        body, come = bytearray(parser.feed(data)), len(data)
        while not parser.complete:
            try:
                piece = stream.receive(deadline)
            except Closed:
                if not parser.head_complete:
                    raise
                parser.feed_end()
                break
            come += len(piece)
            if come > LARGEST_ANSWER:
                raise TooLarge(stream.where)
            body += parser.feed(piece)
        return Response(parser.status, parser.headers, bytes(body)), parser.rest()


class Clients:
    """Requests to one server from several threads: each takes a connection that is idle, or a new one."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Nothing is sent yet."""
        self.endpoint = endpoint
        self.host = Client(endpoint).host
        self._idle: list[Client] = []
        self._ahead = 0.0  # the server's clock before ours, in seconds, where that is much

    def request(
        self, method: str, target: str, deadline: Deadline, *, body: bytes = b"", headers: Fields = ()
    ) -> Response:
        """See ``Client``."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = Client(self.endpoint)
        try:
            answer = client.request(method, target, deadline, body=body, headers=headers)
        except BaseException:
            client.close()
            raise
        self._idle.append(client)
        if answer.date is not None:
            off = answer.date - clock.wall()
            self._ahead = off if abs(off) > SKEW else 0.0
        return answer

    def now(self) -> float:
        """The time by the server's clock: by ours, unless the last answer has shown that this is wrong."""
        return clock.wall() + self._ahead

    def close(self) -> None:
        """Close the connections that nobody uses; the next request opens one."""
        while self._idle:
            self._idle.pop().close()


def server_of(scheme: str, text: str, ca: str, where: str = "") -> Endpoint:
    """The server that the parameter ``endpoint`` of a URL names, trusted by the file *ca*. Raises ``ConfigError``."""
    kind, _, rest = text.partition("://")
    rest = rest.rstrip("/")
    if kind not in ("http", "https") or not rest or "/" in rest:
        raise ConfigError(f"{scheme}: endpoint is the URL of a server: http://HOST:PORT or https://HOST")
    tls = of_endpoint(scheme, ca, secured=kind == "https")
    host, port = endpoint(rest, 443 if tls else 80)
    return Endpoint(where, host, port, tls=tls)


def quoted(text: str, also: str = "") -> str:
    """*text* as one part of a path or a query, with the characters of *also* as they are."""
    plain = UNRESERVED | frozenset(also.encode())
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))
