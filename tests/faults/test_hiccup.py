"""A backend's hiccup does not hurt a healthy job: stopped for half a lease, restarted, another leader."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.supervise import tree
from tests.faults.backends import PLACES, SERVED, TWINS, addresses_of, on_backends, on_kinds
from tests.faults.network import Network
from tests.jobs import LIMIT, Lockctl, alive, eventually, guard_of
from tests.servers.consul import Consul
from tests.servers.etcd import Etcd, EtcdCluster
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.backends import Place

TTL = 4.0  # seconds
LONG_TTL = 8.0  # for a server that takes time to start
OUTAGE = 0.5  # seconds
SLOW_TTL = 10.0
SLOW = 1.0  # seconds until an answer comes: as long as no answer was waited for once
# of the stores whose lock and whose HTTP are the same, one
SLOW_ONES = [name for name in SERVED if name not in TWINS or name in ("mysql", "s3") or os.environ.get("EVERY_STORE")]
SEVERAL = ("redis", "etcd")  # where that test takes eight locks at once
QUICK = ("syncLimit=4",)  # a leader that is silent for 2 s is given up
SERVERS: dict[str, tuple[type, dict[str, Any]]] = {
    "redis": (Redis, {"fsync": True}),
    "etcd": (Etcd, {}),
    "consul": (Consul, {}),
    "zookeeper": (ZooKeeper, {"tick": 1000}),
    "postgresql": (Postgres, {}),
}

# the kind of server, what makes it refuse us as for good, and what ends that
RIGHTS: dict[str, tuple[type, Callable[[Any], object], Callable[[Any], object]]] = {
    "redis": (
        Redis,
        lambda server: server.ask("ACL", "SETUSER", "default", "-set", "-evalsha", "-eval"),
        lambda server: server.ask("ACL", "SETUSER", "default", "+@all"),
    ),
    "mysql": (
        MariaDb,
        lambda server: server.command("alter user lockctl identified by 'another'; kill user lockctl"),
        lambda server: server.command("alter user lockctl identified by 's3cret'"),
    ),
}


@pytest.fixture
def network(servers: Any) -> Iterator[Network]:
    made = Network(servers)
    yield made
    made.close()


class Job:
    """A run whose command waits until it is told to end."""

    def __init__(
        self, lockctl: Lockctl, url: str, directory: Path, ttl: float = TTL, *options: str, status: int = 7
    ) -> None:
        self.lockctl, self.url = lockctl, url
        self.end = directory / "end"
        words = (
            "-b",
            url,
            "-t",
            f"{ttl}s",
            "-k",
            "0.5s",
            *options,
            "--",
            "sh",
            "-c",
            f'while ! test -e "$0"; do sleep 0.1; done; exit {status}',
        )
        self.run = lockctl.start_holding("nightly", *words, str(self.end))

    def outlives(self, seconds: float) -> None:
        """It goes on, and its lock is held, for longer than its lease could last without a renewal."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.run.poll() is None, f"status {self.run.returncode}"
            time.sleep(0.05)
        assert self.lockctl("run", "-b", self.url, "-l", "nightly", "--", "true").returncode == 75
        self.end.touch()
        assert self.run.wait(LIMIT) == 7
        assert self.lockctl("run", "-b", self.url, "-l", "nightly", "--", "true").returncode == 0


@pytest.mark.parametrize("backend_name", on_kinds(*SERVED))
def test_a_server_that_is_stopped_for_half_a_lease(
    servers: Any, backend_url: str, lockctl: Lockctl, tmp_path: Path
) -> None:
    job = Job(lockctl, backend_url, tmp_path)
    stopped = servers if isinstance(servers, list) else [servers]
    for server in stopped:
        server.pause()
    try:
        time.sleep(TTL / 2)
    finally:
        for server in stopped:
            server.resume()
    job.outlives(TTL)


# without postgresql: there the lock ends with the connection that is reset
@pytest.mark.parametrize("backend_name", on_backends("redis", "redlock", "etcd", "consul", "zookeeper"))
@pytest.mark.parametrize("mode", ["refuse", "drop_replies"])
def test_a_server_out_of_reach_at_the_moment_when_the_job_ends(
    place: Place, network: Network, lockctl: Lockctl, mode: str, tmp_path: Path
) -> None:
    url = place.url(network.addresses, "t" + os.urandom(6).hex(), lockctl.directory)
    options = ("--once-per", "3650d", "--report", str(tmp_path / "report"))
    job = Job(lockctl, url, tmp_path, LONG_TTL, *options, status=0)
    network.fail(mode)
    job.end.touch()
    time.sleep(OUTAGE)
    assert job.run.poll() is None
    network.fail("pass")
    assert job.run.wait(LIMIT) == 0
    assert json.loads((tmp_path / "report").read_text())["not_released"] is None
    assert lockctl("run", "-b", url, "-l", "nightly", "--", "true").returncode == 0, "the lock was given back"
    again = lockctl("run", "-b", url, "-l", "nightly", "--once-per", "3650d", "--", "true")
    assert again.returncode == 75, "its success was noted"


@pytest.mark.parametrize("backend_name", ["redis", "mysql"])
def test_a_right_or_a_password_that_is_missing_at_the_moment_when_the_job_ends(
    place: Place, backend_name: str, start_server: Callable[..., Any], lockctl: Lockctl, tmp_path: Path
) -> None:
    kind, take_away, give_back = RIGHTS[backend_name]
    server = start_server(kind)
    url = place.url(addresses_of(server), "t", lockctl.directory)
    once = ("--once-per", "3650d")
    job = Job(lockctl, url, tmp_path, LONG_TTL, *once, "--report", str(tmp_path / "report"), status=0)
    take_away(server)
    job.end.touch()
    time.sleep(OUTAGE)
    assert job.run.poll() is None
    give_back(server)
    assert job.run.wait(LIMIT) == 0
    assert json.loads((tmp_path / "report").read_text())["not_released"] is None
    assert lockctl("run", "-b", url, "-l", "nightly", *once, "--", "true").returncode == 75, "its success was noted"


@pytest.mark.parametrize("backend_name", ["redis", "etcd", "consul", "zookeeper"])
def test_a_server_that_is_killed_and_started_again(
    place: Place, backend_name: str, start_server: Callable[..., Any], lockctl: Lockctl, tmp_path: Path
) -> None:
    kind, options = SERVERS[backend_name]
    server = start_server(kind, **options)
    job = Job(lockctl, place.url(addresses_of(server), "t", lockctl.directory), tmp_path, LONG_TTL)
    server.kill()
    server.start()
    job.outlives(LONG_TTL)


@pytest.mark.parametrize("backend_name", ["postgresql"])
def test_a_session_lock_of_postgresql_ends_with_its_server_and_the_job_with_it(
    place: Place, backend_name: str, start_server: Callable[..., Any], lockctl: Lockctl, tmp_path: Path
) -> None:
    kind, options = SERVERS[backend_name]
    server = start_server(kind, **options)
    job = Job(lockctl, place.url(addresses_of(server), "t", lockctl.directory), tmp_path)
    server.restart()
    assert job.run.wait(TTL + 2) == 76


@pytest.mark.parametrize("backend_name", on_backends("postgresql"))
@pytest.mark.parametrize("stopped", ["nobody", "keeper", "guard"])
def test_the_end_of_the_connection_that_holds_the_lock_ends_the_job_at_once(
    place: Place, network: Network, lockctl: Lockctl, stopped: str, tmp_path: Path
) -> None:
    """The server frees the lock at the same moment: the next renewal, or the deadline, would be too late."""
    url = place.url(network.addresses, "t" + os.urandom(6).hex(), lockctl.directory)
    job = Job(lockctl, url, tmp_path, 60.0, "--report", str(tmp_path / "report"))
    guard = guard_of(job.run.pid)
    family = tree.descendants(guard)
    assert family
    if stopped != "nobody":
        os.kill(job.run.pid if stopped == "keeper" else guard, signal.SIGSTOP)
    network.fail("reset")
    eventually(lambda: not any(alive(pid) for pid in family), limit=1.5)
    job.run.send_signal(signal.SIGCONT)
    assert job.run.wait(LIMIT) == 76
    report = json.loads((tmp_path / "report").read_text())
    assert (report["outcome"], report["detail"]) == ("lost", "the connection that held the lock has ended")


@pytest.mark.parametrize("backend_name", on_backends("redlock"))
@pytest.mark.servers("redis_five")
def test_two_of_five_servers_are_stopped_for_longer_than_a_lease(
    redis_five: list[Redis], backend_url: str, lockctl: Lockctl, tmp_path: Path
) -> None:
    job = Job(lockctl, backend_url, tmp_path)
    for server in redis_five[:2]:
        server.pause()
    try:
        job.outlives(1.5 * TTL)
    finally:
        for server in redis_five[:2]:
            server.resume()


@pytest.mark.servers(*(PLACES[name].servers for name in SLOW_ONES))
def test_a_server_that_answers_late_but_well_within_the_lease(
    request: pytest.FixtureRequest, lockctl: Lockctl, tmp_path: Path
) -> None:
    """The backends side by side, as the jobs only wait."""
    servers = {name: request.getfixturevalue(PLACES[name].servers) for name in SLOW_ONES}
    networks = {name: Network(server) for name, server in servers.items()}
    jobs = {}
    try:
        for name, network in networks.items():
            (tmp_path / name).mkdir()
            url = PLACES[name].url(network.addresses, "t" + os.urandom(6).hex(), lockctl.directory)
            more = [word for number in range(7) for word in ("-l", f"more{number}")] if name in SEVERAL else []
            jobs[name] = Job(lockctl, url, tmp_path / name, SLOW_TTL, *more)
            network.fail(f"delay={SLOW / 2}")
        time.sleep(1.3 * SLOW_TTL)  # a job that was not renewed has been stopped by then
        assert {name: job.run.poll() for name, job in jobs.items()} == dict.fromkeys(jobs)
        for job in jobs.values():
            job.end.touch()
        assert {name: job.run.wait(LIMIT) for name, job in jobs.items()} == dict.fromkeys(jobs, 7)
    finally:
        for network in networks.values():
            network.close()


@pytest.mark.parametrize(
    ("backend_name", "kind", "options"),
    [("etcd", EtcdCluster, {}), ("zookeeper", ZooKeeperEnsemble, {"extra": QUICK})],
    ids=["etcd", "zookeeper"],
)
@pytest.mark.parametrize("blow", ["kill", "pause"])
def test_the_leader_of_three_goes_away(
    place: Place,
    kind: type,
    options: dict[str, Any],
    blow: str,
    start_server: Callable[..., Any],
    lockctl: Lockctl,
    tmp_path: Path,
) -> None:
    cluster = start_server(kind, **options)
    url = place.url(cluster.addresses, "t" + os.urandom(4).hex(), lockctl.directory)
    job = Job(lockctl, url, tmp_path, LONG_TTL)
    leader = cluster.leader()
    getattr(leader, blow)()
    try:
        job.outlives(LONG_TTL)
    finally:
        if blow == "pause":
            leader.resume()
