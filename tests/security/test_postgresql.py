"""TLS and passwords of PostgreSQL: right ones work, wrong ones are refused by the name of the cause, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

    Start = Callable[..., Postgres]

UNAVAILABLE, CONFIG = 69, 78


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Asks for TLS and a password."""
    directory = tmp_path_factory.mktemp("postgres")
    server = Postgres(directory, auth="scram-sha-256", tls=certificates, tls_only=True)
    yield server.start()
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def installed(postgres_server: Postgres) -> Postgres:
    """Says so if there is no PostgreSQL here."""
    return postgres_server


def run(lockctl: Lockctl, url: str, **env: str) -> tuple[int, str]:
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "true", env=env)
    assert Postgres.password not in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    return done.returncode, done.stderr


def test_the_right_authority_and_password_work(
    lockctl: Lockctl, tls_server: Postgres, certificates: Certificates
) -> None:
    assert run(lockctl, f"{tls_server.url}?ca={certificates.ca}") == (0, "")
    localhost = tls_server.url.replace("127.0.0.1", "localhost")
    assert run(lockctl, f"{localhost}?ca={certificates.ca}") == (0, "")


def test_a_password_can_come_from_a_file_or_the_environment(
    lockctl: Lockctl, tls_server: Postgres, certificates: Certificates, tmp_path: Path
) -> None:
    url = f"{tls_server.url.replace(f':{tls_server.password}', '')}?ca={certificates.ca}"
    status, says = run(lockctl, url, PGPASSFILE="/nonexistent")
    assert status == CONFIG
    assert "no password supplied" in says
    secret = tmp_path / "secret"
    secret.write_text(f"{tls_server.password}\n")
    assert run(lockctl, f"{url}&password_file={secret}") == (0, "")
    assert run(lockctl, url, LOCKCTL_PASSWORD=tls_server.password) == (0, "")


@pytest.mark.parametrize("auth", ["scram-sha-256", "md5", "password"])
def test_a_wrong_password_is_refused_and_not_shown(lockctl: Lockctl, start_server: Start, auth: str) -> None:
    server = start_server(Postgres, auth=auth)
    assert run(lockctl, server.url) == (0, "")
    wrong = server.url.replace(f":{server.password}@", ":hunter2hunter2@")
    status, says = run(lockctl, wrong)
    assert status == CONFIG
    assert "password authentication failed" in says
    assert "hunter2" not in says


def test_an_authority_that_did_not_sign_is_refused(
    lockctl: Lockctl, tls_server: Postgres, certificates: Certificates
) -> None:
    status, says = run(lockctl, f"{tls_server.url}?ca={certificates.other_ca}")
    assert status == CONFIG
    assert "certificate verify failed" in says


def test_the_authorities_of_the_system_count_where_none_is_named(lockctl: Lockctl, tls_server: Postgres) -> None:
    status, says = run(lockctl, f"{tls_server.url}?tls=yes")
    assert status == CONFIG
    assert "certificate verify failed" in says or "no certificate authorities" in says


def test_a_certificate_for_another_name_is_refused_unless_that_name_is_meant(
    lockctl: Lockctl, tls_server: Postgres, certificates: Certificates
) -> None:
    status, says = run(lockctl, f"{tls_server.url}?ca={certificates.ca}&tls_name=elsewhere.example")
    assert status == CONFIG
    assert "elsewhere.example" in says
    assert run(lockctl, f"{tls_server.url}?ca={certificates.ca}&tls_name=localhost") == (0, "")


def test_nobody_is_verified_only_when_that_is_said(lockctl: Lockctl, tls_server: Postgres) -> None:
    assert run(lockctl, f"{tls_server.url}?insecure=yes") == (0, "")


def test_a_server_that_wants_tls_refuses_a_client_without(lockctl: Lockctl, tls_server: Postgres) -> None:
    status, says = run(lockctl, f"{tls_server.url}?tls=no")
    assert status == CONFIG
    assert "no encryption" in says or "SSL off" in says


def test_a_server_without_tls_is_refused_by_a_client_that_wants_it(
    lockctl: Lockctl, postgres_server: Postgres, certificates: Certificates
) -> None:
    status, says = run(lockctl, f"{postgres_server.url}?ca={certificates.ca}")
    assert status == CONFIG
    assert "offers no TLS" in says
    assert "tls=no" in says


def test_a_client_certificate_is_who_we_are(lockctl: Lockctl, start_server: Start, certificates: Certificates) -> None:
    server = start_server(Postgres, auth="cert", tls=certificates, tls_only=True)
    url = f"postgresql://{server.user}@{server.address}/{server.database}?ca={certificates.ca}"
    mine = f"{url}&cert={certificates.client_cert}&key={certificates.client_key}"
    assert run(lockctl, mine) == (0, "")
    assert run(lockctl, mine.replace("&key=", "&key=-7&sslkey=")) == (0, "")
    for wrong in (url, f"{url}&cert={certificates.nameless_cert}&key={certificates.nameless_key}"):
        status, says = run(lockctl, wrong)
        assert status == CONFIG
        assert "certificate" in says


@pytest.mark.parametrize("parameter", ["ca", "cert"])
def test_a_file_that_cannot_be_read_is_named(lockctl: Lockctl, tls_server: Postgres, parameter: str) -> None:
    status, says = run(lockctl, f"{tls_server.url}?{parameter}=/nonexistent/file.pem")
    assert status == CONFIG
    assert "/nonexistent/file.pem" in says


@pytest.mark.parametrize(
    ("part", "instead", "says"),
    [("/lockctl", "/nowhere", "nowhere"), ("//lockctl@", "//nobody@", "nobody")],
)
def test_a_database_or_user_that_is_not_there_is_named(
    lockctl: Lockctl, postgres_server: Postgres, part: str, instead: str, says: str
) -> None:
    status, told = run(lockctl, instead.join(postgres_server.url.rsplit(part, 1)))
    assert status == CONFIG
    assert says in told


def test_something_else_than_postgresql_is_no_lock(lockctl: Lockctl, start_server: Start) -> None:
    server = start_server(Postgres)
    url = server.url
    server.kill()
    status, says = run(lockctl, url)
    assert status == UNAVAILABLE
    assert "Connection refused" in says
