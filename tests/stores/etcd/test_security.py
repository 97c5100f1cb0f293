"""TLS, client certificates, users and passwords of etcd, as `lockctl run` meets them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from tests.promises import attempts
from tests.promises.attempts import accepted
from tests.promises.rights import check_everything
from tests.servers.etcd import Etcd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

SECRET = "wr0ng-s3cret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Etcd]:
    """TLS, and users."""
    with Etcd(tmp_path_factory.mktemp("secured"), tls=certificates, auth=True) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Etcd]:
    """TLS, and nobody without a certificate."""
    with Etcd(tmp_path_factory.mktemp("mutual"), tls=certificates, client_certificates=True) as server:
        yield server


def refused(url: str, said: str, kind: type[LockctlError] = ConfigError) -> None:
    attempts.refused(url, said, SECRET, Etcd.password, kind=kind)


def test_who_has_no_password_or_not_the_rights(secured: Etcd, certificates: Certificates) -> None:
    refused(f"etcds://{secured.address}/?ca={certificates.ca}", "needs a user and its password")
    login = f"{secured.user}:{secured.password}"
    refused(f"etcds://{login}@{secured.address}/?ca={certificates.ca}&prefix=others/", "permission denied")


def test_a_password_that_changes_while_a_job_runs_hurts_only_the_next(
    lockctl: Lockctl, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd, auth=True, extra={"auth-token-ttl": 2})
    url = f"etcd://{server.user}:{server.password}@{server.address}/"
    holder = lockctl.start_holding("held", "-b", url, "-t", "10", "--", "sleep", "4")
    server.command("user", "add", "another:x")  # every change makes the tokens of all logins old
    assert holder.wait(20) == 0
    accepted(url)


def test_users_that_are_switched_on_while_a_job_runs_do_not_stop_it_before_its_deadline(
    lockctl: Lockctl, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd)
    url = f"etcd://{server.address}/"
    holder = lockctl.start_holding("held", "-b", url, "-t", "20", "--", "sleep", "3")
    server.enable_auth()
    assert holder.wait(20) == 0


def test_who_has_no_certificate_of_the_authority_is_refused(mutual: Etcd, certificates: Certificates) -> None:
    place, known = f"{mutual.address}/?ca={certificates.ca}", vars(certificates)
    accepted(f"etcds://{place}&cert={certificates.client_cert}&key={certificates.client_key}")
    # a user before users are switched on
    accepted(f"etcds://ann:{SECRET}@{place}&cert={certificates.nameless_cert}&key={certificates.nameless_key}")
    for identity in ("", "&cert={other_cert}&key={other_key}"):
        refused(f"etcds://{place}{identity.format_map(known)}", "refuses TLS")


def test_a_certificate_with_a_name_while_users_are_on(
    certificates: Certificates, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd, tls=certificates, client_certificates=True, auth=True)
    identity = f"cert={certificates.client_cert}&key={certificates.client_key}"
    url = f"etcds://{server.user}:{server.password}@{server.address}/?ca={certificates.ca}&{identity}"
    refused(url, "certificate without CN")
    accepted(url.replace(identity, f"cert={certificates.nameless_cert}&key={certificates.nameless_key}"))


def test_tls_with_a_server_that_has_none(etcd_server: Etcd, certificates: Certificates) -> None:
    # etcd hangs up without a word, as one that is just ending
    refused(f"etcds://{etcd_server.address}/?ca={certificates.ca}", "is TLS on there?", BackendUnavailable)


def test_the_rights_that_the_manual_names_are_enough(lockctl: Lockctl, start_server: Callable[..., Etcd]) -> None:
    server = start_server(Etcd, auth=True)
    server.command("user", "revoke-role", server.user, "lockctl")
    server.command("role", "delete", "lockctl")
    url = f"etcd://{server.user}:{server.password}@{server.address}/"
    refused(url, "permission denied")
    manual = (Path(__file__).parents[3] / "man/text/lockctl-backends.7.txt").read_text()
    commands = [line.split()[1:] for line in manual.splitlines() if line.startswith("    etcdctl ")]
    assert len(commands) == 3
    for words in commands:
        server.command(*[server.user if word == "USER" else word for word in words])
    check_everything(lockctl, url)
