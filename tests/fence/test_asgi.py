"""The ASGI middleware behind a real server, and what a server may do to it: cancel, and ask for other protocols."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.fence import Mark, locate, sql
from lockctl.fence.asgi import FenceMiddleware
from tests.fence.web import WebContract, check_writers
from tests.fence.webserver import DOMAIN
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.fence import Location
    from tests.fence.webserver import WebServer
    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

UVICORN = ("uvicorn", "--host=127.0.0.1", "--port={port}", "--factory", "tests.fence.shop:asgi")


class TestUvicorn(WebContract):
    words = UVICORN

    def test_what_a_handler_does_after_its_response_is_fenced_too(self, shop: WebServer) -> None:
        with ThreadPoolExecutor(2) as pool:
            old = pool.submit(shop.put, 33, "/stock/a?background")
            eventually(lambda: len(shop.journal()) == 2)
            new = pool.submit(shop.put, 34)
            eventually(lambda: shop.put(1, "/stock/b").status == 200)
            assert not old.done()
            assert not new.done()
            shop.say("go")
            assert old.result().status == 200
            assert new.result().status == 200
        assert [(step, token) for step, token, _ in shop.journal()] == [
            ("begin", 33),
            ("end", 33),
            ("background", 33),
            ("begin", 34),
            ("end", 34),
        ]

    def test_servers_may_share_marks_in_postgresql(
        self, start: Callable[..., WebServer], postgres_server: Postgres
    ) -> None:
        schema = f"shop_{os.getpid()}"
        postgres_server.command(
            f"create schema {schema} authorization {postgres_server.user}; set search_path = {schema};"
            f" set role {postgres_server.user}; {sql.text('postgresql', schema=schema)}"
        )
        store = f"{postgres_server.url}?schema={schema}"
        first, second = start(SHOP_STORE=store), start(SHOP_STORE=store)
        check_writers(first, second, mark_of=lambda name: first.mark(name, store))
        for server in (first, second):
            server.kill()
        postgres_server.command(f"drop schema {schema} cascade")


class Caller:
    """A middleware without a server; the resource is the path."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.store = f"file://{directory}"
        self.inside: list[int] = []
        self.go_on = asyncio.Event()
        self.middleware = FenceMiddleware(self._application, self.store, lambda scope: scope["path"], **options)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        mark = scope["lockctl.mark"]
        self.inside.append(mark.token if mark else 0)
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def call(self, token: int | None, resource: str = "a", method: str = "PUT", kind: str = "http") -> Any:
        """The first message of the answer."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": f"{kind}.connect"}

        headers = [] if token is None else [(b"X-Fencing-Token", f"{DOMAIN};{token}".encode())]
        scope = {"type": kind, "method": method, "path": resource, "headers": headers}
        await self.middleware(scope, receive, send)
        return sent[0]

    def location(self, resource: str = "a") -> Location:
        """The mark, for another program."""
        return locate(resource, self.store)


async def until(condition: Callable[[], object]) -> None:
    """Let the others run until then."""
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)


async def cancel(task: asyncio.Task[Any]) -> None:
    """End it as a server does."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


def test_a_request_that_is_cancelled_gives_back_what_it_has_and_what_it_was_about_to_get(locks: Path) -> None:
    async def story() -> None:
        caller = Caller(locks)
        turns = caller.middleware._gate.turns
        running = asyncio.create_task(caller.call(33))
        await until(lambda: caller.inside == [33])
        in_line = asyncio.create_task(caller.call(34))
        behind = asyncio.create_task(caller.call(35))
        await asyncio.sleep(0.05)
        await cancel(in_line)
        await cancel(running)
        await until(lambda: caller.inside == [33, 35])
        await cancel(behind)
        assert len(turns) == 0
        location = caller.location()
        with location.store.holding("a", Mark(DOMAIN, 36), timeout=5):  # nobody has it any more
            at_the_store = asyncio.create_task(caller.call(37))
            await asyncio.sleep(0.1)
            await cancel(at_the_store)
            assert len(turns) == 1  # a thread still waits for it
        await until(lambda: len(turns) == 0)
        location.store.advance("a", Mark(DOMAIN, 38), timeout=5)
        assert caller.inside == [33, 35]
        caller.go_on.set()
        assert (await caller.call(38))["status"] == 200
        caller.middleware.close()

    asyncio.run(story())


def test_threads_that_wait_for_marks_do_not_keep_others_from_giving_theirs_back(locks: Path) -> None:
    async def story() -> None:
        caller = Caller(locks, threads=1, timeout=1.0)
        running = asyncio.create_task(caller.call(1, "c"))
        await until(lambda: caller.inside == [1])
        location = caller.location()
        with location.store.holding("a", Mark(DOMAIN, 33), timeout=5):
            waiting = asyncio.create_task(caller.call(34, "a"))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            behind = asyncio.create_task(caller.call(34, "b"))
            gone = asyncio.create_task(caller.call(34, "d"))
            await asyncio.sleep(0.05)
            await cancel(gone)
            caller.go_on.set()
            assert (await running)["status"] == 200
            assert not waiting.done()
            assert (await waiting)["status"] == 503
            assert (await behind)["status"] in (200, 503)  # the thread is free when hardly any time is left
            assert time.monotonic() - began < 4
        assert len(caller.middleware._gate.turns) == 0
        for resource in "abc":
            assert (await caller.call(34, resource))["status"] == 200

    asyncio.run(story())


def test_what_is_not_a_request_gets_nowhere_near_a_fenced_resource(locks: Path) -> None:
    async def story() -> None:
        caller = Caller(locks)
        caller.go_on.set()
        assert (await caller.call(33, kind="websocket"))["type"] == "websocket.close"
        with pytest.raises(ValueError, match="'telnet'"):
            await caller.call(33, kind="telnet")
        assert (await caller.call(None, method="get"))["status"] == 428  # methods are in capitals
        assert caller.inside == []
        assert (await caller.call(None, method="GET"))["status"] == 200

    asyncio.run(story())
