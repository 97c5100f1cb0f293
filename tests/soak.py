"""``make soak``: many contenders for minutes, some of which are killed, and nothing may add up or overlap.

Each contender runs a job under one of a few locks, again and again. The job notes its token and takes a lock of the
kernel, which ends with it: two at once are seen whatever was killed. Keepers, guards and both are killed at random.
At the end nothing may be left of any run, and the servers have about as much memory and as many descriptors as when
the first tenth of the time was over.

    python -m tests.soak --seconds 600 --contenders 200 --only redis
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.supervise import tree
from tests.bench import timing
from tests.bench.scale.servers import STARTS, opened
from tests.bench.tools import LOCKCTL
from tests.scratch import local_directory
from tests.servers.fixtures import RedisServers
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.scale.servers import Store

BACKENDS = ("file", "sqlite", *STARTS)
LOCKS = 10
TTL = "4s"
WAIT = "20s"
FREED = 60.0  # seconds in which a server has forgotten what was killed last
KILLS = 2.0  # a second, on average
MOST_MORE = 1.3  # times the memory and the descriptors after the first tenth
FEW_MORE = 20  # descriptors that a server may open besides, and megabytes
FREED_LATER = {("azblob", "megabytes")}  # Azurite frees what was overwritten every ten minutes alone
JOB = """
exec 9>"$0.inside"
flock -n 9 || echo "two at once: $LOCKCTL_TOKEN" >>"$0.wrong"
echo "$LOCKCTL_TOKEN" >>"$0.tokens"
sleep 0.02
"""
GUARD_KILLED = "its guard process was killed"  # in the wait: then nothing ran, and the status is 126
STATUSES = {0, 75, 76, 69, 137, -signal.SIGKILL}  # refused after its wait, lost, or killed; a server may be too busy


class Size(NamedTuple):
    """Of a server's processes."""

    megabytes: float
    descriptors: int


class Soaked(NamedTuple):
    """What was seen on one backend; *wrong* are lines for people."""

    backend: str
    grants: int
    kills: int
    early: Size
    late: Size
    wrong: list[str]


class Crowd:
    """Contenders at the locks of one store, and who kills them."""

    def __init__(self, store: Store, directory: Path, contenders: int, seconds: float, seed: int) -> None:
        """Nothing runs yet."""
        self._store = store
        self._directory = directory
        self._contenders = contenders
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._random = random.Random(seed)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._mutex = threading.Lock()
        self._strange: list[str] = []
        self.kills = 0

    def let_loose(self) -> Soaked:
        """Run to the end, and judge."""
        threads = [threading.Thread(target=self._contend, args=(number,)) for number in range(self._contenders)]
        for thread in threads:
            thread.start()
        early: Size | None = None
        begin = self._until - self._seconds
        while time.monotonic() < self._until:
            time.sleep(self._random.expovariate(KILLS))
            self._kill_one()
            if early is None and time.monotonic() > begin + self._seconds / 10:
                early = size_of(self._store)
        for thread in threads:
            thread.join()
        late = size_of(self._store)
        wrong = [*self._strange, *judge(self._directory), *left_behind(self._store)]
        grants = sum(len(tokens_of(self._directory, number)) for number in range(LOCKS))
        early = early or late
        for what, before, after in zip(Size._fields, early, late, strict=True):
            if after > MOST_MORE * before + FEW_MORE and (self._store.name, what) not in FREED_LATER:
                wrong.append(f"the server has {after:g} {what} and had {before:g}")
        return Soaked(self._store.name, grants, self.kills, early, late, wrong)

    def _contend(self, number: int) -> None:
        env = timing.environment({})
        while time.monotonic() < self._until:
            name = f"soak-{number % LOCKS}"
            words = [LOCKCTL, "run", "-b", self._store.url, "-l", name, "-t", TTL, "-k", "500ms", "-w", WAIT]
            words += ["--", "sh", "-c", JOB, str(self._directory / str(number % LOCKS))]
            said = self._directory / f"{number}.said"
            with said.open("wb") as errors, self._mutex:
                run = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stderr=errors)
                self._running[run.pid] = run
            os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
            with self._mutex:  # its number is another's from now on
                del self._running[run.pid]
                status = run.wait()
            text = said.read_text(errors="replace")
            expected = status in STATUSES or (status == 126 and GUARD_KILLED in text)
            if not expected or "Traceback" in text:
                self._strange.append(f"status {status}: {text.strip()}")

    def _kill_one(self) -> None:
        """A keeper, its guard, or both."""
        with self._mutex:
            if not self._running:
                return
            keeper = self._random.choice(list(self._running.values()))
            guards = tree.children(keeper.pid)
            for pid in self._random.choice([[keeper.pid], guards, [*guards, keeper.pid]]):
                tree.send(pid, signal.SIGKILL)
            self.kills += 1


def tokens_of(directory: Path, number: int) -> list[int]:
    """The tokens of one lock in the order in which its jobs began."""
    try:
        return [int(line) for line in (directory / f"{number}.tokens").read_text().splitlines()]
    except FileNotFoundError:
        return []


def judge(directory: Path) -> list[str]:
    """What the jobs have seen that must not be."""
    wrong = [line for path in sorted(directory.glob("*.wrong")) for line in path.read_text().splitlines()]
    for number in range(LOCKS):
        pairs = itertools.pairwise(tokens_of(directory, number))
        wrong += [f"lock {number}: token {later} after {earlier}" for earlier, later in pairs if earlier >= later]
    return wrong


def servers_of(store: Store) -> list[Any]:
    """Its servers, as far as it has any."""
    if store.server is None:
        return []
    return list(store.server.members) if isinstance(store.server, RedisServers) else [store.server]


def size_of(store: Store) -> Size:
    """Of all its servers together."""
    megabytes, descriptors = 0.0, 0
    for server in servers_of(store):
        for pid in _processes_of(server):
            with contextlib.suppress(OSError, IndexError):
                resident = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]
                megabytes += int(resident) / 1024
                descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Size(round(megabytes, 1), descriptors)


def _processes_of(server: Any) -> list[int]:
    return [server.pid, *tree.descendants(server.pid)]


def left_behind(store: Store) -> list[str]:
    """What has not gone after :data:`FREED` seconds: processes, connections, locks that are held or waited for."""
    servers = servers_of(store)
    until = time.monotonic() + FREED
    while True:
        left = [f"process {pid}" for pid in _processes(store)] + [
            f"connection {line}" for line in connections_to(servers)
        ]
        command = (LOCKCTL, "list", "-b", store.url, "-o", "name")
        listed = subprocess.run(command, env=timing.environment({}), capture_output=True, text=True, check=False)
        left += (
            [f"lock in use: {name}" for name in listed.stdout.split()] if listed.returncode == 0 else [listed.stderr]
        )
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.5)


def _processes(store: Store) -> list[int]:
    """Those of runs at this store that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"\0{store.url}\0".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def connections_to(servers: list[Any]) -> list[str]:
    """The ends of clients, as the kernel tells them; a server may be a client of itself, as etcd is."""
    ports = {f"{server.port:04X}" for server in servers}
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:] if ports else []
    own = {number for server in servers for pid in _processes_of(server) for number in _sockets_of(pid)}
    found = [(line, line.split()) for line in lines]
    return [
        line
        for line, words in found
        if words[2].partition(":")[2] in ports and words[3] == "01" and words[9] not in own
    ]


def _sockets_of(pid: int) -> list[str]:
    """The inodes of what this process has open."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
    return found


def soak(name: str, contenders: int, seconds: float, seed: int) -> Soaked:
    """On one backend, with servers of its own. Raises ``ProgramMissing``."""
    directory = Path(tempfile.mkdtemp(prefix="lockctl-soak-", dir=local_directory()))
    try:
        with contextlib.ExitStack() as ends:
            store = opened(name, directory, ends)
            jobs = directory / "jobs"
            jobs.mkdir()
            return Crowd(store, jobs, contenders, seconds, seed).let_loose()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(words: Sequence[str] | None = None) -> int:
    """Each backend in turn; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all backends together (default: %(default)s)")
    parser.add_argument("--contenders", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--only", action="append", choices=BACKENDS, default=[], help="default: every backend")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed when (default: %(default)s)")
    options = parser.parse_args(words)
    names = options.only or BACKENDS
    failed = False
    print("backend       grants  kills   server, after a tenth  server, at the end")
    for name in names:
        try:
            seen = soak(name, options.contenders, options.seconds / len(names), options.seed)
        except ProgramMissing as missing:
            print(f"left out: {name}: {missing}", flush=True)
            continue
        sizes = "".join(f"{size.megabytes:10.1f} MB {size.descriptors:5} fd" for size in (seen.early, seen.late))
        print(f"{seen.backend:12}{seen.grants:8}{seen.kills:7}{sizes}", flush=True)
        for line in seen.wrong:
            print(f"  wrong: {line}", flush=True)
        failed = failed or bool(seen.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
