"""The contract, held by a real Consul, and what only Consul and its sessions can show."""

from __future__ import annotations

import contextlib
import json
import os
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.consul.layout import LOCK_FLAGS
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.url import parse_url
from tests.contract.harness import ProxiedHarness
from tests.contract.suite import BackendContract
from tests.servers.consul import ConsulRefused
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant
    from tests.servers.consul import Consul


class ConsulHarness(ProxiedHarness):
    """A prefix of its own in a shared server, and a proxy before it for each client."""

    capabilities = ConsulBackend.capabilities
    freed_after = 4.0  # Consul ends a session after twice its ttl, and then comes the lock delay
    tells_expiry = False
    hold_slack = 1.3  # the agent's clock says whole seconds

    def __init__(self, server: Consul) -> None:
        super().__init__()
        self.server = server
        self.prefix = f"lockctl/{os.urandom(4).hex()}/"

    def client(self, **params: str) -> ConsulBackend:
        """A client with these parameters in its URL."""
        proxy = Proxy(self.server)
        query = "&".join(f"{name}={content}" for name, content in {"prefix": self.prefix, **params}.items())
        return self.keep(ConsulBackend.from_url(parse_url(f"consul://{proxy.address}/?{query}")), proxy)

    def neighbour(self) -> ConsulBackend:
        return self.client(prefix=f"{self.prefix}deeper/")

    def key(self, name: str) -> str:
        return f"/v1/kv/{self.prefix}{name}/.lock".replace("+", "%2B")

    def entry(self, name: str = "nightly") -> dict[str, Any]:
        """What Consul has at the key of a lock."""
        (found,) = json.loads(self.server.request("GET", self.key(name)))
        assert isinstance(found, dict)
        return found

    def write(self, value: bytes, name: str = "nightly", **query: Any) -> None:
        assert self.server.request("PUT", self.key(name), value, **query).strip() == b"true"

    def put_beside(self, key: str, value: bytes) -> None:
        """Write beside the locks."""
        self.server.request("PUT", f"/v1/kv/{self.prefix}.lockctl/{key}", value)

    def session(self, **settings: Any) -> str:
        body = {"TTL": "10s", "LockDelay": "0s", "NodeChecks": [], **settings}
        created = json.loads(self.server.request("PUT", "/v1/session/create", json.dumps(body).encode()))
        return str(created["ID"])

    def sessions(self, name: str = "nightly") -> int:
        """How many sessions there are that were made for this lock."""
        shown = json.loads(self.server.request("GET", "/v1/session/list"))
        return sum(each["Name"].removesuffix(" (waiting)") == f"lockctl: {self.prefix}{name}" for each in shown)

    def below(self, name: str = "nightly") -> list[dict[str, Any]]:
        """What Consul has at and beside the key of a lock."""
        try:
            return list(json.loads(self.server.request("GET", f"/v1/kv/{self.prefix}{name}/", recurse="true")))
        except ConsulRefused:
            return []

    def expire(self, grant: Grant) -> None:
        until = time.monotonic() + self.freed_after * grant.ttl + 5.0
        owner = grant.claim.owner.encode()
        keys = [
            each["Key"]
            for each in self.below(grant.claim.name)
            if "Session" in each and owner in b64decode(each["Value"] or "")
        ]
        # a request that Consul has let through before the session ends is not kept out by the delay after it
        while any(each["Key"] in keys and "Session" in each for each in self.below(grant.claim.name)):
            assert time.monotonic() < until
            time.sleep(0.02)
        probe = self.session()
        # it goes with the session that has it, and is given to nobody until the lock delay is over
        for key in keys or [self.key(grant.claim.name).removeprefix("/v1/kv/")]:
            lock = {"Verb": "lock", "Key": key, "Session": probe, "Value": ""}
            while not self.does(lock, {"Verb": "delete", "Key": key}):
                assert time.monotonic() < until
                time.sleep(0.02)
        self.server.request("PUT", f"/v1/session/destroy/{probe}")

    def does(self, *operations: dict[str, Any]) -> bool:
        """Whether Consul did all of these operations on keys, in one step."""
        try:
            self.server.request("PUT", "/v1/txn", json.dumps([{"KV": each} for each in operations]).encode())
        except ConsulRefused:
            return False
        return True

    def usurp(self, name: str) -> None:
        self.server.request("DELETE", self.key(name))

    def forget(self, name: str) -> None:
        self.server.request("DELETE", self.key(name))

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[str]:
        session = self.session(Name="another program")
        self.write(b"", name, acquire=session, flags=LOCK_FLAGS)
        yield session
        self.server.request("PUT", f"/v1/session/destroy/{session}")


@pytest.fixture
def harness(consul_server: Consul) -> Iterator[ConsulHarness]:
    made = ConsulHarness(consul_server)
    yield made
    made.close()


class TestConsul(BackendContract):
    """Every promise; what only this backend has is in ``tests/stores``."""
