"""Stores of objects behind one name, as far as lockctl talks to them: S3, Azure Blob Storage, Google Cloud Storage.

Each compares what it has of an object with what a request expects, and writes, in one step. Of the many servers behind
the name each tells its own time, in whole seconds.
"""

from __future__ import annotations

import hashlib
import json
from calendar import timegm
from time import strptime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote

from lockctl.locks.driver import escaped
from tests.simulation.http import HttpServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.network import Host
    from tests.simulation.streams import Link

APART = 0.9  # seconds between the clocks of the servers behind one name
SPREAD = 0.5  # part of the stores that send each request to any server, and not those of a host always to the same
UNDER_WAY = 0.02  # seconds that a write of S3 takes, in which another one of the same object may be refused
CONFLICTING = 0.5  # part of those that are
IGNORING = 0.02  # part of the stores that ignore the conditions of all requests, and say nothing
SKEWED = 900.0  # seconds by which the time of a signature may differ from that of the server
CARELESS = 0.5  # part of the servers of S3's protocol


class Object(NamedTuple):
    """What is there under one name."""

    body: str
    tag: str  # as a condition names it
    written: float
    by: Host


class ObjectServer(HttpServer):
    """All of the servers of one store."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.objects: dict[str, Object] = {}
        self.written = 0
        self._asking: Host | None = None
        self._behind: dict[Host | None, float] = {}  # of the server that a host is always sent to: how far it is behind
        self._is_spread = Here.world.chance() < SPREAD
        self.ignores = Here.world.rarely() < IGNORING

    def memory(self) -> Any:
        """See ``Server``."""
        return dict(self.objects)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.objects = dict(memory or {})

    def time(self) -> float:
        """See ``HttpServer``."""
        chance = Here.world.chance()
        if not self._is_spread:
            chance = self._behind.setdefault(self._asking, round(chance))
        return self.clock.wall() - APART * chance

    def serve(self, data: bytes, link: Link) -> bytes:
        """See ``StreamServer``."""
        self._asking = link.host
        return super().serve(data, link)

    def cell(self, key: str) -> bytes | None:
        """The document of a cell."""
        found = self.objects.get(key)
        return None if found is None else found.body.rpartition("\n")[0].encode()

    def drop(self, key: str) -> None:
        """Have nothing of a cell any more: somebody has removed it by hand."""
        self.objects.pop(escaped(key), None)

    def condition(self, name: str) -> str:
        """What a header field has that is a condition, if those are heeded."""
        return "" if self.ignores else self.field(name)

    def put(self, name: str, body: str, tag: str, link: Link) -> None:
        """Have an object."""
        self.objects[name] = Object(body, tag, Here.world.now, link.host)

    def next_number(self) -> int:
        """One that was never there."""
        self.written += 1
        return self.written


class S3Server(ObjectServer):
    """Its tags are hashes of the contents. Who writes while another one does is refused.

    Some of those who speak its protocol do not compare before they delete.
    """

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self._deletes_any = Here.world.chance() < CARELESS

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        name = unquote(target.partition("?")[0]).partition("/bucket/")[2]
        there = self.objects.get(name)
        if method == "GET":
            return self._said(404, "NoSuchKey") if there is None else self.whole(200, there.body, f"ETag: {there.tag}")
        expected = self.condition("if-match")
        if there is None and expected:
            return self._said(404, "NoSuchKey") if method == "PUT" else self.whole(204, "")
        if method == "DELETE" and self._deletes_any:
            expected = ""
        if there is not None and (self.condition("if-none-match") or expected not in ("", there.tag)):
            return self._said(412, "PreconditionFailed")
        if method == "DELETE":
            self.objects.pop(name, None)
            return self.whole(204, "")
        is_under_way = there is not None and there.by is not link.host and Here.world.now < there.written + UNDER_WAY
        if is_under_way and Here.world.chance() < CONFLICTING:
            return self._said(409, "ConditionalRequestConflict")
        tag = f'"{hashlib.md5(body.encode()).hexdigest()}"'
        self.put(name, body, tag, link)
        return self.whole(200, "", f"ETag: {tag}")

    def _reply_to(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``: nothing is done that was signed at another time."""
        signed = timegm(strptime(self.field("x-amz-date"), "%Y%m%dT%H%M%SZ"))
        if abs(signed - self.clock.wall()) > SKEWED:
            return self._said(403, "RequestTimeTooSkewed")
        return super()._reply_to(method, target, body, link)

    def is_let_in(self, target: str) -> bool:
        """See ``HttpServer``."""
        return self.field("x-amz-security-token") == str(self.login)

    def expired(self) -> bytes:
        """See ``HttpServer``."""
        return self._said(400, "ExpiredToken")

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        return self._said(*Here.world.random.choice(((503, "SlowDown"), (500, "InternalError"))))

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self._said(403, "AccessDenied")

    def _said(self, status: int, code: str) -> bytes:
        return self.whole(status, f"<Error><Code>{code}</Code></Error>")


class AzureServer(ObjectServer):
    """Each change of a blob gives it a new tag."""

    def whole(self, status: int, body: str, *fields: str) -> bytes:
        """See ``HttpServer``: each answer has a number."""
        return super().whole(status, body, "x-ms-request-id: 1", *fields)

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        name = unquote(target.partition("?")[0]).partition("/container/")[2]
        there = self.objects.get(name)
        expected = self.condition("if-match")
        if there is None and method != "PUT":
            return self._said(404, "BlobNotFound")
        if there is not None and self.condition("if-none-match"):
            return self._said(409, "BlobAlreadyExists")
        if expected and (there is None or there.tag != expected):
            return self._said(412, "ConditionNotMet")
        if method == "GET":
            assert there is not None
            return self.whole(200, there.body, f"ETag: {there.tag}")
        if method == "DELETE":
            del self.objects[name]
            return self.whole(202, "")
        tag = f'"0x{self.next_number():X}"'
        self.put(name, body, tag, link)
        return self.whole(201, "", f"ETag: {tag}")

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        return self._said(*Here.world.random.choice(((503, "ServerBusy"), (500, "OperationTimedOut"))))

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self._said(403, "AuthorizationPermissionMismatch")

    def _said(self, status: int, code: str) -> bytes:
        return self.whole(status, "", f"x-ms-error-code: {code}")


class GoogleServer(ObjectServer):
    """Each write of an object gives it a new generation. The documents are multipart."""

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        path, _, query = target.partition("?")
        if method == "POST":
            _, head, content, _ = body.split("--" + self.field("content-type").partition("boundary=")[2].strip())[:4]
            name = json.loads(head.partition("\r\n\r\n")[2])["name"]
            body = content.partition("\r\n\r\n")[2].removesuffix("\r\n")
        else:
            name = unquote(path.rpartition("/o/")[2])
        there = self.objects.get(name)
        expected = "" if self.ignores else parse_qs(query).get("ifGenerationMatch", [""])[0]
        if there is None and method != "POST":
            return self.whole(404, f"No such object: bucket/{name}")
        if expected and expected != (there.tag if there is not None else "0"):
            return self.whole(412, "")
        if method == "GET":
            assert there is not None
            return self.whole(200, there.body, f"x-goog-generation: {there.tag}")
        if method == "DELETE":
            del self.objects[name]
            return self.whole(204, "")
        tag = str(self.next_number())
        self.put(name, body, tag, link)
        return self.whole(200, json.dumps({"generation": tag}))

    def shown(self, method: str, target: str, body: str) -> str:
        """See ``HttpServer``: an upload has the name in its body."""
        name = body.partition('"name":')[2].partition(",")[0].strip(' "}')
        return f"{method} {name} {target}" if name else f"{method} {target}"

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        status, said = ((503, "Backend Error"), (429, "Too many requests"))[round(Here.world.rarely())]
        return self.whole(status, json.dumps({"error": {"code": status, "message": said}}))

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self.whole(403, json.dumps({"error": {"code": 403, "message": "Access denied."}}))
