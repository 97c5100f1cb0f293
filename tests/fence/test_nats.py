"""Marks in NATS: the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.protocol import Bucket
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.nats import Nats


class NatsHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: Nats) -> None:
        super().__init__(server)
        self.bucket = Bucket(read_url(parse_url(server.url)))

    def url(self, address: str | None = None) -> str:
        return f"nats://{address or self.proxy.address}/locks/{self.prefix}"

    def key(self, resource: str) -> str:
        return f"mark:{self.prefix}{in_a_path(resource)}"

    def stored(self, key: str) -> bytes | None:
        return self.bucket.get(key, Deadline(LIMIT)).data

    def put(self, key: str, content: bytes) -> None:
        assert self.bucket.put(key, None, content, Deadline(LIMIT))

    def close(self) -> None:
        super().close()
        self.bucket.close()


@pytest.fixture
def harness(nats_server: Nats) -> Iterator[NatsHarness]:
    made = NatsHarness(nats_server)
    yield made
    made.close()


class TestNats(ConditionalContract):
    """Every promise."""

    def test_the_key_is_what_the_manual_says(self, harness: NatsHarness) -> None:
        with store_at(f"nats://{harness.server.address}/locks") as store:
            store.advance("srv/stock", mark(33), timeout=LIMIT)
            assert harness.stored("mark:lockctl-fence/srv%2Fstock") == f"{DOMAIN};33".encode()
            assert store.reset("srv/stock", None, timeout=LIMIT) == mark(33)
