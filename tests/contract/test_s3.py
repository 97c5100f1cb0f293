"""The contract, held by the s3 backend on a real server, and what only this backend has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.stores.s3 import address
from lockctl.stores.s3.cell import S3Backend, S3Cells
from lockctl.url import parse_url
from tests.contract.cells import ProxiedCells
from tests.contract.harness import LIMIT, take
from tests.contract.suite import BackendContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from tests.servers.moto import S3


class S3Harness(ProxiedCells):
    """A bucket with a clock of its own."""

    capabilities = S3Backend.capabilities
    freed_after = 4.0  # whole seconds, and what clocks may differ
    hold_slack = 3.0
    clock_error = S3Cells.clock_error

    def __init__(self, server: S3) -> None:
        super().__init__()
        self.server = server
        self.bucket = f"t{os.urandom(6).hex()}"
        self.peer = server.client()
        self.peer.create_bucket(Bucket=self.bucket)
        self.own = S3Cells(address.from_url(parse_url(self.place(server.address, self.prefix)), address.PARAMETERS))

    def place(self, address: str, prefix: str) -> str:
        return f"s3://test:s3cret@{self.bucket}/{prefix}?endpoint=http://{address}"

    def pass_time(self, seconds: float) -> None:
        self.server.pass_time(self.bucket, seconds)

    def expire(self, grant: object) -> None:
        self.pass_time(self.freed_after)

    def close(self) -> None:
        super().close()
        self.peer.close()


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
