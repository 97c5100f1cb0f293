"""TLS and tokens of a real Consul: what is right works, what is wrong says what it is, and no secret is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.jobs import eventually
from tests.promises.attempts import attempt, refused
from tests.servers.consul import Consul
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates


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


def test_a_token_that_is_none_or_lacks_rights_is_told_so(guarded: Consul, certificates: Certificates) -> None:
    place = f"{guarded.address}/?{shown(certificates)}"
    refused(f"consuls://:not%20even%20a%20uuid@{place}", "the token is not known there", "not even")
    rights = 'key_prefix "elsewhere/" { policy = "write" }'
    refused(f"consuls://:{guarded.token}@{place}&prefix=elsewhere/", rights, guarded.token)


@pytest.mark.parametrize("own", ["", "&cert={other_cert}&key={other_key}"], ids=["none", "a stranger's"])
def test_a_client_without_a_certificate_of_the_authority_is_refused(
    guarded: Consul, certificates: Certificates, own: str
) -> None:
    place = f"{guarded.address}/?ca={certificates.ca}{own.format_map(vars(certificates))}"
    assert guarded.address in refused(f"consuls://:{guarded.token}@{place}", "refuses TLS with us", guarded.token)


def test_the_name_of_the_server_is_verified_unless_another_is_given(
    misnamed: Consul, certificates: Certificates
) -> None:
    place = f"consuls://{misnamed.address}/?"
    for parameters in (f"ca={certificates.ca}&tls_name=elsewhere.example", "insecure=yes"):
        eventually(lambda parameters=parameters: attempt(place + parameters) is None)  # type: ignore[misc]
    refused(f"{place}ca={certificates.ca}", "match")


def test_tls_to_a_server_without_it_says_so(consul_server: Consul, certificates: Certificates) -> None:
    url = f"consuls://{consul_server.address}/?ca={certificates.ca}"
    refused(url, "TLS", kind=(BackendUnavailable, ConfigError))


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
