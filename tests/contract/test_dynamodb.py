"""The contract, held by the dynamodb backend on moto's server, and what only this backend has."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.dynamodb.cell import DynamoDbBackend, DynamoDbCells
from lockctl.stores.dynamodb.protocol import Table
from lockctl.url import parse_url
from tests.contract.cells import CellHarness
from tests.contract.suite import BackendContract
from tests.servers import dynamodb
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.servers.dynamodb import DynamoDb

NUMBERS = itertools.count()
WHOLE = DynamoDbCells.clock_error + 1.0  # seconds after the end of a lease at which it has surely ended


class DynamoDbHarness(CellHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = DynamoDbBackend.capabilities
    clock_error = DynamoDbCells.clock_error
    freed_after = 1.1 + WHOLE
    hold_slack = 0.3 + WHOLE

    def __init__(self, server: DynamoDb) -> None:
        self.server = server
        self.prefix = f"contract-{os.getpid()}-{next(NUMBERS)}/"
        self.clients: list[tuple[Backend, Proxy]] = []
        self.own = DynamoDbCells(Table(parse_url(server.place)))

    def client(self, prefix: str = "") -> Backend:
        proxy = Proxy(self.server)
        made = open_backend(parse_url(dynamodb.place(proxy.address, prefix or self.prefix)))
        self.clients.append((made, proxy))
        return made

    def neighbour(self) -> Backend:
        return self.client(f"another-{self.prefix}")

    def cells(self) -> DynamoDbCells:
        return self.own

    def key(self, name: str) -> str:
        return f"lock:{self.prefix}{name}"

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + WHOLE)

    def sever(self, client: Backend) -> None:
        self.proxy(client).mode = "blackhole"

    def heal(self, client: Backend) -> None:
        self.proxy(client).mode = "pass"

    def proxy(self, client: Backend) -> Proxy:
        """What stands between a client and the server."""
        return next(proxy for each, proxy in self.clients if each is client)

    def close(self) -> None:
        self.own.close()
        for client, proxy in self.clients:
            client.close()
            proxy.close()


@pytest.fixture
def harness(dynamodb_server: DynamoDb) -> Iterator[DynamoDbHarness]:
    made = DynamoDbHarness(dynamodb_server)
    yield made
    made.close()


class TestDynamoDb(BackendContract):
    """Every promise, and what only this backend has."""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("dynamodb:///x", "names a table"),
        ("dynamodb://a,b/x", "names a table"),
        ("dynamodb://lo", "names a table"),
        ("dynamodb://locks?no=1", "no parameter"),
        ("dynamodb://locks?key=", "partition key"),
        ("dynamodb://me@locks", "both or none"),
        ("dynamodb://me:it@locks?profile=me", "profile contradicts"),
        ("dynamodb://locks?endpoint=db.example:9000", "endpoint is the URL"),
        ("dynamodb://locks/%23x", "does not begin with"),
        (f"dynamodb://locks/{'x' * 301}", "at most"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_backend(parse_url(url))
