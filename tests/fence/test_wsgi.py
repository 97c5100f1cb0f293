"""The WSGI middleware behind real servers: one process with threads, and several processes."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from lockctl.fence import Mark, current, sql
from lockctl.fence.wsgi import FenceMiddleware
from tests.fence.web import WebContract, check_writers
from tests.fence.webserver import DOMAIN, LIMIT, Answer
from tests.jobs import eventually
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.fence.webserver import WebServer

pytestmark = pytest.mark.slow

WAITRESS = ("waitress", "--listen=127.0.0.1:{port}", "--threads=16", "--call", "tests.fence.shop:wsgi")
GUNICORN = ["gunicorn", "--bind=127.0.0.1:{port}", "--workers=3", "--threads=8", "--worker-class=gthread"]
GUNICORN += ["--no-control-socket", "tests.fence.shop:wsgi()"]


class TestWaitress(WebContract):
    words = WAITRESS
    reads_first = True

    def test_a_store_that_cannot_hold_marks_keeps_the_order_within_the_process_and_may_be_restarted(
        self, start: Callable[..., WebServer], start_server: Callable[..., Redis]
    ) -> None:
        redis = start_server(Redis, fsync=True)
        shop = start(SHOP_STORE=redis.url, SHOP_TIMEOUT="5")
        check_writers(shop, mark_of=lambda name: shop.mark(name, redis.url))
        redis.restart()  # all idle connections are dead
        assert shop.put(33).status == 200
        redis.stop()
        ran = len(shop.journal())
        began = time.monotonic()
        refused = shop.put(34)
        assert time.monotonic() - began < 8
        assert (refused.status, refused.problem()["error"]) == (503, "unavailable")
        assert redis.address not in refused.body.decode()
        assert len(shop.journal()) == ran
        redis.start()
        assert shop.put(32).status == 412
        assert shop.put(34).status == 200
        assert shop.mark("a", redis.url) == Mark(DOMAIN, 34)
        assert "several processes" not in shop.log()

    def test_servers_may_share_marks_in_a_database_of_their_own(
        self, start: Callable[..., WebServer], locks: Path
    ) -> None:
        with contextlib.closing(sqlite3.connect(locks / "marks.db")) as database:
            database.executescript(sql.text("sqlite"))
        store = f"sqlite://{locks}/marks.db"
        first, second = start(SHOP_STORE=store), start(SHOP_STORE=store)
        check_writers(first, second, mark_of=lambda name: first.mark(name, store))


class TestGunicorn(WebContract):
    words = GUNICORN

    def test_its_operator_is_warned_when_the_store_cannot_hold_a_mark_between_its_processes(
        self, start: Callable[..., WebServer], redis_server: Redis
    ) -> None:
        shop = start(SHOP_STORE=f"{redis_server.url}/0?prefix=warn:")
        assert shop.put(1).status == 200
        eventually(lambda: "several processes" in shop.log())


def test_a_body_of_chunks_is_refused_before_the_mark_where_the_server_does_not_tell_its_end(locks: Path) -> None:
    """As with wsgiref, which gives an application the connection as it is."""
    bodies = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        bodies.append(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("204 No Content", [])
        return []

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None:
            pass

    def put(token: int, fields: str, body: bytes) -> Answer:
        head = f"PUT / HTTP/1.1\r\nHost: shop\r\nX-Fencing-Token: d;{token}\r\n{fields}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.server_port), LIMIT) as client:
            client.sendall(head.encode() + body)  # at once: the server closes what it has read in part
            response = http.client.HTTPResponse(client, method="PUT")
            response.begin()
            return Answer(response)

    middleware = FenceMiddleware(app, f"file://{locks}", lambda _: "stock")
    with make_server("127.0.0.1", 0, middleware, handler_class=Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert put(33, "Content-Length: 6", b"UPDATE").status == 204
        refused = put(34, "Transfer-Encoding: chunked", b"6\r\nUPDATE\r\n0\r\n\r\n")
        assert (refused.status, refused.problem()["error"]) == (411, "no_length")
        assert current("stock", store=f"file://{locks}") == Mark("d", 33)
        assert put(33, "Content-Length: 0", b"").status == 204
        server.shutdown()
    assert bodies == [b"UPDATE", b""]
