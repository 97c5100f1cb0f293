"""The contract, held by the gcs backend on an emulator, and what only this backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.gcs.cell import GcsBackend, GcsCells
from lockctl.url import parse_url
from tests.contract.cells import DatedHarness
from tests.contract.harness import LIMIT, take
from tests.contract.suite import BackendContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.url import Url
    from tests.servers.gcs import Gcs


class GcsHarness(DatedHarness):
    """A path of a bucket."""

    capabilities = GcsBackend.capabilities
    clock_error = GcsCells.clock_error

    def url(self, at: str, prefix: str = "locks") -> str:
        return f"gcs://locks/{self.path}/{prefix}?anonymous=yes&endpoint=http://{at}"

    def driver(self, url: Url) -> GcsCells:
        return GcsCells(url, GcsBackend.parameters)


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
