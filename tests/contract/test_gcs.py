"""The contract, held by the gcs backend on an emulator, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.gcs.cell import GcsBackend, GcsCells
from tests.contract.cells import DatedHarness
from tests.contract.suite import BackendContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.url import Url
    from tests.servers.gcs import Gcs


class GcsHarness(DatedHarness):
    """A path of a bucket."""

    capabilities = GcsBackend.capabilities
    clock_error = GcsCells.clock_error

    def place(self, address: str, prefix: str) -> str:
        return f"gcs://locks/{self.path}/{prefix}?anonymous=yes&endpoint=http://{address}"

    def driver(self, url: Url) -> GcsCells:
        return GcsCells(url, GcsBackend.parameters)


@pytest.fixture
def harness(gcs_server: Gcs) -> Iterator[GcsHarness]:
    made = GcsHarness(gcs_server)
    yield made
    made.close()


class TestGcs(BackendContract):
    """Every promise, and what only this backend has."""
