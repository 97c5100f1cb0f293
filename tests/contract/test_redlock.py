"""The contract, held by a majority of independent Redis servers behind a network that can be cut."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
import redis

from lockctl.stores.redis.address import endpoint
from lockctl.stores.redlock.lock import RedlockBackend
from lockctl.stores.redlock.nodes import from_url
from lockctl.url import parse_url
from lockctl.value import replace
from tests.contract.harness import LIMIT, ProxiedHarness
from tests.contract.suite import BackendContract
from tests.contract.test_redis import wipe
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.servers.redis import Redis

NODES = 3  # of those that are there: each client has as many proxies
QUORUM = 2


class RedlockHarness(ProxiedHarness):
    """A prefix of its own in shared servers; each client behind its own proxies."""

    capabilities = RedlockBackend.capabilities

    def __init__(self, servers: list[Redis]) -> None:
        super().__init__()
        self.servers = servers[:NODES]
        self.prefix = f"t{os.urandom(6).hex()}:"
        addresses = ",".join(server.address for server in self.servers)
        self.members = from_url(parse_url(f"redlock://{addresses}/0?prefix={self.prefix}"))
        self.peers = [redis.Redis(server.host, server.port, retry=None) for server in self.servers]  # type: ignore[arg-type]

    def client(self) -> RedlockBackend:
        proxies = [Proxy(server) for server in self.servers]
        # all reach the same servers under the same names, as if the network between were invisible
        places = tuple(endpoint("redlock node", proxy.host, proxy.port, None) for proxy in proxies)
        return self.keep(RedlockBackend(replace(self.members, places=places)), *proxies)

    def neighbour(self) -> RedlockBackend:
        return self.keep(RedlockBackend(replace(self.members, prefix=f"u{self.prefix}")))

    def expire(self, grant: Grant) -> None:
        for peer in self.peers:
            eventually(lambda peer=peer: not peer.exists(grant.key), limit=grant.ttl + 5)  # type: ignore[misc]

    def usurp(self, name: str) -> None:
        assert sum(peer.delete(self.prefix + name) for peer in self.peers) >= QUORUM, (
            "one may come late on a busy machine"
        )

    def forget(self, name: str) -> None:
        assert sum(peer.delete(f"{{{self.prefix}{name}}}:fence") for peer in self.peers) >= QUORUM

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        """What every Redlock library does: the same random text on all nodes."""
        value = os.urandom(10).hex()
        for peer in self.peers:
            assert peer.set(self.prefix + name, value, nx=True, px=30_000)
        yield
        for peer in self.peers:
            if peer.get(self.prefix + name) == value.encode():
                peer.delete(self.prefix + name)

    def close(self) -> None:
        super().close()
        for peer in self.peers:
            wipe(peer, self.prefix)
            peer.close()


@pytest.fixture
def harness(redis_five: list[Redis]) -> Iterator[RedlockHarness]:
    made = RedlockHarness(redis_five)
    yield made
    made.close()


class TestRedlock(BackendContract):
    """Every promise."""

    def test_a_lock_is_taken_and_kept_without_a_minority(self, harness: RedlockHarness, backend: Backend) -> None:
        harness.proxies(backend)[1].mode = "blackhole"
        grant = backend.try_acquire(harness.claim(ttl=30.0), timeout=LIMIT)
        assert grant is not None
        assert backend.renew(grant, timeout=1.0).token == grant.token
        backend.release(grant, timeout=1.0)
