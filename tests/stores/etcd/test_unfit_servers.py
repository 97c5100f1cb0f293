"""Servers that cannot serve, each named with its remedy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT, claim, take
from tests.servers.etcd import Etcd

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.etcd.lock import EtcdBackend

    Open = Callable[..., EtcdBackend]


class TestServers:
    """Servers that cannot serve, each named with its remedy."""

    def test_a_server_without_the_gateway_is_named(self, start_server: Callable[..., Etcd], connect: Open) -> None:
        server = start_server(Etcd, gateway=False)
        with pytest.raises(ConfigError, match="enable-grpc-gateway"):
            connect(server.address).try_acquire(claim(), timeout=LIMIT)

    def test_a_full_database_is_not_known_and_a_holder_goes_on(
        self, start_server: Callable[..., Etcd], connect: Open
    ) -> None:
        server = start_server(Etcd, extra={"quota-backend-bytes": 200_000})
        client = connect(server.address)
        grant = take(client, claim())
        with contextlib.suppress(RuntimeError):
            for number in range(100):
                server.command("put", f"fill/{number}", "x" * 50_000)
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        with pytest.raises(BackendUnavailable, match="space"):
            client.try_acquire(claim("other"), timeout=LIMIT)

    def test_a_server_that_is_no_etcd_is_named(self, connect: Open) -> None:
        import http.server
        import threading

        class Page(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<h1>hello\x1b[2J</h1>")

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                with pytest.raises(BackendUnavailable, match="not etcd's answer") as wrong:
                    connect(f"127.0.0.1:{server.server_port}").try_acquire(claim(), timeout=LIMIT)
            finally:
                server.shutdown()
        assert str(wrong.value).isprintable()
