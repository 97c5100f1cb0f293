"""What `lockctl doctor` finds in a MariaDB that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, claim, take
from tests.servers.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]


def test_settings_that_lockctl_changes_for_itself_are_no_trouble(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(MariaDb)
    server.command("set global tx_read_only = 1; set global sql_safe_updates = 1; set global autocommit = 0")
    backend = open_backend(parse_url(server.url))
    grant = take(backend, claim())
    assert diagnose(server.url).troubles("mysql.", "backend.") == {}
    backend.release(grant, timeout=LIMIT)
    backend.close()


def test_a_replica_that_loses_commits_and_ends_connections_is_found(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(MariaDb)
    assert diagnose(server.url).troubles("mysql.", "backend.") == {}
    server.command(
        "set global read_only = 1; set global innodb_flush_log_at_trx_commit = 2; set global wait_timeout = 5;"
        f" set global max_connections = 10; revoke all on {server.database}.* from {server.user};"
        f" grant select on {server.database}.* to {server.user}"
    )
    found = diagnose(server.url)
    assert found.troubles("mysql.", "backend.") == {
        "mysql.read_only": "fail",
        "mysql.durability": "warn",
        "mysql.wait_timeout": "warn",
        "mysql.connections": "warn",
        "mysql.rights": "fail",
    }
    server.command(f"set global read_only = 0; {found['mysql.rights']['remedy']}")
    assert diagnose(server.url).levels()["mysql.rights"] == "ok"
