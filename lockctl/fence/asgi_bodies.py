"""The bodies of ASGI's messages, kept whole: that of a request before it is fenced, that of its answer after."""

from __future__ import annotations

import asyncio

from lockctl.fence.spool import PIECE, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import Any

    Message = MutableMapping[str, Any]
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


async def read(receive: Receive, body: Spool) -> bool:
    """Read the whole body of a request; ``False``: the client has gone. Raises the refusal."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        await _write(body, message.get("body", b""))
        more = message.get("more_body", False)
    body.rewind()
    return True


async def _write(spool: Spool, data: bytes) -> None:
    """Add to a spool; the event loop does not wait for a disk."""
    if spool.grows_on_disk(len(data)):
        await asyncio.to_thread(spool.write, data)
    else:
        spool.write(data)


async def _piece(spool: Spool) -> bytes:
    """The next piece; empty at the end."""
    if spool.grows_on_disk(0):
        return await asyncio.to_thread(spool.file.read, PIECE)
    return spool.file.read(PIECE)


class Request:
    """What an application receives: the body that is there, and then what the server says."""

    def __init__(self, body: Spool, receive: Receive) -> None:
        """*body* is whole; *receive* is that of the server."""
        self._body = body
        self._left = body.size
        self._given = False
        self._receive = receive

    async def receive(self) -> Message:
        """The next message."""
        if self._given:
            return await self._receive()
        piece = await _piece(self._body)
        self._left -= len(piece)
        self._given = self._left <= 0
        return {"type": "http.request", "body": piece, "more_body": not self._given}


class Response:
    """What an application answers, kept until it may be sent."""

    def __init__(self, body: Spool) -> None:
        """*body* is empty."""
        self._body = body
        self._start: Message | None = None
        self._complete = False

    def close(self) -> None:
        """Free what it has."""
        self._body.close()

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
            return
        if message["type"] != "http.response.body" or self._start is None or self._complete:
            raise RuntimeError(f"the application has sent {message['type']} out of turn, or what a fence cannot keep")
        await _write(self._body, message.get("body", b""))
        self._complete = not message.get("more_body", False)

    async def pass_on(self, send: Send) -> None:
        """Send it; one that is not complete is left so, for the server to complain about."""
        if self._start is None:
            return
        await send(self._start)
        self._body.rewind()
        left = self._body.size
        while left or self._complete:
            piece = await _piece(self._body)
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0 or not self._complete})
            if left <= 0:
                return
