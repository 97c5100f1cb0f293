"""A resource behind HTTP, for the tests of the middleware: a journal of what its handlers did, in $SHOP.

Below ``/stock/`` it is fenced, elsewhere not. ``SHOP_TIMEOUT`` is that of the middleware, ``SHOP_STORE`` the store of
the marks: the directory $SHOP if it is not given.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from lockctl.fence import asgi as fence_asgi
from lockctl.fence import wsgi as fence_wsgi

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TIMEOUT = 20.0  # seconds: more than any queue of a test
BLOCK = b"x" * 65536
NAP = 0.004  # seconds that a handler needs: long enough for others to come between
LARGE = 400  # blocks: more than all buffers between a server and a client that does not read
LIMIT = 15.0  # seconds that a handler waits for the signal of a test


class Shop:
    """What handlers do; every step is a line in the journal of the resource."""

    def __init__(self) -> None:
        self.directory = os.environ["SHOP"]
        self.store = os.environ.get("SHOP_STORE") or f"file://{self.directory}"
        self.timeout = float(os.environ.get("SHOP_TIMEOUT", TIMEOUT))

    def resource(self, path: str) -> str | None:
        """What a request is about; that it came, with or without its body, is a file."""
        if not path.startswith("/stock/"):
            return None
        name = path.split("/")[2]
        with contextlib.suppress(OSError), open(f"{self.directory}/{name}.came", "wb"):
            pass  # some names are too long for a file
        return name

    def note(self, resource: str, step: str, token: int) -> None:
        """One line, at once."""
        journal = os.open(f"{self.directory}/{resource}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(journal, f"{step} {token} {os.getpid()}\n".encode())
        os.close(journal)

    def told(self, word: str) -> bool:
        """Whether the test has made a file of this name; for a large answer nothing is waited for."""
        return word == "large" or os.path.exists(f"{self.directory}/{word}")

    def blocks(self, word: str) -> int:
        """How much a stream has before it waits for this word."""
        return LARGE if word == "large" else 0

    def wait(self, word: str) -> None:
        """Until the test makes it."""
        until = time.monotonic() + LIMIT
        while not self.told(word) and time.monotonic() < until:
            time.sleep(NAP)


def wsgi() -> fence_wsgi.FenceMiddleware:
    """The application for waitress and gunicorn."""
    shop = Shop()

    def stream(name: str, token: int, word: str) -> Iterator[bytes]:
        shop.note(name, "begin", token)
        try:
            yield b"first\n"
            for _ in range(shop.blocks(word)):
                yield BLOCK
            until = time.monotonic() + LIMIT
            while not shop.told(word) and time.monotonic() < until:
                time.sleep(NAP)
                yield BLOCK
            yield b"last\n"
        finally:
            shop.note(name, "end", token)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = shop.resource(environ["PATH_INFO"])
        mark = environ.get("lockctl.mark")
        token = mark.token if mark else 0
        query = environ["QUERY_STRING"]
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if query == "raise":
            shop.note(name or "free", "raise", token)
            raise RuntimeError("the handler failed")
        start_response("200 OK", [("Content-Type", "text/plain")])
        if query.startswith("stream="):
            return stream(name or "free", token, query.partition("=")[2])
        shop.note(name or "free", "begin", token)
        if query.startswith("wait="):
            shop.wait(query.partition("=")[2])
        time.sleep(NAP)
        shop.note(name or "free", "end", token)
        return [str(token).encode()]

    return fence_wsgi.FenceMiddleware(
        application, shop.store, lambda environ: shop.resource(environ["PATH_INFO"]), timeout=shop.timeout
    )


async def all_of(receive: Any) -> None:
    """Take the body of a request."""
    while (await receive()).get("more_body"):
        pass


async def until_told(shop: Shop, word: str) -> None:
    """As ``Shop.wait``."""
    until = time.monotonic() + LIMIT
    while not shop.told(word) and time.monotonic() < until:  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(NAP)


def asgi() -> fence_asgi.FenceMiddleware:
    """The application for uvicorn."""
    shop = Shop()

    async def stream(receive: Any, send: Any, word: str) -> None:
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        for _ in range(shop.blocks(word)):
            await send({"type": "http.response.body", "body": BLOCK, "more_body": True})
        gone = asyncio.ensure_future(receive())
        until = time.monotonic() + LIMIT
        while not shop.told(word) and time.monotonic() < until:
            await asyncio.sleep(NAP)
            if gone.done() and (await gone)["type"] == "http.disconnect":
                return
            if gone.done():
                gone = asyncio.ensure_future(receive())
            await send({"type": "http.response.body", "body": BLOCK, "more_body": True})
        gone.cancel()
        await send({"type": "http.response.body", "body": b"last\n"})

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        name = shop.resource(scope["path"]) or "free"
        mark = scope.get("lockctl.mark")
        token = mark.token if mark else 0
        query = scope["query_string"].decode()
        await all_of(receive)
        if query == "raise":
            shop.note(name, "raise", token)
            raise RuntimeError("the handler failed")
        shop.note(name, "begin", token)
        try:
            start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
            if query.startswith("stream="):
                await send(start)
                await stream(receive, send, query.partition("=")[2])
                return
            if query.startswith("wait="):
                await until_told(shop, query.partition("=")[2])
            await asyncio.sleep(NAP)
        finally:
            shop.note(name, "end", token)
        await send(start)
        await send({"type": "http.response.body", "body": str(token).encode()})
        if query == "background":
            await until_told(shop, "go")
            shop.note(name, "background", token)

    return fence_asgi.FenceMiddleware(
        application, shop.store, lambda scope: shop.resource(scope["path"]), timeout=shop.timeout
    )
