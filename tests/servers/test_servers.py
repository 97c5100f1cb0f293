"""The servers that other tests rely on do what those tests ask of them, and nothing stays behind."""

from __future__ import annotations

import binascii
import os
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import programs, resp, web
from tests.servers.consul import Consul, ConsulRefused
from tests.servers.etcd import Etcd
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.process import Server, ServerError, descendants, free_port, wait_until
from tests.servers.redis import Redis, RedisSentinel
from tests.servers.resp import RedisRefused
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.certificates import Certificates
    from tests.servers.etcd import EtcdCluster
    from tests.servers.pgbouncer import PgBouncer
    from tests.servers.zookeeper import ZooKeeperEnsemble

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 10.0  # seconds

# server -> its options, how something is kept in it, how that is read, and what is read
LIVES: dict[type[Server], tuple[dict[str, Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    Redis: ({"fsync": True}, lambda s: s.command("SET", "k", "kept"), lambda s: s.command("GET", "k")),
    Etcd: ({}, lambda s: s.command("put", "k", "kept"), lambda s: s.command("get", "k", "--print-value-only")),
    ZooKeeper: ({}, lambda s: s.command("create", "/kept", ""), lambda s: s.command("ls", "/")),
    Consul: ({}, lambda s: s.command("kv", "put", "k", "kept"), lambda s: s.command("kv", "get", "k")),
    Postgres: (
        {},
        lambda s: s.command("create table t as select 'kept' as v"),
        lambda s: s.command("select v from t"),
    ),
    MariaDb: (
        {},
        lambda s: s.command("create table t as select 'kept' as v"),
        lambda s: s.command("select v from t"),
    ),
}


def answers(server: Server) -> bool:
    """Whether a server answers just now."""
    try:
        return server._answers()
    except (OSError, RuntimeError):
        return False


def is_there(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kind", LIVES, ids=lambda kind: kind.__name__)
def test_a_server_keeps_its_data_until_it_is_wiped_and_leaves_no_process(
    start_server: Callable[..., Any], kind: type[Server]
) -> None:
    options, keep, read = LIVES[kind]
    server = start_server(kind, **options)
    keep(server)
    address = server.address
    pids = [server.pid, *descendants(server.pid)]
    server.kill()
    assert not server.running
    wait_until(lambda: not any(map(is_there, pids)), "no process is left", LIMIT)
    assert not answers(server)
    server.start()
    assert server.address == address
    assert "kept" in read(server)
    server.wipe()
    try:
        assert "kept" not in read(server)
    except RuntimeError as error:
        assert "kept" not in str(error)  # noqa: PT017 - some have an error for what is not there
    pids = [server.pid, *descendants(server.pid)]
    server.stop()
    server.stop()
    assert not any(map(is_there, pids))


def test_paused_servers_accept_connections_and_do_not_answer_until_they_go_on(
    redis_server: Redis,
    etcd_server: Etcd,
    zookeeper_server: ZooKeeper,
    consul_server: Consul,
    postgres_server: Postgres,
    pgbouncer_session: PgBouncer,
) -> None:
    servers: list[Server] = [redis_server, etcd_server, zookeeper_server, consul_server, pgbouncer_session]
    servers.append(postgres_server)
    pids = [server.pid for server in servers]
    with ThreadPoolExecutor(len(servers)) as pool:
        assert list(pool.map(answers, servers)) == [True] * len(servers)
        try:
            for server in servers:
                server.pause()
                socket.create_connection((server.host, server.port), LIMIT).close()
            assert list(pool.map(answers, servers)) == [False] * len(servers)
            assert all(server.running for server in servers)
        finally:
            for server in servers:
                server.resume()
    for server in servers:
        wait_until(lambda: answers(server), f"{server} answers again", LIMIT)  # noqa: B023 - called at once
    assert [server.pid for server in servers] == pids


def test_redis_asks_for_passwords_and_speaks_tls(start_server: Callable[..., Any], certificates: Certificates) -> None:
    server: Redis = start_server(Redis, password="pw", user="worker", tls=certificates, unix=True)
    assert server.command("ACL", "WHOAMI") == "default"
    assert server.url == f"rediss://worker:pw@{server.address}"
    assert server.socket.is_socket()
    with server.connect() as connection:
        assert isinstance(connection, ssl.SSLSocket)
        with pytest.raises(RedisRefused, match="NOAUTH"):
            resp.ask(connection, ("GET", "k"))
        assert resp.ask(connection, ("AUTH", "worker", "pw"), ("ACL", "WHOAMI")) == b"worker"


def test_sentinels_replace_a_primary_that_died(start_server: Callable[..., Any]) -> None:
    servers: RedisSentinel = start_server(RedisSentinel, password="pw", sentinel_password="other")
    assert servers.current_primary() == servers.primary.address
    servers.primary.kill()
    wait_until(lambda: servers.current_primary() == servers.replica.address, "the replica is primary", LIMIT)
    wait_until(lambda: b"role:master" in servers.replica.ask("INFO", "replication"), "the replica knows", LIMIT)


def test_a_cluster_of_etcd_elects_another_leader(etcd_three: EtcdCluster) -> None:
    old = etcd_three.leader()
    old.pause()
    try:
        wait_until(lambda: _leader_or_none(etcd_three) not in {None, old}, "another leads", LIMIT)
    finally:
        old.resume()
    old.command("put", "k", "v")


def _leader_or_none(servers: EtcdCluster | ZooKeeperEnsemble) -> Server | None:
    try:
        return servers.leader()
    except ServerError:
        return None


def test_etcd_with_users_and_client_certificates(start_server: Callable[..., Any], certificates: Certificates) -> None:
    server: Etcd = start_server(Etcd, auth=True, tls=certificates, client_certificates=True)
    status, answer = server.request("/v3/auth/authenticate", {"name": server.user, "password": server.password})
    assert status == 200
    inside, outside = ({"key": binascii.b2a_base64(key, newline=False).decode()} for key in (b"lockctl/x", b"x"))
    assert server.request("/v3/kv/range", inside, token=answer["token"])[0] == 200
    assert server.request("/v3/kv/range", outside, token=answer["token"])[0] == 403
    assert server.command("put", "x", "by root") == "OK\n"
    stranger = ssl.create_default_context(cafile=certificates.ca)
    with pytest.raises(OSError, match=r"certificate|reset|closed|EOF"):
        web.request(server.address, "GET", "/health", context=stranger)


def test_etcd_without_its_gateway(start_server: Callable[..., Any]) -> None:
    assert start_server(Etcd, gateway=False).request("/v3/kv/range", {"key": "aw=="})[0] == 404


def test_an_ensemble_of_zookeeper_elects_another_leader(zookeeper_three: ZooKeeperEnsemble) -> None:
    old = zookeeper_three.leader()
    assert len(zookeeper_three.followers()) == 2
    old.kill()
    try:
        wait_until(lambda: _leader_or_none(zookeeper_three) is not None, "another leads", LIMIT)
    finally:
        old.start()
    assert zookeeper_three.hosts == ",".join(member.address for member in zookeeper_three.members)


def test_zookeeper_speaks_tls(start_server: Callable[..., Any], certificates: Certificates) -> None:
    server: ZooKeeper = start_server(ZooKeeper, tls=certificates)
    with (
        socket.create_connection((server.host, server.tls_port), LIMIT) as plain,
        certificates.context().wrap_socket(plain, server_hostname=server.host) as connection,
    ):
        connection.sendall(b"ruok")
        assert connection.recv(4) == b"imok"


def test_consul_denies_what_no_token_allows(start_server: Callable[..., Any], certificates: Certificates) -> None:
    server: Consul = start_server(Consul, acl=True, tls=certificates)
    assert server.url.startswith("https://")
    server.command("kv", "put", "x", "by root")
    ours, theirs = (
        {
            key: web.request(
                server.address,
                "PUT",
                f"/v1/kv/{key}",
                body="v",
                headers={"X-Consul-Token": token} if token else {},
                context=certificates.context(),
            )[0]
            for key in ("lockctl/x", "x")
        }
        for token in (server.token, None)
    )
    assert ours == {"lockctl/x": 200, "x": 403}
    assert theirs == {"lockctl/x": 403, "x": 403}
    with pytest.raises(ConsulRefused, match=r"^404"):
        server.request("PUT", f"/v1/session/renew/{server.token}")


@pytest.mark.parametrize("auth", ["scram-sha-256", "md5", "password"])
def test_postgres_asks_for_passwords_and_tls(
    start_server: Callable[..., Any], certificates: Certificates, auth: str
) -> None:
    server: Postgres = start_server(Postgres, auth=auth, tls=certificates, tls_only=True)
    psql = [str(server.bin / "psql"), "-XAtqc", "select current_user"]
    verified = f"sslmode=verify-full&sslrootcert={certificates.ca}"
    assert programs.run([*psql, f"{server.url}?{verified}"]) == "lockctl\n"
    with pytest.raises(RuntimeError, match="no encryption"):
        programs.run([*psql, f"{server.url}?sslmode=disable"])
    with pytest.raises(RuntimeError, match="password authentication failed"):
        programs.run([*psql, f"{server.url.replace(server.password, 'wrong')}?{verified}"])


def test_poolers_lend_connections_for_as_long_as_their_mode_says(
    pgbouncer_session: PgBouncer, pgbouncer_transaction: PgBouncer, pgbouncer_statement: PgBouncer
) -> None:
    def refused(pooler: PgBouncer) -> bool:
        try:
            pooler.command("begin")
        except RuntimeError as error:
            return "statement pooling" in str(error)
        return False

    assert [refused(each) for each in (pgbouncer_session, pgbouncer_transaction, pgbouncer_statement)] == [
        False,
        False,
        True,
    ]


PYTEST_THAT_DIES = """
import pathlib, sys
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.process import descendants

servers = [kind(pathlib.Path(sys.argv[1]) / kind.__name__).start() for kind in (Redis, Postgres)]
pids = [pid for server in servers for pid in (server.pid, *descendants(server.pid))]
servers[1].pause()
print(*pids, flush=True)
sys.stdin.read()
"""


def test_servers_die_with_whoever_started_them_even_when_they_are_paused(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PYTEST_THAT_DIES, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        pids = [pid for pid in pids if is_there(pid)]  # PostgreSQL has children for a moment, too
        assert len(pids) > 5
        starter.kill()
    wait_until(lambda: not any(map(is_there, pids)), "no server is left", LIMIT)
    Postgres(tmp_path / "Postgres").discard()  # nobody but the kernel was there to end it: it left shared memory


def run_pytest(directory: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What pytest says about one file of tests that uses the fixtures."""
    (directory / "test_it.py").write_text(text)
    ours = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_XDIST")}
    environment = ours | variables
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.servers.fixtures",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
    ]
    words += [
        "--override-ini=addopts=",
        "-rsE",
        "--strict-markers",
        f"--rootdir={directory}",
        str(directory / "test_it.py"),
    ]
    words += [f"--basetemp={directory / 'base'}"]
    return subprocess.run(
        words,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


WITHOUT_REDIS = """
from tests.servers import programs

def find(name):
    raise programs.ProgramMissing(f"{name} is not here")

programs.find = find

def test_redis(redis_server):
    pass

def test_private(start_server):
    from tests.servers.redis import Redis
    start_server(Redis)
"""


def test_a_missing_program_skips_tests_and_fails_them_in_ci(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, WITHOUT_REDIS)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert "redis-server is not here" in done.stdout
    done = run_pytest(tmp_path, WITHOUT_REDIS, CI="true")
    assert done.returncode == 1
    assert "skipped" not in done.stdout
    assert "redis-server is not here" in done.stdout


ANNOUNCED = """
import pytest
from tests.servers import fixtures

@pytest.mark.servers("redis_server")
def test_announced(request):
    shared = request.config.stash[fixtures.SHARED]
    assert set(shared._started) == {"redis_server"}
    server = shared._started["redis_server"].result()
    assert request.getfixturevalue("redis_server") is server
    print("pid", server.pid, flush=True)
"""


def test_announced_servers_are_started_before_and_are_gone_after(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, ANNOUNCED, PYTEST_ADDOPTS="-s")
    assert done.returncode == 0, done.stdout + done.stderr
    pid = next(int(line.split()[-1]) for line in done.stdout.splitlines() if "pid " in line)
    assert not is_there(pid)
    assert not [path for path in (tmp_path / "base").glob("redis*") if path.exists()]


def test_an_announced_server_must_exist(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, ANNOUNCED.replace('servers("redis_server")', 'servers("redis")'))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "announces no such servers: redis" in done.stdout + done.stderr


def test_a_server_that_finds_its_port_taken_is_started_again_when_the_port_is_free(
    start_server: Callable[..., Any],
) -> None:
    server = start_server(Redis)
    server.kill()
    passing = socket.create_server((server.host, server.port))
    Timer(1.0, passing.close).start()
    server.start()
    assert answers(server)


def test_no_port_is_given_to_two_test_processes() -> None:
    # each keeps its ports until it is told to end: those of one that has ended may be given again
    ask = "from tests.servers.process import free_port; print(*(free_port() for _ in range(250)), flush=True); input()"
    words = [sys.executable, "-c", ask]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen(words, cwd=ROOT, **pipes) for _ in range(2)]
    given = [set(other.stdout.readline().split()) for other in others if other.stdout is not None]
    before = len(os.listdir("/proc/self/fd"))
    own = {str(free_port()) for _ in range(250)}
    descriptors = len(os.listdir("/proc/self/fd"))
    for other in others:
        other.communicate("\n", timeout=60)
    assert descriptors <= before + 2
    assert [len(each) for each in (own, *given)] == [250] * 3
    assert own.isdisjoint(given[0] | given[1])
