"""Who comes when a server has all the connections that it takes is told which limit that is, and where it is."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.registry import open_backend
from lockctl.stores.postgresql.errors import refused as refusal
from lockctl.url import parse_url
from tests.contract.harness import claim
from tests.jobs import eventually
from tests.servers.consul import Consul
from tests.servers.etcd import Etcd
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres
    from tests.servers.process import Server

TIMEOUT = 5.0  # seconds: on a busy machine a session of ZooKeeper begins late


@pytest.fixture
def ends() -> Iterator[contextlib.ExitStack]:
    """What is open in a test."""
    with contextlib.ExitStack() as stack:
        yield stack


def attempt(ends: contextlib.ExitStack, url: str, timeout: float = TIMEOUT) -> Backend:
    """A client that has tried to take a lock, whether it was granted or not."""
    backend = open_backend(parse_url(url))
    ends.callback(backend.close)
    backend.try_acquire(claim(), timeout=timeout)
    return backend


def is_refused(ends: contextlib.ExitStack, url: str, words: str) -> bool:
    """Whether an attempt is refused with these words."""
    try:
        attempt(ends, url)
    except BackendUnavailable as refused:
        return words in str(refused)
    return False


def crowd(ends: contextlib.ExitStack, server: Server, size: int) -> None:
    """Idle connections of this host."""
    for _ in range(size):
        ends.enter_context(socket.create_connection((server.host, server.port)))


# kind of server, its configuration, connections beside ours, the URL, and what is said
PRIVATE: dict[str, tuple[type[Server], dict[str, Any], int, str, str]] = {
    "redis": (Redis, {"extra": ["maxclients 2"]}, 2, "redis://{}/0", "raise maxclients there"),
    "redis with a password": (Redis, {"extra": ["maxclients 2"]}, 2, "redis://:s3cret@{}/0", "maxclients"),
    "consul": (
        Consul,
        {"extra": {"limits": {"http_max_conns_per_client": 2}}},
        2,
        "consul://{}/",
        "limits.http_max_conns_per_client (200 unless changed)",
    ),
    "zookeeper": (
        ZooKeeper,
        {"extra": ["maxClientCnxns=1"]},
        1,
        "zookeeper://{}/locks",
        "maxClientCnxns in zoo.cfg (60 unless changed)",
    ),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_server_with_too_many_connections_is_told_from_others(
    name: str, start_server: Callable[..., Server], ends: contextlib.ExitStack
) -> None:
    kind, options, size, url, words = PRIVATE[name]
    server = start_server(kind, **options)

    def is_told() -> bool:
        crowd(ends, server, size)  # anew: ZooKeeper ends who says nothing for ten seconds
        return is_refused(ends, url.format(server.address), words)

    eventually(is_told, limit=60.0)


def test_etcd_without_a_file_for_a_connection_is_told_from_one_that_is_not_there(
    start_server: Callable[..., Etcd], ends: contextlib.ExitStack
) -> None:
    server = start_server(Etcd)
    open_files = len(os.listdir(f"/proc/{server.pid}/fd"))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
    crowd(ends, server, 2)
    eventually(lambda: is_refused(ends, f"etcd://{server.address}/", "its limit of open files (ulimit -n)"))


@pytest.mark.servers("mariadb_server")
def test_mysql_names_its_max_connections(mariadb_server: MariaDb, ends: contextlib.ExitStack) -> None:
    usual = mariadb_server.command("select @@max_connections").strip()
    mariadb_server.command("set global max_connections = 10")  # the least that it takes
    ends.callback(mariadb_server.command, f"set global max_connections = {usual}")
    url = f"{mariadb_server.url}?prefix=full:"
    assert any(is_refused(ends, url, "raise max_connections there (151 unless changed)") for _ in range(12))


@pytest.mark.servers("mariadb_server")
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("max_user_connections", "each holder and waiter has a connection: raise max_user_connections there, or"),
        *((f"max_{each}_per_hour", f": raise MAX_{each.upper()}_PER_HOUR of") for each in ("queries", "connections")),
    ],
)
def test_mysql_names_the_limit_of_a_user(
    mariadb_server: MariaDb, ends: contextlib.ExitStack, limit: str, words: str
) -> None:
    user = f"limited@'%' identified by 'pw' with {limit} 1"
    mariadb_server.command(f"create user {user}; grant all on {mariadb_server.database}.* to limited@'%'")
    ends.callback(mariadb_server.command, "drop user limited@'%'")
    url = f"mysql://limited:pw@{mariadb_server.address}/{mariadb_server.database}?prefix=limit:"
    assert any(is_refused(ends, url, words) for _ in range(3))


@pytest.mark.servers("postgres_server")
def test_postgresql_names_its_limit(postgres_server: Postgres, ends: contextlib.ExitStack) -> None:
    postgres_server.command(f"alter role {postgres_server.user} connection limit 0")
    ends.callback(postgres_server.command, f"alter role {postgres_server.user} connection limit -1")
    assert is_refused(ends, postgres_server.url, "raise the CONNECTION LIMIT of the role")


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("FATAL:  sorry, too many clients already", "max_connections in postgresql.conf"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "max_connections"),
        ('FATAL:  too many connections for database "app"', "the CONNECTION LIMIT of the database"),
        ("ERROR:  no more connections allowed (max_client_conn)", "max_client_conn in pgbouncer.ini"),
    ],
)
def test_each_limit_of_connections_of_postgresql_has_its_remedy(said: str, limit: str) -> None:
    assert f"raise {limit}" in str(refusal("postgresql at db:5432", said))
