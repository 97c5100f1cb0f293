"""A WSGI middleware that lets a request in only with a fencing token that is not stale."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as NotInTime

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.fence.gate import SAFE, Gate, report, too_late
from lockctl.fence.http import HEADER, MissingToken, Refusal, mark_of, refusal
from lockctl.fence.places import check_name
from lockctl.fence.tenure import TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from lockctl.fence.gate import Passage
    from lockctl.fence.places import Place

VARIABLE = "HTTP_" + HEADER.upper().replace("-", "_")
MARK = "lockctl.mark"  # in the environ of the application: the Mark of the request, or None


class FenceMiddleware:
    """Asks for ``X-Fencing-Token``, compares it with the mark of the resource, records it, and only then goes on.

    ::

        def resource(environ):
            return "stock" if environ["PATH_INFO"].startswith("/stock/") else None

        application = FenceMiddleware(application, "file:///var/lib/shop/marks", resource)

    A request with a token is answered with 412 when the token is stale or of another domain, 400 when the header is
    malformed or came twice, 428 when it is missing, 503 when the mark is not ours within *timeout*, and 500 when a
    person must look at the store; the application is not called then. The body is a problem document, with the key
    ``error`` and, with 412, the mark in ``current`` and in the header ``X-Fencing-Token-Current``.

    **From the check to the end of the handler nothing comes between.** The requests of a resource, those to read
    excepted, run one after the other, in the order of their arrival in this process. With a store that is lockable
    (files, SQLite, PostgreSQL, MySQL) the mark is held meanwhile, so that the same is true for all processes that
    use the store. With the others (Redis, etcd, Consul, ZooKeeper, objects) **it is true for this process only**:
    another one may accept a newer token while a handler of an older one runs here, and the old write may land last.
    Use such a store with one server process, or have the handler check ``environ["lockctl.mark"]`` again in the
    transaction of its write. A server that runs several processes is warned through ``logging``.

    A handler must not wait for the mark that is held for it: with ``sqlite:`` the marks need a database of their own,
    and with PostgreSQL and MySQL no trigger may compare the same row.

    The mark is recorded durably before the handler begins, and is given back when the handler has returned a list or
    a tuple, else when the server has closed what it returned: a client that reads a stream slowly keeps others
    waiting. A request with a method that only reads (GET, HEAD, OPTIONS) and with a token advances the mark, so that
    no older token writes after it has read, and runs beside others.

    Put it *inside* of whatever authenticates clients, since anybody who passes can raise the mark, and of whatever
    changes the method or the path of a request. Two names for the same data are two marks: *resource* must give one.
    """

    def __init__(
        self,
        app: WSGIApplication,
        marks: str | Callable[[str], Place],
        resource: Callable[[WSGIEnvironment], str | None],
        *,
        optional: Collection[str] = SAFE,
        timeout: float = TIMEOUT,
    ) -> None:
        """Nothing is opened before the first request, so that a server may fork.

        *marks*: the URL of a store, or a function from the name of a resource to its place (``open_place``), which
        is called for each request. *resource*: the name of what a request is about, ``None``: it is not fenced.
        *optional*: methods that may come without a token. *timeout*: seconds until the handler has begun.
        """
        self._app = app
        self._gate = Gate(marks, timeout)
        self._resource = resource
        self._optional = frozenset(optional)
        self._warned = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        name = self._resource(environ)
        if name is None:
            return self._app(environ, start_response)
        try:
            passage = self._admit(name, environ)
        except LockctlError as error:
            if isinstance(error, (BackendUnavailable, ConfigError)):
                report("a request was refused", error)
            return _answer(refusal(error, name), environ, start_response)
        if passage is None:
            return self._app(environ, start_response)
        try:
            body = self._app(environ, start_response)
        except BaseException:
            passage.leave()
            raise
        if isinstance(body, (list, tuple)):  # the handler has ended
            passage.leave()
            return body
        return _Body(body, passage)

    def close(self) -> None:
        """Close the stores that are idle: when the server ends."""
        self._gate.close()

    def _admit(self, name: str, environ: WSGIEnvironment) -> Passage | None:
        """Wait for the turn and the mark of a request; ``None``: it needs neither any more. Raises the refusal."""
        until = time.monotonic() + self._gate.timeout
        check_name(name)
        method = environ["REQUEST_METHOD"]
        environ[MARK] = mark = mark_of([environ[VARIABLE]] if VARIABLE in environ else [])
        if mark is None:
            if method in self._optional:
                return None
            raise MissingToken(f"{method} needs {HEADER}: DOMAIN;TOKEN")
        turn = self._gate.turns.join(name)
        try:
            turn.ours.result(self._gate.timeout)
        except NotInTime:
            turn.leave()
            raise too_late(name) from None
        except BaseException:
            turn.leave()
            raise
        passage = self._gate.enter(turn, name, mark, held=method not in SAFE, until=until)
        if not passage.lockable and environ.get("wsgi.multiprocess") and not self._warned:
            self._warned = True
            report("the server has several processes", ConfigError("this store cannot hold a mark between them"))
        if method in SAFE:
            passage.leave()
            return None
        return passage


class _Body:
    """What the application returned, with the passage until it is closed."""

    def __init__(self, body: Iterable[bytes], passage: Passage) -> None:
        self._body = body
        self._passage = passage

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Called by the server, also when the client has gone."""
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            self._passage.leave()

    def __del__(self) -> None:
        self._passage.leave()  # a server that forgets to close must not keep the resource shut


def _answer(answer: Refusal, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    start_response(answer.status_line, list(answer.fields))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]
