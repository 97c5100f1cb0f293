"""What is said to the refusals of servers that speak HTTP: an outage leaves a lock in doubt, a person reads what to do."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT, assert_in_doubt, claim, take
from tests.servers import azurite
from tests.servers.http_proxy import HttpProxy, without_conditions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.http_proxy import Answer, Request

FORMS: dict[str, Callable[[int, str], tuple[dict[str, str], bytes]]] = {  # of a refusal, by status and code
    "azblob": lambda _, code: ({"x-ms-error-code": code, "x-ms-request-id": "1"}, b"\x1b[31m no"),
    "dynamodb": lambda _, code: ({}, json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}"}).encode()),
    "gcs": lambda status, code: ({}, json.dumps({"error": {"code": status, "message": code}}).encode()),
    "kubernetes": lambda _, code: ({}, json.dumps({"kind": "Status", "reason": code}).encode()),
    "s3": lambda _, code: ({}, f"<Error><Code>{code}</Code><Message>\x1b[31m no</Message></Error>".encode()),
}


def refusal(store: str, status: int, code: str) -> Callable[[Request], Answer]:
    """Every request is answered so."""
    fields, body = FORMS[store](status, code)
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    return lambda _: (status, [("Date", date), *fields.items()], body)


@pytest.mark.parametrize(
    ("store", "status", "code", "said"),
    [
        ("azblob", 503, "ServerBusy", r"\(503\): it is busy or out of order"),
        ("azblob", 500, "OperationTimedOut", r"\(500\): it is busy or out of order"),
        ("azblob", 500, "InternalError", r"\(500\): it is busy or out of order"),
        ("azblob", 429, "", r"\(429\): it is busy or out of order"),
        ("dynamodb", 400, "ProvisionedThroughputExceededException", "throttled"),
        ("dynamodb", 400, "ThrottlingException", "throttled"),
        ("dynamodb", 400, "RequestLimitExceeded", "throttled"),
        ("dynamodb", 429, "TooManyRequests", "throttled"),
        ("dynamodb", 500, "InternalServerError", "InternalServerError"),
        ("gcs", 503, "\x1b[31m Backend Error", r"Backend Error \(503\)"),
        ("gcs", 500, "\x1b[31m Backend Error", r"Backend Error \(500\)"),
        ("gcs", 408, "\x1b[31m Backend Error", r"Backend Error \(408\)"),
        ("kubernetes", 429, "TooManyRequests", "429"),
        ("kubernetes", 500, "InternalError", "500"),
        ("kubernetes", 503, "ServiceUnavailable", "503"),
        ("s3", 503, "SlowDown", r"SlowDown \(503\)"),
        ("s3", 429, "TooManyRequests", r"TooManyRequests \(429\)"),
        ("s3", 500, "InternalError", r"InternalError \(500\)"),
    ],
)
def test_a_server_that_is_busy_says_nothing_about_the_lock(
    store: str, status: int, code: str, said: str, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    grant = take(client, claim())
    between.look = refusal(store, status, code)
    asked = len(between.seen)
    for step in (
        lambda: client.renew(grant, timeout=LIMIT),
        lambda: client.try_acquire(claim("other"), timeout=LIMIT),
        lambda: client.inspect("nightly", timeout=LIMIT),
    ):
        with pytest.raises(BackendUnavailable, match=said) as told:
            step()
        assert str(told.value).isprintable()
    assert len(between.seen) == asked + 3, "nothing is tried again: that is for the caller, who has a deadline"
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize(
    ("store", "status", "code", "said"),
    [
        ("azblob", 404, "ContainerNotFound", "there is no azblob://locks in this account"),
        ("azblob", 403, "AuthorizationPermissionMismatch", "blobs/delete, or a SAS token with rwdl"),
        ("azblob", 403, "AuthorizationFailure", "and a network that the account lets in"),
        ("azblob", 403, "AuthenticationFailed", "the credentials are not, or no longer, valid"),
        ("azblob", 401, "InvalidAuthenticationInfo", "the credentials are not, or no longer, valid"),
        ("azblob", 403, "KeyBasedAuthenticationNotPermitted", "the account accepts no keys"),
        ("azblob", 412, "LeaseIdMissing", "az storage blob lease break"),
        ("azblob", 400, "\x1b[31mInvalidInput", r"InvalidInput \(400\)"),
        ("azblob", 409, "BlobImmutableDueToPolicy", r"BlobImmutableDueToPolicy \(409\)"),
        ("azblob", 200, "", "the server gives no ETag"),
        ("dynamodb", 400, "ExpiredTokenException", "no longer, valid"),
        ("dynamodb", 400, "UnrecognizedClientException", "no longer, valid"),
        ("dynamodb", 400, "AccessDeniedException", "dynamodb:UpdateItem"),
        ("dynamodb", 400, "ResourceNotFoundException", "aws dynamodb create-table --table-name locks"),
        ("gcs", 404, "The specified bucket does not exist.", "there is no gcs://locks"),
        ("gcs", 403, "me@x does not have storage.objects.get access", "get, .create, .delete and .list, for requests-"),
        ("gcs", 401, "Anonymous caller does not have access", "the credentials are not, or no longer,"),
        ("gcs", 400, "\x1b[31mInvalid", r"Invalid \(400\)"),
        ("s3", 404, "NoSuchBucket", "there is no s3://locks"),
        ("s3", 403, "AccessDenied", "needed are s3:GetObject, s3:PutObject and s3:DeleteObject for requests-"),
        ("s3", 501, "NotImplemented", "does not know conditional writes"),
        ("s3", 400, "AuthorizationHeaderMalformed", "the bucket is elsewhere"),
        ("s3", 301, "PermanentRedirect", "the bucket is elsewhere"),
        ("s3", 400, "\x1b[31mBad", "are region= and endpoint= right"),
    ],
)
def test_a_refusal_says_what_a_person_must_change_and_a_job_lives_on(
    store: str, status: int, code: str, said: str, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    grant = take(client, claim())
    between.look = refusal(store, status, code)
    for step in (
        lambda: client.inspect("nightly", timeout=LIMIT),
        lambda: client.try_acquire(claim("other"), timeout=LIMIT),
    ):
        with pytest.raises(ConfigError, match=said) as refused:
            step()
        assert str(refused.value).isprintable()
        assert azurite.KEY not in str(refused.value)
    with pytest.raises(BackendUnavailable, match=said):
        client.renew(grant, timeout=LIMIT)
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


SAID = {  # of an answer that is another's
    "azblob": "not Azure's answer",
    "consul": r"consul at \S+: status (200|404): ",
    "dynamodb": "not that of DynamoDB",
    "etcd": "not etcd's answer",
    "gcs": "not Google's answer",
    "kubernetes": "API server",
    "s3": "not S3's answer",
}


@pytest.mark.parametrize(
    ("store", "status", "body"),
    [
        ("dynamodb", 200, b'{"message": "not found"}'),
        ("dynamodb", 200, b'{"status": "ok", "Items": [1]}'),
        ("dynamodb", 200, b'{"Item": {"a": {"S": "1"}}, "Items": 1}'),
        ("dynamodb", 200, b"{}"),
        ("dynamodb", 200, b""),
        ("azblob", 200, b"<html>Log in first</html>"),
        ("azblob", 201, b""),
        ("consul", 200, b"<html>Log in first</html>"),
        ("consul", 404, b"<html>default backend</html>"),
        ("etcd", 200, b"<html>Log in first</html>"),
        ("etcd", 404, b"<html>default backend</html>"),
        ("etcd", 404, b"default backend - 404"),
        ("gcs", 200, b"<html>Log in first</html>"),
        ("gcs", 200, b'{"status": "ok"}'),
        ("gcs", 200, b"[]"),
        ("gcs", 404, b"<html>default backend</html>"),
        ("s3", 200, b"<html>Log in first</html>"),
        ("kubernetes", 404, b'{"message": "no route matched"}'),
        ("kubernetes", 404, b"{}"),
        ("kubernetes", 404, b""),
        ("kubernetes", 409, b'{"error": {"code": 409}}'),
        ("kubernetes", 200, b"{}"),
        ("kubernetes", 200, b'{"status": "ok", "metadata": 3, "items": [1]}'),
        ("kubernetes", 200, b'{"kind": "Lease", "metadata": {"name": "another", "resourceVersion": "1"}}'),
        ("kubernetes", 200, b'{"kind": "LeaseList", "items": [{"metadata": {"name": "a"}}]}'),
    ],
)
def test_what_is_like_an_answer_and_is_none_says_nothing_about_a_lock(
    store: str, status: int, body: bytes, between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    client = connect()
    grant = take(client, claim())
    portal = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())), ("ETag", '"1"')]
    between.look = lambda _: (status, portal, body)
    assert_in_doubt(client, grant, SAID[store])
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize(
    ("store", "field", "form", "code"),
    [
        ("azblob", "x-ms-date", "%a, %d %b %Y %H:%M:%S GMT", "AuthenticationFailed"),
        ("dynamodb", "x-amz-date", "%Y%m%dT%H%M%SZ", "InvalidSignatureException"),
        ("s3", "x-amz-date", "%Y%m%dT%H%M%SZ", "RequestTimeTooSkewed"),
    ],
)
@pytest.mark.parametrize("ahead", [-86400.0, 86400.0])
def test_the_clock_of_a_host_changes_neither_what_its_requests_are_dated_nor_leases(
    store: str,
    field: str,
    form: str,
    code: str,
    ahead: float,
    between: HttpProxy,
    connect: Callable[[], Backend],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was dated minutes ago or ahead is refused, as by the true servers."""
    wall, off = clock.wall, list[float]()

    def look(request: Request) -> Answer | None:
        stamp = datetime.strptime(request.headers[field], form).replace(tzinfo=timezone.utc).timestamp()
        off.append(stamp - wall())
        return refusal(store, 403, code)(request) if abs(off[-1]) > 300 else None

    grant = take(connect(), claim())
    between.look = look
    monkeypatch.setattr(clock, "wall", lambda: wall() + ahead)
    client = connect()
    assert client.try_acquire(claim(), timeout=LIMIT) is None
    (holder,) = client.inspect("nightly", timeout=LIMIT).holders
    assert holder.acquired_at == pytest.approx(grant.at, rel=0, abs=0.001)
    later = take(client, claim("another"))
    assert abs(later.at - wall()) < 5
    assert 0 < later.token - grant.token < 60_000_000
    assert abs(off[0]) > 86000
    assert all(abs(each) < 3 for each in off[1:]), "what was learned is kept"


def written(request: Request) -> Answer | None:
    """An answer to all writes: what signed their conditions knows when they are dropped."""
    return (201, [("etag", '"1"'), ("x-ms-request-id", "1")], b"") if request.method == "PUT" else None


@pytest.mark.parametrize(
    ("store", "look"), [("azblob", written), ("gcs", without_conditions), ("s3", without_conditions)]
)
def test_a_server_that_ignores_conditions_keeps_no_lock(
    look: Callable[[Request], Answer | None], between: HttpProxy, connect: Callable[[], Backend]
) -> None:
    between.look = look
    with pytest.raises(ConfigError, match="ignores the conditions of writes"):
        connect().try_acquire(claim(), timeout=LIMIT)


@pytest.mark.parametrize("store", ["azblob", "gcs", "s3"])
def test_a_holder_asks_as_often_as_its_cost_says(between: HttpProxy, connect: Callable[[], Backend]) -> None:
    client = connect()
    grant = take(client, claim())
    asked = len(between.seen)
    client.renew(grant, timeout=LIMIT)
    assert [method for method, _ in between.seen[asked:]] in (["GET", "PUT"], ["GET", "POST"])
    cost = client.capabilities.holder_cost
    assert cost is not None
    renewals = 3600 / 5  # an hour of a lease of 30 s
    assert cost.requests == 2 * renewals
    assert cost.dollars == pytest.approx(renewals * (0.005 + 0.0004) / 1000, rel=0.02)


@pytest.mark.parametrize(
    ("url", "library"),
    [
        (azurite.place("127.0.0.1:1", "x"), "azure."),
        ("gcs://locks/x?anonymous=yes&endpoint=http://127.0.0.1:1", "google"),
        ("s3://test:s3cret@locks/x?endpoint=http://127.0.0.1:1", "botocore"),
    ],
)
def test_the_library_is_not_loaded_for_who_has_a_key_or_needs_none(url: str, library: str, lockctl: Lockctl) -> None:
    done = lockctl("run", "-b", url, "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 69
    assert "lockctl.loading" in done.stderr
    assert library not in done.stderr
