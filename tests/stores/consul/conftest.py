"""A prefix of each test's own in a shared Consul server, and servers that only look like one."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import LIMIT
from tests.contract.test_consul import ConsulHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.consul import Consul


@pytest.fixture
def harness(consul_server: Consul) -> Iterator[ConsulHarness]:
    """Clients behind proxies of their own."""
    made = ConsulHarness(consul_server)
    yield made
    made.close()


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """A server that gives every request the same answer; called with it, its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(answer: bytes) -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(LIMIT)
                    connection.recv(65536)
                    connection.sendall(answer)

        def start(answer: bytes) -> str:
            threading.Thread(target=serve, args=(answer,), daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start
        listener.shutdown(socket.SHUT_RDWR)
