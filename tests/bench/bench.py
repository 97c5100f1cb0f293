"""``make bench``: what a lock costs, beside the tools that people use today. One table on stdout."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import memory, timing
from tests.faults.backends import PLACES, addresses_of
from tests.jobs import guard_of
from tests.places import local_directory
from tests.servers import programs
from tests.servers.consul import Consul
from tests.servers.etcd import Etcd
from tests.servers.fixtures import RedisServers
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.servers.process import Group, Server

ROUNDS = 20
LOCKCTL = str(Path(sys.executable).parent / "lockctl")
PYTHON = "python -c pass"
SERVERS: dict[str, Callable[[Path], Server | Group]] = {
    "redis": Redis,
    "redlock": RedisServers,
    "etcd": Etcd,
    "consul": Consul,
    "zookeeper": ZooKeeper,
    "postgresql": Postgres,
}


def main() -> int:
    """Measure and print."""
    directory = Path(tempfile.mkdtemp(prefix="lockctl-bench-", dir=local_directory()))
    try:
        with contextlib.ExitStack() as ends:
            urls = dict(started(directory, ends))
            peers: dict[str, Sequence[str]] = {}
            if flock := shutil.which("flock"):
                peers["flock FILE"] = (flock, str(directory / "flock"))
            if "etcd" in urls:
                peers["etcdctl lock"] = (programs.find("etcdctl"), "lock", "lockctl-bench", "--")
            if "consul" in urls:
                peers["consul lock"] = (programs.find("consul"), "lock", "lockctl-bench")
            address = {name: url.partition("://")[2].partition("/")[0] for name, url in urls.items()}
            env = timing.environment(
                {
                    "XDG_CONFIG_HOME": str(directory / "none"),
                    "ETCDCTL_API": "3",
                    "ETCDCTL_ENDPOINTS": address.get("etcd", ""),
                    "CONSUL_HTTP_ADDR": address.get("consul", ""),
                }
            )
            print(f"wall time, median of {ROUNDS}, run in turn on this machine")
            print_times(urls, peers, env)
            print("\nmemory of a holder (PSS: shared pages are divided among those who share them)")
            print_memory(urls, peers, env)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def started(directory: Path, ends: contextlib.ExitStack) -> Iterator[tuple[str, str]]:
    """Backend and URL, for every server that is on this machine."""
    locks = directory / "locks"
    locks.mkdir()
    yield "file", PLACES["file"].url((), "", locks)
    for name, kind in SERVERS.items():
        try:
            (directory / name).mkdir()
            server = kind(directory / name)
            ends.callback(server.stop)
            server.start()
        except programs.ProgramMissing as missing:
            print(f"  {name}: {missing}")
            continue
        at = addresses_of(server.members if isinstance(server, RedisServers) else server)
        yield name, PLACES[name].url(at, "bench", directory)


def print_times(urls: Mapping[str, str], peers: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> None:
    """One line for each command, with its ratio to an interpreter that does nothing."""
    commands: dict[str, tuple[Sequence[str], int]] = {PYTHON: ((sys.executable, "-c", "pass"), 0)}
    commands.update({f"{name} true": ((*words, "true"), 0) for name, words in peers.items()})
    for name, url in urls.items():
        commands[f"lockctl run, {name}"] = ((LOCKCTL, "run", "-b", url, "--", "true"), 0)
    commands["lockctl run, file, refused"] = ((LOCKCTL, "run", "-b", urls["file"], "-l", "taken", "--", "true"), 75)
    with memory.holding((LOCKCTL, "run", "-b", urls["file"], "-l", "taken", "--"), env, life=600):
        took = timing.medians(commands, env, ROUNDS)
    for name, measured in took.items():
        print(f"  {name:28}{measured * 1000:8.1f} ms{measured / took[PYTHON]:8.2f} x python")


def print_memory(urls: Mapping[str, str], peers: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> None:
    """One line for each tool: the processes that stay while a command runs, after they have renewed their lease."""
    for name, words in peers.items():
        with memory.holding(words, env) as holder:
            memory.let_it_renew(1.0)
            print(f"  {name:28}{memory.pss(holder.pid) / 1024:8.1f} MB")
    for name, url in urls.items():
        with memory.holding((LOCKCTL, "run", "-b", url, "-t", "10s", "--"), env) as holder:
            memory.let_it_renew(2.5)
            keeper, guard = memory.pss(holder.pid) / 1024, memory.pss(guard_of(holder.pid)) / 1024
            print(f"  {f'lockctl run, {name}':28}{keeper + guard:8.1f} MB  (keeper {keeper:.1f}, guard {guard:.1f})")


if __name__ == "__main__":
    os.chdir("/")
    sys.exit(main())
