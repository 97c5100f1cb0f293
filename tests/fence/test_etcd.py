"""Marks in etcd: the contract, and what only etcd can do to a mark."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import Stale
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, Client, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at
from tests.servers.etcd import Etcd
from tests.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PASSWORD = Etcd.password


class EtcdHarness(ServedFenceHarness):
    """See there."""

    def url(self, address: str | None = None) -> str:
        return f"etcd://{address or self.proxy.address}/?prefix={self.prefix}"

    def key(self, resource: str) -> str:
        return self.prefix + in_a_path(resource)

    def entry(self, key: str) -> dict[str, Any] | None:
        status, answer = self.server.request("/v3/kv/range", {"key": coded(key.encode())})
        assert status == 200
        found = answer.get("kvs", [None])[0]
        assert found is None or isinstance(found, dict)
        return found

    def stored(self, key: str) -> bytes | None:
        found = self.entry(key)
        return None if found is None else base64.b64decode(found.get("value", ""))

    def put(self, key: str, content: bytes, lease: int = 0) -> None:
        body = {"key": coded(key.encode()), "value": coded(content), "lease": str(lease)}
        assert self.server.request("/v3/kv/put", body)[0] == 200

    def close(self) -> None:
        super().close()
        self.server.command("del", self.prefix, "--prefix")


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def harness(etcd_server: Etcd) -> Iterator[EtcdHarness]:
    made = EtcdHarness(etcd_server)
    yield made
    made.close()


class TestEtcd(ConditionalContract):
    """Every promise."""

    def test_a_mark_does_not_end_with_a_lease(self, harness: EtcdHarness, client: Client) -> None:
        """Somebody put one on the key."""
        lease = 7_000_000 + os.getpid()
        assert harness.server.request("/v3/lease/grant", {"ID": str(lease), "TTL": "600"})[0] == 200
        harness.put(harness.key("stock"), str(mark(33)).encode(), lease)
        client.advance(mark(34))
        harness.server.command("lease", "revoke", f"{lease:x}")
        assert client.current() == mark(34)


def test_the_key_is_what_the_manual_says(start_server: Callable[..., Any]) -> None:
    server = start_server(Etcd)
    with store_at(f"etcd://{server.address}") as store:
        store.advance("srv/stock", mark(33), timeout=LIMIT)
        words = ("get", "--print-value-only", "lockctl-fence/srv%2Fstock")
        assert server.command(*words).strip() == f"{DOMAIN};33"
        server.kill()
        server.start()
        with pytest.raises(Stale):
            store.advance("srv/stock", mark(32), timeout=LIMIT)


def test_a_member_that_is_down_is_passed_over(harness: EtcdHarness) -> None:
    both = harness.url(f"127.0.0.1:{free_port()},{harness.server.address}")
    with store_at(both) as store:
        assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)


def test_a_full_database_refuses_new_marks_and_old_tokens(start_server: Callable[..., Any]) -> None:
    server = start_server(Etcd)
    with store_at(f"etcd://{server.address}") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
        member = server.request("/v3/maintenance/status", {})[1]["header"]["member_id"]
        alarm = {"memberID": member, "alarm": "NOSPACE"}
        assert server.request("/v3/maintenance/alarm", {"action": "ACTIVATE", **alarm})[0] == 200
        with pytest.raises(BackendUnavailable, match="database space exceeded: compact and defragment it") as told:
            store.advance("stock", mark(34), timeout=LIMIT)
        assert "\n" not in str(told.value)
        assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
        with pytest.raises(Stale):
            store.advance("stock", mark(32), timeout=LIMIT)
        assert server.request("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})[0] == 200
        assert store.advance("stock", mark(34), timeout=LIMIT) == mark(34)


def test_a_user_needs_the_rights_and_the_password(start_server: Callable[..., Any]) -> None:
    server = start_server(Etcd, auth=True)
    login = f"{server.user}:{PASSWORD}@"
    for who, prefix, problem in (
        ("", "lockctl/fence/", "needs a user"),
        (f"{server.user}:wr0ng@", "lockctl/fence/", "invalid user ID or password"),
        (login, "", "needs to read and write"),  # the usual prefix, of which the role says nothing
        (login, "lockctl/fence/", ""),
    ):
        with store_at(f"etcd://{who}{server.address}/{f'?prefix={prefix}' if prefix else ''}") as store:
            if problem:
                for step in (store.current, lambda name, timeout: store.advance(name, mark(33), timeout=timeout)):
                    with pytest.raises(ConfigError, match=problem) as told:
                        step("stock", timeout=LIMIT)
                    assert "\n" not in str(told.value)
                    assert PASSWORD not in str(told.value)
                    assert "wr0ng" not in str(told.value)
            else:
                assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
