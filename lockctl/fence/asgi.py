"""An ASGI middleware that lets a request in only with a fencing token that is not stale."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from lockctl.errors import LockctlError
from lockctl.fence.asgi_bodies import Request, Response, read
from lockctl.fence.gate import SAFE, Gate, Passage, mark_of_request, refuse, too_late
from lockctl.fence.holder import TIMEOUT
from lockctl.fence.http import HEADER, NotHeld
from lockctl.fence.spool import BODY_LIMIT, MEMORY, RESPONSE_LIMIT, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from concurrent.futures import Future
    from typing import Any

    from lockctl.fence.asgi_bodies import Receive, Scope, Send
    from lockctl.fence.location import Location
    from lockctl.fence.mark import Mark

    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

FIELD = HEADER.lower().encode()
MARK = "lockctl.mark"  # in the scope of the application: the Mark of the request, or None
THREADS = 32  # that wait for stores, and as many that give marks back
GRACE = 1.0  # seconds that a store may be late before it is not waited for any more
REFUSED_BY_POLICY = 1008  # the code that ends a WebSocket


class FenceMiddleware:
    """Asks for ``X-Fencing-Token``, compares it with the mark of the resource, records it, and only then goes on.

    ::

        def resource(scope):
            return "stock" if scope["path"].startswith("/stock/") else None

        application = FenceMiddleware(application, "file:///var/lib/shop/marks", resource)

    Answers, order, limits, stores that are lockable and those that are not (with them what is promised holds within
    **one process only**; the handler finds its mark in ``scope["lockctl.mark"]``) and where to put it: all as in
    :class:`lockctl.fence.wsgi.FenceMiddleware`. As there, the body is read before the mark is asked for, and the
    answer is sent when the mark was given back.

    The mark is recorded durably before the application is called, and is given back when its call has ended, also by
    an error or a cancellation: so the answer waits for what the application does in the background of a request; what
    need not be fenced belongs into a task of its own. A client that disconnects before its body is complete has asked
    for nothing; later, the application hears of it from ``receive``, and may still write. The extensions
    ``http.response.*`` are not offered. The store is used in threads; the event loop, that of asyncio, never waits for
    it. A WebSocket to a fenced resource is refused: it has no request whose token could be compared each time.
    """

    def __init__(
        self,
        app: Application,
        marks: str | Callable[[str], Location],
        resource: Callable[[Scope], str | None],
        *,
        optional: Collection[str] = SAFE,
        timeout: float = TIMEOUT,
        threads: int = THREADS,
        memory: int = MEMORY,
        body_limit: int = BODY_LIMIT,
        response_limit: int = RESPONSE_LIMIT,
    ) -> None:
        """Nothing is opened before the first request, so that a server may fork.

        *marks*: the URL of a store, or a function from the name of a resource to its location (``locate``), which
        is called in a thread for each request. *resource*: the name of what a request is about, ``None``: it is not
        fenced. *optional*: methods that may come without a token. *timeout*: seconds from when the request is there
        until the handler begins. *threads*: how many requests, all of different resources, can wait for their marks
        at once. *memory*, *body_limit*, *response_limit*: bytes, as in ``lockctl.fence.wsgi``.
        """
        self._app = app
        self._gate = Gate(marks, timeout)
        self._resource = resource
        self._optional = frozenset(optional)
        self._limits = Limits(memory, body_limit, response_limit)
        self._entering = ThreadPoolExecutor(threads, "lockctl-fence-enter")
        # of their own: those who wait for marks must not stop those who give them back
        self._leaving = ThreadPoolExecutor(threads, "lockctl-fence-leave")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = None if scope["type"] == "lifespan" else self._resource(scope)
        if name is None:
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": REFUSED_BY_POLICY, "reason": "this resource is fenced"})
            return
        if scope["type"] != "http":
            raise ValueError(f"cannot fence {scope['type']!r}")
        try:
            mark = self._mark(name, scope)
            if mark is not None and scope["method"] in SAFE:
                await self._leave(await self._admit(name, mark, held=False))
        except LockctlError as error:
            await _refuse(error, name, scope, send)
            return
        if mark is None or scope["method"] in SAFE:
            await self._app({**scope, MARK: mark}, receive, send)
            return
        body = self._limits.spool_request()
        response = Response(self._limits.spool_answer())
        with closing(body), closing(response):
            try:
                if not await read(receive, body):
                    return
                failure = await self._collect(response, name, mark, scope, Request(body, receive))
            except LockctlError as error:
                await _refuse(error, name, scope, send)
                return
            if failure is not None:
                raise failure
            await response.pass_on(send)

    def close(self) -> None:
        """Close the stores that are idle: when the server ends."""
        self._gate.close()

    def _mark(self, name: str, scope: Scope) -> Mark | None:
        """The mark of a request; ``None``: it has none and needs none. Raises the refusal."""
        contents = [content.decode("latin-1") for field, content in scope["headers"] if field.lower() == FIELD]
        return mark_of_request(name, scope["method"], contents, self._optional)

    async def _collect(
        self, response: Response, name: str, mark: Mark, scope: Scope, request: Request
    ) -> BaseException | None:
        """Run the handler under the mark, which was given back when this returns. Raises the refusal.

        What the application raised is returned: it is for the server.
        """
        passage = await self._admit(name, mark, held=True)
        try:
            await self._app(_fenced(scope, mark), request.receive, response.send)
        except BaseException as failure:  # noqa: BLE001 - the caller raises it
            with suppress(NotHeld):  # that was logged
                await self._leave(passage)
            return failure
        await self._leave(passage)
        return None

    async def _admit(self, name: str, mark: Mark, *, held: bool) -> Passage:
        """Wait for the turn and the mark of a request. Raises the refusal."""
        until = time.monotonic() + self._gate.timeout
        turn = self._gate.turns.join(name)
        try:
            if not turn.ours.done() and not await _done(turn.ours, self._gate.timeout):
                raise too_late(name)
            entering = self._entering.submit(self._gate.enter, turn, name, mark, held=held, until=until)
        except BaseException:
            turn.leave()
            raise
        # from here on the thread has the turn, unless it never begins
        try:
            if not await _done(entering, max(0.0, until - time.monotonic()) + GRACE):
                raise too_late(name)
        except BaseException:
            if entering.cancel():
                turn.leave()
            else:
                entering.add_done_callback(self._give_back)
            raise
        return entering.result()

    def _give_back(self, entered: Future[Passage]) -> None:
        """Somebody got in who had gone meanwhile."""
        if entered.exception() is None:
            self._leaving.submit(entered.result().leave)

    async def _leave(self, passage: Passage) -> None:
        """Give back, whatever happens to the task that asks for it; to be sure, wait until it is done.

        Raises ``NotHeld``.
        """
        await asyncio.shield(asyncio.wrap_future(self._leaving.submit(passage.leave)))


async def _done(future: Future[Any], seconds: float) -> bool:
    """Wait for what threads do, and never cancel it; whether it is done."""
    ours = asyncio.wrap_future(future)
    ours.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # asked, or asyncio complains
    await asyncio.wait([ours], timeout=seconds)
    return future.done()


async def _refuse(error: LockctlError, name: str, scope: Scope, send: Send) -> None:
    """Answer in the place of the application."""
    answer = refuse(error, name)
    fields = [(field.lower().encode(), content.encode()) for field, content in answer.fields]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})


def _fenced(scope: Scope, mark: Mark) -> Scope:
    """The scope for the application: without what would have the server send something itself."""
    extensions = {
        name: content
        for name, content in (scope.get("extensions") or {}).items()
        if not name.startswith("http.response.")
    }
    return {**scope, "extensions": extensions, MARK: mark}
