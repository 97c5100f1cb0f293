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


def shown(certificates: Certificates) -> str:
    """The parameters of a client that is trusted."""
    return f"ca={certificates.ca}&cert={certificates.client_cert}&key={certificates.client_key}"


def test_what_has_not_the_form_of_a_token_is_not_known_either(
    lockctl: Lockctl, guarded: Consul, certificates: Certificates
) -> None:
    url = f"consuls://{guarded.address}/?{shown(certificates)}"
    done = lockctl("list", "-b", url, env={"LOCKCTL_PASSWORD": "not even a uuid"})
    assert (done.returncode, done.stderr.count("\n")) == (MISCONFIGURED, 1)
    assert "the token is not known there" in done.stderr
    assert "not even" not in done.stderr


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
    ("parameters", "status"),
    [("ca={ca}", MISCONFIGURED), ("ca={ca}&tls_name=elsewhere.example", 0), ("insecure=yes", 0)],
)
def test_the_name_of_the_server_is_verified_unless_another_is_given(
    lockctl: Lockctl, misnamed: Consul, certificates: Certificates, parameters: str, status: int
) -> None:
    url = f"consuls://{misnamed.address}/?{parameters.format(ca=certificates.ca)}"
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
