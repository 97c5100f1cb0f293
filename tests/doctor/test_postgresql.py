"""What `lockctl doctor` finds in a PostgreSQL that is not as it should be."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from tests.jobs import eventually
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]


def test_a_good_server_has_no_findings_and_nothing_is_made_there(diagnose: Diagnose, postgres_server: Postgres) -> None:
    assert diagnose(postgres_server.url).troubles("postgresql.", "backend.") == {}


def test_settings_that_lose_tokens_or_connections_are_found(
    diagnose: Diagnose, start_server: Start, tmp_path: Path
) -> None:
    server = start_server(Postgres, fsync=False, auth="password", extra=["idle_session_timeout = '3s'"])
    server.command("alter system set synchronous_commit = off")
    server.command(f"alter role {server.user} connection limit 2")
    server.command("revoke create on schema public from public; create schema other", database=server.database)
    hba = server.directory / "data" / "pg_hba.conf"
    hba.write_text(hba.read_text() + "local replication all trust\n")
    server.command("select pg_reload_conf()")
    receive = [server.bin / "pg_receivewal", "-D", tmp_path, "-h", server.socket_directory, "-p", str(server.port)]
    with subprocess.Popen([*receive, "-U", server.superuser], stderr=subprocess.DEVNULL) as standby:
        eventually(lambda: server.command("select count(*) from pg_stat_replication").strip() == "1")
        found = diagnose(server.url + "?schema=other")
        standby.kill()
    assert "1 standbys, none of them synchronous" in found["postgresql.durability"]["seen"]
    assert found.troubles("postgresql.", "backend.") == {
        "postgresql.durability": "fail",
        "postgresql.timeouts": "warn",
        "postgresql.connections": "fail",
        "postgresql.rights": "fail",
    }
    server.stop()
    (server.directory / "data" / "standby.signal").touch()
    server.start()
    assert diagnose(server.url).levels()["postgresql.standby"] == "fail"
    assert 'ALTER ROLE "lockctl" SET idle_session_timeout = 0' in found["postgresql.timeouts"]["remedy"]


def test_tables_of_tokens_that_not_all_users_find_are_found(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Postgres)
    table = "lockctl_fence (key text)"

    def judged(query: str = "") -> tuple[str, str]:
        found = diagnose(server.url + query)["postgresql.schema"]
        return found["level"], found["seen"]

    assert judged() == ("ok", "no lockctl_fence yet")
    server.command(f"create schema other create table {table}")
    assert judged() == ("fail", "lockctl_fence is in other, out of reach of the search_path")
    assert diagnose(server.url)["postgresql.schema"]["remedy"] == "say ?schema=other in the URLs of all users"
    server.command(f"create table public.{table}")
    assert judged() == ("warn", "lockctl_fence is in public, and another one in other")
    assert "postgresql.schema" not in diagnose(server.url + "?schema=other")
    server.command("drop schema other cascade")
    assert judged() == ("ok", "lockctl_fence is in public alone")


def test_a_schema_that_is_not_there_is_found(diagnose: Diagnose, postgres_server: Postgres) -> None:
    found = diagnose(postgres_server.url + "?schema=no-such")["postgresql.rights"]
    assert (found["level"], found["remedy"].partition(", or")[0]) == (
        "fail",
        'CREATE SCHEMA "no-such"; GRANT USAGE, CREATE ON SCHEMA "no-such" TO "lockctl"',
    )


def test_a_version_that_is_too_old_is_found(diagnose: Diagnose, postgres_server: Postgres, start_proxy: Start) -> None:
    # such a server cannot be had: a real one answers, and its number is another on the way
    number = postgres_server.command("show server_version_num").strip().encode()
    old = start_proxy(postgres_server, said=(number, b"13" + number[2:]))
    found = diagnose(postgres_server.url.replace(postgres_server.address, old.address))
    assert found.troubles("postgresql.") == {"postgresql.version": "warn"}
    assert found["postgresql.version"]["remedy"] == "upgrade the server to 14 or newer"


def test_a_pooler_with_one_connection_for_all_transactions_is_found(
    diagnose: Diagnose, start_server: Start, postgres_server: Postgres
) -> None:
    for size, level in ((1, "fail"), (2, "ok")):
        pooler = start_server(PgBouncer, postgres_server, mode="transaction", pool_size=size)
        found = diagnose(pooler.url + "?scope=transaction")
        assert found.levels()["postgresql.pool"] == level
        assert found.levels()["postgresql.pooler"] == "ok"


def test_poolers_are_told_apart(
    diagnose: Diagnose,
    pgbouncer_session: PgBouncer,
    pgbouncer_transaction: PgBouncer,
    pgbouncer_statement: PgBouncer,
) -> None:
    assert diagnose(pgbouncer_session.url).levels()["postgresql.pooler"] == "ok"
    assert diagnose(pgbouncer_transaction.url).levels()["postgresql.pooler"] == "fail"
    assert diagnose(pgbouncer_transaction.url + "?scope=transaction").levels()["postgresql.pooler"] == "ok"
    assert diagnose(pgbouncer_statement.url + "?scope=transaction").levels()["postgresql.pooler"] == "fail"
