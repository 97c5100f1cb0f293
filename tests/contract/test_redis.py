"""The contract, held by one Redis server behind a network that can be cut."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
import redis

from lockctl.stores.redis.address import endpoint, from_url
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from lockctl.value import replace
from tests.contract.harness import LIMIT, ProxiedHarness
from tests.contract.suite import BackendContract
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant
    from tests.servers.redis import Redis


class RedisHarness(ProxiedHarness):
    """A prefix of its own in a shared server; each client behind its own proxy."""

    capabilities = RedisBackend.capabilities

    def __init__(self, server: Redis) -> None:
        super().__init__()
        self.server = server
        self.prefix = f"t{os.urandom(6).hex()}:"
        self.address = from_url(parse_url(f"{server.url}/0?prefix={self.prefix}"))
        self.peer = redis.Redis(server.host, server.port, retry=None, socket_timeout=LIMIT)  # type: ignore[arg-type]

    def client(self) -> RedisBackend:
        proxy = Proxy(self.server)
        # all reach the same server under the same name, as if the network between were invisible
        place = endpoint("redis", proxy.host, proxy.port, None)
        return self.keep(RedisBackend(replace(self.address, place=place)), proxy)

    def neighbour(self) -> RedisBackend:
        return self.keep(RedisBackend(replace(self.address, prefix=f"u{self.prefix}")))

    def expire(self, grant: Grant) -> None:
        eventually(lambda: not self.peer.exists(grant.key), limit=grant.ttl + 5)

    def usurp(self, name: str) -> None:
        assert self.peer.delete(self.prefix + name) == 1

    def forget(self, name: str) -> None:
        assert self.peer.delete(f"{{{self.prefix}{name}}}:fence") == 1

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        """What redis-py calls a lock."""
        lock = self.peer.lock(self.prefix + name, timeout=30.0)
        assert lock.acquire(blocking=False)
        yield
        with contextlib.suppress(redis.exceptions.LockError):
            lock.release()

    def close(self) -> None:
        super().close()
        wipe(self.peer, self.prefix)
        self.peer.close()


def wipe(peer: redis.Redis, prefix: str) -> None:
    """Delete what has the prefix, and what a neighbour wrote."""
    for pattern in (f"{prefix}*", f"{{{prefix}*", f"*u{prefix}*"):
        for key in peer.scan_iter(pattern):
            peer.delete(key)


@pytest.fixture
def harness(redis_server: Redis) -> Iterator[RedisHarness]:
    made = RedisHarness(redis_server)
    yield made
    made.close()


class TestRedis(BackendContract):
    """Every promise."""
