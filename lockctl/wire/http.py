"""Requests in HTTP/1.1 (RFC 9112) as far as lock servers need it: kept connections, one answer after the other."""

from __future__ import annotations

from lockctl.wire.answer import Malformed, Parser, Response
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Endpoint, Stream, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines


class Client:
    """Requests to one server, one after the other, on a connection that is kept."""

    def __init__(self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """*headers* go with every request. Nothing is sent yet."""
        self.endpoint = endpoint
        self.headers = headers
        self._stream: Stream | None = None
        self._begun = 0  # requests that were sent, and whose answers nobody has read
        self.connected = False  # whether there ever was a connection

    def request(
        self,
        method: str,
        target: str,
        deadline: Deadline,
        *,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        """One request and its whole answer, whatever its status.

        A kept connection that turns out to be closed is replaced, and the request sent again: what is sent
        here must stand being done twice. Raises ``BackendUnavailable``, ``RequestInterrupted``,
        ``ConfigError`` (TLS).
        """
        return self.pipeline(((method, target, body),), deadline, headers=headers)[0]

    def pipeline(
        self,
        requests: tuple[tuple[str, str, bytes], ...],
        deadline: Deadline,
        *,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> list[Response]:
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

    def begin(
        self,
        requests: tuple[tuple[str, str, bytes], ...],
        deadline: Deadline,
        *,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Send the first requests of the next :meth:`pipeline` without reading their answers.

        Nothing is sent if there is no connection. Raises ``BackendUnavailable``, ``RequestInterrupted``.
        """
        if self._stream is not None:
            self._stream.send(self._written(requests, headers), deadline)
            self._begun = len(requests)

    def stream(
        self,
        method: str,
        target: str,
        deadline: Deadline,
        *,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Lines:
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

    def _head(self, method: str, target: str, body: bytes, headers: tuple[tuple[str, str], ...]) -> bytes:
        fields = [("Host", self.host), *self.headers, *headers, ("Content-Length", str(len(body)))]
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {content}" for name, content in fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def _written(self, requests: tuple[tuple[str, str, bytes], ...], headers: tuple[tuple[str, str], ...]) -> bytes:
        return b"".join([self._head(method, target, body, headers) + body for method, target, body in requests])

    def _exchange(
        self,
        requests: tuple[tuple[str, str, bytes], ...],
        headers: tuple[tuple[str, str], ...],
        deadline: Deadline,
        answers: list[Response],
    ) -> None:
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

    def request(
        self,
        method: str,
        target: str,
        deadline: Deadline,
        *,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
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
        return answer

    def close(self) -> None:
        """Close the connections that nobody uses; the next request opens one."""
        while self._idle:
            self._idle.pop().close()
