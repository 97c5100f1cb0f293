"""A prefix of each test's own in a shared Consul server, and servers that only look like one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.contract.test_consul import ConsulHarness
from tests.servers.replay import listening

if TYPE_CHECKING:
    import socket
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
    with contextlib.ExitStack() as ends:

        def start(answer: bytes) -> str:
            def serve(connection: socket.socket) -> None:
                connection.recv(65536)
                connection.sendall(answer)

            return ends.enter_context(listening(serve))

        yield start
