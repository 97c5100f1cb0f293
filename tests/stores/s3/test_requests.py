"""Requests to S3: how they are signed and dated, and what is said to answers that are no good."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from typing import TYPE_CHECKING, Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.registry import open_backend
from lockctl.url import parse_url
from lockctl.wire.aws import Keys, signed
from lockctl.wire.http import quoted
from tests.contract.harness import LIMIT, claim, take
from tests.servers.http_proxy import HttpProxy, without_conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.http_proxy import Answer, Request
    from tests.servers.moto import S3

SECRET = "wJalrXUtnFEMI0K7MDENG/bPxRfiCYEXAMPLEKEY"
NOON = 1_790_000_000


@pytest.fixture
def between(s3_server: S3) -> Iterator[HttpProxy]:
    with HttpProxy(s3_server.address) as proxy:
        yield proxy


@pytest.fixture
def connect(between: HttpProxy) -> Iterator[Callable[..., Backend]]:
    """A call that makes a client behind the proxy, of a place that nobody else uses."""
    word = f"requests-{os.urandom(6).hex()}"
    with contextlib.ExitStack() as ends:

        def new(login: str = "test:s3cret@") -> Backend:
            made = open_backend(parse_url(f"s3://{login}locks/{word}?endpoint={between.url}"))
            ends.callback(made.close)
            return made

        yield new


def refusal(status: int, code: str) -> Callable[[Request], Answer]:
    """Every request is answered so."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>\x1b[31m no</Message></Error>"
    date = [("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))]
    return lambda _: (status, date, body.encode())


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body"),
    [
        ("GET", "/locks/a", "", {}, b""),
        ("PUT", "/locks/lock:a b?c=d#e%25\N{SNOWMAN}~", "", {"if-none-match": "*"}, b"\0\xff"),
        ("PUT", "/x", "", {"if-match": '"abc"', "x-amz-meta-a": "b  c"}, b"1"),
        ("GET", "/locks/", f"list-type=2&prefix={quoted('a/b c&+=')}", {}, b""),
        ("GET", "/", "versioning=", {}, b""),
    ],
)
@pytest.mark.parametrize("session", [None, "FwoGZXIvYXdzE//="])
def test_a_signature_is_that_of_botocore(
    method: str,
    path: str,
    query: str,
    headers: dict[str, str],
    body: bytes,
    session: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = quoted(path, "/") + (f"?{query}" if query else "")
    fields = {"host": "s3.example:9000", **headers}
    ours = dict(signed((method, target, body), fields, Keys("AKIA", SECRET, session), ("eu-west-1", "s3"), NOON))
    now = dt.datetime.fromtimestamp(NOON, dt.timezone.utc).replace(tzinfo=None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: now)
    request = AWSRequest(method, f"http://s3.example:9000{target}", headers, body)
    botocore.auth.S3SigV4Auth(Credentials("AKIA", SECRET, session), "s3", "eu-west-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]
    assert SECRET not in repr(Keys("AKIA", SECRET, session)) + str(ours)


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (429, "TooManyRequests"), (500, "InternalError")])
def test_a_server_that_is_busy_says_nothing_about_the_lock(
    status: int, code: str, between: HttpProxy, connect: Callable[..., Backend]
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
        with pytest.raises(BackendUnavailable, match=rf"{code} \({status}\)"):
            step()
    assert len(between.seen) == asked + 3, "nothing is tried again: that is for the caller, who has a deadline"
    between.look = lambda _: None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_credentials_that_end_leave_the_lock_in_doubt_and_are_looked_for_anew(
    code: str, between: HttpProxy, connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """In a file, as a program that renews them writes it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file.write_text(f"[default]\naws_access_key_id = AKIAFIRST\naws_secret_access_key = {SECRET}\n")
    client = connect("")
    grant = take(client, claim())
    refuse = refusal(403, code)
    between.look = lambda request: refuse(request) if "AKIAFIRST" in request.headers["authorization"] else None
    with pytest.raises(BackendUnavailable, match="not, or no longer, valid") as told:
        client.renew(grant, timeout=LIMIT)
    assert SECRET not in str(told.value)
    with pytest.raises(ConfigError, match="not, or no longer, valid"):
        client.try_acquire(claim("other"), timeout=LIMIT)
    file.write_text(f"[default]\naws_access_key_id = AKIANEXT\naws_secret_access_key = {SECRET}\n")
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_without_credentials_a_person_is_told(connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="no credentials: `aws configure`"):
        connect("").inspect("nightly", timeout=LIMIT)


@pytest.mark.parametrize("ahead", [6 * 3600.0, -6 * 3600.0])
def test_a_request_is_dated_by_the_clock_of_the_server(
    ahead: float, between: HttpProxy, connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon refuses requests that were made 15 minutes ago or ahead."""
    refuse = refusal(403, "RequestTimeTooSkewed")

    def look(request: Request) -> Answer | None:
        stamp = dt.datetime.strptime(request.headers["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
        return refuse(request) if abs(stamp.timestamp() - real()) > 900 else None

    real = time.time
    between.look = look
    monkeypatch.setattr(clock, "wall", lambda: real() + ahead)
    client = connect()
    grant = take(client, claim())
    assert abs(grant.at - real()) < 5
    asked = len(between.seen)
    client.renew(grant, timeout=LIMIT)
    assert len(between.seen) == asked + 2, "what was learned is kept"


def test_a_server_that_ignores_conditions_keeps_no_lock(between: HttpProxy, connect: Callable[..., Backend]) -> None:
    between.look = without_conditions
    with pytest.raises(ConfigError, match="ignores the conditions of writes"):
        connect().try_acquire(claim(), timeout=LIMIT)


def test_a_server_that_does_not_compare_before_it_deletes_keeps_locks_and_forgets_names(
    between: HttpProxy, connect: Callable[..., Backend]
) -> None:
    between.look = lambda request: without_conditions(request) if request.method == "DELETE" else None
    client = connect()
    client.release(take(client, claim()), timeout=LIMIT)
    assert client.forget("nightly", older_than=0.0, timeout=LIMIT)
    assert list(client.list("*", timeout=LIMIT)) == []
    assert client.last_success("nightly", timeout=LIMIT) is None
    again = connect()
    assert take(again, claim()).token > 0


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (404, "NoSuchBucket", "there is no s3://locks"),
        (403, "AccessDenied", "needed are s3:GetObject, s3:PutObject and s3:DeleteObject for requests-"),
        (501, "NotImplemented", "does not know conditional writes"),
        (400, "AuthorizationHeaderMalformed", "the bucket is elsewhere"),
        (301, "PermanentRedirect", "the bucket is elsewhere"),
        (400, "\x1b[31mBad", "are region= and endpoint= right"),
    ],
)
def test_a_refusal_says_what_a_person_must_change(
    status: int, code: str, told: str, between: HttpProxy, connect: Callable[..., Backend]
) -> None:
    between.look = refusal(status, code)
    with pytest.raises(ConfigError, match=told) as refused:
        connect().inspect("nightly", timeout=LIMIT)
    assert str(refused.value).isprintable()


def test_a_holder_and_a_waiter_ask_as_often_as_their_cost_says(
    between: HttpProxy, connect: Callable[..., Backend]
) -> None:
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


def test_the_library_is_not_loaded_for_keys_in_the_url(lockctl: Lockctl) -> None:
    url = "s3://test:s3cret@locks/x?endpoint=http://127.0.0.1:1"
    done = lockctl("run", "-b", url, "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 69
    assert "lockctl.stores.s3" in done.stderr
    assert "botocore" not in done.stderr


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_an_answer_that_is_lost_while_conditions_are_tried_is_no_server_that_ignores_them(
    connect: Callable[..., Backend], between: HttpProxy, lost: int
) -> None:
    tries = 0

    def lose_one(request: Request, answer: Answer) -> Answer:
        nonlocal tries
        tried = request.method == "PUT" and "proof" in request.path
        tries += tried
        between.lose_answer = tried and tries == lost
        return answer

    between.look_back = lose_one
    take(connect(), claim())
    assert tries > lost
