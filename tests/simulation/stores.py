"""The stores of histories: their servers, their clients, and what a server has of whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import json_text
from lockctl.locks.driver import escaped
from lockctl.stores.azblob import address as azblob
from lockctl.stores.azblob.cell import AzureBlobBackend, AzureBlobCells
from lockctl.stores.consul.address import Settings
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.stores.dynamodb import layout as items
from lockctl.stores.dynamodb.cell import DynamoDbBackend, DynamoDbCells
from lockctl.stores.dynamodb.protocol import Table
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.stores.etcd.protocol import Cluster
from lockctl.stores.file.layout import MAGIC, PAGE, SIZE
from lockctl.stores.file.lock import FileBackend
from lockctl.stores.file.ranges import SEATS
from lockctl.stores.gcs.cell import GcsBackend, GcsCells
from lockctl.stores.kubernetes import layout as leases
from lockctl.stores.kubernetes.access import Access
from lockctl.stores.kubernetes.cell import KubernetesBackend, KubernetesCells
from lockctl.stores.kubernetes.protocol import Leases
from lockctl.stores.mysql import address as mysql
from lockctl.stores.mysql.cell import PRESENT, MysqlBackend, MysqlCells
from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.cell import NatsBackend, NatsCells
from lockctl.stores.nats.protocol import Bucket
from lockctl.stores.postgresql.address import from_url
from lockctl.stores.postgresql.lock import PostgresqlBackend
from lockctl.stores.postgresql.wait import OTHERS_PAUSE
from lockctl.stores.redis.address import Address, Login, Watched
from lockctl.stores.redis.lock import RedisBackend
from lockctl.stores.redlock.lock import RedlockBackend
from lockctl.stores.redlock.nodes import Members
from lockctl.stores.s3 import address as s3
from lockctl.stores.s3.cell import S3Backend, S3Cells
from lockctl.stores.sqlite.cell import SqliteBackend, SqliteCells
from lockctl.stores.zookeeper.address import PORT, ROOT, Place
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from lockctl.wire.stream import Endpoint
from tests.simulation.cells import CellServer, ExactBackend, ExactCells, WholeSecondsBackend, WholeSecondsCells
from tests.simulation.consul import ConsulServer
from tests.simulation.dynamodb import DynamoServer
from tests.simulation.etcd import EtcdServer, Member
from tests.simulation.files import DIRECTORY, Files
from tests.simulation.http import HttpServer
from tests.simulation.kubernetes import KubernetesServer
from tests.simulation.mysql_server import MysqlServer
from tests.simulation.nats import NatsServer
from tests.simulation.objects import AzureServer, GoogleServer, ObjectServer, S3Server
from tests.simulation.plan import NODES
from tests.simulation.postgresql_pooler import PooledServer
from tests.simulation.postgresql_server import PostgresServer
from tests.simulation.processes import me
from tests.simulation.redis import PRIMARY, RedisServer
from tests.simulation.redis_commands import Sorted
from tests.simulation.sqlite import PATH, TABLE, Database
from tests.simulation.world import Here
from tests.simulation.zookeeper import ZooKeeperServer, ensemble_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import Host, Network, Server


A_DAY = 86400
MYSQL = mysql.from_url(parse_url("mysql://ops@10.0.0.1/jobs?tls=no"))
# of those that want credentials, the second is for a history in which these end
S3 = ("s3://us:secret@bucket?endpoint=http://server", "s3://bucket?endpoint=http://server&region=x")
AZURE = (
    "azblob://:c2VjcmV0@container?account=us&endpoint=http://server",
    "azblob://container?account=us&endpoint=http://server",
)
GOOGLE = ("gcs://bucket?endpoint=http://server&anonymous=yes", "gcs://bucket?endpoint=http://server")
DYNAMO = ("dynamodb://us:secret@locks?endpoint=http://server", "dynamodb://locks?endpoint=http://server&region=x")
KUBERNETES = parse_url("kubernetes://jobs")
NATS = read_url(parse_url("nats://server/jobs"))


class Store(NamedTuple):
    """One kind of store."""

    backend: type[Any]
    servers: Callable[[float], list[Server]]  # with clocks of this rate
    client: Callable[[type[Any], Network, Host, list[Server]], Any]  # a backend of this class
    owners: Callable[[list[Server], str], set[str]]  # of which a server has this lock or a place in its queue
    success: Callable[[list[Server], str], float | None]  # of a lock: the newest that is noted
    looks: float  # seconds until a waiter without faults has seen that the lock is free
    freed: Callable[[float], float] = lambda ttl: 1.1 * ttl  # seconds after the last renewal, for a ttl
    place: Callable[[float], float] = lambda ttl: 1.1 * ttl  # the same of a place in the queue
    sessions: Callable[[list[Server]], int] = lambda _: 0  # or leases, that a server has, whatever they are for
    seen: Callable[[list[Server]], set[str]] = lambda _: set()  # owners that others can follow there
    tick: float = 0.0  # seconds for which its clock may stand still
    messages: int = 30  # until a newcomer, or who is told that the lock is free, has it beside others who come


def _document(servers: list[Server], name: str) -> dict[str, Any]:
    server, key = servers[0], f"lock:{name}"
    data: bytes | None
    if isinstance(server, MysqlServer):
        data = server.cell(key.encode())
    elif isinstance(server, ObjectServer):
        data = server.cell(escaped(key))
    elif isinstance(server, DynamoServer):
        item = server.items.get(items.item_key(key))
        data = None if item is None else items.read(item, 0.0, 0.0).data
    elif isinstance(server, KubernetesServer):
        found = server.objects.get(leases.object_name(key))
        data = None if found is None else leases.read(found, 0.0, 0.0).data
    elif isinstance(server, (NatsServer, Database)):
        data = server.cell(key)
    else:
        assert isinstance(server, CellServer)
        data = server.cells.get(key, (b"", 0))[0]
        if server.whole_seconds:
            data = data.rpartition(b"\n")[0]
    if data is None or not data.startswith(b"{"):  # nothing, or another program
        return {"holders": [], "queue": [], "success": None}
    document: dict[str, Any] = json_text.parse(data)
    return document


def _owners_in_cells(servers: list[Server], name: str) -> set[str]:
    server, content = servers[0], _document(servers, name)
    now = server.now() if isinstance(server, Database) else server.clock.wall()
    members = (*content["holders"], *content["queue"])
    return {each["owner"] for each in members if each["until"] > now and "ended_at" not in each}


def _success_in_cells(servers: list[Server], name: str) -> float | None:
    success: float | None = _document(servers, name)["success"]
    return success


def _cells(backend: type[Any], cells: type[Any], *, whole_seconds: bool, looks: float) -> Store:
    return Store(
        backend,
        lambda rate: [CellServer(0, rate, whole_seconds=whole_seconds)],
        lambda made, network, host, servers: made(cells(network, host, servers[0])),
        _owners_in_cells,
        _success_in_cells,
        looks,
        tick=1.0 if whole_seconds else 0.0,
    )


def _served(
    backend: type[Any], server: type[Any], cells: Callable[[bool], Any], looks: float, tick: float = 1.0
) -> Store:
    """Cells with a driver of the product, which speaks to a server: *cells* is told whether credentials end."""
    return Store(
        backend,
        lambda rate: [server(0, rate)],
        lambda made, _, __, servers: made(cells(_wants_login(servers))),
        _owners_in_cells,
        _success_in_cells,
        looks,
        tick=tick,
        messages=50,  # each look and each write takes two, beside those of the connection
    )


def _wants_login(servers: list[Server]) -> bool:
    return isinstance(servers[0], HttpServer) and servers[0].login is not None


def _s3_cells(ends: bool) -> S3Cells:  # noqa: FBT001 - as all of these are called
    return S3Cells(s3.from_url(parse_url(S3[ends]), S3Backend.parameters))


def _azure_cells(ends: bool) -> AzureBlobCells:  # noqa: FBT001
    return AzureBlobCells(azblob.from_url(parse_url(AZURE[ends]), AzureBlobBackend.parameters))


def _google_cells(ends: bool) -> GcsCells:  # noqa: FBT001
    return GcsCells(parse_url(GOOGLE[ends]), GcsBackend.parameters)


def _dynamo_cells(ends: bool) -> DynamoDbCells:  # noqa: FBT001
    return DynamoDbCells(Table(parse_url(DYNAMO[ends])))


def _kubernetes_cells(ends: bool) -> KubernetesCells:  # noqa: FBT001
    found = Leases(KUBERNETES)
    found._access = Access({"server": "http://server"}, {"exec": {"command": "login"}} if ends else {}, "")
    return KubernetesCells(found)


def _owners_in(server: Server, name: str) -> set[str]:
    """Those who have a place or the lock in one Redis server."""
    assert isinstance(server, RedisServer)
    data, now = server.data, server.clock.wall() * 1000
    key = f"lockctl:{name}".encode()
    found = {owner for owner, until in data.get(b"{%b}:live" % key, {}).items() if until >= now}
    value = data.get(key, b"")
    if isinstance(value, bytes):
        found |= {value.partition(b"|")[0]} if value and not value.startswith(b"ended:") else set()
    elif isinstance(value, Sorted):  # else it is another program's
        found |= {member.rpartition(b"|")[2] for member, until in value.items() if until > now}
    return {owner.decode() for owner in found}


def _owners_in_redis(servers: list[Server], name: str) -> set[str]:
    """Those whom a majority has."""
    each = [_owners_in(server, name) for server in servers]
    return {owner for owner in set().union(*each) if sum(owner in found for found in each) > len(servers) / 2}


def _success_in_redis(servers: list[Server], name: str) -> float | None:
    found = []
    for server in servers:
        assert isinstance(server, RedisServer)
        text = server.data.get(f"{{lockctl:{name}}}:success".encode())
        if text is not None:
            found.append(float(text))
    return max(found, default=None)


def _redis_client(made: type[Any], _: Network, __: Host, servers: list[Server]) -> Any:
    server, login = servers[0], Login(None, None, 0)
    assert isinstance(server, RedisServer)
    place = Watched(PRIMARY, (_place(server),), login, None, "sentinels") if server.is_watched else _place(server)
    return made(Address(place, login, "lockctl:", "redis:server/0"))


def _redlock_client(made: type[Any], _: Network, host: Host, servers: list[Server]) -> Any:
    identity = "07he5" if host.names_others else "5e7"
    return made(Members(tuple(map(_place, servers)), Login(None, None, 0), "lockctl:", identity))


def _owners_in_etcd(servers: list[Server], name: str) -> set[str]:
    keys = _keys_of_etcd(servers)
    prefix = f"lockctl/{name}/".encode()
    documents = [json_text.parse(value) for key, value in keys.items() if key.startswith(prefix)]
    return {each["owner"] for each in documents if "ended_at" not in each}


def _success_in_etcd(servers: list[Server], name: str) -> float | None:
    value = _keys_of_etcd(servers).get(f"lockctl/.success/{name}".encode())
    return None if value is None else float(json_text.parse(value)["at"])


def _keys_of_etcd(servers: list[Server]) -> dict[bytes, bytes]:
    """What is there of keys whose leases are not over."""
    server = servers[0]
    assert isinstance(server, EtcdServer)
    data, now = server.data, server.clock.boottime()
    alive = {0, *(lease for lease, (_, ends) in data.leases.items() if ends > now)}
    return {key: entry.value for key, entry in data.keys.items() if entry.lease in alive}


def _leases_in_etcd(servers: list[Server]) -> int:
    server = servers[0]
    assert isinstance(server, EtcdServer)
    data, now = server.data, server.clock.boottime()
    refusing = {entry.lease for key, entry in data.keys.items() if key.startswith(b"lockctl/.revoke/.ended/")}
    # those of what is kept of a lock, such as its history, last for a year
    return sum(ttl < A_DAY and ends > now for lease, (ttl, ends) in data.leases.items() if lease not in refusing)


def _etcd(members: int) -> Store:
    def servers(rate: float) -> list[Server]:
        leader = EtcdServer(0, rate)
        return [leader, *[Member(number, rate, leader) for number in range(1, members)]]

    return Store(
        EtcdBackend,
        servers,
        # the leader is asked last
        lambda made, _, __, servers: made(
            Cluster(tuple(map(_place, reversed(servers))), *(("us", "secret") if _wants_login(servers) else ()))
        ),
        _owners_in_etcd,
        _success_in_etcd,
        0.0,
        sessions=_leases_in_etcd,
    )


def _owners_in_consul(servers: list[Server], name: str) -> set[str]:
    server = servers[0]
    assert isinstance(server, ConsulServer)
    data, now = server.data, server.clock.boottime()
    alive = {session for session, found in data.sessions.items() if found.ends > now}
    found = [
        entry.value.partition(b"\n")[0]
        for key, entry in data.keys.items()
        if key.startswith((f"lockctl/{name}/", f"lockctl/.lockctl/queue/{name}/")) and entry.session in alive
    ]
    return {json_text.parse(document)["owner"] for document in found}


def _success_in_consul(servers: list[Server], name: str) -> float | None:
    server = servers[0]
    assert isinstance(server, ConsulServer)
    entry = server.data.keys.get(f"lockctl/.lockctl/success/{name}")
    return None if entry is None else float(entry.value)


def _sessions_in_consul(servers: list[Server]) -> int:
    server = servers[0]
    assert isinstance(server, ConsulServer)
    return sum(found.ends > server.clock.boottime() for found in server.data.sessions.values())


def _consul_client(made: type[Any], network: Network, __: Host, servers: list[Server]) -> Any:
    return made(Settings(_place(servers[0]), None, "", "lockctl/", network.plan.lock_delay))


def _owners_in_zookeeper(servers: list[Server], name: str) -> set[str]:
    server = servers[0]
    assert isinstance(server, ZooKeeperServer)
    ensemble, now = server.ensemble, server.clock.boottime()
    alive = {each.number for each in ensemble.alive() if each.ends > now}
    found = [
        node.data.partition(b"\n")[0]
        for path, node in ensemble.nodes.items()
        if path.startswith(f"/lockctl/{name}/") and node.owner in alive
    ]
    return {json_text.parse(document)["owner"] for document in found}


def _success_in_zookeeper(servers: list[Server], name: str) -> float | None:
    server = servers[0]
    assert isinstance(server, ZooKeeperServer)
    node = server.ensemble.nodes.get(f"/lockctl/.kept/{name}/success")
    return float(json_text.parse(node.data)["at"]) if node is not None and node.data else None


def _sessions_in_zookeeper(servers: list[Server]) -> int:
    server = servers[0]
    assert isinstance(server, ZooKeeperServer)
    return sum(each.ends > server.clock.boottime() for each in server.ensemble.alive())


def _zookeeper_client(made: type[Any], _: Network, __: Host, servers: list[Server]) -> Any:
    return made(Place(tuple((server.name, PORT) for server in servers), ROOT, "kazoo", None, None, None))


def _owners_in_postgresql(servers: list[Server], _: str) -> set[str]:
    """Of any lock: the sessions that have an advisory lock, be it the lock itself, a slot, or a ticket."""
    server = servers[0]
    assert isinstance(server, PostgresServer)
    having = {pid for _, _, pid in server.locks.held} | {each.pid for each in server.locks.waiting}
    names = [each.setting("application_name") or "" for each in server.alive() if each.pid in having]
    return {name.split(":")[1] for name in names if name.startswith("lockctl:")}


def _success_in_postgresql(servers: list[Server], name: str) -> float | None:
    server = servers[0]
    assert isinstance(server, PostgresServer)
    tables = server.tables
    if "lockctl_fence" not in tables.there():
        return None
    rows = tables.sqlite.execute("SELECT success FROM lockctl_fence WHERE name = ?", (f"lockctl:{name}",))
    return max([success for (success,) in rows if success is not None], default=None)


def _sessions_in_postgresql(servers: list[Server]) -> int:
    server = servers[0]
    assert isinstance(server, PostgresServer)
    return 0 if isinstance(server, PooledServer) else len(list(server.alive()))  # a pooler keeps those that it has


class NotingCells(MysqlCells):
    """Those of the product. It is noted at the server who looks at a row again and again, from when until when."""

    server: MysqlServer

    def watch(self, *given: Any) -> None:
        """See ``Cells``."""
        began = Here.world.now
        try:
            super().watch(*given)
        finally:
            self.server.looked.append((me(), began, Here.world.now))


def _mysql_client(made: type[Any], _: Network, __: Host, servers: list[Server]) -> Any:
    server, cells = servers[0], NotingCells(MYSQL)
    assert isinstance(server, MysqlServer)
    cells.server = server
    return made(cells)


def _seen_in_mysql(servers: list[Server]) -> set[str]:
    server = servers[0]
    assert isinstance(server, MysqlServer)
    return {name.removeprefix(PRESENT) for name in server.names()}


def _sessions_in_mysql(servers: list[Server]) -> int:
    server = servers[0]
    assert isinstance(server, MysqlServer)
    return len(server.alive())


def _page(content: bytes, start: int) -> tuple[int, dict[str, Any]]:
    """The number of a page of a lock file, and its document; pages that are written here are whole."""
    head, _, rest = content[start : start + PAGE].partition(b"\n")
    if not head.startswith(MAGIC):
        return -1, {}
    _, number, _, length, _ = head.split()
    return int(number), json_text.parse(rest[: int(length)]) or {}


def _record_in(files: Files, name: str) -> dict[str, Any]:
    content = bytes(files.names[name].content) if name in files.names else b""
    return max(_page(content, 0), _page(content, PAGE), key=lambda page: page[0])[1]


def _owners_in_files(servers: list[Server], name: str) -> set[str]:
    files = servers[0]
    assert isinstance(files, Files)
    inode = files.names.get(name)
    if inode is None or not inode.whole:
        return set()
    slots = [byte - SEATS for byte, owners in inode.bytes.items() if byte >= SEATS and owners]
    pages = [_page(bytes(inode.content), SIZE + number * PAGE)[1] for number in slots]
    record, pids = _record_in(files, name), {pid for _, pid in inode.whole.values()}
    if not pids.isdisjoint((record.get("taken_by"), record.get("helper"))):  # else it is another program's
        pages.append(record)
    return {each["owner"] for each in pages if "owner" in each and "ended_at" not in each}


def _success_in_files(servers: list[Server], name: str) -> float | None:
    files = servers[0]
    assert isinstance(files, Files)
    return _record_in(files, f".success.{name}").get("at")


def _postgresql(scope: str, server: type[PostgresServer], looks: float) -> Store:
    address = from_url(parse_url(f"postgresql://ops@10.0.0.1/jobs?tls=no&scope={scope}"))
    return Store(
        PostgresqlBackend,
        lambda rate: [server(0, rate)],
        lambda made, *_: made(address),
        _owners_in_postgresql,
        _success_in_postgresql,
        looks,
        sessions=_sessions_in_postgresql,
    )


def _place(server: Server) -> Endpoint:
    return Endpoint(server.name, server.name)


STORES = {
    "redis": Store(
        RedisBackend, lambda rate: [RedisServer(0, rate)], _redis_client, _owners_in_redis, _success_in_redis, 0.0
    ),
    "redlock": Store(
        RedlockBackend,
        lambda rate: [RedisServer(number, rate) for number in range(NODES)],
        _redlock_client,
        _owners_in_redis,
        _success_in_redis,
        5.5,
    ),
    "etcd": _etcd(1),
    "etcd-cluster": _etcd(3),
    "consul": Store(
        ConsulBackend,
        lambda rate: [ConsulServer(0, rate)],
        _consul_client,
        _owners_in_consul,
        _success_in_consul,
        0.0,
        lambda ttl: 3.3 * max(ttl, 10.0),  # twice that of a session, none of which is shorter, and the lock delay
        lambda _: 21.0,  # twice that of a session of ten seconds
        _sessions_in_consul,
        # an attempt that names the domain, two that others are before, six for a place in the queue, and one in turn
        messages=38,
    ),
    "zookeeper": Store(
        ZooKeeperBackend,
        lambda rate: [*ensemble_of(rate)],
        _zookeeper_client,
        _owners_in_zookeeper,
        _success_in_zookeeper,
        1.5,
        lambda ttl: 2 * ttl + 1.0,  # the session lasts twice the lease, rounded up to a tick
        lambda ttl: max(ttl, 12.0) + 1.5,  # and that of a waiter as long as the lease, but two of the longest ticks
        _sessions_in_zookeeper,
    ),
    "file": Store(
        FileBackend,
        lambda rate: [Files(rate)],
        lambda made, *_: made(DIRECTORY),
        _owners_in_files,
        _success_in_files,
        1.5,
    ),
    "postgresql": _postgresql("session", PostgresServer, 0.0),
    "transaction": _postgresql("transaction", PooledServer, OTHERS_PAUSE),
    "mysql": Store(
        MysqlBackend,
        lambda rate: [MysqlServer(0, rate)],
        _mysql_client,
        _owners_in_cells,
        _success_in_cells,
        0.75,
        sessions=_sessions_in_mysql,
        seen=_seen_in_mysql,
        messages=44,  # a connection takes fourteen
    ),
    "s3": _served(S3Backend, S3Server, _s3_cells, 14.5),
    "azblob": _served(AzureBlobBackend, AzureServer, _azure_cells, 14.5),
    "gcs": _served(GcsBackend, GoogleServer, _google_cells, 14.5),
    "dynamodb": _served(DynamoDbBackend, DynamoServer, _dynamo_cells, 2.5),
    "kubernetes": _served(KubernetesBackend, KubernetesServer, _kubernetes_cells, 2.0),
    "nats": _served(NatsBackend, NatsServer, lambda _: NatsCells(Bucket(NATS)), 2.0, tick=0.0),
    "sqlite": Store(
        SqliteBackend,
        lambda rate: [Database(rate)],
        lambda made, *_: made(SqliteCells(PATH, TABLE)),
        _owners_in_cells,
        _success_in_cells,
        1.5,
    ),
    "exact": _cells(ExactBackend, ExactCells, whole_seconds=False, looks=4.0),
    "seconds": _cells(WholeSecondsBackend, WholeSecondsCells, whole_seconds=True, looks=14.5),
}
