"""No healthy job is ended because its backend is far away and packets get lost.

By hand, longer, with more jobs, and on servers of their own::

    python -m tests.faults.test_wide_area [--jobs 10] [--seconds 40] [--loss 0.05] [--trip 0.4] [--jitter 0.2] [CASE...]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.faults.backends import PLACES, addresses_of
from tests.jobs import Lockctl, eventually
from tests.servers.consul import Consul
from tests.servers.etcd import Etcd, EtcdCluster
from tests.servers.fixtures import RedisServers
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.servers.wide_area import BEYOND, NoNamespaces, WideArea
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

TTL = 10.0  # seconds
START_LIMIT = 60.0  # seconds until a job runs, in bad weather on a busy machine


class Case(NamedTuple):
    """A backend, its servers as a fixture, and how such servers are made."""

    place: str
    servers: str
    make: Callable[[Path], Any]


CASES = {
    "redis": Case("redis", "redis_server", Redis),
    "redlock": Case("redlock", "redis_five", RedisServers),
    "etcd": Case("etcd", "etcd_server", Etcd),
    "etcd-three": Case("etcd", "etcd_three", EtcdCluster),
    "consul": Case("consul", "consul_server", Consul),
    "zookeeper": Case("zookeeper", "zookeeper_server", ZooKeeper),
    "postgresql": Case("postgresql", "postgres_server", Postgres),
}


class Weather(NamedTuple):
    """Seconds of a round trip, by how much it varies, and the part of the packets that is lost."""

    trip: float = 0.4
    jitter: float = 0.2
    loss: float = 0.05


CLEAR = Weather(0.0, 0.0, 0.0)


class Far(Proxy):
    """What a server looks like from within the network."""

    def __init__(self, target: str, listener: socket.socket) -> None:
        self._given = listener
        super().__init__(target)
        self.host, self.port = BEYOND, listener.getsockname()[1]

    def _listen(self) -> None:
        self._listener = self._given
        self._listener.setblocking(False)


class Jobs:
    """Several jobs on each of some backends, all in one network."""

    def __init__(self, network: WideArea, command: str, directory: Path) -> None:
        self._network = network
        self._lockctl = Lockctl(network.command((command,), directory / "lockctl"), directory)
        self._proxies: list[Far] = []
        self.runs: dict[str, Any] = {}

    def start(self, case: str, servers: Any, count: int, *options: str) -> None:
        """Jobs that wait until they are ended, each under a lock of its own."""
        far = [Far(address, self._network.listener()) for address in addresses_of(servers)]
        self._proxies += far
        url = PLACES[CASES[case].place].url([each.address for each in far], "w" + os.urandom(6).hex(), Path())
        if case == "postgresql":
            url += "&tls=no"  # far from here it would be asked for
        for number in range(count):
            name = f"{case}-{number}"
            words = ("-t", f"{TTL}s", *options, "--", "sh", "-c", ': >"$0"; exec sleep 600', str(self._ready(name)))
            self.runs[name] = self._lockctl.start("run", "-b", url, "-l", name, *words)

    def await_start(self) -> None:
        """Return when each runs, or has ended without."""
        for name, run in self.runs.items():
            ready = self._ready(name)
            eventually(lambda ready=ready, run=run: ready.exists() or run.poll() is not None, START_LIMIT)  # type: ignore[misc]

    def ended(self) -> dict[str, int]:
        """The statuses of those that have ended."""
        return {name: run.returncode for name, run in self.runs.items() if run.poll() is not None}

    def close(self) -> None:
        """End all."""
        self._lockctl.end_all()
        for proxy in self._proxies:
            proxy.close()

    def _ready(self, name: str) -> Path:
        return self._lockctl.directory / f"ready.{name}"


@pytest.fixture
def network() -> Iterator[WideArea]:
    """A network of its own."""
    try:
        made = WideArea()
    except NoNamespaces as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    with made:
        yield made


@pytest.mark.servers(*[case.servers for case in CASES.values()])
def test_a_job_outlives_bad_weather(
    request: pytest.FixtureRequest, network: WideArea, lockctl: Lockctl, tmp_path: Path
) -> None:
    jobs = Jobs(network, lockctl.command, tmp_path)
    try:
        for name, case in CASES.items():
            jobs.start(name, request.getfixturevalue(case.servers), 1, "--kill-after", "1s")
        jobs.await_start()
        assert jobs.ended() == {}
        network.behave(*Weather(loss=0.03))
        time.sleep(1.5 * TTL)  # whoever was not renewed has been ended by then
        assert jobs.ended() == {}
    finally:
        network.behave(*CLEAR)
        jobs.close()


def by_hand(words: list[str]) -> int:
    """Measure; the status is 1 when a job was ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.test_wide_area")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=40.0)
    for name, default in Weather._field_defaults.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--command", default=str(Path(sys.executable).with_name("lockctl")))
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    asked = parser.parse_args(words)
    weather = Weather(asked.trip, asked.jitter, asked.loss)
    failed = False
    for case in asked.cases:
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
            servers = CASES[case].make(Path(directory) / "servers")
            ends.callback(servers.discard)
            servers.start()
            network = ends.enter_context(WideArea())
            jobs = Jobs(network, asked.command, Path(directory))
            ends.callback(jobs.close)
            network.behave(*weather)
            jobs.start(case, getattr(servers, "members", servers), asked.jobs, "--wait", f"{START_LIMIT}s")
            jobs.await_start()
            not_started = len(jobs.ended())
            time.sleep(asked.seconds)
            ended = sorted(jobs.ended().values())
            failed = failed or bool(ended)
            sys.stdout.write(f"{case}: {len(ended)} of {asked.jobs} ended {ended}, {not_started} before the start\n")
            sys.stdout.flush()
            network.behave(*CLEAR)
    return int(failed)


if __name__ == "__main__":
    sys.exit(by_hand(sys.argv[1:]))
