"""The proxy fails as it is told to, at once, and for connections that are there already."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.servers import web
from tests.servers.http_proxy import HttpProxy, Request
from tests.servers.process import free_port
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 5.0  # seconds for what must come
QUIET = 0.4  # seconds in which nothing may come


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, on every connection."""
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        threads: list[threading.Thread] = []

        def talk(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(65536):
                        connection.sendall(data)
                except OSError:
                    pass

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
                threads[-1].start()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(LIMIT)
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(echo) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection through the proxy that works."""
    with socket.create_connection((proxy.host, proxy.port), LIMIT) as connection:
        assert says(connection, b"hello") == b"hello"
        yield connection


def test_replies_are_lost_after_so_many(proxy: Proxy, client: socket.socket) -> None:
    proxy.answered = 1
    proxy.mode = "drop_replies"
    assert says(client, b"first") == b"first"
    client.sendall(b"second")
    client.settimeout(QUIET)
    with pytest.raises(TimeoutError):
        client.recv(100)


def test_one_reply_is_lost_with_its_connection(proxy: Proxy, client: socket.socket) -> None:
    proxy.answered = 1
    proxy.mode = "lose_a_reply"
    assert says(client, b"first") == b"first"
    client.sendall(b"second")
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    with socket.create_connection((proxy.host, proxy.port), LIMIT) as connection:
        assert says(connection, b"third") == b"third"


def says(connection: socket.socket, text: bytes) -> bytes:
    """What comes back, as much as was sent."""
    connection.sendall(text)
    return received(connection, len(text))


def received(connection: socket.socket, size: int) -> bytes:
    """That many bytes, or fewer at the end of the connection."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def quiet(connection: socket.socket) -> bool:
    """Whether neither bytes nor an end come for a while."""
    connection.settimeout(QUIET)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LIMIT)
    return False


def test_blackhole_swallows_both_ways_accepts_and_closes_nothing(proxy: Proxy, client: socket.socket) -> None:
    proxy.mode = "blackhole"
    client.sendall(b"lost")
    assert quiet(client)
    with socket.create_connection((proxy.host, proxy.port), LIMIT) as late:
        late.sendall(b"lost too")
        assert quiet(late)
        proxy.mode = "pass"
        assert says(client, b"again") == b"again"
        assert says(late, b"first") == b"first"


def test_drop_replies_forwards_requests_only() -> None:
    with (
        socket.create_server(("127.0.0.1", free_port())) as server,
        Proxy(server.getsockname()) as proxy,
        socket.create_connection((proxy.host, proxy.port), LIMIT) as client,
        server.accept()[0] as behind,
    ):
        behind.settimeout(LIMIT)
        proxy.mode = "drop_replies"
        client.sendall(b"set")
        assert received(behind, 3) == b"set"
        behind.sendall(b"lost")
        assert quiet(client)
        proxy.mode = "pass"
        behind.sendall(b"kept")
        assert received(client, 4) == b"kept"


def test_trickle_gives_one_byte_at_a_time(proxy: Proxy, client: socket.socket) -> None:
    proxy.mode = "trickle"
    began = time.monotonic()
    client.sendall(b"abcd")
    assert client.recv(10) == b"a"
    assert received(client, 3) == b"bcd"
    assert 0.8 < time.monotonic() - began < LIMIT


def test_delay_holds_requests_and_replies_back(proxy: Proxy, client: socket.socket) -> None:
    proxy.mode = "delay=0.3"
    assert proxy.mode == "delay=0.3"
    began = time.monotonic()
    assert says(client, b"slow") == b"slow"
    assert 0.6 <= time.monotonic() - began < LIMIT


@pytest.mark.parametrize("mode", ["pass", "blackhole", "drop_replies", "trickle"])
def test_a_proxy_with_nothing_to_do_uses_no_processor(proxy: Proxy, client: socket.socket, mode: str) -> None:
    proxy.mode = mode
    client.shutdown(socket.SHUT_WR)  # a connection that is half closed is where loops spin
    before = time.process_time()
    time.sleep(QUIET)
    assert time.process_time() - before < QUIET / 4


@pytest.mark.parametrize("method", ["GET", "MKCOL", "PROPFIND"])
def test_an_http_proxy_passes_on_any_method(method: str) -> None:
    seen: list[str] = []

    def look(request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        seen.append(request.method)
        return 200, [], b""

    with HttpProxy("127.0.0.1:1", look) as proxy:
        assert web.request(proxy.address, method, "/")[0] == 200
    assert seen == [method]
