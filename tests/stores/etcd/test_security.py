"""TLS, client certificates, users and passwords of etcd, as `lockctl run` meets them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


def attempt(lockctl: Lockctl, url: str) -> tuple[int, str]:
    """Status and message of a run there."""
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "true")
    assert SECRET not in done.stderr
    assert Etcd.password not in done.stderr
    assert done.stderr.count("\n") <= 1
    return done.returncode, done.stderr


def test_no_password(lockctl: Lockctl, secured: Etcd, certificates: Certificates) -> None:
    status, message = attempt(lockctl, f"etcds://{secured.address}/?ca={certificates.ca}")
    assert status == 78
    assert "needs a user and its password" in message


def test_a_prefix_that_the_user_may_not_use(lockctl: Lockctl, secured: Etcd, certificates: Certificates) -> None:
    url = f"etcds://{secured.user}:{secured.password}@{secured.address}/?ca={certificates.ca}&prefix=others/"
    status, message = attempt(lockctl, url)
    assert status == 78, message
    assert "permission denied" in message


def test_a_password_that_changes_while_a_job_runs_hurts_only_the_next(
    lockctl: Lockctl, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd, auth=True, extra={"auth-token-ttl": 2})
    url = f"etcd://{server.user}:{server.password}@{server.address}/"
    holder = lockctl.start_holding("held", "-b", url, "-t", "10", "--", "sleep", "4")
    server.command("user", "add", "another:x")  # every change makes the tokens of all logins old
    assert holder.wait(20) == 0
    assert attempt(lockctl, url) == (0, "")


def test_users_that_are_switched_on_while_a_job_runs_do_not_stop_it_before_its_deadline(
    lockctl: Lockctl, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd)
    url = f"etcd://{server.address}/"
    holder = lockctl.start_holding("held", "-b", url, "-t", "20", "--", "sleep", "3")
    server.enable_auth()
    assert holder.wait(20) == 0


def test_a_user_before_users_are_switched_on(lockctl: Lockctl, mutual: Etcd, certificates: Certificates) -> None:
    identity = f"cert={certificates.nameless_cert}&key={certificates.nameless_key}"
    url = f"etcds://ann:{SECRET}@{mutual.address}/?ca={certificates.ca}&{identity}"
    assert attempt(lockctl, url) == (0, "")


def test_a_client_certificate(lockctl: Lockctl, mutual: Etcd, certificates: Certificates) -> None:
    identity = f"cert={certificates.client_cert}&key={certificates.client_key}"
    assert attempt(lockctl, f"etcds://{mutual.address}/?ca={certificates.ca}&{identity}") == (0, "")


def test_no_client_certificate_and_one_of_a_stranger(
    lockctl: Lockctl, mutual: Etcd, certificates: Certificates
) -> None:
    for identity in ("", f"&cert={certificates.other_cert}&key={certificates.other_key}"):
        status, message = attempt(lockctl, f"etcds://{mutual.address}/?ca={certificates.ca}{identity}")
        assert status == 78, message
        assert "refuses TLS" in message


def test_a_certificate_with_a_name_while_users_are_on(
    lockctl: Lockctl, certificates: Certificates, start_server: Callable[..., Etcd]
) -> None:
    server = start_server(Etcd, tls=certificates, client_certificates=True, auth=True)
    identity = f"cert={certificates.client_cert}&key={certificates.client_key}"
    url = f"etcds://{server.user}:{server.password}@{server.address}/?ca={certificates.ca}&{identity}"
    status, message = attempt(lockctl, url)
    assert status == 78, message
    assert "certificate without CN" in message
    nameless = f"cert={certificates.nameless_cert}&key={certificates.nameless_key}"
    assert attempt(lockctl, url.replace(identity, nameless)) == (0, "")


def test_tls_with_a_server_that_has_none(lockctl: Lockctl, etcd_server: Etcd, certificates: Certificates) -> None:
    status, message = attempt(lockctl, f"etcds://{etcd_server.address}/?ca={certificates.ca}")
    assert status == 69, message  # etcd hangs up without a word, as one that is just ending
    assert "is TLS on there?" in message


def test_the_rights_that_the_manual_names_are_enough(lockctl: Lockctl, start_server: Callable[..., Etcd]) -> None:
    server = start_server(Etcd, auth=True)
    server.command("user", "revoke-role", server.user, "lockctl")
    server.command("role", "delete", "lockctl")
    url = f"etcd://{server.user}:{server.password}@{server.address}/"
    assert lockctl("run", "-b", url, "-l", "nightly", "--", "true").returncode == 78
    manual = (Path(__file__).parents[3] / "man/text/lockctl-backends.7.txt").read_text()
    commands = [line.split()[1:] for line in manual.splitlines() if line.startswith("    etcdctl ")]
    assert len(commands) == 3
    for words in commands:
        server.command(*[server.user if word == "USER" else word for word in words])
    check_everything(lockctl, url)
