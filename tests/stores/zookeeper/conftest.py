"""A root node of each test's own in a shared ZooKeeper server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lockctl.stores.zookeeper.session import Session
from tests.contract.test_zookeeper import ZooKeeperHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.stores.zookeeper.address import Place
    from tests.servers.zookeeper import ZooKeeper


class Asked(NamedTuple):
    """One round trip."""

    place: Place  # that of the client
    calls: int  # requests in it


@pytest.fixture
def harness(zookeeper_server: ZooKeeper) -> Iterator[ZooKeeperHarness]:
    """Clients behind proxies of their own."""
    made = ZooKeeperHarness(zookeeper_server)
    yield made
    made.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The round trips of all clients."""
    seen: list[Asked] = []
    original = Session.ask

    def ask(self: Session, deadline: Any, *calls: Any) -> Any:
        seen.append(Asked(self.place, len(calls)))
        return original(self, deadline, *calls)

    monkeypatch.setattr(Session, "ask", ask)
    return seen
