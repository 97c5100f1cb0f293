"""Marks in ZooKeeper: the contract, and what only ZooKeeper can do to a mark."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import Stale
from lockctl.fence.stores.cells import CellMarks
from lockctl.stores.zookeeper.cell import ZooKeeperCells
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, Client, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at
from tests.jobs import eventually
from tests.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.zookeeper import ZooKeeper


EVERYBODY = [make_acl("world", "anyone", all=True)]


class ZooKeeperHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: ZooKeeper) -> None:
        super().__init__(server)
        self.root = f"/fence-{os.urandom(6).hex()}"
        self.admin = KazooClient(hosts=server.address)
        self.admin.start()

    def url(self, address: str | None = None) -> str:
        return f"zookeeper://{address or self.proxy.address}{self.root}"

    def key(self, resource: str) -> str:
        return f"{self.root}/.fence/{in_a_path(resource)}"

    def stored(self, key: str) -> bytes | None:
        try:
            return bytes(self.admin.get(key)[0])
        except NoNodeError:
            return None

    def put(self, key: str, content: bytes) -> None:
        self.admin.set(key, content)

    def close(self) -> None:
        super().close()
        with contextlib.suppress(NoNodeError):
            self.admin.delete(self.root, recursive=True)
        self.admin.stop()
        self.admin.close()


def cells_of(client: Client) -> ZooKeeperCells:
    """What a client's marks are in."""
    assert isinstance(client.store, CellMarks)
    assert isinstance(client.store.cells, ZooKeeperCells)
    return client.store.cells


@pytest.fixture
def harness(zookeeper_server: ZooKeeper) -> Iterator[ZooKeeperHarness]:
    made = ZooKeeperHarness(zookeeper_server)
    yield made
    made.close()


class TestZooKeeper(ConditionalContract):
    """Every promise."""

    def test_the_node_is_what_the_manual_says(self, harness: ZooKeeperHarness) -> None:
        with store_at(f"zookeeper://{harness.server.address}") as store:
            store.advance("srv/stock", mark(33), timeout=LIMIT)
            assert harness.stored("/lockctl/.fence/srv%2Fstock") == f"{DOMAIN};33".encode()
            assert store.reset("srv/stock", None, timeout=LIMIT) == mark(33)
            assert harness.stored("/lockctl/.fence/srv%2Fstock") == b"no mark"
        harness.admin.delete("/lockctl/.fence", recursive=True)

    def test_a_node_without_any_data_is_no_mark(self, harness: ZooKeeperHarness, client: Client) -> None:
        harness.admin.create(harness.key("stock"), b"", makepath=True)
        for step in (lambda: client.advance(mark(34)), client.current):
            with pytest.raises(ConfigError, match="holds 0 bytes"):
                step()

    def test_a_node_that_was_deleted_has_no_mark(self, harness: ZooKeeperHarness, client: Client) -> None:
        client.advance(mark(33))
        harness.admin.delete(harness.root, recursive=True)
        assert client.current() is None
        assert client.advance(mark(1)) == mark(1)

    @pytest.mark.parametrize("again", [33, 34])
    def test_a_node_that_is_deleted_between_two_steps(
        self, harness: ZooKeeperHarness, client: Client, again: int
    ) -> None:
        client.advance(mark(33))
        with self.between(client, lambda: harness.admin.delete(harness.key("stock")), times=1):
            assert client.advance(mark(again)) == mark(again)
        assert client.current() == mark(again)

    def test_a_mark_that_need_not_be_written_is_confirmed(self, client: Client, other: Client) -> None:
        """What was read may have come from a server that is behind."""
        client.advance(mark(34))
        with self.between(client, lambda: other.advance(mark(35)), times=1), pytest.raises(Stale, match="35"):
            client.advance(mark(34))

    def test_a_session_that_the_server_has_ended_is_replaced(self, harness: ZooKeeperHarness, client: Client) -> None:
        cells = cells_of(client)
        for step in (lambda: client.advance(mark(33)), lambda: client.advance(mark(34)), client.current):
            step()
            assert cells._session is not None
            killer = KazooClient(hosts=harness.server.address, client_id=cells._session.link.identity)
            killer.start()
            killer.stop()
            killer.close()
        assert client.current() == mark(34)

    def test_no_session_is_left(self, harness: ZooKeeperHarness) -> None:
        client = Client(harness)
        client.advance(mark(33))
        session = cells_of(client)._session
        assert session is not None
        name = f"{session.link.identity[0]:#x}"
        assert name in harness.server.four_letters("dump") + harness.server.four_letters("cons")
        client.store.close()
        eventually(lambda: name not in harness.server.four_letters("cons"), limit=2.0)  # its time is 6 s

    def test_a_server_that_is_down_is_passed_over(self, harness: ZooKeeperHarness) -> None:
        both = harness.url(f"127.0.0.1:{free_port()},{harness.server.address}")
        with store_at(both) as store:
            assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)

    def test_acls_that_keep_us_out(self, harness: ZooKeeperHarness, client: Client) -> None:
        above, node = harness.key("stock").rpartition("/")[0], harness.key("stock")
        harness.admin.create(above, b"", makepath=True)
        harness.admin.set_acls(above, [make_acl("world", "anyone", read=True, admin=True)])
        assert client.current() is None
        with pytest.raises(ConfigError, match="no permission below") as told:
            client.advance(mark(33))
        assert "\n" not in str(told.value)
        harness.admin.set_acls(above, EVERYBODY)
        client.advance(mark(33))
        harness.admin.set_acls(node, [make_acl("world", "anyone", read=True, admin=True)])
        assert client.advance(mark(33)) == mark(33)
        for refused in (lambda: client.advance(mark(34)), lambda: client.reset(None)):
            with pytest.raises(ConfigError, match="no permission below"):
                refused()
        assert client.current() == mark(33)
        harness.admin.set_acls(node, [make_acl("world", "anyone", write=True, admin=True)])
        for refused in (lambda: client.advance(mark(34)), client.current):
            with pytest.raises(ConfigError, match="no permission below"):
                refused()
        harness.admin.set_acls(node, EVERYBODY)
        assert client.current() == mark(33)

    def test_the_mark_of_a_user_is_that_users_alone(self, harness: ZooKeeperHarness, client: Client) -> None:
        url = f"zookeeper://ops:s3cret@{harness.proxy.address}{harness.root}"
        with store_at(url) as store:
            assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
            for refused in (lambda: client.advance(mark(34)), client.current, lambda: client.reset(None)):
                with pytest.raises(ConfigError, match="no permission below"):
                    refused()
            assert store.current("stock", timeout=LIMIT) == mark(33)
        owner = KazooClient(hosts=harness.server.address, auth_data=[("digest", "ops:s3cret")])
        owner.start()
        owner.delete(harness.root, recursive=True)
        owner.stop()
        owner.close()


def test_what_is_no_zookeeper_is_no_answer(etcd_server: object) -> None:
    address = etcd_server.address  # type: ignore[attr-defined]
    with store_at(f"zookeeper://{address}/x") as store, pytest.raises(BackendUnavailable) as told:
        store.advance("stock", mark(33), timeout=1.0)
    assert "\n" not in str(told.value)
