"""The contract, held by a ZooKeeper server, and what only its sessions and nodes can show."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lockctl.stores.zookeeper import queue
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.stores.zookeeper.protocol import Requests
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, ProxiedHarness
from tests.contract.sharing import Sharing
from tests.contract.suite import BackendContract
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from lockctl.stores.zookeeper.session import Session
    from tests.servers.zookeeper import ZooKeeper


class ZooKeeperHarness(ProxiedHarness):
    """A root node of its own; every client behind a proxy of its own."""

    capabilities = ZooKeeperBackend.capabilities
    ttl = 1.0  # the server has ticks of half a second, and sessions of at least two
    freed_after = 2.8  # the session lasts two leases, and is ended at the next tick
    tells_expiry = False

    def __init__(self, server: ZooKeeper, layout: str = "kazoo") -> None:
        super().__init__()
        self.server = server
        self.layout = layout
        self.root = f"/test-{os.urandom(6).hex()}"
        self.admin = KazooClient(hosts=server.address)
        self.admin.start()

    def client(self, root: str = "") -> ZooKeeperBackend:
        proxy = Proxy(self.server)
        url = f"zookeeper://{proxy.address}{root or self.root}?layout={self.layout}"
        return self.keep(ZooKeeperBackend.from_url(parse_url(url)), proxy)

    def neighbour(self) -> ZooKeeperBackend:
        return self.client(f"{self.root}/deeper/.still")

    def line(self, name: str) -> list[str]:
        """The paths of all contenders in their order."""
        try:
            names = self.admin.retry(self.admin.get_children, f"{self.root}/{name}")  # its session may have ended
        except NoNodeError:
            return []
        return [f"{self.root}/{name}/{node}" for node in queue.in_order(names)]

    def expire(self, grant: Grant) -> None:
        for client, _ in self.clients:
            assert isinstance(client, ZooKeeperBackend)
            if grant.claim.owner in client._attempts:
                attempt = client._attempts[grant.claim.owner]
                assert attempt._session is not None
                self.end(attempt._session)
                # on a busy machine kazoo may give up before the server has ended it
                path = attempt.node.path
                eventually(lambda path=path: self.admin.retry(self.admin.exists, path) is None)  # type: ignore[misc]

    def end(self, session: Session) -> None:
        """End a session from another connection: what the server does at last, without the time it takes."""
        descriptor = session.link.descriptor
        killer = KazooClient(hosts=self.server.address, client_id=session.link.identity)
        killer.start()
        killer.stop()
        killer.close()
        if descriptor is not None:
            closed = select.poll()
            closed.register(descriptor, select.POLLRDHUP)
            assert closed.poll(LIMIT * 1000), "the server did not close the connection of the session"

    def usurp(self, name: str) -> None:
        self.admin.delete(self.line(name)[0])

    def forget(self, name: str) -> None:
        self.admin.delete(f"{self.root}/{name}", recursive=True)

    @contextlib.contextmanager
    def lost_transaction(self, client: ZooKeeperBackend) -> Iterator[None]:
        """Within the block a transaction arrives at the server, and its answer does not come back."""
        original = Requests.transaction

        def transaction(requests: Requests, *parts: Any) -> Any:
            self.proxy(client).mode = "drop_replies"
            return original(requests, *parts)

        Requests.transaction = transaction  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Requests.transaction = original  # type: ignore[method-assign]
            self.heal(client)

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        with self.admin.Lock(f"{self.root}/{name}", "another program"):
            yield

    def close(self) -> None:
        super().close()
        with contextlib.suppress(NoNodeError):
            self.admin.delete(self.root, recursive=True)
        self.admin.stop()
        self.admin.close()


@pytest.fixture
def harness(zookeeper_server: ZooKeeper) -> Iterator[ZooKeeperHarness]:
    made = ZooKeeperHarness(zookeeper_server)
    yield made
    made.close()


class TestZooKeeper(BackendContract):
    """Every promise, and what only this backend has."""


class TestSharingInTheLayoutsOfCurator(Sharing):
    """Other names carry readers and slots there."""

    @pytest.fixture(params=["curator", "curator-rw"])
    def harness(self, zookeeper_server: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[ZooKeeperHarness]:
        made = ZooKeeperHarness(zookeeper_server, request.param)
        yield made
        made.close()

    @pytest.fixture
    def backend(self, harness: ZooKeeperHarness) -> Backend:
        return harness.client()

    @pytest.fixture
    def other(self, harness: ZooKeeperHarness) -> Backend:
        return harness.client()
