"""What is measured: lockctl on each backend, and the tool that people use today on the same server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.scripts import SCRIPTS
from tests.faults.backends import PLACES, addresses_of
from tests.servers import programs
from tests.servers.azurite import KEY, Azurite
from tests.servers.consul import Consul
from tests.servers.etcd import Etcd
from tests.servers.fixtures import RedisServers
from tests.servers.gcs import Gcs
from tests.servers.kubernetes import Kubernetes
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.servers.process import Group, Server

LOCKCTL = str(Path(sys.executable).parent / "lockctl")
SERVERS: dict[str, Callable[[Path], Server | Group]] = {
    "redis": Redis,
    "redlock": RedisServers,
    "etcd": Etcd,
    "consul": Consul,
    "zookeeper": ZooKeeper,
    "postgresql": Postgres,
    "mysql": MariaDb,
    "kubernetes": Kubernetes,
    "gcs": Gcs,
    "azblob": Azurite,
}
BACKENDS = ("file", "sqlite", *SERVERS)


class Tool(NamedTuple):
    """Something that runs a command under a lock."""

    name: str
    words: Callable[[str, bool], list[str]]  # before the command: given the lock's name, and whether to wait for it
    peer: str = ""  # of a backend of lockctl: the tool on the same server, where there is one
    url: str = ""  # of lockctl


class Measured(NamedTuple):
    """All that is there on this machine."""

    backends: dict[str, Tool]
    peers: dict[str, Tool]
    variables: dict[str, str]  # for the environment of all of them


# backend -> what it is compared with
PEER_OF = {
    "file": "flock",
    "sqlite": "flock",
    "redis": "redis-py script",
    "redlock": "redis-py script",
    "etcd": "etcdctl lock",
    "consul": "consul lock",
    "zookeeper": "kazoo script",
    "postgresql": "psycopg2 script",
    "mysql": "PyMySQL script",
    "kubernetes": "Kubernetes script",
    "gcs": "Google script",
    "azblob": "Azure script",
}


def started(directory: Path, wanted: Sequence[str], ends: contextlib.ExitStack) -> Measured:
    """Start the servers of the backends that are *wanted* and find the peers on them."""
    urls, at = {}, {}
    for name, url, address in _backends(directory, wanted, ends):
        urls[name], at[name] = url, address
    peers = {PEER_OF[name]: _peer(PEER_OF[name], directory, at) for name in urls if name in PEER_OF}
    there = {name: tool for name, tool in peers.items() if tool is not None}
    backends = {name: _lockctl(name, url, there) for name, url in urls.items()}
    return Measured(backends, there, _variables(directory, at))


def _backends(directory: Path, wanted: Sequence[str], ends: contextlib.ExitStack) -> Iterator[tuple[str, str, str]]:
    """Backend, URL and the address of its first server."""
    locks = directory / "locks"
    locks.mkdir()
    for name in wanted:
        if name not in SERVERS:
            yield name, PLACES[name].url((), "", locks), ""
            continue
        try:
            server = SERVERS[name](directory / name)
            ends.callback(server.discard)
            server.start()
        except programs.ProgramMissing as missing:
            print(f"left out: {name}: {missing}", flush=True)
            continue
        addresses = addresses_of(server.members if isinstance(server, RedisServers) else server)
        yield name, PLACES[name].url(addresses, "bench", directory), addresses[0]


def _lockctl(name: str, url: str, peers: Mapping[str, Tool]) -> Tool:
    def words(lock: str, wait: bool) -> list[str]:  # noqa: FBT001
        return [LOCKCTL, "run", "-b", url, "-l", lock, *(["-w", "60s"] if wait else []), "--"]

    peer = PEER_OF.get(name, "")
    return Tool(f"lockctl run, {name}", words, peer if peer in peers else "", url)


def _peer(name: str, directory: Path, at: Mapping[str, str]) -> Tool | None:
    """A tool of others; it waits for the lock in any case."""
    if name in SCRIPTS:
        server = {
            "kazoo script": at.get("zookeeper", ""),
            "psycopg2 script": f"postgresql://lockctl@{at.get('postgresql', '')}/lockctl",
            "PyMySQL script": at.get("mysql", ""),
            "Kubernetes script": str(directory / f"kubeconfig-{at.get('kubernetes', '').replace(':', '-')}.json"),
            "Google script": at.get("gcs", ""),
            "Azure script": f"{at.get('azblob', '')} {KEY}",
            "redis-py script": f"redis://{at.get('redis') or at.get('redlock', '')}",
        }[name]
        return Tool(name, lambda lock, _: [sys.executable, "-c", SCRIPTS[name], server, lock])
    program, _, verb = name.partition(" ")
    try:
        path = programs.find(program)
    except programs.ProgramMissing:
        return None
    if program == "flock":
        return Tool(name, lambda lock, _: [path, str(directory / f"flock-{lock}")])
    # one key for each lock: after a holder that was killed, consul lock waits for 15 s
    return Tool(name, lambda lock, _: [path, verb, f"peer-{lock}", *(["--"] if program == "etcdctl" else [])])


def _variables(directory: Path, at: Mapping[str, str]) -> dict[str, str]:
    return {
        "XDG_CONFIG_HOME": str(directory / "none"),
        "ETCDCTL_API": "3",
        "ETCDCTL_ENDPOINTS": at.get("etcd", ""),
        "CONSUL_HTTP_ADDR": at.get("consul", ""),
    }
