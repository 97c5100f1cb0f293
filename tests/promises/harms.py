"""What operators, and the end of its power, do to a store that a test has for itself: for every backend with servers."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.servers.azurite import Azurite
from tests.servers.consul import Consul
from tests.servers.dynamodb import TABLE, DynamoDb
from tests.servers.etcd import Etcd
from tests.servers.gcs import Gcs
from tests.servers.kubernetes import Kubernetes
from tests.servers.mariadb import MariaDb
from tests.servers.moto import S3
from tests.servers.nats import Nats
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # done to the server (of Redlock: to the servers), with the word of the place and the token that was given last
    Harm = Callable[[Any, str, int], object]
    Start = Callable[..., Any]

NODES = 3  # of Redlock


def restart(server: Any, _: str, __: int) -> None:
    server.restart()


def kill(server: Any, _: str, __: int) -> None:
    """As when the power ends: what was not written durably is gone."""
    server.kill()
    server.start()


def wipe(server: Any, _: str, __: int) -> None:
    server.wipe()


def lose_data(server: Etcd, _: str, __: int) -> None:
    """As when a cluster is built again after its disks were lost."""
    server.lose_data()


def save(server: Etcd, _: str, __: int) -> None:
    server.save()


def put_back(server: Etcd, _: str, __: int) -> None:
    """All that came after :func:`save` is lost."""
    server.put_back()


def command(*words: str) -> Harm:
    """An operator's command, with the word of the place in it."""
    return lambda server, place, token: server.command(*(each.format(place=place, token=token) for each in words))


def each_in_turn(*harms: Harm) -> Harm:
    """One after the other."""

    def do(server: Any, place: str, token: int) -> None:
        for harm in harms:
            harm(server, place, token)

    return do


def ask(*words: str) -> Harm:
    """A command to Redis, with the word of the place in it."""
    return lambda server, place, _: server.ask(*(each.replace("PLACE", place) for each in words))


def on_one(harm: Harm) -> Harm:
    """One node of Redlock, each time another."""
    return lambda servers, place, token: harm(servers[token % NODES], place, token)


def on_all(harm: Harm) -> Harm:
    """All nodes of Redlock."""
    return lambda servers, place, token: [harm(server, place, token) for server in servers]


def destroy_sessions(server: Consul, _: str, __: int) -> None:
    for session in json.loads(server.request("GET", "/v1/session/list")):
        server.request("PUT", f"/v1/session/destroy/{session['ID']}")


@contextlib.contextmanager
def administrator(server: ZooKeeper) -> Iterator[KazooClient]:
    """Another client of ZooKeeper."""
    admin = KazooClient(hosts=server.address)
    admin.start()
    yield admin
    admin.stop()
    admin.close()


def delete_holder(server: ZooKeeper, place: str, _: int) -> None:
    with administrator(server) as admin, contextlib.suppress(NoNodeError):
        for node in admin.get_children(f"/{place}/nightly"):
            admin.delete(f"/{place}/nightly/{node}")


def compact(server: Etcd, _: str, __: int) -> None:
    """To the present revision."""
    (status,) = json.loads(server.command("endpoint", "status", "-w", "json"))
    server.command("compaction", str(status["Status"]["header"]["revision"]))


def delete_lock(server: ZooKeeper, place: str, _: int) -> None:
    with administrator(server) as admin:
        admin.delete(f"/{place}/nightly", recursive=True)


def delete_record(server: ZooKeeper, place: str, _: int) -> None:
    """What is kept beside the lock, with its counter."""
    with administrator(server) as admin:
        admin.delete(f"/{place}/.kept/nightly", recursive=True)


def delete_root(server: ZooKeeper, place: str, _: int) -> None:
    with administrator(server) as admin:
        admin.delete(f"/{place}", recursive=True)


def purge(keys: str) -> Harm:
    """Remove messages, as an operator does it whom the bucket's own rule does not stop."""
    return lambda server, place, _: server.purge(keys.format(place=place))


def delete_items(server: DynamoDb, place: str, _: int) -> None:
    """The locks of the place; without what lockctl keeps beside them, another domain of tokens would begin."""
    client = server.client("dynamodb")
    for item in client.scan(TableName=TABLE)["Items"]:
        if item["key"]["S"].startswith(place):
            client.delete_item(TableName=TABLE, Key={"key": item["key"]})


def delete_leases(server: Kubernetes, place: str, _: int) -> None:
    """The objects of locks, as an operator deletes them."""
    done = server.kubectl("delete", "leases", "--selector=!lockctl/kind", "--wait=false")
    assert done.returncode == 0, (place, done.stderr)


COUNTER = "{PLACE:nightly}:fence"
REDIS: dict[str, Harm] = {
    "killed": kill,
    "without the lock": ask("DEL", "PLACE:nightly"),
    "without the counter": ask("DEL", COUNTER),
    "with a counter set back": ask("SET", COUNTER, "1"),
    "wiped": wipe,
}
SERVER: dict[str, Harm] = {"restarted": restart, "killed": kill}
# how the server of a test is started, and what is done to it
HARMS: dict[str, tuple[Callable[[Start], Any], dict[str, Harm]]] = {
    "redis": (lambda start: start(Redis, fsync=True), {"restarted": restart, **REDIS}),
    "redlock": (
        lambda start: [start(Redis, fsync=True) for _ in range(NODES)],
        {f"{name}, {which.__name__}": which(harm) for name, harm in REDIS.items() for which in (on_one, on_all)},
    ),
    "etcd": (
        lambda start: start(Etcd),
        {
            **SERVER,
            "without the lock": command("del", "{place}/nightly/", "--prefix"),
            "without its keys": command("del", "{place}/", "--prefix"),
            "without its counter": command("del", "{place}/.token/nightly"),
            "compacted and defragmented": each_in_turn(compact, command("defrag")),
            "saved": save,
            "without keys and leases": wipe,
            "wiped": lose_data,
            "put back to a snapshot": put_back,
        },
    ),
    "consul": (
        lambda start: start(Consul),
        {
            "saved": lambda server, _, __: server.save(),
            **SERVER,
            "without the lock": command("kv", "delete", "{place}/nightly/.lock"),
            "without its keys": command("kv", "delete", "-recurse", "{place}/"),
            "without its sessions": destroy_sessions,
            "wiped": lambda server, _, __: server.lose_data(),
            "put back to a snapshot": lambda server, _, __: server.put_back(),
        },
    ),
    "zookeeper": (
        lambda start: start(ZooKeeper),
        {
            "saved": lambda server, _, __: server.save(),
            **SERVER,
            "without the holder": delete_holder,
            "without the lock": delete_lock,
            "without its record": delete_record,
            "without its root": delete_root,
            "put back to a snapshot": lambda server, _, __: server.put_back(),
            "wiped": wipe,
        },
    ),
    "postgresql": (
        lambda start: start(Postgres),
        {
            **SERVER,
            "without sessions": command("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"),
            "without rows": command("delete from lockctl_fence"),
            "without the table": command("drop table lockctl_fence"),
            "without flushing": each_in_turn(
                command("alter system set synchronous_commit = off"), command("select pg_reload_conf()"), restart, kill
            ),
        },
    ),
    # moto keeps all in memory: a restart would be another store
    "dynamodb": (lambda start: start(DynamoDb), {"without the locks": delete_items, "and again": delete_items}),
    "kubernetes": (
        lambda start: start(Kubernetes),
        {"killed": kill, "without the lock": delete_leases, "and again": delete_leases},
    ),
    "nats": (
        lambda start: start(Nats),
        {**SERVER, "without the lock": purge("lock=3A{place}=2Fnightly"), "without keys": purge(">"), "wiped": wipe},
    ),
    "mysql": (
        lambda start: start(MariaDb),
        {**SERVER, "without rows": command("delete from lockctl_lock"), "wiped": wipe},
    ),
    "s3": (
        lambda start: start(S3),
        {"without the lock": lambda server, place, _: server.delete(f"{place}/lock:nightly")},
    ),
    "gcs": (
        lambda start: start(Gcs),
        {"without the lock": lambda server, place, _: server.delete(f"{place}/lock:nightly")},
    ),
    "azblob": (
        lambda start: start(Azurite),
        {"without the lock": lambda server, place, _: server.delete(f"{place}/lock:nightly")},
    ),
}
