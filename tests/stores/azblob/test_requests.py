"""Requests to Azure Blob Storage: how they are signed and dated, and what is said to answers that are no good."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.registry import open_backend
from lockctl.stores.azblob.access import string_to_sign
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.servers import azurite
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.azurite import Azurite
    from tests.servers.http_proxy import Answer, Request


@pytest.fixture
def between(azblob_server: Azurite) -> Iterator[HttpProxy]:
    with HttpProxy(azblob_server.address) as proxy:
        yield proxy


@pytest.fixture
def word() -> str:
    """A path that nobody else uses."""
    return f"requests-{os.urandom(6).hex()}"


@pytest.fixture
def connect(between: HttpProxy, word: str) -> Iterator[Callable[[], Backend]]:
    """A call that makes a client behind the proxy."""
    with contextlib.ExitStack() as ends:

        def new() -> Backend:
            made = open_backend(parse_url(azurite.place(between.address, word)))
            ends.callback(made.close)
            return made

        yield new


def refusal(status: int, code: str) -> Callable[[Request], Answer]:
    """Every request is answered so."""
    date = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))]
    return lambda _: (status, [*date, ("x-ms-error-code", code)], b"\x1b[31m no")


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


@pytest.mark.parametrize("days", [-1.0, 1.0])
def test_a_host_whose_clock_is_wrong_has_its_requests_dated_by_the_server(
    days: float, between: HttpProxy, connect: Callable[[], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    dated: list[float] = []

    def look(request: Request) -> Answer | None:
        """As Azure: dates that are more than 15 minutes off are refused."""
        told = time.mktime(time.strptime(request.headers["x-ms-date"], "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
        dated.append(told - time.time())
        return None if abs(dated[-1]) < 900 else refusal(403, "AuthenticationFailed")(request)

    between.look = look
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + days * 86400)
    client = connect()
    client.renew(take(client, claim()), timeout=LIMIT)
    assert abs(dated[0]) > 86000
    assert all(abs(off) < 3 for off in dated[1:])


@pytest.mark.parametrize(
    ("status", "code"), [(503, "ServerBusy"), (500, "OperationTimedOut"), (500, "InternalError"), (429, "")]
)
def test_a_server_that_is_busy_says_nothing_about_the_lock(
    status: int, code: str, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    grant = take(client, claim())
    between.look = refusal(status, code)
    asked = len(between.seen)
    for step in (
        lambda: client.renew(grant, timeout=LIMIT),
        lambda: client.try_acquire(claim("other"), timeout=LIMIT),
        lambda: client.inspect("nightly", timeout=LIMIT),
    ):
        with pytest.raises(BackendUnavailable, match=rf"\({status}\): it is busy or out of order") as told:
            step()
        assert str(told.value).isprintable()
    assert len(between.seen) == asked + 3, "nothing is tried again: that is for the caller, who has a deadline"
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (404, "ContainerNotFound", "there is no azblob://locks in this account"),
        (403, "AuthorizationPermissionMismatch", "needed are the role Storage Blob Data Contributor, or a SAS token"),
        (403, "AuthorizationFailure", "and a network that the account lets in"),
        (403, "AuthenticationFailed", "the credentials are not, or no longer, valid"),
        (401, "InvalidAuthenticationInfo", "the credentials are not, or no longer, valid"),
        (403, "KeyBasedAuthenticationNotPermitted", "the account accepts no keys"),
        (412, "LeaseIdMissing", "az storage blob lease break"),
        (400, "\x1b[31mInvalidInput", r"InvalidInput \(400\)"),
        (409, "BlobImmutableDueToPolicy", r"BlobImmutableDueToPolicy \(409\)"),
        (200, "", "the server gives no ETag"),
    ],
)
def test_a_refusal_says_what_a_person_must_change(
    status: int, code: str, told: str, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    between.look = refusal(status, code)
    with pytest.raises(ConfigError, match=told) as refused:
        connect().inspect("nightly", timeout=LIMIT)
    assert str(refused.value).isprintable()
    assert azurite.KEY not in str(refused.value)


def test_a_lease_of_azures_keeps_writers_out_and_a_holder_lives_on_until_its_own_lease_ends(
    connect: Callable[[], Backend], azblob_server: Azurite, word: str
) -> None:
    client = connect()
    grant = take(client, claim())
    azblob_server.lease(f"{word}/lock:nightly")
    with pytest.raises(BackendUnavailable, match="another program has a lease of Azure's on it"):
        client.renew(grant, timeout=LIMIT)


def test_a_server_that_ignores_conditions_keeps_no_lock(between: HttpProxy, connect: Callable[[], Backend]) -> None:
    between.look = lambda request: (201, [("etag", '"1"')], b"") if request.method == "PUT" else None
    with pytest.raises(ConfigError, match="ignores the conditions of writes"):
        connect().try_acquire(claim(), timeout=LIMIT)


def test_what_is_forgotten_leaves_no_blob(connect: Callable[[], Backend], azblob_server: Azurite, word: str) -> None:
    client = connect()
    client.release(take(client, claim()), timeout=LIMIT)
    assert f"{word}/lock:nightly" in azblob_server.blobs()
    assert client.forget("nightly", older_than=0.0, timeout=LIMIT)
    ours = [name for name in azblob_server.blobs() if name.startswith(word)]
    assert sorted(ours) == [f"{word}/domain:", f"{word}/floor:"]


def test_a_holder_asks_as_often_as_its_cost_says(between: HttpProxy, connect: Callable[[], Backend]) -> None:
    client = connect()
    grant = take(client, claim())
    asked = len(between.seen)
    client.renew(grant, timeout=LIMIT)
    assert [method for method, _ in between.seen[asked:]] == ["GET", "PUT"]
    cost = client.capabilities.holder_cost
    assert cost is not None
    renewals = 3600 / 5  # an hour of a lease of 30 s
    assert cost.requests == 2 * renewals
    assert cost.dollars == pytest.approx(renewals * (0.005 + 0.0004) / 1000, rel=0.02)


def test_the_library_is_not_loaded_for_who_has_a_key(lockctl: Lockctl) -> None:
    done = lockctl("run", "-b", azurite.place("127.0.0.1:1", "x"), "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 69
    assert "lockctl.stores.azblob" in done.stderr
    assert "azure.core" not in done.stderr
    assert "azure.identity" not in done.stderr


def test_metadata_are_signed_in_the_order_that_azure_has(azblob_server: Azurite) -> None:
    """Other programs' names may have low lines, which come before digits."""
    fields = {f"x-ms-meta-{name}": name for name in ("a_b", "a1", "ab", "a_1", "a__", "a")}
    fields |= {"x-ms-blob-type": "BlockBlob", "x-ms-blob-content-type": "a/b", "x-ms-access-tier": "Hot"}
    assert azblob_server.request("PUT", "locks", f"signed-{os.urandom(6).hex()}", body=b"1", headers=fields)
