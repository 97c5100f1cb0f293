"""What would break locks in a Redis server, asked by redis-py."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.redis import address as addresses
from lockctl.stores.redis import rights
from lockctl.stores.redis.rights import ACL, MEMORY
from lockctl.stores.redis.session import Session
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.stream import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.redis.address import Login
    from lockctl.url import Url

    Facts = dict[str, Any]

PATIENCE = 3.0  # seconds for one answer
OLDEST = (5, 0)  # version that is served
FEW = 0.9  # part of the connections that may be in use
REPLICA_PATIENCE = 100  # milliseconds for replicas to say how far they are

VISIBLE = Check(
    "redis.visible",
    "What the user may not ask for could not be checked.",
    "use a URL with an administrator's password for doctor, or: redis-cli {at} ACL SETUSER {user} +info",
)
VERSION = Check("redis.version", "Older servers cannot run lockctl's scripts.", "upgrade the server to 7 or newer")
ROLE = Check("redis.role", "A replica refuses writes, and what it has may be old.", "name the primary in the URL")
CLUSTER = Check(
    "redis.cluster", "A node of Redis Cluster has only some of the keys.", "use one primary that is not in cluster mode"
)
EVICTION = Check(
    "redis.eviction",
    "When the memory is full, a key that is evicted frees its lock while the job still runs.",
    "redis-cli {at} CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
)
PERSISTENCE = Check(
    "redis.persistence",
    "A server that restarts without its newest writes has forgotten locks whose jobs still run.",
    "redis-cli {at} CONFIG SET appendonly yes; redis-cli {at} CONFIG SET appendfsync always;"
    " and the same in redis.conf",
)
REPLICAS = Check(
    "redis.replicas",
    "A lock is acknowledged before a replica has it, so a failover can lose it; tokens then protect the resource.",
    "redis-cli {at} CONFIG SET min-replicas-to-write 1, use --fence, or use a backend with a quorum",
)
CONNECTIONS = Check(
    "redis.connections",
    "A server without free connections refuses new jobs.",
    "redis-cli {at} CONFIG SET maxclients {more}",
)
CHECKS = (VISIBLE, VERSION, ROLE, CLUSTER, EVICTION, PERSISTENCE, REPLICAS, CONNECTIONS, ACL, MEMORY)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the server of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    place = addresses.from_url(url)
    server = place.place
    if not isinstance(server, Endpoint):
        from lockctl.stores.redis.sentinel import find_primary

        server = find_primary(server, deadline)
        found.where = server.where
    examine_server(server, place.login, place.prefix, found, deadline)


def examine_server(server: Endpoint, login: Login, prefix: str, found: Examination, deadline: Deadline) -> Facts | None:
    """Look at one server; what INFO says. Raises ``BackendUnavailable``, ``ConfigError``."""
    if found.lacks("redis", "redis"):
        return None
    from redis import exceptions

    _greet(server, login, deadline.sooner(PATIENCE))
    client = _client(server, login, deadline)
    at = f"-s {server.unix}" if server.unix else f"-h {server.host} -p {server.port}"
    found.words.update(at=at, user=login.user or "default", prefix=prefix)
    try:
        found.measure(lambda: _time(client))
        facts = _facts(client)
        _judge(facts, found)
        rights.check(client, prefix, found)
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as refused:
        raise ConfigError(f"{server.where}: {printable(str(refused))}") from None
    except (exceptions.RedisError, OSError) as failure:
        raise BackendUnavailable(f"{server.where}: {printable(str(failure))[:300]}") from None
    finally:
        client.close()
    return facts


def _greet(server: Endpoint, login: Login, deadline: Deadline) -> None:
    """As locks do. The library waits for the end of any line, and says in its own words what went wrong."""
    session = Session(server, login)
    try:
        if session.call("PING", deadline=deadline) != b"PONG":
            raise BackendUnavailable(f"{server.where}: that is no Redis server")
    finally:
        session.close()


def _client(server: Endpoint, login: Login, deadline: Deadline) -> Any:
    import redis

    options: dict[str, Any] = {"db": login.db, "username": login.user}
    # its own repetitions would take many times as long
    options.update(
        password=password_now(login.password, deadline),
        socket_timeout=PATIENCE,
        socket_connect_timeout=PATIENCE,
        retry=None,
        protocol=2,
    )
    kind: Any = redis.Connection
    if server.unix is not None:
        kind = redis.UnixDomainSocketConnection
        options["path"] = server.unix
    else:
        options.update(host=server.host, port=server.port)
    if server.tls is not None:
        from lockctl.wire.tls import context

        made, name = context(server.tls), server.tls.tls_name or server.host

        class Secured(redis.Connection):
            """With the TLS of all backends; the library cannot verify another name than the host's."""

            def _connect(self) -> Any:
                return made.wrap_socket(super()._connect(), server_hostname=name)  # type: ignore[no-untyped-call]

        kind = Secured
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kind, **options))


def _time(client: Any) -> float | None:
    from redis import exceptions

    try:
        seconds, microseconds = client.time()
    except exceptions.ResponseError:  # forbidden or renamed, which the check of the rights says
        return None
    return float(seconds) + float(microseconds) / 1e6


def _facts(client: Any) -> Facts | None:
    """What INFO says, with the settings that can be asked for; ``None``: the user may not ask."""
    from redis import exceptions

    try:
        facts: Facts = client.info("all")
    except exceptions.NoPermissionError:
        return None
    for name in ("appendfsync", "min-replicas-to-write"):
        try:
            facts.update(client.config_get(name))
        except exceptions.ResponseError:
            break  # also where the command is renamed
    if facts.get("connected_slaves"):
        facts["in_step"] = client.wait(1, REPLICA_PATIENCE)
    return facts


def _judge(facts: Facts | None, found: Examination) -> None:
    if facts is None:
        found.judge(VISIBLE, f"user {found.words['user']} may not run INFO", warns=True)
        return
    version = str(facts.get("redis_version", "0"))
    found.judge(VERSION, version, fails=_numbers(version) < OLDEST)
    role = str(facts.get("role"))
    found.judge(ROLE, {"master": "primary", "slave": "replica"}.get(role, role), fails=role != "master")
    cluster = bool(facts.get("cluster_enabled"))
    found.judge(CLUSTER, "cluster mode" if cluster else "no cluster", fails=cluster)
    _judge_memory(facts, found)
    _judge_durability(facts, found)
    used = int(facts.get("connected_clients", 0)) + int(facts.get("connected_slaves", 0))
    most = int(facts.get("maxclients", 0))
    found.words["more"] = str(2 * most)
    found.judge(CONNECTIONS, f"{used} of {most or '?'} in use", warns=0 < most * FEW <= used)


def _judge_memory(facts: Facts, found: Examination) -> None:
    policy, limit = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory", 0))
    evicts = policy != "noeviction"
    seen = f"{policy}, {'at ' + str(facts.get('maxmemory_human', limit)) if limit else 'no limit of memory'}"
    found.judge(EVICTION, seen, fails=evicts and limit > 0, warns=evicts)


def _judge_durability(facts: Facts, found: Examination) -> None:
    written, sync = bool(facts.get("aof_enabled")), facts.get("appendfsync", "unknown")
    seen = f"append-only file, appendfsync {sync}" if written else "no append-only file"
    found.judge(PERSISTENCE, seen, warns=not written or sync != "always")
    replicas = int(facts.get("connected_slaves", 0))
    needed, answered = int(facts.get("min-replicas-to-write", 0)), int(facts.get("in_step", 0))
    seen = "none"
    if replicas:
        seen = f"{replicas}, of which {answered} confirmed within {REPLICA_PATIENCE} ms (WAIT);"
        seen += f" min-replicas-to-write {needed}"
    found.judge(REPLICAS, seen, warns=replicas > 0 and (needed == 0 or answered == 0))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
