"""Marks in Kubernetes: the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.kubernetes import layout
from lockctl.stores.kubernetes.cell import KubernetesCells
from lockctl.stores.kubernetes.protocol import Leases
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.kubernetes import Kubernetes


class KubernetesHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: Kubernetes) -> None:
        super().__init__(server)
        self.cells = KubernetesCells(Leases(parse_url(server.place)))

    def url(self, address: str | None = None) -> str:
        return str(self.server.behind(address or self.proxy.address, self.prefix))

    def key(self, resource: str) -> str:
        return f"mark:{self.prefix}{in_a_path(resource)}"

    def stored(self, key: str) -> bytes | None:
        return self.cells.read(key, Deadline(LIMIT)).data

    def put(self, key: str, content: bytes) -> None:
        assert self.cells.write(key, self.cells.read(key, Deadline(LIMIT)), content, Deadline(LIMIT))

    def close(self) -> None:
        super().close()
        self.cells.close()


@pytest.fixture
def harness(kubernetes_server: Kubernetes) -> Iterator[KubernetesHarness]:
    made = KubernetesHarness(kubernetes_server)
    yield made
    made.close()


class TestKubernetes(ConditionalContract):
    """Every promise."""

    def test_the_object_is_what_the_manual_says(self, harness: KubernetesHarness) -> None:
        with store_at(harness.server.place) as store:
            store.advance("stock", mark(33), timeout=LIMIT)
            _, found = harness.server.ask("GET", "lockctl--mark.lockctl-fence.stock")
            assert found["metadata"]["annotations"][layout.DATA] == f"={DOMAIN};33"
            assert store.reset("stock", None, timeout=LIMIT) == mark(33)
