"""Fixtures of real servers: shared ones that start beside each other, and private ones that a test may harm.

After collection, the shared servers that the tests need are started all at once, each in a thread, and each fixture
waits for its own. Needed are those that a test names as fixtures, and those that it announces, when it asks for them
by ``request.getfixturevalue`` only: ``@pytest.mark.servers("redis_server", "etcd_server")``. A worker of pytest-xdist
has servers of its own: it starts each at its first use, and ends those that the tests to come do not need, for idle
servers take time from those who work.

A program that is missing skips the tests that need it, and fails them in CI.

A test leaves a shared server as it found it: running, with its own keys only removed. What it wants to stop, pause or
configure differently it starts for itself with ``start_server``.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from tests.distribution import scope_of
from tests.servers.azurite import Azurite
from tests.servers.certificates import Certificates
from tests.servers.consul import Consul
from tests.servers.dynalite import Dynalite
from tests.servers.dynamodb import DynamoDb
from tests.servers.etcd import Etcd, EtcdCluster
from tests.servers.gcs import Gcs
from tests.servers.kubernetes import Kubernetes
from tests.servers.mariadb import MariaDb
from tests.servers.moto import S3
from tests.servers.nats import Nats
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres
from tests.servers.process import Group, Server
from tests.servers.programs import ProgramMissing, find
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.servers.seaweedfs import SeaweedFs
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from pathlib import Path

Started = TypeVar("Started", bound="Server | Group")
START_LIMIT = 90.0  # seconds until a shared server is there: all of them start at the same time
POOLERS: dict[str, dict[str, Any]] = {
    **{f"pgbouncer_{mode}": {"mode": mode} for mode in ("session", "transaction", "statement")},
    "pgbouncer_wide": {"mode": "transaction", "pool_size": 30},
}


class RedisServers(Group):
    """Redis servers that know nothing of each other."""

    def __init__(self, directory: Path, *, members: int = 5) -> None:
        """All without a password."""
        self.members: list[Redis] = [Redis(directory / f"r{number}") for number in range(members)]


# fixture -> how it is made, in a directory of its own
MAKERS: dict[str, Callable[[Path], Server | Group]] = {
    "redis_server": Redis,
    "redis_five": RedisServers,
    "etcd_server": Etcd,
    "etcd_three": EtcdCluster,
    "zookeeper_server": ZooKeeper,
    "zookeeper_three": ZooKeeperEnsemble,
    "consul_server": Consul,
    "postgres_server": Postgres,
    "mariadb_server": MariaDb,
    "s3_server": S3,
    "s3_seaweedfs": SeaweedFs,
    "gcs_server": Gcs,
    "azblob_server": Azurite,
    "dynamodb_server": DynamoDb,
    "dynamodb_dynalite": Dynalite,
    "nats_server": Nats,
    "kubernetes_server": Kubernetes,
}
NAMES = {*MAKERS, *POOLERS}


class SharedServers:
    """The servers of one run of pytest."""

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        """*new_directory* makes an empty directory with a name like the one given."""
        self._new_directory = new_directory
        # a pooler waits in its thread for the server behind it: there is one thread for each
        self._pool = ThreadPoolExecutor(len(NAMES), thread_name_prefix="start-server")
        self._started: dict[str, Future[Any]] = {}
        self._ending: list[Future[None]] = []

    def begin(self, name: str) -> Future[Any]:
        """Start a server if nobody did, and do not wait for it."""
        if name not in self._started:
            behind = self.begin("postgres_server") if name in POOLERS else None
            directory = self._new_directory(name)
            self._started[name] = self._pool.submit(self._start, name, directory, behind)
        return self._started[name]

    @staticmethod
    def _start(name: str, directory: Path, behind: Future[Any] | None) -> Server | Group:
        if behind is None:
            return MAKERS[name](directory).start()
        return PgBouncer(directory, behind.result(START_LIMIT), **POOLERS[name]).start()

    def leave(self, needed: Collection[str]) -> None:
        """Stop all but these and what is behind them, and do not wait for that."""
        behind = {"postgres_server"} if not POOLERS.keys().isdisjoint(needed) else set()
        for name in self._started.keys() - set(needed) - behind:
            self._ending.append(self._pool.submit(self._stop, self._started.pop(name)))

    def await_rest(self) -> None:
        """Wait until none is being started or stopped."""
        wait((*self._started.values(), *self._ending), START_LIMIT)

    def end(self) -> None:
        """Stop all that were started."""
        self.leave(())
        for each in self._ending:
            each.result()
        self._pool.shutdown()

    @staticmethod
    def _stop(starting: Future[Any]) -> None:
        if not starting.cancel() and starting.exception() is None:
            starting.result().discard()


SHARED = pytest.StashKey[SharedServers]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers(*fixtures): the shared servers that a test asks for at run time")


def needed_by(item: pytest.Item) -> set[str]:
    """The shared servers that a test names or announces. Raises ``pytest.UsageError`` for others."""
    announced = {name for mark in item.iter_markers("servers") for name in mark.args}
    if not announced <= NAMES:
        raise pytest.UsageError(f"{item.nodeid} announces no such servers: {', '.join(sorted(announced - NAMES))}")
    return announced | (NAMES & set(getattr(item, "fixturenames", ())))


def _shared(config: pytest.Config) -> SharedServers:
    if SHARED not in config.stash:
        factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
        config.stash[SHARED] = SharedServers(lambda name: factory.mktemp(name.replace("_", "-")))
    return config.stash[SHARED]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start all that is needed; a worker of xdist, which does not know yet what it will get, waits for the first use."""
    if not session.config.option.collectonly and "PYTEST_XDIST_WORKER" not in os.environ:
        for name in sorted({name for item in session.items for name in needed_by(item)}):
            _shared(session.config).begin(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Leave the servers of a scope when its last test is over."""
    given = yield
    if (
        nextitem is not None
        and "PYTEST_XDIST_WORKER" in os.environ
        and scope_of(item.nodeid) != scope_of(nextitem.nodeid)
    ):
        _shared(item.config).leave(needed_by(nextitem))
    return given


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop all, also those that a test announced and never asked for."""
    if SHARED in config.stash:
        config.stash[SHARED].end()


def _without(error: ProgramMissing) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(str(error))
    pytest.skip(str(error))


def _wait_for(request: pytest.FixtureRequest, name: str, kind: type[Started]) -> Started:
    try:
        server = _shared(request.config).begin(name).result(START_LIMIT)
    except ProgramMissing as error:
        _without(error)
    assert isinstance(server, kind)
    return server


@pytest.fixture
def servers_at_rest(request: pytest.FixtureRequest) -> None:
    """For who measures the time of the processor that this process takes: shared servers are started in it, too."""
    _shared(request.config).await_rest()


@pytest.fixture
def redis_server(request: pytest.FixtureRequest) -> Redis:
    """One Redis server without a password."""
    return _wait_for(request, "redis_server", Redis)


@pytest.fixture
def redis_five(request: pytest.FixtureRequest) -> list[Redis]:
    """Five Redis servers that know nothing of each other."""
    return _wait_for(request, "redis_five", RedisServers).members


@pytest.fixture
def etcd_server(request: pytest.FixtureRequest) -> Etcd:
    """One etcd member with the JSON gateway, without users."""
    return _wait_for(request, "etcd_server", Etcd)


@pytest.fixture
def etcd_three(request: pytest.FixtureRequest) -> EtcdCluster:
    """A cluster of three etcd members."""
    return _wait_for(request, "etcd_three", EtcdCluster)


@pytest.fixture
def zookeeper_server(request: pytest.FixtureRequest) -> ZooKeeper:
    """One ZooKeeper server whose sessions last from 1 to 10 s."""
    return _wait_for(request, "zookeeper_server", ZooKeeper)


@pytest.fixture
def zookeeper_three(request: pytest.FixtureRequest) -> ZooKeeperEnsemble:
    """An ensemble of three ZooKeeper servers."""
    return _wait_for(request, "zookeeper_three", ZooKeeperEnsemble)


@pytest.fixture
def consul_server(request: pytest.FixtureRequest) -> Consul:
    """One Consul server without ACLs, whose sessions may be as short as 1 s."""
    return _wait_for(request, "consul_server", Consul)


@pytest.fixture
def postgres_server(request: pytest.FixtureRequest) -> Postgres:
    """One PostgreSQL server that asks for no password."""
    return _wait_for(request, "postgres_server", Postgres)


@pytest.fixture
def mariadb_server(request: pytest.FixtureRequest) -> MariaDb:
    """One MariaDB server without TLS, whose user has a password."""
    return _wait_for(request, "mariadb_server", MariaDb)


@pytest.fixture
def s3_server(request: pytest.FixtureRequest) -> S3:
    """One S3 server with a bucket, where everybody may do all."""
    return _wait_for(request, "s3_server", S3)


@pytest.fixture
def dynamodb_server(request: pytest.FixtureRequest) -> DynamoDb:
    """One DynamoDB server with a table, where everybody may do all."""
    return _wait_for(request, "dynamodb_server", DynamoDb)


@pytest.fixture
def gcs_server(request: pytest.FixtureRequest) -> Gcs:
    """One server of Google Cloud Storage with a bucket, where everybody may do all."""
    return _wait_for(request, "gcs_server", Gcs)


@pytest.fixture
def azblob_server(request: pytest.FixtureRequest) -> Azurite:
    """One server of Azure Blob Storage with a container, whose account has a key."""
    return _wait_for(request, "azblob_server", Azurite)


@pytest.fixture
def s3_seaweedfs(request: pytest.FixtureRequest) -> SeaweedFs:
    """One S3 server of another make, with a bucket, whose user has a key."""
    return _wait_for(request, "s3_seaweedfs", SeaweedFs)


@pytest.fixture
def dynamodb_dynalite(request: pytest.FixtureRequest) -> Dynalite:
    """One DynamoDB server of another make, with a table."""
    return _wait_for(request, "dynamodb_dynalite", Dynalite)


@pytest.fixture
def nats_server(request: pytest.FixtureRequest) -> Nats:
    """One NATS server with a bucket, where everybody may do all."""
    return _wait_for(request, "nats_server", Nats)


@pytest.fixture
def kubernetes_server(request: pytest.FixtureRequest) -> Kubernetes:
    """One API server with a namespace, where everybody may do all."""
    return _wait_for(request, "kubernetes_server", Kubernetes)


@pytest.fixture
def pgbouncer_session(request: pytest.FixtureRequest) -> PgBouncer:
    """A pooler before ``postgres_server`` that gives each client one connection."""
    return _wait_for(request, "pgbouncer_session", PgBouncer)


@pytest.fixture
def pgbouncer_transaction(request: pytest.FixtureRequest) -> PgBouncer:
    """A pooler before ``postgres_server`` that changes connections between transactions."""
    return _wait_for(request, "pgbouncer_transaction", PgBouncer)


@pytest.fixture
def pgbouncer_statement(request: pytest.FixtureRequest) -> PgBouncer:
    """A pooler before ``postgres_server`` that changes connections between statements."""
    return _wait_for(request, "pgbouncer_statement", PgBouncer)


@pytest.fixture
def pgbouncer_wide(request: pytest.FixtureRequest) -> PgBouncer:
    """One that changes connections between transactions, with as many as a test has holders and waiters."""
    return _wait_for(request, "pgbouncer_wide", PgBouncer)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for servers and clients."""
    try:
        return Certificates(tmp_path_factory.mktemp("certificates"))
    except ProgramMissing as error:
        _without(error)


@pytest.fixture
def promtool() -> str:
    """Where the program is that reads what Prometheus reads."""
    try:
        return find("promtool")
    except ProgramMissing as error:
        _without(error)


@contextlib.contextmanager
def private_servers(directories: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A call that starts a private server, which ends after the block: ``start(Redis, password="x")``."""
    with contextlib.ExitStack() as ends:

        def start(kind: Callable[..., Started], *words: Any, **options: Any) -> Started:
            try:
                server = kind(directories.mktemp(kind.__name__.lower()), *words, **options)
                ends.callback(server.discard)
                server.start()
            except ProgramMissing as error:
                _without(error)
            return server

        yield start


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A call that starts a private server: ``start_server(Redis, password="x")``. It ends after the test."""
    with private_servers(tmp_path_factory) as start:
        yield start


@pytest.fixture
def start_proxy() -> Iterator[Callable[..., Proxy]]:
    """A call that starts a proxy before a server: ``start_proxy(redis_server, "delay=0.5")``."""
    with contextlib.ExitStack() as ends:

        def start(target: Server | str | tuple[str, int], mode: str = "pass", **options: Any) -> Proxy:
            return ends.enter_context(Proxy(target, mode, **options))

        yield start
