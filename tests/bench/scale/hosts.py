"""What the processes of many runs take on one host: memory, descriptors, threads, connections, and CPU.

All are whole ``lockctl run`` processes with the defaults: for each lock one that holds it, and one that waits for it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lockctl.supervise import tree
from tests.bench import memory
from tests.bench.tools import LOCKCTL
from tests.servers.fixtures import RedisServers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.scale.servers import Store

LIMIT = 120.0  # seconds for one run to start
STARTED_AT_ONCE = 4
SETTLED = 3.0  # seconds after the last start: renewals have loaded what they need
COMMAND = ("sleep", "3600")
ESTABLISHED = "01"  # in /proc/net/tcp: established
NANOSECONDS = 1e9


class Used(NamedTuple):
    """By the processes of one run, on average: its keeper and its guard, without its command."""

    processes: float
    megabytes: float  # PSS: shared pages are divided among those who share them
    descriptors: float
    threads: float
    cpu: float  # percent of a core


class Host(NamedTuple):
    """So many of each kind, and all their connections to the servers."""

    runs: int
    holder: Used
    waiter: Used
    connections: int


def measure(store: Store, runs: int, seconds: float, env: Mapping[str, str]) -> Host:
    """Start them, and look at them for so many *seconds*."""
    with contextlib.ExitStack() as ends:
        holders = _started(store, runs, (), COMMAND, env, ends)
        waiters = _started(store, runs, ("-w", "forever"), ("true",), env, ends)
        time.sleep(SETTLED)
        kinds = [[_family(pid) for pid in pids] for pids in (holders, waiters)]
        before, began = [_cpu(family) for family in kinds], time.monotonic()
        time.sleep(seconds)
        after, took = [_cpu(family) for family in kinds], time.monotonic() - began
        busy = [100 * (late - early) / took / runs for early, late in zip(before, after, strict=True)]
        return Host(runs, _used(kinds[0], busy[0]), _used(kinds[1], busy[1]), connections(store))


def _started(
    store: Store,
    runs: int,
    options: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str],
    ends: contextlib.ExitStack,
) -> list[int]:
    """The pids of runs that are there: few of them start at a time."""
    pids: list[int] = []
    for number in range(runs):
        words = [LOCKCTL, "run", "-b", store.url, "-l", f"host-{number:05}", *options, "--", *command]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        ends.callback(process.wait)
        ends.callback(process.terminate)
        pids.append(process.pid)
        if number % STARTED_AT_ONCE == STARTED_AT_ONCE - 1 or number == runs - 1:
            for pid in pids[-STARTED_AT_ONCE:]:
                _await(pid, has_command=not options)
    return pids


def _await(pid: int, *, has_command: bool) -> None:
    """Until a run holds its lock, or is in the queue, as far as can be seen from outside."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        names = [_name(each) for each in tree.descendants(pid)]
        if (COMMAND[0] in names) if has_command else bool(names):
            return
        time.sleep(0.02)
    raise TimeoutError(f"run {pid} did not start within {LIMIT:g} s")


def _family(pid: int) -> list[int]:
    """A run without its command."""
    return [pid, *(each for each in tree.descendants(pid) if _name(each) != COMMAND[0])]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _cpu(families: Sequence[Sequence[int]]) -> float:
    """Seconds of a core so far."""
    total = 0
    for pid in (pid for family in families for pid in family):
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / NANOSECONDS


def _used(families: Sequence[Sequence[int]], cpu: float) -> Used:
    pids = [pid for family in families for pid in family]
    runs = len(families)
    return Used(
        len(pids) / runs,
        sum(memory.pss(pid) for pid in pids) / 1024 / runs,
        sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids) / runs,
        sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids) / runs,
        cpu,
    )


def connections(store: Store) -> int:
    """Those of all processes of this host to the servers."""
    if store.server is None:
        return 0
    servers = store.server.members if isinstance(store.server, RedisServers) else [store.server]
    ports = {f"{server.port:04X}" for server in servers}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[2].partition(":")[2] in ports and fields[3] == ESTABLISHED for fields in lines)
