"""The contract, held by the azblob backend on an emulator, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.stores.azblob import address
from lockctl.stores.azblob.cell import AzureBlobBackend, AzureBlobCells
from tests.contract.cells import DatedHarness
from tests.contract.suite import BackendContract
from tests.servers import azurite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.url import Url
    from tests.servers.azurite import Azurite


class AzureBlobHarness(DatedHarness):
    """A path of a container."""

    capabilities = AzureBlobBackend.capabilities
    clock_error = AzureBlobCells.clock_error

    def place(self, address: str, prefix: str) -> str:
        return azurite.place(address, f"{self.path}/{prefix}")

    def driver(self, url: Url) -> AzureBlobCells:
        return AzureBlobCells(address.from_url(url, address.PARAMETERS))


@pytest.fixture
def harness(azblob_server: Azurite) -> Iterator[AzureBlobHarness]:
    made = AzureBlobHarness(azblob_server)
    yield made
    made.close()


class TestAzureBlob(BackendContract):
    """Every promise, and what only this backend has."""
