"""TLS and passwords of PostgreSQL: right ones work, wrong ones are refused by the name of the cause, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from tests.promises import attempts
from tests.promises.attempts import accepted
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.proxy import Proxy

    Start = Callable[..., Postgres]


@pytest.fixture(autouse=True)
def installed(postgres_server: Postgres) -> Postgres:
    """Says so if there is no PostgreSQL here."""
    return postgres_server


def refused(url: str, said: str, kind: type[LockctlError] = ConfigError) -> None:
    attempts.refused(url, said, Postgres.password, "hunter2", kind=kind)


@pytest.mark.parametrize("auth", ["md5", "password"])
def test_a_wrong_password_is_refused_and_not_shown(start_server: Start, auth: str) -> None:
    server = start_server(Postgres, auth=auth)
    accepted(server.url)
    refused(server.url.replace(f":{server.password}@", ":hunter2hunter2@"), "password authentication failed")


@pytest.mark.parametrize(
    ("said", "foreign", "kind"),
    [
        (b"password authentication failed for user", b"Passwort-Authentifizierung: kein Erfolg", ConfigError),
        (b'database "none" does not exist', b"Datenbank none existiert nicht", ConfigError),
        (b"too many connections for role", b"zuviele Verbindungen je Rolle", BackendUnavailable),
    ],
)
def test_a_refusal_in_another_language_is_known_by_its_code(
    start_server: Start, start_proxy: Callable[..., Proxy], said: bytes, foreign: bytes, kind: type[LockctlError]
) -> None:
    server = start_server(Postgres, auth="password")
    server.command(f"alter role {server.user} connection limit {0 if kind is BackendUnavailable else -1}")
    password = "hunter2" if said.startswith(b"password") else server.password
    database = "none" if said.startswith(b"database") else server.database
    proxy = start_proxy(server, said=(said, foreign))
    refused(f"postgresql://{server.user}:{password}@{proxy.address}/{database}", foreign.decode(), kind)


@pytest.mark.parametrize(
    ("variable", "content", "says"),
    [
        ("PGSERVICE", "nosuch", 'definition of service "nosuch" not found'),
        ("PGSERVICEFILE", "/nonexist", 'service file "/nonexist" not found'),
        ("PGSSLMINPROTOCOLVERSION", "bogus", 'invalid "ssl_min_protocol_version" value: "bogus"'),
        ("PGSSLMAXPROTOCOLVERSION", "TLSv1.1", "invalid SSL protocol version range"),
        ("PGCHANNELBINDING", "bogus", 'invalid channel_binding value: "bogus"'),
        ("PGTZ", "bogus/x", 'invalid value for parameter "TimeZone": "bogus/x"'),
        ("PGDATESTYLE", "bogus", 'invalid value for parameter "DateStyle": "bogus"'),
    ],
)
def test_a_wrong_variable_of_libpq_is_no_outage(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, variable: str, content: str, says: str
) -> None:
    if variable == "PGSERVICEFILE":
        monkeypatch.setenv("PGSERVICE", "any")
    monkeypatch.setenv(variable, content)
    refused(f"{postgres_server.url}?tls=no", says)


def test_a_variable_of_libpq_that_a_pooler_refuses_is_no_outage(
    pgbouncer_session: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGGEQO", "off")
    refused(f"{pgbouncer_session.url}?tls=no", "unsupported startup parameter")


def test_a_server_without_tls_is_refused_by_a_client_that_wants_it(
    postgres_server: Postgres, certificates: Certificates
) -> None:
    refused(f"{postgres_server.url}?ca={certificates.ca}", "offers no TLS: say tls=no")


def test_a_client_certificate_is_who_we_are(lockctl: Lockctl, start_server: Start, certificates: Certificates) -> None:
    server = start_server(Postgres, auth="cert", tls=certificates, tls_only=True)
    url = f"postgresql://{server.user}@{server.address}/{server.database}?ca={certificates.ca}"
    mine = f"{url}&cert={certificates.client_cert}&key={certificates.client_key}"
    done = lockctl("run", "-b", mine, "-l", "nightly", "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, loaded & {"psycopg2._psycopg", "psycopg2", "_ssl", "re"}) == (0, {"psycopg2._psycopg"})
    accepted(mine.replace("&key=", "&key=-7&sslkey="))
    for wrong in (url, f"{url}&cert={certificates.nameless_cert}&key={certificates.nameless_key}"):
        refused(wrong, "certificate")


@pytest.mark.parametrize(
    ("part", "instead", "says"),
    [("/lockctl", "/nowhere", "nowhere"), ("//lockctl@", "//nobody@", "nobody")],
)
def test_a_database_or_user_that_is_not_there_is_named(
    postgres_server: Postgres, part: str, instead: str, says: str
) -> None:
    refused(instead.join(postgres_server.url.rsplit(part, 1)), says)
