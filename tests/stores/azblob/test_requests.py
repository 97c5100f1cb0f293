"""Requests to Azure Blob Storage: how they are signed, and what others may do to a blob."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.stores.azblob.access import string_to_sign
from tests.contract.harness import LIMIT, claim, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from tests.servers.azurite import Azurite


@pytest.fixture
def store() -> str:
    return "azblob"


def test_what_is_signed_is_as_the_documentation_has_it() -> None:
    """The examples of "Authorize with Shared Key": a write, and a list."""
    headers = {"x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT", "x-ms-version": "2015-02-21"}
    query = (("restype", "container"), ("comp", "metadata"), ("timeout", "20"))
    assert string_to_sign("myaccount", ("GET", "/mycontainer", query, 0), headers) == (
        "GET\n\n\n\n\n\n\n\n\n\n\n\n"
        "x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
        "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
    )
    write = {**headers, "content-type": "text/plain; charset=UTF-8", "if-match": '"1"', "x-ms-blob-type": "BlockBlob"}
    assert string_to_sign("myaccount", ("PUT", "/mycontainer/hello.txt", (), 11), write) == (
        'PUT\n\n\n11\n\ntext/plain; charset=UTF-8\n\n\n"1"\n\n\n\n'
        "x-ms-blob-type:BlockBlob\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
        "/myaccount/mycontainer/hello.txt"
    )


def test_a_lease_of_azures_keeps_writers_out_and_a_holder_lives_on_until_its_own_lease_ends(
    connect: Callable[[], Backend], azblob_server: Azurite, word: str
) -> None:
    client = connect()
    grant = take(client, claim())
    azblob_server.lease(f"{word}/lock:nightly")
    with pytest.raises(BackendUnavailable, match="another program has a lease of Azure's on it"):
        client.renew(grant, timeout=LIMIT)


def test_what_is_forgotten_leaves_no_blob(connect: Callable[[], Backend], azblob_server: Azurite, word: str) -> None:
    client = connect()
    client.release(take(client, claim()), timeout=LIMIT)
    assert f"{word}/lock:nightly" in azblob_server.blobs()
    assert client.forget("nightly", older_than=0.0, timeout=LIMIT)
    ours = [name for name in azblob_server.blobs() if name.startswith(word)]
    assert sorted(ours) == [f"{word}/domain:", f"{word}/floor:"]


def test_metadata_are_signed_in_the_order_that_azure_has(azblob_server: Azurite) -> None:
    """Other programs' names may have low lines, which come before digits."""
    fields = {f"x-ms-meta-{name}": name for name in ("a_b", "a1", "ab", "a_1", "a__", "a")}
    fields |= {"x-ms-blob-type": "BlockBlob", "x-ms-blob-content-type": "a/b", "x-ms-access-tier": "Hot"}
    assert azblob_server.request("PUT", "locks", f"signed-{os.urandom(6).hex()}", body=b"1", headers=fields)
