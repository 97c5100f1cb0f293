"""``make constants``: what one run, one renewal and one second of waiting cost the servers of each backend.

Requests are counted by the servers where they can, else where they are sent; CPU is that of the servers' processes, as
the kernel counts it, less what they take when nobody asks. No time is measured.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import registry
from lockctl.clock import wall
from lockctl.errors import LockctlError
from lockctl.locks.cell import CellBackend
from lockctl.model import Claim, Run
from lockctl.stores.nats.session import Connection
from lockctl.stores.postgresql.session import Session as Statements
from lockctl.url import parse_url
from lockctl.wire.http import Client
from tests.bench import machine, memory
from tests.bench.scale import hosts, model, queues
from tests.bench.scale.counters import REQUESTS, WRITES
from tests.bench.scale.servers import opened
from tests.places import local_directory
from tests.servers.fixtures import RedisServers
from tests.servers.process import descendants
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.bench.scale.servers import Store

RUNS, WARM, HOLDERS, RENEWALS, WAITERS = 200, 50, 100, 20, 20
AT_ONCE = 8  # threads that ask
LIMIT = 60.0  # seconds for one request
SETTLE, WATCHED = 16.0, 12.0  # seconds until waiters look as seldom as they ever do, and those that are counted
IDLE = 4.0  # seconds in which nobody asks
QUEUES = {"redis": (10, 100), "redlock": (10, 50), "etcd": (10, 100), "consul": (10, 50), "zookeeper": (10, 50)}
QUEUES |= {"postgresql": (10, 100), "mysql": (10, 50), "nats": (10, 50)}


class Count(NamedTuple):
    """What a store has done so far."""

    requests: float
    writes: float  # that a disk or a quorum had to have
    cpu: float  # seconds of a core

    def per(self, number: float, since: Count, idle: Count, seconds: float) -> dict[str, float]:
        """For each of so many, less what the store does by itself in *seconds*."""
        gone = [(now - then - seconds * own) / number for now, then, own in zip(self, since, idle, strict=True)]
        return {name: float(f"{max(each, 0.0):.3g}") for name, each in zip(self._fields, gone, strict=True)}


class Meter:
    """Counts for one store. What its servers do not count is counted where it is sent."""

    def __init__(self, store: Store) -> None:
        """From now on."""
        self._store = store
        self._sent = {"requests": 0, "writes": 0}
        self._mutex = threading.Lock()
        self.idle = Count(0.0, 0.0, 0.0)

    def wrap(self, ends: contextlib.ExitStack) -> None:
        """Have the calls counted that send requests, until *ends*."""
        kind = registry.load(self._store.name)
        self._wrap(ends, Connection, "ask", lambda given: {"requests": len(given[1])})
        self._wrap(ends, Statements, "_start", lambda _: {"requests": 1})
        self._wrap(ends, Client, "_head", lambda _: {"requests": 1})
        if issubclass(kind, CellBackend):
            cells = type(registry.open_backend(parse_url(self._store.url))._cells)  # type: ignore[attr-defined]
            with_reads = int(self._store.name == "sqlite")
            self._wrap(ends, cells, "read", lambda _: {"requests": with_reads})
            self._wrap(ends, cells, "write", lambda _: {"requests": with_reads, "writes": 1})

    def _wrap(
        self, ends: contextlib.ExitStack, owner: type, name: str, cost: Callable[[Sequence[Any]], dict[str, int]]
    ) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def counted(*given: Any, **named: Any) -> Any:
            with self._mutex:
                for kind, number in cost(given).items():
                    self._sent[kind] += number
            return original(*given, **named)

        setattr(owner, name, counted)
        ends.callback(setattr, owner, name, original)

    def __call__(self) -> Count:
        """So far."""
        name, server = self._store.name, self._store.server
        requests = REQUESTS[name](server) if name in REQUESTS else self._sent["requests"]
        writes = WRITES[name](server) if name in WRITES else self._sent["writes"]
        return Count(requests, writes, sum(map(_cpu, self.pids())))

    def pids(self) -> list[int]:
        """Of the processes of the servers."""
        server = self._store.server
        if server is None:
            return []
        members = server.members if isinstance(server, RedisServers) else [server]
        return [pid for each in members for pid in (each.pid, *descendants(each.pid))]

    def megabytes(self) -> float:
        """Of memory of the servers."""
        return sum(map(_kilobytes, self.pids())) / 1024

    @contextlib.contextmanager
    def counting(self, into: dict[str, Any], name: str, number: float) -> Iterator[None]:
        """Write down what each of so many takes that the block does."""
        before, began = self(), time.monotonic()
        yield
        into[name] = self().per(number, before, self.idle, time.monotonic() - began)


def _kilobytes(pid: int) -> int:
    try:
        return memory.pss(pid)
    except OSError:  # it has ended
        return 0


def _cpu(pid: int) -> float:
    """Seconds of a core so far, with those of children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measure(store: Store) -> dict[str, Any]:
    """All constants of a backend."""
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool, contextlib.ExitStack() as ends:
        meter = Meter(store)
        meter.wrap(ends)
        list(pool.map(lambda _: _one_run(store), range(WARM)))  # makes what is made once
        with meter.counting(found, "idle", IDLE):
            time.sleep(IDLE)
        meter.idle = Count(**found["idle"])
        with meter.counting(found, "run", RUNS):
            list(pool.map(lambda _: _one_run(store), range(RUNS)))
        used, there = meter.megabytes(), hosts.connections(store)
        held = list(pool.map(lambda number: _hold(store, f"held-{number}"), range(HOLDERS)))
        ends.callback(lambda: list(pool.map(_end, held)))
        list(pool.map(_renew, held))
        with meter.counting(found, "renewal", HOLDERS * RENEWALS):
            for _ in range(RENEWALS):
                list(pool.map(_renew, held))
        found["connections"] = {"holder": (hosts.connections(store) - there) / HOLDERS}
        found["memory"] = round((meter.megabytes() - used) / HOLDERS, 3)
        _wait(store, meter, held[:WAITERS], found)
    return found


def _claim(store: Store, name: str) -> Claim:
    ttl = queues.TTL.get(store.name, queues.USUAL_TTL)
    return Claim(name, os.urandom(16).hex(), ttl, "web3", os.getpid(), "ops", ("./nightly.sh",))


def _hold(store: Store, name: str) -> tuple[Backend, Grant]:
    backend = registry.open_backend(parse_url(store.url))
    grant = backend.try_acquire(_claim(store, name), timeout=LIMIT)
    assert grant is not None, f"{name} is not free"
    return backend, grant


def _renew(held: tuple[Backend, Grant]) -> None:
    held[0].renew(held[1], timeout=LIMIT)


def _end(held: tuple[Backend, Grant]) -> None:
    held[0].release(held[1], timeout=LIMIT)
    now = wall()
    run = Run("web3", "ops", ("./nightly.sh",), held[1].token, now, now, 1.0, 0.0, "exited", 0)
    held[0].remember(held[1].claim.name, run, timeout=LIMIT)
    held[0].close()


def _one_run(store: Store) -> None:
    """What ``lockctl run`` asks of a store for a command shorter than a renewal."""
    _end(_hold(store, f"run-{threading.get_ident()}"))


def _wait(store: Store, meter: Meter, held: list[tuple[Backend, Grant]], found: dict[str, Any]) -> None:
    """One waiter for each of these locks, whose holders renew as often as they do in a run."""
    pause, renewals, over = model.interval(store.name), [0], threading.Event()
    said, tell = os.pipe()
    there = hosts.connections(store)
    waiters = [threading.Thread(target=_waiter, args=(store, grant.claim.name, said)) for _, grant in held]

    def renew_all() -> None:
        while not over.wait(pause / len(held)):
            _renew(held[renewals[0] % len(held)])
            renewals[0] += 1

    for thread in (*waiters, keeper := threading.Thread(target=renew_all)):
        thread.start()
    time.sleep(SETTLE)
    found["connections"]["waiter"] = (hosts.connections(store) - there) / len(held)
    before, began = renewals[0], time.monotonic()
    with meter.counting(found, "waiter", 1.0):
        time.sleep(WATCHED)
    gone = (time.monotonic() - began) * len(held)
    for kind, number in found["waiter"].items():
        own = number - (renewals[0] - before) * found["renewal"][kind]
        found["waiter"][kind] = float(f"{max(0.0, own / gone):.3g}")
    over.set()
    os.write(tell, b".")
    for thread in (*waiters, keeper):
        thread.join()
    os.close(said)
    os.close(tell)


def _waiter(store: Store, name: str, interrupt: int) -> None:
    backend, claim = registry.open_backend(parse_url(store.url)), _claim(store, name)
    until = time.monotonic() + SETTLE + WATCHED
    with contextlib.suppress(LockctlError):
        while time.monotonic() < until and backend.try_acquire(claim, timeout=LIMIT) is None:
            backend.wait(claim, timeout=float("inf"), interrupt=interrupt)
    backend.withdraw(claim, timeout=LIMIT)
    backend.close()


def main(names: Sequence[str]) -> int:
    """Measure these backends, or all, and write down what was found; the others stay as they are."""
    path = model.CONSTANTS
    content = json.loads(path.read_text()) if path.exists() else {"stores": {}}
    about = machine.about(names or model.STORES, 1, "none")
    content |= {"date": about["date"], "machine": about["machine"]}
    content["versions"] = content.get("versions", {}) | about["versions"]
    for name in names or model.STORES:
        directory = Path(tempfile.mkdtemp(prefix="lockctl-scale-", dir=local_directory()))
        try:
            with contextlib.ExitStack() as ends:
                store = opened(name, directory, ends)
                found = measure(store)
                sizes = QUEUES.get(name, ())
                passed = [queues.measure(store, size) for size in sizes]
                found["handoff"] = {each.waiters: round(each.operations or 0.0, 1) for each in passed}
                content["stores"][name] = found
                print(name, json.dumps(found), flush=True)
                text = json.dumps(content, indent=1)
                path.write_text(re.sub(r"\{[^{}]{,130}\}", lambda each: " ".join(each[0].split()), text) + "\n")
        except ProgramMissing as missing:
            print(f"left out: {name}: {missing}", flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
