"""``make constants``: what one run, one renewal and one second of waiting cost the servers of each backend.

Requests are counted by the servers where they can, else where they are sent; CPU is that of the servers' processes, as
the kernel counts it, less what they take when nobody asks. No time is measured.
"""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING, Any

from lockctl import registry
from lockctl.clock import wall
from lockctl.errors import LockctlError
from lockctl.model import Claim, Run
from lockctl.url import parse_url
from tests.bench import machine
from tests.bench.scale import hosts, model, queues
from tests.bench.scale.meter import Count, Meter
from tests.bench.scale.servers import opened
from tests.scratch import local_directory
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

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
