"""A WSGI middleware that lets a request in only with a fencing token that is not stale."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as NotInTime
from contextlib import closing, suppress

from lockctl.errors import ConfigError, LockctlError
from lockctl.fence.gate import SAFE, Gate, Passage, mark_of_request, refuse, report, too_late
from lockctl.fence.holder import TIMEOUT
from lockctl.fence.http import HEADER, Incomplete, NoLength, NotHeld, Refusal
from lockctl.fence.spool import BODY_LIMIT, MEMORY, PIECE, RESPONSE_LIMIT, Limits, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from types import TracebackType
    from typing import Any

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from lockctl.fence.location import Location
    from lockctl.fence.mark import Mark

    ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]

VARIABLE = "HTTP_" + HEADER.upper().replace("-", "_")
LONGEST_LENGTH = 4000  # digits of a Content-Length: Python refuses to read more than 4300
MARK = "lockctl.mark"  # in the environ of the application: the Mark of the request, or None


class FenceMiddleware:
    """Asks for ``X-Fencing-Token``, compares it with the mark of the resource, records it, and only then goes on.

    ::

        def resource(environ):
            return "stock" if environ["PATH_INFO"].startswith("/stock/") else None

        application = FenceMiddleware(application, "file:///var/lib/shop/marks", resource)

    A request with a token is answered with 412 when the token is stale or of another domain, 400 when the header is
    malformed or came twice, 428 when it is missing, 413 when its body is too large, 411 when it comes in chunks of
    which the server does not tell the end (``wsgi.input_terminated``), 503 when the mark is not ours within *timeout*,
    and 500 when a person must look at the store; the application is not called then. The body is a problem document,
    with the key ``error`` and, with 412, the mark in ``current`` and in the header ``X-Fencing-Token-Current``.

    **Read first, hold briefly, answer last.** The body of the request is read before the mark is asked for, and the
    first byte of the answer is sent when the mark was given back: so a client that is slow, paused or gone keeps
    nobody waiting, and an answer of the application means that the mark was held until its handler had ended. If it
    is not known whether it was, as when the connection to the store was lost, the answer is 503 with the ``error``
    ``not_held``, whatever the handler said. Both bodies are kept meanwhile, in memory up to *memory* bytes, then in a
    temporary file. So a fenced write cannot stream its answer.

    **From the check to the end of the handler nothing comes between.** The requests of a resource, those to read
    excepted, run one after the other, in the order in which they were complete in this process. With a store that is
    lockable (files, SQLite, PostgreSQL, MySQL) the mark is held meanwhile, so that the same is true for all processes
    that use the store. With the others (Redis, etcd, Consul, ZooKeeper, objects) **it is true for this process only**:
    another one may accept a newer token while a handler of an older one runs here, and the old write may land last.
    Use such a store with one server process, or have the handler check ``environ["lockctl.mark"]`` again in the
    transaction of its write. A server that runs several processes is warned through ``logging``.

    A handler must not wait for the mark that is held for it: with ``sqlite:`` the marks need a database of their own,
    and with PostgreSQL and MySQL no trigger may compare the same row.

    The mark is recorded durably before the handler begins. It has ended when all of its answer is there and was closed.
    A request with a method that only reads (GET, HEAD, OPTIONS) and with a token advances the mark, so that no older
    token writes after it has read, and runs beside others; its bodies pass as they come.

    Put it *inside* of whatever authenticates clients, since anybody who passes can raise the mark, and of whatever
    changes the method or the path of a request. Two names for the same data are two marks: *resource* must give one.
    """

    def __init__(
        self,
        app: WSGIApplication,
        marks: str | Callable[[str], Location],
        resource: Callable[[WSGIEnvironment], str | None],
        *,
        optional: Collection[str] = SAFE,
        timeout: float = TIMEOUT,
        memory: int = MEMORY,
        body_limit: int = BODY_LIMIT,
        response_limit: int = RESPONSE_LIMIT,
    ) -> None:
        """Nothing is opened before the first request, so that a server may fork.

        *marks*: the URL of a store, or a function from the name of a resource to its location (``locate``), which
        is called for each request. *resource*: the name of what a request is about, ``None``: it is not fenced.
        *optional*: methods that may come without a token. *timeout*: seconds from when the request is there until the
        handler begins. *memory*: bytes of a body, of a request or an answer, that are kept in memory. *body_limit*:
        bytes of a request; a longer one is answered with 413. *response_limit*: bytes of an answer; a longer one is an
        error of the application.
        """
        self._app = app
        self._gate = Gate(marks, timeout)
        self._resource = resource
        self._optional = frozenset(optional)
        self._limits = Limits(memory, body_limit, response_limit)
        self._warned = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        name = self._resource(environ)
        if name is None:
            return self._app(environ, start_response)
        failure = response = None
        try:
            contents = [environ[VARIABLE]] if VARIABLE in environ else []
            environ[MARK] = mark = mark_of_request(name, environ["REQUEST_METHOD"], contents, self._optional)
            if mark is not None and environ["REQUEST_METHOD"] in SAFE:
                self._admit(name, mark, environ).leave()
            elif mark is not None:
                response = _Response(self._limits.spool_answer())
                failure = self._collect(response, name, mark, environ)
        except LockctlError as error:
            if response is not None:
                response.close()
            return _answer(refuse(error, name), environ, start_response)
        if failure is not None:
            raise failure
        return self._app(environ, start_response) if response is None else response.sent(start_response)

    def close(self) -> None:
        """Close the stores that are idle: when the server ends."""
        self._gate.close()

    def _collect(self, response: _Response, name: str, mark: Mark, environ: WSGIEnvironment) -> BaseException | None:
        """Run the handler under the mark, which was given back when this returns. Raises the refusal.

        What the application raised is returned: it is for the server.
        """
        with closing(self._limits.spool_request()) as body:
            _read(environ, body)
            passage = self._admit(name, mark, environ)
            try:
                response.collect(self._app, environ)
            except BaseException as failure:  # noqa: BLE001 - the caller raises it
                response.close()
                with suppress(NotHeld):  # that was logged
                    passage.leave()
                return failure
            passage.leave()
        return None

    def _admit(self, name: str, mark: Mark, environ: WSGIEnvironment) -> Passage:
        """Wait for the turn and the mark of a request. Raises the refusal."""
        until = time.monotonic() + self._gate.timeout
        turn = self._gate.turns.join(name)
        try:
            turn.ours.result(self._gate.timeout)
        except NotInTime:
            turn.leave()
            raise too_late(name) from None
        except BaseException:
            turn.leave()
            raise
        passage = self._gate.enter(turn, name, mark, held=environ["REQUEST_METHOD"] not in SAFE, until=until)
        if not passage.lockable and environ.get("wsgi.multiprocess") and not self._warned:
            self._warned = True
            report("the server has several processes", ConfigError("this store cannot hold a mark between them"))
        return passage


def _read(environ: WSGIEnvironment, body: Spool) -> None:
    """Read the whole body of a request, and leave it in *environ* for the application. Raises the refusal."""
    stated = environ.get("CONTENT_LENGTH") or ""
    if stated and not (stated.isascii() and stated.isdigit()):
        raise Incomplete("Content-Length is not a number")
    if len(stated) > LONGEST_LENGTH:
        raise body.full
    left: int | None = int(stated) if stated else 0
    if not stated and environ.get("wsgi.input_terminated"):
        left = None  # to its end, which the server knows
    elif not stated and environ.get("HTTP_TRANSFER_ENCODING"):
        raise NoLength("this server needs the Content-Length of the body")
    if left is not None and left > body.limit:
        raise body.full
    stream = environ["wsgi.input"] if left != 0 else None
    while stream is not None and left != 0:
        piece = stream.read(PIECE if left is None else min(PIECE, left))
        if not piece:
            break
        body.write(piece)
        left = None if left is None else left - len(piece)
    if left:
        raise Incomplete(f"the body ended {left} bytes early")
    environ["wsgi.input"] = body.rewind()
    environ["wsgi.input_terminated"] = True
    environ["CONTENT_LENGTH"] = str(body.size)
    environ.pop("HTTP_TRANSFER_ENCODING", None)


class _Response:
    """What an application answers, kept until it may be sent."""

    def __init__(self, body: Spool) -> None:
        self._body = body
        self._start: tuple[str, list[tuple[str, str]]] | None = None

    def collect(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        """Call the application, and take and close all that it gives. Raises what it raises."""
        given = app(environ, self._start_response)
        try:
            for piece in given:
                self._write(piece)
        finally:
            if hasattr(given, "close"):
                given.close()
        if self._start is None:
            raise RuntimeError("the application has not called start_response")

    def sent(self, start_response: StartResponse) -> Iterable[bytes]:
        """Hand it to the server."""
        assert self._start is not None
        try:
            start_response(*self._start)
        except BaseException:
            self.close()
            raise
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self._body.pieces()

    def close(self) -> None:
        """Called by the server, also when the client has gone."""
        self._body.close()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], error: ErrorInfo | Any | None = None, /
    ) -> Callable[[bytes], None]:
        """As PEP 3333 has it: an error may replace the headers as long as nothing follows them."""
        if error is not None and self._body.size:
            raise error[1].with_traceback(error[2])
        if error is None and self._start is not None:
            raise RuntimeError("the application has called start_response twice")
        self._start = (status, list(headers))
        return self._write

    def _write(self, piece: bytes) -> None:
        if piece and self._start is None:
            raise RuntimeError("the application has not called start_response")
        self._body.write(piece)


def _answer(answer: Refusal, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    start_response(answer.status_line, list(answer.fields))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]
