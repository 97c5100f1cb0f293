"""The servers that a crowd is let loose on: their limits are raised where the defaults do not allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.scale.counters import COUNTERS, TELEMETRY
from tests.faults.backends import PLACES, addresses_of
from tests.servers.azurite import Azurite
from tests.servers.consul import Consul
from tests.servers.dynamodb import DynamoDb
from tests.servers.etcd import Etcd
from tests.servers.fixtures import RedisServers
from tests.servers.gcs import Gcs
from tests.servers.kubernetes import Kubernetes
from tests.servers.mariadb import MariaDb
from tests.servers.moto import S3
from tests.servers.nats import Nats
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from pathlib import Path

MOST = 2500  # connections
STARTS: dict[str, Callable[[Path], Any]] = {
    "redis": Redis,
    "redlock": RedisServers,
    "etcd": Etcd,
    "consul": lambda path: Consul(path, extra={**TELEMETRY, "limits": {"http_max_conns_per_client": 2 * MOST}}),
    "zookeeper": lambda path: ZooKeeper(path, tick=2000),  # as usual
    "postgresql": lambda path: Postgres(path, extra=[f"max_connections = {MOST}"]),
    "mysql": lambda path: MariaDb(path, extra=[f"max-connections={MOST}"]),
    "nats": Nats,
    "s3": S3,
    "gcs": Gcs,
    "azblob": Azurite,
    "dynamodb": DynamoDb,
    "kubernetes": Kubernetes,
}
BACKENDS = tuple(PLACES)


class Store(NamedTuple):
    """A backend with servers of its own."""

    name: str
    url: str
    server: Any  # None: it has none

    def operations(self) -> float | None:
        """What its servers have done so far, as they count it; ``None``: nobody counts."""
        return COUNTERS[self.name](self.server) if self.name in COUNTERS else None


def opened(name: str, directory: Path, ends: contextlib.ExitStack) -> Store:
    """Start the servers of a backend. Raises ``ProgramMissing``."""
    locks = directory / "locks"
    locks.mkdir(parents=True)
    if name not in STARTS:
        return Store(name, PLACES[name].url((), "", locks), None)
    server = STARTS[name](directory / "server")
    ends.callback(server.discard)
    server.start()
    addresses = addresses_of(server.members if isinstance(server, RedisServers) else server)
    return Store(name, PLACES[name].url(addresses, "bench", locks), server)
