"""The contract, held by the dynamodb backend on dynalite, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.dynamodb.cell import DynamoDbBackend, DynamoDbCells
from lockctl.stores.dynamodb.protocol import Table
from lockctl.url import parse_url
from tests.contract.cells import ServedHarness
from tests.contract.suite import BackendContract
from tests.servers import dynamodb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant
    from tests.servers.dynalite import Dynalite

WHOLE = DynamoDbCells.clock_error + 1.0  # seconds after the end of a lease at which it has surely ended


class DynamoDbHarness(ServedHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = DynamoDbBackend.capabilities
    clock_error = DynamoDbCells.clock_error
    freed_after = 1.1 + WHOLE
    hold_slack = 0.3 + WHOLE

    def __init__(self, server: Dynalite) -> None:
        super().__init__(server, DynamoDbCells(Table(parse_url(server.place))))

    def place(self, address: str, prefix: str) -> str:
        return dynamodb.place(address, prefix)

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + WHOLE)


@pytest.fixture
def harness(dynamodb_dynalite: Dynalite) -> Iterator[DynamoDbHarness]:
    made = DynamoDbHarness(dynamodb_dynalite)
    yield made
    made.close()


class TestDynamoDb(BackendContract):
    """Every promise, and what only this backend has."""
