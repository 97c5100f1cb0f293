"""Marks in Consul: the contract, and what only Consul can do to a mark."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.parse
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import locate
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, Client, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at
from tests.servers.consul import Consul, ConsulRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.fence import Store
    from tests.servers.certificates import Certificates


class ConsulHarness(ServedFenceHarness):
    """See there."""

    def url(self, address: str | None = None) -> str:
        return f"consul://{address or self.proxy.address}/?prefix={self.prefix}"

    def key(self, resource: str) -> str:
        return self.prefix + in_a_path(resource)

    def stored(self, key: str) -> bytes | None:
        try:
            (found,) = json.loads(self.server.request("GET", f"/v1/kv/{urllib.parse.quote(key)}"))
        except ConsulRefused:
            return None
        return b64decode(found["Value"] or "")

    def put(self, key: str, content: bytes) -> None:
        assert self.server.request("PUT", f"/v1/kv/{urllib.parse.quote(key)}", content).strip() == b"true"

    def close(self) -> None:
        super().close()
        self.server.request("DELETE", f"/v1/kv/{self.prefix}", recurse="true")


@pytest.fixture
def harness(consul_server: Consul) -> Iterator[ConsulHarness]:
    made = ConsulHarness(consul_server)
    yield made
    made.close()


class TestConsul(ConditionalContract):
    """Every promise."""

    def test_the_key_is_what_the_manual_says(self, harness: ConsulHarness) -> None:
        with store_at(f"consul://{harness.server.address}") as store:
            store.advance("srv/stock", mark(33), timeout=LIMIT)
            assert harness.stored("lockctl-fence/srv%2Fstock") == f"{DOMAIN};33".encode()
            assert store.reset("srv/stock", None, timeout=LIMIT) == mark(33)

    def test_a_datacenter_that_there_is_not(self, harness: ConsulHarness) -> None:
        with (
            store_at(harness.url() + "&dc=nowhere") as store,
            pytest.raises((BackendUnavailable, ConfigError)) as told,
        ):
            store.advance("stock", mark(33), timeout=LIMIT)
        assert "\n" not in str(told.value)
        assert Client(harness).current() is None


def refusal_of(store: Store) -> str:
    """What both steps say, on one line; closes it."""
    found = set()
    for step in (store.current, lambda name, timeout: store.advance(name, mark(33), timeout=timeout)):
        with pytest.raises(ConfigError) as told:
            step("stock", timeout=LIMIT)
        found.add(str(told.value))
    store.close()
    (said,) = found
    assert "\n" not in said
    return said


def test_a_token_needs_the_keys_alone(start_server: Callable[..., Any], certificates: Certificates) -> None:
    server = start_server(Consul, acl=True, tls=certificates)

    def token_for(rules: str) -> str:
        name = f"n{os.urandom(4).hex()}"
        server.request("PUT", "/v1/acl/policy", json.dumps({"Name": name, "Rules": rules}).encode())
        asked = json.dumps({"Policies": [{"Name": name}]}).encode()
        return str(json.loads(server.request("PUT", "/v1/acl/token", asked))["SecretID"])

    def store_for(token: str, prefix: str = "lockctl-fence/") -> Store:
        login = f":{token}@" if token else ""
        return locate("stock", f"consuls://{login}{server.address}/?prefix={prefix}&ca={certificates.ca}").store

    reader = token_for('key_prefix "lockctl-fence/" { policy = "read" }')
    writer = token_for('key_prefix "lockctl-fence/" { policy = "write" }')
    unknown = "99999999-2222-3333-4444-555555555555"
    needed = 'key_prefix "lockctl-fence/" { policy = "write" }'

    said = refusal_of(store_for(""))
    assert needed in said
    assert "session" not in said
    said = refusal_of(store_for(unknown))
    assert unknown not in said
    said = refusal_of(store_for(writer, "elsewhere/"))
    assert writer not in said
    with contextlib.closing(store_for(reader)) as reading, contextlib.closing(store_for(writer)) as writing:
        assert reading.current("stock", timeout=LIMIT) is None
        with pytest.raises(ConfigError, match="the token needs") as told:
            reading.advance("stock", mark(33), timeout=LIMIT)
        assert needed in str(told.value)
        assert reader not in str(told.value)
        assert writing.advance("stock", mark(33), timeout=LIMIT) == mark(33)
        assert reading.current("stock", timeout=LIMIT) == mark(33)
        assert writing.reset("stock", None, timeout=LIMIT) == mark(33)
