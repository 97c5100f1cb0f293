"""URLs of Consul: what they may say, and what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Claim
from lockctl.stores.consul.layout import quoted
from tests.contract.harness import LIMIT, take
from tests.servers.replay import listening

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lockctl.stores.consul.lock import ConsulBackend
    from tests.contract.test_consul import ConsulHarness
    from tests.servers.consul import Consul


def test_what_only_consul_enterprise_has_is_sent_when_it_is_asked_for(harness: ConsulHarness) -> None:
    with pytest.raises(ConfigError, match="Enterprise"):
        harness.client(ns="team").try_acquire(harness.claim(), timeout=LIMIT)
    take(harness.client(dc="dc1"), harness.claim())
    with pytest.raises(ConfigError, match="no datacenter elsewhere there, but dc1"):
        harness.client(dc="elsewhere").try_acquire(harness.claim(), timeout=LIMIT)


@pytest.mark.parametrize("prefix", ["", "/locks/", "a b/", "cron-", "Ünï/", "a?b&c=d#e/", "%/"])
def test_any_prefix_that_consul_takes_can_be_used(
    consul_server: Consul, opened: Callable[[str], ConsulBackend], prefix: str
) -> None:
    written = "".join(f"%{byte:02x}" for byte in prefix.encode())
    client = opened(f"consul://{consul_server.address}/?prefix={written}")
    name = os.urandom(4).hex()
    claim = Claim(name, "0" * 32, 1.0, "web3", 1, "ops", ("true",))
    grant = take(client, claim)
    assert grant.key == prefix.removeprefix("/") + name
    assert consul_server.command("kv", "get", f"{grant.key}/.lock").startswith('{"owner"')
    assert [lock.name for lock in client.list(name, timeout=LIMIT)] == [name]
    client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)


def test_a_key_in_a_path_is_quoted() -> None:
    assert quoted("a+b c/\N{SNOWMAN}") == "a%2Bb%20c/%E2%98%83"


@pytest.mark.parametrize(
    ("status", "known"), [("200 OK", b'["dc1","dc2"]'), ("200 OK", b"[]"), ("500 Oh", b"no leader")]
)
def test_a_datacenter_that_is_known_or_that_nobody_can_tell_of_may_be_cut_off(
    opened: Callable[[str], ConsulBackend], status: str, known: bytes
) -> None:
    def serve(connection: socket.socket) -> None:
        while asked := connection.recv(65536):
            about_all = b"/v1/catalog/datacenters" in asked
            first, body = (status, known) if about_all else ("500 Oh", b"No path to datacenter")
            connection.sendall(f"HTTP/1.1 {first}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    with listening(serve) as address, pytest.raises(BackendUnavailable, match="No path to datacenter"):
        opened(f"consul://{address}/?dc=dc2").inspect("nightly", timeout=LIMIT)
