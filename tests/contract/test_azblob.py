"""The contract, held by the azblob backend on an emulator, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.azblob import address
from lockctl.stores.azblob.access import VARIABLES
from lockctl.stores.azblob.cell import AzureBlobBackend, AzureBlobCells
from lockctl.url import parse_url
from tests.contract.cells import DatedHarness
from tests.contract.harness import LIMIT, take
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

    def url(self, at: str, prefix: str = "locks") -> str:
        return azurite.place(at, f"{self.path}/{prefix}")

    def driver(self, url: Url) -> AzureBlobCells:
        return AzureBlobCells(address.from_url(url, address.PARAMETERS))


@pytest.fixture
def harness(azblob_server: Azurite) -> Iterator[AzureBlobHarness]:
    made = AzureBlobHarness(azblob_server)
    yield made
    made.close()


class TestAzureBlob(BackendContract):
    """Every promise, and what only this backend has."""

    def test_the_token_rises_although_the_blob_is_deleted_by_hand(self, harness: AzureBlobHarness) -> None:
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
        "azblob:///locks?account=stocks",
        "azblob://a,b/locks?account=stocks",
        "azblob://me:it@locks/locks?account=stocks",
        "azblob://locks/locks?account=stocks&no=1",
        "azblob://locks/locks?account=stocks.example",
        "azblob://locks/locks?account=stocks&endpoint=stocks.example",
        "azblob://locks/locks?account=stocks&endpoint=https://stocks.example/?x",
        "azblob://:not-base64@locks/locks?account=stocks",
        "azblob://:sig=a%20b@locks/locks?account=stocks",
        "azblob://:a2V5@locks/locks?endpoint=https://stocks.example",
        "azblob://:a2V5@locks/locks",
        f"azblob://:a2V5@locks/{'x' * 401}?account=stocks",
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with pytest.raises(ConfigError):
        open_backend(parse_url(url))
