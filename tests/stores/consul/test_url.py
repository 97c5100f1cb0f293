"""URLs of Consul: what they may say, and what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Claim
from lockctl.stores.consul.layout import quoted
from tests.contract.harness import LIMIT, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.consul.lock import ConsulBackend
    from tests.contract.test_consul import ConsulHarness
    from tests.servers.consul import Consul


def test_what_only_consul_enterprise_has_is_sent_when_it_is_asked_for(harness: ConsulHarness) -> None:
    with pytest.raises(ConfigError, match="Enterprise"):
        harness.client(ns="team").try_acquire(harness.claim(), timeout=LIMIT)
    take(harness.client(dc="dc1"), harness.claim())
    with pytest.raises(BackendUnavailable, match="No path to datacenter"):
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
