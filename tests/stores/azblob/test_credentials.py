"""Who asks Azure Blob Storage: keys and SAS tokens, in a URL, a file or variables, and what azure-identity finds."""

from __future__ import annotations

import json
import os
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable
from lockctl.stores.azblob.access import Access
from lockctl.stores.azblob.address import PARAMETERS, from_url
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.promises.attempts import refused
from tests.servers.azurite import ACCOUNT, KEY, Azurite, sas
from tests.servers.fixtures import private_servers
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates
    from tests.servers.http_proxy import Answer, Request

NOWHERE = "127.0.0.1:1"
STRING = "DefaultEndpointsProtocol=https;AccountName={};AccountKey={};EndpointSuffix=core.chinacloudapi.cn"
OTHER_KEY = b64encode(b"another key").decode()
NOBODY = {"AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential"}  # no other place is looked at, on no other host
NO_CREDENTIALS = "no credentials: AZURE_STORAGE_KEY, `az login`, or an identity"
RESOURCE = "https://storage.azure.com"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without az


def use(client: Backend) -> None:
    grant = take(client, claim())
    client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)


def place(server: Azurite, login: str = "", more: str = "") -> str:
    """A URL of a place that nobody else uses, with a password or without."""
    word = f"credentials-{os.urandom(6).hex()}"
    password = f":{quote(login, safe='')}@" if login else ""
    return f"azblob://{password}locks/{word}?account={ACCOUNT}&endpoint=http://{server.address}/{ACCOUNT}{more}"


def filled(text: str) -> str:
    """*text* with the key of the account and a token that is made now."""
    return text.replace("KEY", KEY).replace("SAS", sas("rwdl", 60.0))


@pytest.mark.parametrize("login", ["KEY", "SAS", "?SAS"])
def test_a_password_in_the_url_is_a_key_or_a_sas_token(
    login: str, opened: Callable[[str], Backend], azblob_server: Azurite
) -> None:
    use(opened(place(azblob_server, filled(login))))


@pytest.mark.parametrize(
    "variables",
    [
        {"KEY": "KEY"},
        {"SAS_TOKEN": "SAS"},
        {"CONNECTION_STRING": f"DefaultEndpointsProtocol=https;AccountName={ACCOUNT};AccountKey=KEY"},
        {"CONNECTION_STRING": "BlobEndpoint=https://a.example/;SharedAccessSignature=SAS"},
        {"KEY": "KEY", "ACCOUNT": ACCOUNT},
    ],
    ids="+".join,
)
def test_the_variables_of_az_are_read(
    variables: dict[str, str],
    opened: Callable[[str], Backend],
    azblob_server: Azurite,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", filled(text))
    use(opened(place(azblob_server)))


@pytest.mark.parametrize(
    ("url", "variables", "server"),
    [
        ("azblob://locks/x?account=mine", {}, "https://mine.blob.core.windows.net"),
        ("azblob://locks/x", {"ACCOUNT": "mine"}, "https://mine.blob.core.windows.net"),
        (
            "azblob://locks/x",
            {"CONNECTION_STRING": STRING.format("mine", KEY)},
            "https://mine.blob.core.chinacloudapi.cn",
        ),
        (
            "azblob://locks/x?account=mine",
            {"CONNECTION_STRING": STRING.format("other", KEY)},
            "https://mine.blob.core.windows.net",
        ),
        ("azblob://locks/x", {"CONNECTION_STRING": "BlobEndpoint=http://h:1/a;AccountName=a"}, "http://h:1/a"),
        ("azblob://locks/x?endpoint=http://h:2/b", {"CONNECTION_STRING": "BlobEndpoint=http://h:1/a"}, "http://h:2/b"),
    ],
)
def test_the_server_is_that_of_the_url_and_else_that_of_the_variables(
    url: str, variables: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", text)
    assert Access(from_url(parse_url(url), PARAMETERS)).server == server


def test_a_key_of_another_account_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"AZURE_STORAGE_KEY": KEY, "AZURE_STORAGE_ACCOUNT": "other", **NOBODY}.items():
        monkeypatch.setenv(name, text)
    refused(f"azblob://locks/x?account={ACCOUNT}&endpoint=http://{NOWHERE}/{ACCOUNT}", NO_CREDENTIALS)


def test_a_file_is_read_again_when_the_token_in_it_has_ended(
    opened: Callable[[str], Backend], azblob_server: Azurite, tmp_path: Path
) -> None:
    file, first = tmp_path / "token", sas("rwdl", 60.0)
    file.write_text(first)
    url = place(azblob_server, more=f"&password_file={file}")
    with HttpProxy(azblob_server.address) as between:
        client = opened(url.replace(azblob_server.address, between.address))
        grant = take(client, claim())
        ended = 403, [("x-ms-error-code", "AuthenticationFailed")], b""
        between.look = lambda request: ended if request.path.endswith(first) else None
        with pytest.raises(BackendUnavailable, match="the credentials are not, or no longer, valid") as told:
            client.renew(grant, timeout=LIMIT)
        assert "sig=" not in str(told.value)
        file.write_text(sas("rwdl", 120.0))
        assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_a_sas_token_that_has_ended_and_a_wrong_key_are_one_line_without_them(azblob_server: Azurite) -> None:
    for wrong in (sas("rwdl", -60.0), OTHER_KEY):
        refused(place(azblob_server, wrong), "azblob://locks: ", "sig=", OTHER_KEY)


class Identity:
    """What gives an instance its tokens, as in App Service; Azurite looks at their form, and when they end."""

    def __init__(self) -> None:
        self.lives = [3600.0]  # seconds of each token; the last one is for all that follow
        self.given = 0
        self.trouble: Answer | None = None
        self.proxy = HttpProxy(NOWHERE, self.give)

    def give(self, request: Request) -> Answer:
        assert request.headers["x-identity-header"] == "s3cret"
        assert f"resource={RESOURCE}" in unquote(request.path)
        if self.trouble is not None:
            return self.trouble
        self.given += 1
        now = int(time.time())
        claims = {"aud": RESOURCE, "iss": "https://sts.windows.net/0/", "iat": now, "nbf": now - 60}
        claims["exp"] = int(now + self.lives[min(self.given, len(self.lives)) - 1])
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
        token = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + ".c2ln"
        said = {"access_token": token, "expires_on": str(now + 3600), "resource": RESOURCE, "token_type": "Bearer"}
        return 200, [("Content-Type", "application/json")], json.dumps(said).encode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Azurite]:
    """A server with TLS: it takes tokens there alone."""
    with private_servers(tmp_path_factory) as start:
        yield start(Azurite, tls=certificates)


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[Identity]:
    made = Identity()
    with made.proxy:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{made.proxy.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "s3cret")
        yield made


@pytest.fixture
def url(secured: Azurite, certificates: Certificates) -> str:
    """A place on the server with TLS."""
    word = f"identity-{os.urandom(6).hex()}"
    return f"azblob://locks/{word}?endpoint=https://{secured.address}/{ACCOUNT}&ca={certificates.ca}"


def test_an_instance_gets_one_token_for_all(url: str, identity: Identity, opened: Callable[[str], Backend]) -> None:
    client = opened(url)
    use(client)
    assert [lock.name for lock in client.list("*", timeout=LIMIT)] == ["nightly"]
    assert identity.given == 1


def test_a_run_has_nothing_to_say_about_it(url: str, identity: Identity, lockctl: Lockctl) -> None:
    env = {"IDENTITY_ENDPOINT": f"{identity.proxy.url}/token", "IDENTITY_HEADER": "s3cret"}
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "echo", "ran", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_token_that_is_refused_is_replaced(url: str, identity: Identity, opened: Callable[[str], Backend]) -> None:
    identity.lives = [-60.0, 3600.0]  # the first one has ended, other than it says
    take(opened(url), claim())
    assert identity.given == 2


def test_a_token_is_used_to_its_end_while_there_is_no_other(
    url: str, identity: Identity, opened: Callable[[str], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(url)
    grant = take(client, claim())
    identity.trouble = 400, [("Content-Type", "application/json")], b'{"error": "s3cret"}'
    now = clock.wall()
    monkeypatch.setattr(clock, "wall", lambda: now + 3600 - 60)
    asked = len(identity.proxy.seen)
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert len(identity.proxy.seen) > asked
    monkeypatch.setattr(clock, "wall", lambda: now + 3600 + 60)
    with pytest.raises(BackendUnavailable, match="no credentials") as told:
        client.renew(grant, timeout=LIMIT)
    assert "s3cret" not in str(told.value)


def test_a_run_ends_although_the_programs_that_log_in_end_one_after_the_other(lockctl: Lockctl, tmp_path: Path) -> None:
    for name in ("az", "azd", "pwsh"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    programs = {"AZURE_TOKEN_CREDENTIALS": "dev", "PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    backend = f"azblob://locks?account=a&endpoint=http://{NOWHERE}"
    done = lockctl("run", "-b", backend, "-l", "nightly", "--", "true", env=programs)
    assert (done.returncode, NO_CREDENTIALS in done.stderr) == (78, True), done.stderr


def test_an_identity_that_does_not_answer_is_waited_for_as_long_as_for_a_request(
    url: str, identity: Identity, opened: Callable[[str], Backend]
) -> None:
    ended = threading.Event()
    identity.proxy.look = lambda request: (ended.wait(LIMIT), identity.give(request))[1]
    with pytest.raises(BackendUnavailable, match=r"azure-identity: no answer within 0\.5 s"):
        opened(url).try_acquire(claim(), timeout=0.5)
    ended.set()


def test_without_credentials_a_person_is_told(lockctl: Lockctl) -> None:
    done = lockctl("run", "-b", f"azblob://locks/x?endpoint=http://{NOWHERE}/a", "--", "true", env=NOBODY)
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert NO_CREDENTIALS in done.stderr
