"""TLS and tokens of a real Consul: what is right works, what is wrong says what it is, and no secret is shown."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.servers.consul import Consul
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

UNAVAILABLE, MISCONFIGURED = 69, 78


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Consul]:
    """A server with ACLs, that speaks TLS alone, to clients with a certificate."""
    server = Consul(tmp_path_factory.mktemp("guarded"), acl=True, tls=certificates, client_certificates=True)
    with server:
        yield server


@pytest.fixture(scope="module")
def misnamed(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Consul]:
    """A server whose certificate is for another name."""

    class Misnamed(Consul):
        def _configure(self) -> None:
            super()._configure()
            path = self.directory / "consul.json"
            content = path.read_text().replace(certificates.server_cert, certificates.wrong_cert)
            path.write_text(content.replace(certificates.server_key, certificates.wrong_key))

    server = Misnamed(tmp_path_factory.mktemp("misnamed"), tls=certificates)
    Server.launch(server)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def token_file(guarded: Consul, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(guarded.token + "\n")
    return path


def shown(certificates: Certificates) -> str:
    """The parameters of a client that is trusted."""
    return f"ca={certificates.ca}&cert={certificates.client_cert}&key={certificates.client_key}"


def test_a_token_from_a_file_and_certificates_that_are_right_work_for_all_verbs(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates, token_file: Path
) -> None:
    url = f"consuls://{guarded.address}/?{shown(certificates)}&token_file={token_file}"
    holder = lockctl.start_holding("nightly", "-b", url)
    assert lockctl("run", "-b", url, "-l", "nightly", "--", "true").returncode == 75
    for words in (("list",), ("inspect", "nightly")):
        done = lockctl(*words, "-b", url)
        assert done.returncode == 0
        assert "nightly" in done.stdout
    assert lockctl("force-release", "-b", url, "--yes", "nightly").returncode == 0
    assert holder.wait(30) == 76


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "a token is needed (token_file=FILE)"),
        ("22222222-2222-2222-2222-222222222222", "the token is not known there"),
        ("not even a uuid", "the token is not known there"),
    ],
)
@pytest.mark.parametrize("words", [("run", "--", "true"), ("list",), ("inspect", "nightly")], ids=" ".join)
def test_a_wrong_token_is_a_mistake_that_is_named_and_not_shown(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates, token: str | None, said: str, words: tuple[str, ...]
) -> None:
    url = f"consuls://{guarded.address}/?{shown(certificates)}"
    env = {} if token is None else {"LOCKCTL_PASSWORD": token}
    done = lockctl(words[0], "-b", url, *words[1:], env=env)
    assert done.returncode == MISCONFIGURED, done.stderr
    assert said in done.stderr
    assert token is None or token not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_token_without_the_rights_is_told_which_are_missing(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates
) -> None:
    url = f"consuls://{guarded.address}/?{shown(certificates)}&prefix=elsewhere/"
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "true", env={"LOCKCTL_PASSWORD": guarded.token})
    assert done.returncode == MISCONFIGURED
    assert 'key_prefix "elsewhere/" { policy = "write" }' in done.stderr
    assert guarded.token not in done.stderr


@pytest.mark.parametrize("own", ["", "&cert={other_cert}&key={other_key}"], ids=["none", "a stranger's"])
def test_a_client_without_a_certificate_of_the_authority_is_refused(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates, own: str
) -> None:
    url = f"consuls://{guarded.address}/?ca={certificates.ca}{own.format_map(vars(certificates))}"
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "true", env={"LOCKCTL_PASSWORD": guarded.token})
    assert done.returncode == MISCONFIGURED, done.stderr
    assert "refuses TLS with us" in done.stderr
    assert guarded.address in done.stderr
    assert guarded.token not in done.stderr


@pytest.mark.parametrize(
    ("more", "status"),
    [("", MISCONFIGURED), ("&tls_name=elsewhere.example", 0), ("&insecure=yes", 0)],
)
def test_the_name_of_the_server_is_verified_unless_another_is_given(
    lockctl: Lockctl, misnamed: Consul, certificates: Certificates, more: str, status: int
) -> None:
    url = f"consuls://{misnamed.address}/?ca={certificates.ca}{more}"
    done = lockctl("run", "-b", url, "-l", "nightly", "-w", "20s", "--", "true")
    assert done.returncode == status, done.stderr
    assert status == 0 or "match" in done.stderr


def test_tls_to_a_server_without_it_says_so(
    lockctl: Lockctl, consul_server: Consul, certificates: Certificates
) -> None:
    url = f"consuls://{consul_server.address}/?ca={certificates.ca}"
    done = lockctl("run", "-b", url, "-l", os.urandom(4).hex(), "--", "true")
    assert done.returncode in {UNAVAILABLE, MISCONFIGURED}
    assert "TLS" in done.stderr


def test_a_holder_whose_token_is_withdrawn_is_not_told_that_it_lost_the_lock(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates
) -> None:
    policy = b'{"Policies": [{"Name": "lockctl"}]}'
    made = json.loads(guarded.request("PUT", "/v1/acl/token", policy))
    url = f"consuls://{guarded.address}/?{shown(certificates)}"
    holder = lockctl.start_holding(
        "withdrawn", "-b", url, "-t", "10s", "--", "sleep", "2.5", env={"LOCKCTL_PASSWORD": made["SecretID"]}
    )
    guarded.request("DELETE", f"/v1/acl/token/{made['AccessorID']}")
    assert holder.wait(30) == 0
