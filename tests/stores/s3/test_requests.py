"""Requests to S3: how they are signed, who we are, and what is lost on the way."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.wire.aws import Keys, signed
from lockctl.wire.http import quoted
from tests.contract.harness import LIMIT, claim, take
from tests.servers.http_proxy import HttpProxy, without_conditions
from tests.stores.test_refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.servers.http_proxy import Answer, Request

SECRET = "wJalrXUtnFEMI0K7MDENG/bPxRfiCYEXAMPLEKEY"
NOON = 1_790_000_000
# what STS says to AssumeRole
ROLE = "arn:aws:iam::123456789012:role/job"
ASSUMED = (
    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
    "<AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
    "<Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
)
NOT_KNOWN = (
    '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
    "<Code>InvalidClientTokenId</Code><Message>The security token is invalid.</Message></Error></ErrorResponse>"
)


@pytest.fixture
def store() -> str:
    return "s3"


@pytest.fixture
def connect(between: HttpProxy, word: str, opened: Callable[[str], Backend]) -> Callable[..., Backend]:
    """A call that makes a client behind the proxy."""
    return lambda login="test:s3cret@": opened(f"s3://{login}locks/{word}?endpoint={between.url}")


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
    refuse = refusal("s3", 403, code)
    between.look = lambda request: refuse(request) if "AKIAFIRST" in request.headers["authorization"] else None
    with pytest.raises(BackendUnavailable, match="not, or no longer, valid") as told:
        client.renew(grant, timeout=LIMIT)
    assert SECRET not in str(told.value)
    with pytest.raises(ConfigError, match="not, or no longer, valid"):
        client.try_acquire(claim("other"), timeout=LIMIT)
    file.write_text(f"[default]\naws_access_key_id = AKIANEXT\naws_secret_access_key = {SECRET}\n")
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_the_keys_with_which_a_role_is_assumed_are_read_again_when_they_are_refused(
    connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    known = {"AKIAFIRST"}
    keys, config = tmp_path / "credentials", tmp_path / "config"

    def exchange(key: str) -> None:
        keys.write_text(f"[source]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    def assume(request: Request) -> Answer:
        access = request.headers["authorization"].partition("Credential=")[2].partition("/")[0]
        status, form = (200, ASSUMED) if access in known else (403, NOT_KNOWN)
        ends = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=60)  # so soon that each request asks for others
        return status, [("Content-Type", "text/xml")], form.format(ends=f"{ends:%Y-%m-%dT%H:%M:%SZ}").encode()

    with HttpProxy("127.0.0.1:1", assume) as service:
        exchange("AKIAFIRST")
        config.write_text(f"[default]\nrole_arn = {ROLE}\nsource_profile = source\nregion = us-east-1\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        client = connect("")
        grant = take(client, claim())
        known.clear()
        with pytest.raises(BackendUnavailable, match="the credentials cannot be had"):
            client.renew(grant, timeout=LIMIT)
        known.add("AKIANEXT")
        exchange("AKIANEXT")
        assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_without_credentials_a_person_is_told(connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="no credentials: `aws configure`"):
        connect("").inspect("nightly", timeout=LIMIT)


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
