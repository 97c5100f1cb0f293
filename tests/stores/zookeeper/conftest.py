"""A root node of each test's own in a shared ZooKeeper server, and clients of other servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from tests.contract.test_zookeeper import ZooKeeperHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.zookeeper import ZooKeeper


@pytest.fixture
def harness(zookeeper_server: ZooKeeper) -> Iterator[ZooKeeperHarness]:
    """Clients behind proxies of their own."""
    made = ZooKeeperHarness(zookeeper_server)
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[Callable[[str], ZooKeeperBackend]]:
    """The client of a URL."""
    made: list[ZooKeeperBackend] = []

    def make(url: str) -> ZooKeeperBackend:
        made.append(ZooKeeperBackend.from_url(parse_url(url)))
        return made[-1]

    yield make
    for each in made:
        each.close()
