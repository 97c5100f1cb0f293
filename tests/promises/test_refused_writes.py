"""A server that answers and refuses writes at present, as in a switchover, is one that cannot be reached: 69."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lockctl.fence import sql
from tests.promises.harms import command
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl


def become_standby(server: Postgres, _: str, __: int) -> None:
    server.stop()
    (server.directory / "data" / "standby.signal").touch()
    server.start()


# the kind of server, the table of its marks, what has it refuse writes, and what has it take them again
REFUSING: dict[str, tuple[type, str, Callable[..., object], Callable[..., object]]] = {
    "redis": (
        Redis,
        "",
        lambda server, _, __: server.ask("REPLICAOF", "127.0.0.1", "1"),
        lambda server, _, __: server.ask("REPLICAOF", "NO", "ONE"),
    ),
    "mysql": (
        MariaDb,
        sql.text("mysql"),
        command("set global read_only = on"),
        command("set global read_only = off"),
    ),
    "postgresql": (
        Postgres,
        f"{sql.text('postgresql')}; grant all on lockctl_mark to public",
        become_standby,
        command("select pg_promote()"),
    ),
}


@pytest.mark.parametrize("backend_name", REFUSING)
def test_a_server_that_refuses_writes_for_a_while_is_not_a_wrong_configuration(
    backend_name: str, start_server: Callable[..., Any], lockctl: Lockctl
) -> None:
    kind, table, refuse, take_again = REFUSING[backend_name]
    server = start_server(kind)
    if table:
        server.command(table)
    verbs = (
        ("run", "-b", server.url, "-l", "nightly", "--wait", "1s", "--", "true"),
        ("fence", "check", "stock", "--store", server.url, "--token", "5", "--domain", "test"),
    )
    assert [lockctl(*words).returncode for words in verbs] == [0, 0]
    refuse(server, "", 0)
    for words in verbs:
        done = lockctl(*words)
        assert (done.returncode, done.stderr.count("\n")) == (69, 1), done.stderr
        assert "name the primary" in done.stderr
    take_again(server, "", 0)
    assert [lockctl(*words).returncode for words in verbs] == [0, 0]
