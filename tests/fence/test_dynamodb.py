"""Marks in DynamoDB: the contract."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.fence.conditional import ConditionalContract
from tests.fence.contract import DOMAIN, LIMIT, mark
from tests.fence.lock_servers import ServedFenceHarness, in_a_path, store_at
from tests.servers import dynamodb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.dynamodb import DynamoDb


class DynamoDbHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: DynamoDb) -> None:
        super().__init__(server)
        self.peer = server.client("dynamodb")

    def url(self, address: str | None = None) -> str:
        return dynamodb.place(address or self.proxy.address, self.prefix)

    def key(self, resource: str) -> str:
        return "#" + self.prefix + in_a_path(resource)

    def stored(self, key: str) -> bytes | None:
        found = self.peer.get_item(TableName=dynamodb.TABLE, Key={"key": {"S": key}}, ConsistentRead=True).get("Item")
        return None if found is None else bytes(found["lockctl"]["B"])

    def put(self, key: str, content: bytes) -> None:
        version = {"S": os.urandom(8).hex()}
        item = {"key": {"S": key}, "lockctl": {"B": content}, "recordVersionNumber": version, "lockctlVersion": version}
        self.peer.put_item(TableName=dynamodb.TABLE, Item=item)

    def close(self) -> None:
        super().close()
        self.peer.close()


@pytest.fixture
def harness(dynamodb_server: DynamoDb) -> Iterator[DynamoDbHarness]:
    made = DynamoDbHarness(dynamodb_server)
    yield made
    made.close()


class TestDynamoDb(ConditionalContract):
    """Every promise."""

    def test_the_item_is_what_the_manual_says(self, harness: DynamoDbHarness) -> None:
        with store_at(dynamodb.place(harness.server.address)) as store:
            store.advance("srv/stock", mark(33), timeout=LIMIT)
            assert harness.stored("#lockctl-fence/srv%2Fstock") == f"{DOMAIN};33".encode()
            assert store.reset("srv/stock", None, timeout=LIMIT) == mark(33)
