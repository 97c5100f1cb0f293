"""Who asks Google Cloud Storage: keys of service accounts, the metadata server, and tokens that end."""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.exceptions import GoogleAuthError

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.gcs.protocol import SCOPE
from tests.contract.harness import LIMIT, claim, take
from tests.promises.attempts import refused
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.gcs import Gcs
    from tests.servers.http_proxy import Answer, Request

NOWHERE = "127.0.0.1:1"
AUDIENCE = "https://oauth2.googleapis.com/token"  # whatever the key says
JSON = [("Content-Type", "application/json")]
FLAVOR = [("Metadata-Flavor", "Google")]
ROBOT = "robot@project.iam.gserviceaccount.example"


def said(status: int, document: object, fields: list[tuple[str, str]] | None = None) -> Answer:
    """An answer with a document."""
    return status, [*JSON, *(fields or [])], json.dumps(document).encode()


class Google:
    """Servers that give tokens, and one that lets in who has the last of them."""

    def __init__(self, storage: str) -> None:
        self.make_key()
        self.given = 0  # tokens
        self.lives = 3599  # seconds of a token
        self.trouble: Answer | None = None  # what who wants a token gets instead
        self.storage = HttpProxy(storage, self.let_in)
        self.tokens = HttpProxy(NOWHERE, self.give)

    def make_key(self) -> None:
        """The one before is of no more use."""
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        self.public = made.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def let_in(self, request: Request) -> Answer | None:
        """Refuse a request that has not the last token."""
        if request.headers.get("authorization") == f"Bearer s3cret-{self.given}":
            return None
        return said(401, {"error": {"code": 401, "message": "Invalid Credentials"}})

    def give(self, request: Request) -> Answer:
        """Answer as the server of tokens (RFC 7523) and as the one of metadata do."""
        if self.trouble is not None:
            return self.trouble
        path = request.path.partition("?")[0].rstrip("/")
        if path == "/token":
            form = dict(urllib.parse.parse_qsl(request.body.decode()))
            try:
                signed = jwt.decode(form["assertion"], certs=self.public, audience=AUDIENCE)
            except (ValueError, GoogleAuthError):
                return said(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
            assert (signed["iss"], signed["scope"]) == (ROBOT, SCOPE)
            return said(200, self.next_token())
        assert request.method == "GET"
        assert request.headers["metadata-flavor"] == "Google"
        if path.endswith("/service-accounts/default/token"):
            return said(200, self.next_token(), FLAVOR)
        if path.endswith("/service-accounts/default"):
            return said(200, {"email": ROBOT, "scopes": [SCOPE], "aliases": ["default"]}, FLAVOR)
        if path.endswith("/project-id"):
            return 200, [("Content-Type", "application/text"), *FLAVOR], b"project"
        return (200, FLAVOR, b"computeMetadata/") if not path else (404, FLAVOR, b"")

    def next_token(self) -> dict[str, object]:
        """A token; the one before is of no more use."""
        self.given += 1
        return {"access_token": f"s3cret-{self.given}", "expires_in": self.lives, "token_type": "Bearer"}

    def write_key(self, file: Path) -> None:
        """The key of a service account, as Google hands it out."""
        names = {"type": "service_account", "project_id": "project", "private_key_id": "1", "client_id": "1"}
        rest = {"private_key": self.key, "client_email": ROBOT, "token_uri": f"{self.tokens.url}/token"}
        file.write_text(json.dumps({**names, **rest}))


@pytest.fixture
def google(gcs_server: Gcs) -> Iterator[Google]:
    made = Google(gcs_server.address)
    with made.storage, made.tokens:
        yield made


@pytest.fixture
def key(google: Google, tmp_path: Path) -> Path:
    """A file with the key of a service account."""
    file = tmp_path / "robot.json"
    google.write_key(file)
    return file


@pytest.fixture
def connect(
    google: Google, opened: Callable[[str], Backend], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Backend]:
    """A call that makes a client of a place that nobody else uses, with these parameters."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "CLOUDSDK_", "GCE_"))]:
        monkeypatch.delenv(name)
    word = f"credentials-{os.urandom(6).hex()}"
    return lambda more="": opened(f"gcs://locks/{word}?endpoint={google.storage.url}{more}")


@pytest.mark.parametrize("named_by", ["the URL", "a variable"])
def test_a_key_of_a_service_account_gets_one_token_for_all(
    named_by: str, google: Google, key: Path, connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    if named_by == "a variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    client = connect(f"&credentials={key}" if named_by == "the URL" else "")
    grant = take(client, claim())
    client.renew(grant, timeout=LIMIT)
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]
    client.release(grant, timeout=LIMIT)
    assert google.given == 1


def test_a_token_is_renewed_before_it_ends(google: Google, key: Path, connect: Callable[..., Backend]) -> None:
    google.lives = 0
    client = connect(f"&credentials={key}")
    client.last_success("nightly", timeout=LIMIT)
    asked = len(google.storage.seen)
    client.last_success("nightly", timeout=LIMIT)
    assert google.given == 2
    assert len(google.storage.seen) == asked + 1, "it was not sent once more"


def test_a_token_is_used_to_its_end_while_there_is_no_other(
    google: Google, key: Path, connect: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(f"&credentials={key}")
    grant = take(client, claim())
    google.trouble = said(400, {"error": "invalid_grant"})
    now = clock.wall()
    monkeypatch.setattr(clock, "wall", lambda: now + google.lives - 60)
    asked = len(google.tokens.seen)
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert len(google.tokens.seen) > asked
    monkeypatch.setattr(clock, "wall", lambda: now + google.lives + 60)
    with pytest.raises(BackendUnavailable, match="the credentials are not, or no longer, valid"):
        client.renew(grant, timeout=LIMIT)


def test_a_key_that_is_exchanged_is_read_again_when_the_last_token_has_ended(
    google: Google, key: Path, connect: Callable[..., Backend]
) -> None:
    """The old one, of which nothing more is had, is not tried for ever."""
    google.lives = 0
    client = connect(f"&credentials={key}")
    grant = take(client, claim())
    google.make_key()
    with pytest.raises(BackendUnavailable, match="the credentials are not, or no longer, valid"):
        client.renew(grant, timeout=LIMIT)
    google.write_key(key)
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_the_metadata_server_of_an_instance_gives_tokens(google: Google, lockctl: Lockctl, tmp_path: Path) -> None:
    url = f"gcs://locks/metadata-{os.urandom(6).hex()}?endpoint={google.storage.url}"
    at = dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP"), google.tokens.address)
    env = {**at, "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)}
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "echo", "ran", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert google.given >= 1


def test_a_token_that_is_refused_leaves_the_lock_in_doubt_until_there_is_another(
    google: Google, key: Path, connect: Callable[..., Backend]
) -> None:
    client = connect(f"&credentials={key}")
    grant = take(client, claim())
    google.given += 1  # that of before has been taken back
    google.trouble = said(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature. s3cret"})
    with pytest.raises(BackendUnavailable, match="the credentials are not, or no longer, valid") as told:
        client.renew(grant, timeout=LIMIT)
    assert "s3cret" not in str(told.value)
    with pytest.raises(ConfigError, match="the credentials are not, or no longer, valid"):
        client.try_acquire(claim("other"), timeout=LIMIT)
    google.trouble = None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


@pytest.mark.parametrize("trouble", [said(503, {}), said(500, {"error": "internal_failure"})])
def test_a_server_of_tokens_that_is_busy_says_nothing_about_the_lock(
    trouble: Any, google: Google, key: Path, connect: Callable[..., Backend]
) -> None:
    client = connect(f"&credentials={key}")
    grant = take(client, claim())
    google.given += 1
    google.trouble = trouble
    for step in (
        lambda: client.renew(grant, timeout=1.0),
        lambda: client.try_acquire(claim("other"), timeout=1.0),
    ):
        with pytest.raises(BackendUnavailable, match="gcs://locks: no "):
            step()
    google.trouble = None
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_a_server_of_tokens_that_is_away_says_nothing_about_the_lock(
    google: Google, key: Path, connect: Callable[..., Backend]
) -> None:
    text = key.read_text()
    key.write_text(text.replace(google.tokens.address, NOWHERE))
    with pytest.raises(BackendUnavailable, match="no token can be had now"):
        connect(f"&credentials={key}").inspect("nightly", timeout=LIMIT)


WRONG_KEY = {"type": "service_account", "private_key": "s3cret", "client_email": ROBOT, "token_uri": "http://h/token"}


def test_a_file_that_is_no_key_is_one_line(tmp_path: Path) -> None:
    for number, content in enumerate(("[]", "[", "{}", "\0\x80", json.dumps(WRONG_KEY), None)):
        file = tmp_path / f"robot{number}.json"
        if content is not None:
            file.write_text(content, encoding="latin-1")
        url = f"gcs://locks/x?endpoint=http://{NOWHERE}&credentials={file}"
        told = refused(url, f"gcs://locks: no credentials in {file}", "s3cret")
        assert ("No such file or directory" in told) is (content is None)


def test_without_credentials_a_person_is_told(lockctl: Lockctl, tmp_path: Path) -> None:
    env = {"NO_GCE_CHECK": "true", "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)}
    done = lockctl("run", "-b", f"gcs://locks/x?endpoint=http://{NOWHERE}", "--", "true", env=env)
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "no credentials (DefaultCredentialsError): `gcloud auth application-default login`" in done.stderr
