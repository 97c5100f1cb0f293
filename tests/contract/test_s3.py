"""The contract, held by the s3 backend on a real server, and what only this backend has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.stores.s3 import address
from lockctl.stores.s3.cell import S3Backend, S3Cells
from lockctl.url import parse_url
from tests.contract.cells import CellHarness
from tests.contract.harness import LIMIT, take
from tests.contract.suite import BackendContract
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from tests.servers.moto import S3


class S3Harness(CellHarness):
    """A bucket with a clock of its own, each client behind a proxy of its own."""

    capabilities = S3Backend.capabilities
    freed_after = 4.0  # whole seconds, and what clocks may differ
    hold_slack = 3.0
    clock_error = S3Cells.clock_error

    def __init__(self, server: S3) -> None:
        self.server = server
        self.bucket = f"t{os.urandom(6).hex()}"
        self.peer = server.client()
        self.peer.create_bucket(Bucket=self.bucket)
        self.clients: list[tuple[Backend, Proxy]] = []
        self.own = S3Cells(address.from_url(parse_url(self.url(server.address)), address.PARAMETERS))

    def url(self, at: str, prefix: str = "locks") -> str:
        return f"s3://test:s3cret@{self.bucket}/{prefix}?endpoint=http://{at}"

    def client(self, prefix: str = "locks") -> Backend:
        proxy = Proxy(self.server)
        made = open_backend(parse_url(self.url(proxy.address, prefix)))
        self.clients.append((made, proxy))
        return made

    def neighbour(self) -> Backend:
        return self.client("others")

    def cells(self) -> S3Cells:
        return self.own

    def pass_time(self, seconds: float) -> None:
        self.server.pass_time(self.bucket, seconds)

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
        self.peer.close()
        for client, proxy in self.clients:
            client.close()
            proxy.close()


@pytest.fixture
def harness(s3_server: S3) -> Iterator[S3Harness]:
    made = S3Harness(s3_server)
    yield made
    made.close()


class TestS3(BackendContract):
    """Every promise, and what only this backend has."""

    def test_what_is_forgotten_leaves_no_object(self, harness: S3Harness, backend: Backend) -> None:
        backend.release(take(backend, harness.claim()), timeout=LIMIT)
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        found = harness.peer.list_objects_v2(Bucket=harness.bucket)["Contents"]
        assert {each["Key"] for each in found} == {"locks/domain:", "locks/floor:"}
