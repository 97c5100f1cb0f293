"""Five servers of Redis behind proxies, and clients of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.stores.redis.lock import RedisBackend
from lockctl.stores.redlock.lock import RedlockBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.redis import Redis


class Scene:
    """Five servers behind proxies, and clients that name the proxies."""

    def __init__(self, servers: list[Redis]) -> None:
        self.servers = servers
        self.prefix = f"b{os.urandom(6).hex()}:"
        self.key = f"{self.prefix}nightly"
        self.proxies = [Proxy(server) for server in servers]
        self._clients: list[RedlockBackend | RedisBackend] = []

    def client(self, order: slice = slice(None), host: str = "127.0.0.1") -> RedlockBackend:
        return self._client_of([proxy.address.replace("127.0.0.1", host) for proxy in self.proxies[order]])

    def operator(self, number: int) -> RedlockBackend:
        """Somebody who reaches that node alone: nobody listens where the others are said to be."""
        nodes = [f"127.0.0.1:{port}" for port in range(1, len(self.servers))]
        nodes.insert(number, self.servers[number].address)
        return self._client_of(nodes)

    def _client_of(self, nodes: list[str]) -> RedlockBackend:
        made = RedlockBackend.from_url(parse_url(f"redlock://{','.join(nodes)}/0?prefix={self.prefix}"))
        self._clients.append(made)
        return made

    def single(self, number: int) -> RedisBackend:
        """A client of one node alone."""
        made = RedisBackend.from_url(parse_url(f"redis://{self.servers[number].address}/0?prefix={self.prefix}"))
        self._clients.append(made)
        return made

    def cut(self, *numbers: int, mode: str = "blackhole") -> None:
        for number, proxy in enumerate(self.proxies):
            proxy.mode = mode if number in numbers else "pass"

    def where(self, word: str = "") -> list[int]:
        """The nodes that have the lock, or one of its companions."""
        key = f"{{{self.key}}}:{word}" if word else self.key
        return [number for number, server in enumerate(self.servers) if server.ask("EXISTS", key)]

    def await_late_requests(self) -> None:
        eventually(lambda: all(proxy.is_idle for proxy in self.proxies), limit=LIMIT)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for proxy in self.proxies:
            proxy.close()


@pytest.fixture
def scene(redis_five: list[Redis]) -> Iterator[Scene]:
    made = Scene(redis_five)
    yield made
    made.close()
