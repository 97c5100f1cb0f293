"""TLS and passwords of PostgreSQL: right ones work, wrong ones are refused by the name of the cause, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.proxy import Proxy

    Start = Callable[..., Postgres]

UNAVAILABLE, CONFIG = 69, 78


@pytest.fixture(autouse=True)
def installed(postgres_server: Postgres) -> Postgres:
    """Says so if there is no PostgreSQL here."""
    return postgres_server


def run(lockctl: Lockctl, url: str, **env: str) -> tuple[int, str]:
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "true", env=env)
    assert Postgres.password not in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    return done.returncode, done.stderr


@pytest.mark.parametrize("auth", ["md5", "password"])
def test_a_wrong_password_is_refused_and_not_shown(lockctl: Lockctl, start_server: Start, auth: str) -> None:
    server = start_server(Postgres, auth=auth)
    assert run(lockctl, server.url) == (0, "")
    wrong = server.url.replace(f":{server.password}@", ":hunter2hunter2@")
    status, says = run(lockctl, wrong)
    assert status == CONFIG
    assert "password authentication failed" in says
    assert "hunter2" not in says


@pytest.mark.parametrize(
    ("said", "foreign", "status"),
    [
        (b"password authentication failed for user", b"Passwort-Authentifizierung: kein Erfolg", CONFIG),
        (b'database "none" does not exist', b"Datenbank none existiert nicht", CONFIG),
        (b"too many connections for role", b"zuviele Verbindungen je Rolle", UNAVAILABLE),
    ],
)
def test_a_refusal_in_another_language_is_known_by_its_code(
    lockctl: Lockctl, start_server: Start, start_proxy: Callable[..., Proxy], said: bytes, foreign: bytes, status: int
) -> None:
    server = start_server(Postgres, auth="password")
    server.command(f"alter role {server.user} connection limit {0 if status == UNAVAILABLE else -1}")
    password = "hunter2" if said.startswith(b"password") else server.password
    database = "none" if said.startswith(b"database") else server.database
    proxy = start_proxy(server, said=(said, foreign))
    done = run(lockctl, f"postgresql://{server.user}:{password}@{proxy.address}/{database}")
    assert (done[0], foreign.decode() in done[1]) == (status, True), done


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
    lockctl: Lockctl, postgres_server: Postgres, variable: str, content: str, says: str
) -> None:
    env = {"PGSERVICE": "any", variable: content} if variable == "PGSERVICEFILE" else {variable: content}
    status, told = run(lockctl, f"{postgres_server.url}?tls=no", **env)
    assert (status, says in told) == (CONFIG, True), told


def test_a_variable_of_libpq_that_a_pooler_refuses_is_no_outage(lockctl: Lockctl, pgbouncer_session: PgBouncer) -> None:
    status, told = run(lockctl, f"{pgbouncer_session.url}?tls=no", PGGEQO="off")
    assert (status, "unsupported startup parameter" in told) == (CONFIG, True), told


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
    done = lockctl("run", "-b", mine, "-l", "nightly", "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, loaded & {"psycopg2._psycopg", "psycopg2", "_ssl", "re"}) == (0, {"psycopg2._psycopg"})
    assert run(lockctl, mine.replace("&key=", "&key=-7&sslkey=")) == (0, "")
    for wrong in (url, f"{url}&cert={certificates.nameless_cert}&key={certificates.nameless_key}"):
        status, says = run(lockctl, wrong)
        assert status == CONFIG
        assert "certificate" in says


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
