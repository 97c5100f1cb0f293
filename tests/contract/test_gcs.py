"""The contract, held by the gcs backend on an emulator, and what only this backend has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.gcs.cell import GcsBackend, GcsCells
from lockctl.url import parse_url
from tests.contract.cells import CellHarness
from tests.contract.harness import LIMIT, take
from tests.contract.suite import BackendContract
from tests.servers.http_proxy import HttpProxy
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from tests.servers.gcs import Gcs


class GcsHarness(CellHarness):
    """A path with a clock of its own, which is that of a proxy; each client has another proxy before that."""

    capabilities = GcsBackend.capabilities
    freed_after = 4.0  # whole seconds, and what clocks may differ
    hold_slack = 3.0
    clock_error = GcsCells.clock_error

    def __init__(self, server: Gcs) -> None:
        self.server = server
        self.path = f"t{os.urandom(6).hex()}"
        self.clock = HttpProxy(server.address)
        self.clock.__enter__()
        self.clients: list[tuple[Backend, Proxy]] = []
        self.own = GcsCells(parse_url(self.url(self.clock.address)), GcsBackend.parameters)

    def url(self, at: str, prefix: str = "locks") -> str:
        return f"gcs://locks/{self.path}/{prefix}?anonymous=yes&endpoint=http://{at}"

    def client(self, prefix: str = "locks") -> Backend:
        proxy = Proxy(self.clock.address)
        made = open_backend(parse_url(self.url(proxy.address, prefix)))
        self.clients.append((made, proxy))
        return made

    def neighbour(self) -> Backend:
        return self.client("others")

    def cells(self) -> GcsCells:
        return self.own

    def pass_time(self, seconds: float) -> None:
        self.clock.ahead += seconds

    def expire(self, grant: object) -> None:
        self.pass_time(self.freed_after)

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
        self.clock.__exit__()


@pytest.fixture
def harness(gcs_server: Gcs) -> Iterator[GcsHarness]:
    made = GcsHarness(gcs_server)
    yield made
    made.close()


class TestGcs(BackendContract):
    """Every promise, and what only this backend has."""

    def test_the_token_rises_although_the_object_is_deleted_by_hand(self, harness: GcsHarness) -> None:
        """Within one second of the clock, and whether it was used once or more."""
        tokens = []
        for tenures in (1, 3, 1, 2):
            for _ in range(tenures):
                client = harness.client()
                grant = take(client, harness.claim())
                tokens.append(grant.token)
                client.release(grant, timeout=LIMIT)
            harness.server.delete(f"{harness.path}/locks/lock:nightly")
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(
    "url",
    [
        "gcs:///locks",
        "gcs://a,b/locks",
        "gcs://me:it@stocks/locks",
        "gcs://stocks/locks?no=1",
        "gcs://stocks/locks?anonymous=perhaps",
        "gcs://stocks/locks?endpoint=stocks.example",
        f"gcs://stocks/{'x' * 401}",
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_backend(parse_url(url))
