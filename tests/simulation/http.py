"""Servers that speak HTTP: requests as the real client sends them, one after the other on each stream."""

from __future__ import annotations

from functools import lru_cache
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

from tests.simulation.network import DOING
from tests.simulation.streams import StreamServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.streams import Link

STATUSES = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    412: "Precondition Failed",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
FOREIGN = 0.2  # part of the refusals that come from something on the way, as a load balancer that finds no server
CLOSERS = 0.3  # part of the servers that close a connection at times, as proxies do after so many requests
CLOSING = 0.1  # part of their answers after which they do
UNTOLD = 0.3  # part of these that are not said, on connections that had answers before: what was asked for is done


@lru_cache(maxsize=1000)
def _date(seconds: int) -> str:
    """The field with the time of an answer."""
    return strftime("Date: %a, %d %b %Y %H:%M:%S GMT", gmtime(seconds))


class HttpServer(StreamServer):
    """One of them."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self._come: dict[Link, bytes] = {}  # of requests that are not complete
        self._unanswered: set[Link] = set()  # where a request has its answer later, and those behind it wait
        self._kept: set[Link] = set()  # that have had an answer
        self._head = b""  # of the request that is answered
        self.closes = Here.world.rarely() < CLOSERS

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._come, self._unanswered, self._kept = {}, set(), set()
        super().fail(seconds, kept, old)

    def serve(self, data: bytes, link: Link) -> bytes:
        """See ``StreamServer``."""
        come = self._come.pop(link, b"") + data
        said = b""
        while b"\r\n\r\n" in come and link not in self._unanswered:
            head, _, rest = come.partition(b"\r\n\r\n")
            length = int(head.partition(b"\r\nContent-Length:")[2].partition(b"\r\n")[0])
            if len(rest) < length:
                break
            body, come = rest[:length], rest[length:]
            self._head = head
            method, target, _ = head.partition(b"\r\n")[0].decode().split()
            answer = self._reply_to(method, target, body.decode(), link)
            if not answer:
                self._unanswered.add(link)
            if Here.world.telling and method != "GET" and answer:
                status = answer.partition(b"\r\n")[0].decode().partition(" ")[2]
                Here.world.tell(
                    self.name, f"answers {link.host.name} to {self.shown(method, target, body.decode())}: {status}"
                )
            if answer and self.closes and Here.world.rarely() < CLOSING:
                self._close(said, answer, link)
                return b""  # and what came behind that request is never done
            said += answer
            if answer:
                self._kept.add(link)
        if come:
            self._come[link] = come
        return said

    def _close(self, said: bytes, answer: bytes, link: Link) -> None:
        """End a connection behind an *answer*, or where it would be; *said*: those before it."""
        if link in self._kept and Here.world.rarely() < UNTOLD:
            answer = b""
            self.untold.append(Here.world.now)
        tells = round(Here.world.rarely())
        if said or answer:
            link.say(said + answer.replace(b"\r\n", b"\r\nConnection: close\r\n", tells))
        link.hang_up()

    def answer_later(self, answer: bytes, link: Link) -> None:
        """Answer the request that waits on a connection, or end its answer, and do what has come behind it."""
        self._unanswered.discard(link)
        link.say(answer + self.serve(b"", link))

    def _reply_to(self, method: str, target: str, body: str, link: Link) -> bytes:
        """The answer to one request, if it is done at all; empty: it comes later."""
        if self.login is not None and not self.is_let_in(target):
            return self.expired()
        if not self.refuses_now():
            return self.respond(method, target, body, link)
        if self.changes(method, target, link) and not self.denies and Here.world.chance() < DOING:
            self.respond(method, target, body, link)
        if self.denies:
            return self.denied()
        return self._foreign() if Here.world.rarely() < FOREIGN else self.busy()

    def shown(self, method: str, target: str, body: str) -> str:
        """A request that changes something, as it is told, with its condition."""
        conditions = [f", {name}: {self.field(name)}" for name in ("if-match", "if-none-match") if self.field(name)]
        return f"{method} {target}{''.join(conditions)}"

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """The answer to one request; empty: it comes later."""
        raise NotImplementedError

    def changes(self, method: str, target: str, link: Link) -> bool:
        """Whether a request may be done and refused all the same, as nothing of it is answered later."""
        return method != "GET"

    def busy(self) -> bytes:
        """An answer that tells nothing of what was asked: it may have been done or not."""
        raise NotImplementedError

    def _foreign(self) -> bytes:
        """What no server has said: it tells nothing either."""
        status = (200, 404, 503)[int(3 * Here.world.rarely())]
        fields = ["Content-Type: text/html", 'ETag: "5f3c-1"'][: 1 + round(Here.world.rarely())]  # a file has a tag
        return HttpServer.whole(self, status, "<html><body>default backend</body></html>", *fields)

    def denied(self) -> bytes:
        """An answer that says that whoever asks may not."""
        raise NotImplementedError

    def is_let_in(self, target: str) -> bool:
        """Whether the request has the credentials that are accepted."""
        return self.field("authorization") == f"Bearer {self.login}"

    def expired(self) -> bytes:
        """An answer that says that the credentials are not accepted."""
        return self.whole(401, "")

    def field(self, name: str) -> str:
        """What a header field of the request has whose name is in lower case; empty: there is none."""
        lines = self._head.decode().split("\r\n")[1:]
        found = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:"))
        return next(found, "")

    def time(self) -> float:
        """What answers have as their date."""
        return self.clock.wall()

    def head(self, status: int, *fields: str) -> bytes:
        """The beginning of an answer."""
        lines = (f"HTTP/1.1 {status} {STATUSES[status]}", _date(int(self.time())), *fields)
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def whole(self, status: int, body: str, *fields: str) -> bytes:
        """An answer."""
        data = body.encode()
        return self.head(status, *fields, f"Content-Length: {len(data)}") + data
