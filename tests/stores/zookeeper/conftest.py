"""A root node of each test's own in a shared ZooKeeper server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_zookeeper import ZooKeeperHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.zookeeper import ZooKeeper


@pytest.fixture
def harness(zookeeper_server: ZooKeeper) -> Iterator[ZooKeeperHarness]:
    """Clients behind proxies of their own."""
    made = ZooKeeperHarness(zookeeper_server)
    yield made
    made.close()
