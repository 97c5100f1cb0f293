"""Marks of blobs in Azure Blob Storage: the contract, and what belongs to a blob."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from lockctl import fence
from lockctl.errors import ConfigError
from tests.fence.contract import Client, mark
from tests.fence.objects import ObjectHarness, VersionedContract, write
from tests.servers.azurite import ACCOUNT, sas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.azurite import Azurite

pytestmark = pytest.mark.slow


class AzureBlobHarness(ObjectHarness):
    """A container of its own, with a SAS token: what a key has signed no proxy could change."""

    def __init__(self, server: Azurite) -> None:
        super().__init__(server)
        self.peer = server
        self.container = f"t{os.urandom(6).hex()}"
        server.make(self.container)
        self.login = quote(sas("rwdl", 600.0, self.container), safe="")

    def at(self, address: str, resource: str) -> str:
        at = f"account={ACCOUNT}&endpoint=http://{address}/{ACCOUNT}"
        return f"azblob://:{self.login}@{self.container}/{resource}?{at}"

    def stored(self, name: str) -> bytes | None:
        answer = self.peer.request("GET", self.container, name)
        return answer.body if answer else None

    def place(self, name: str, data: bytes, **more: str) -> None:
        fields = {"x-ms-blob-type": "BlockBlob", **{name.replace("_", "-"): text for name, text in more.items()}}
        assert self.peer.request("PUT", self.container, name, body=data, headers=fields)

    def names(self) -> set[str]:
        return set(self.peer.blobs(self.container))


@pytest.fixture
def harness(azblob_server: Azurite) -> Iterator[AzureBlobHarness]:
    made = AzureBlobHarness(azblob_server)
    yield made
    made.close()


class TestAzureBlob(VersionedContract):
    """Every promise."""

    def test_what_belongs_to_a_blob_stays_and_says_which_token_wrote_it(
        self, harness: AzureBlobHarness, client: Client
    ) -> None:
        what = {"content-type": "application/json", "cache-control": "no-cache", "content-language": "de"}
        what |= {"content-disposition": "inline", "x-ms-access-tier": "Cool", "x-ms-meta-owner": "me"}
        sent = {f"x_ms_blob_{name.replace('-', '_')}": text for name, text in what.items() if "x-ms" not in name}
        harness.place("stock", b"{}", **sent, x_ms_access_tier="Cool", x_ms_meta_owner="me")
        for token in (33, 34):
            write(client, token, b"[]")
        answer = harness.peer.request("HEAD", harness.container, "stock")
        assert answer is not None
        assert {name: answer.headers.get(name) for name in what} == what
        assert answer.headers["x-ms-meta-lockctl_fence"] == str(mark(34))

    def test_a_missing_container_is_no_missing_mark(self, harness: AzureBlobHarness) -> None:
        url = harness.at(harness.proxy.address, "stock").replace(harness.container, "no-such")
        with pytest.raises(ConfigError, match=r"azblob://no-such: .*\(40[34]\)"):
            fence.advance(url, mark(33))
