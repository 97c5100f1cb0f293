"""How much the servers of a backend have done, as they themselves count it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.servers.consul import Consul
    from tests.servers.etcd import Etcd
    from tests.servers.fixtures import RedisServers
    from tests.servers.mariadb import MariaDb
    from tests.servers.nats import Nats
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis
    from tests.servers.zookeeper import ZooKeeper

OWN_WORDS = ("info", "config|resetstat")  # of Redis: what is asked for by this


def of_redis(server: Redis, only: Sequence[str] = ()) -> float:
    """Commands, those that scripts give included; or *only* some of them."""
    found = re.findall(rb"cmdstat_([^:]+):calls=(\d+)", server.ask("INFO", "commandstats"))
    calls = {word.decode(): int(number) for word, number in found if word.decode() not in OWN_WORDS}
    return sum(number for word, number in calls.items() if not only or word in only)


def of_redlock(servers: RedisServers) -> float:
    """The same of all nodes."""
    return sum(of_redis(server) for server in servers.members)


def of_etcd(server: Etcd) -> float:
    """Messages of clients: a request, or a watch that is asked for."""
    return _sum(str(server.request("/metrics")[1]), "grpc_server_msg_received_total")


def of_consul(server: Consul) -> float:
    """Requests that were answered. The server must have ``TELEMETRY`` in its configuration."""
    text = server.request("GET", "/v1/agent/metrics", format="prometheus").decode()
    return _sum(text, "consul_api_http_count") or _sum(text, r"consul_http_[A-Z]+_\w+_count")


def of_zookeeper(server: ZooKeeper) -> float:
    """Packets of clients."""
    return _sum(server.four_letters("mntr").replace("\t", " "), "zk_packets_received")


def of_postgresql(server: Postgres) -> float:
    """Transactions, most of which are one statement."""
    statement = "select pg_stat_clear_snapshot(), xact_commit + xact_rollback from pg_stat_database where datname = "
    return float(server.command(f"{statement}'{server.database}'").rpartition("|")[2])


def of_mysql(server: MariaDb) -> float:
    """Statements."""
    return float(server.command("show global status like 'Questions'").split()[1])


def of_nats(server: Nats) -> float:
    """Messages of clients: a request is one, and a look two. The server must have a monitor."""
    return float(server.monitored("varz")["in_msgs"])


TELEMETRY = {"telemetry": {"prometheus_retention_time": "24h"}}  # of Consul
# backend -> what its servers have done so far
COUNTERS: dict[str, Callable[[Any], float]] = {
    "redis": of_redis,
    "redlock": of_redlock,
    "etcd": of_etcd,
    "consul": of_consul,
    "zookeeper": of_zookeeper,
    "postgresql": of_postgresql,
    "mysql": of_mysql,
    "nats": of_nats,
}


def _raft_writes(server: Consul) -> float:
    text = server.request("GET", "/v1/agent/metrics", format="prometheus").decode()
    return _sum(text, "consul_raft_apply")


def _xid(server: Postgres) -> float:
    """Transactions that have written."""
    return float(server.command("select pg_snapshot_xmax(pg_current_snapshot())"))


# backend -> what it has written so far that must be on a disk, or on a majority
WRITES: dict[str, Callable[[Any], float]] = {
    "etcd": lambda server: _sum(str(server.request("/metrics")[1]), "etcd_server_proposals_committed_total"),
    "consul": _raft_writes,
    "zookeeper": lambda server: float(int(server.four_letters("srvr").partition("Zxid: ")[2].split()[0], 16)),
    "postgresql": _xid,
}
# and the requests of clients alone, not what scripts do in the server
BY_CLIENTS = ("evalsha", "eval", "subscribe", "auth", "select", "role")
REQUESTS = {name: counter for name, counter in COUNTERS.items() if name != "postgresql"} | {  # whose sessions tell late
    "redis": lambda server: of_redis(server, BY_CLIENTS),
    "redlock": lambda servers: sum(of_redis(server, BY_CLIENTS) for server in servers.members),
}


def _sum(text: str, name: str) -> float:
    """All samples of a metric, in the format of Prometheus."""
    return sum(float(found) for found in re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([\d.e+]+)$", text, re.MULTILINE))
