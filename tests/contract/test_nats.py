"""The contract, held by the nats backend on a real server, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.cell import NatsBackend, NatsCells
from lockctl.stores.nats.protocol import Bucket
from lockctl.url import parse_url
from tests.contract.cells import ServedHarness
from tests.contract.suite import BackendContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant
    from tests.servers.nats import Nats


class NatsHarness(ServedHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = NatsBackend.capabilities
    clock_error = NatsCells.clock_error
    freed_after = 1.1 + clock_error
    hold_slack = 0.3 + clock_error

    def __init__(self, server: Nats) -> None:
        super().__init__(server, NatsCells(Bucket(read_url(parse_url(server.url)))))

    def place(self, address: str, prefix: str) -> str:
        return f"nats://{address}/locks/{prefix}"

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + self.clock_error + 0.01)


@pytest.fixture
def harness(nats_server: Nats) -> Iterator[NatsHarness]:
    made = NatsHarness(nats_server)
    yield made
    made.close()


class TestNats(BackendContract):
    """Every promise, and what only this backend has."""
