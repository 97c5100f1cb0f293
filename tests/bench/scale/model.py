"""What many holders and waiters ask of a store, calculated from what one of them costs: the tables of lockctl-scale(7).

``python -m tests.bench.scale.model`` writes them into the page. The constants are those of ``make constants``; the
limits are the defaults of the servers, and what the providers of clouds publish.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import registry
from lockctl.lease.schedule import plan
from lockctl.locks.lock_cells import REFRESHES_PER_LIFE
from lockctl.locks.machine import LONGEST_LIFE, Lock
from lockctl.model import Claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
CONSTANTS = HERE / "constants.json"
PAGE = HERE.parents[2] / "man/text/lockctl-scale.7.txt"
STORES = (
    *("file", "sqlite", "redis", "redlock", "etcd", "consul", "zookeeper", "postgresql", "mysql", "nats"),
    *("s3", "gcs", "azblob", "dynamodb", "kubernetes"),
)
OBJECTS = ("s3", "gcs", "azblob")  # waiters look seldom, but only after minutes: their rate is that of lockctl backends
MODELS = ("file", "sqlite", *OBJECTS, "dynamodb", "kubernetes")  # no server of theirs was measured
CLOSES = ("s3", "azblob", "dynamodb")  # the model of the server closes each connection: as with the other objects
TTL = 30.0  # seconds, the default
SIZES = (100, 10_000, 1_000_000)
KB = 1000


class Costs(NamedTuple):
    """Of one run, one renewal, and one second of waiting."""

    requests: float
    writes: float  # that a disk or a quorum must have
    cpu: float  # seconds of a core of the servers

    def times(self, number: float) -> Costs:
        """Of so many."""
        return Costs(*(number * each for each in self))


class Constants(NamedTuple):
    """Of one store."""

    interval: float  # seconds between two renewals
    run: Costs
    renewal: Costs
    waiter: Costs
    connections: tuple[float, float]  # of a holder, of a waiter
    memory: float  # bytes of the server for a connection; 0: not known


class Load(NamedTuple):
    """What so many holders, and a waiter for each, ask of a store."""

    renewals: float  # a second
    requests: float  # a second
    writes: float  # a second
    connections: float
    cores: float
    memory: float  # bytes


def interval(name: str) -> float:
    """Seconds between two renewals with the default ttl."""
    return plan(TTL, None, registry.load(name).capabilities).interval


@cache
def measured() -> dict[str, Any]:
    """What ``make constants`` has found."""
    content: dict[str, Any] = json.loads(CONSTANTS.read_text())
    return content


def constants(name: str) -> Constants:
    """Of a store."""
    found = measured()["stores"][name]
    run, renewal, waiter = (Costs(**found[kind]) for kind in ("run", "renewal", "waiter"))
    if name in MODELS:
        run, renewal, waiter = (each._replace(cpu=0.0) for each in (run, renewal, waiter))
    cost = registry.load(name).capabilities.waiter_cost
    if name in OBJECTS and cost is not None:
        waiter = waiter._replace(requests=cost.requests / 3600)
    connections = found["connections"]["holder"], found["connections"]["waiter"]
    memory = 0.0 if name in (*MODELS, "zookeeper") else 1024 * KB * found["memory"] / max(connections[0], 1)
    return Constants(interval(name), run, renewal, waiter, (1.0, 1.0) if name in CLOSES else connections, memory)


def load(name: str, holders: float) -> Load:
    """N holders of a lock each, and one waiter for each of them.

    renewals = N / interval; requests, writes and cores = renewals * those of a renewal + N * those of a waiter.
    """
    of = constants(name)
    renewals, connections = holders / of.interval, holders * sum(of.connections)
    total = [a + b for a, b in zip(of.renewal.times(renewals), of.waiter.times(holders), strict=True)]
    return Load(renewals, total[0], total[1], connections, total[2], connections * of.memory)


# store -> what ends, how much of it there is, and of which field of Load. The first one gives first.
LIMITS: dict[str, tuple[tuple[str, float, str], ...]] = {
    "file": (),
    "sqlite": (("500 commits/s of the disk", 500, "writes"),),
    "redis": (("maxclients 10000", 10_000, "connections"), ("its one core", 1, "cores")),
    "redlock": (  # 5 servers: 3 of 11 connections are to the first
        ("maxclients 10000 of the first server", 10_000 * 11 / 3, "connections"),
        ("one core each", 5, "cores"),
    ),
    "etcd": (("each core", 1, "cores"), ("64k open files", 65_536, "connections")),
    "consul": (("200 connections of a host", 200, "connections"), ("each core", 1, "cores")),
    "zookeeper": (("maxClientCnxns 60 of a host", 60, "connections"), ("500 writes/s of the disk", 500, "writes")),
    "postgresql": (("max_connections 97 of 100", 97, "connections"), ("each core", 1, "cores")),
    "mysql": (("max_connections 151", 151, "connections"), ("500 commits/s of the disk", 500, "writes")),
    "nats": (("500 writes/s of the disk", 500, "writes"), ("max_connections 65536", 65_536, "connections")),
    "s3": (("3500 writes/s of a prefix", 3500, "writes"),),
    "gcs": (("1000 writes/s of a new bucket", 1000, "writes"),),
    "azblob": (("20000 requests/s of an account", 20_000, "requests"),),
    "dynamodb": (("4000 writes/s of a new table", 4000, "writes"),),
    "kubernetes": (("500 Lease writes/s, as 5000 nodes", 500, "writes"),),
}

# store with one document for each lock -> its largest document in bytes, and seconds until a usual answer
DOCUMENTS = {
    "sqlite": (8 << 20, 0.002),
    "mysql": (8 << 20, 0.005),
    "nats": (1 << 20, 0.005),
    "s3": (8 << 20, 0.03),
    "gcs": (8 << 20, 0.03),
    "azblob": (8 << 20, 0.03),
    "dynamodb": (400 * KB, 0.01),
    "kubernetes": (256 << 10, 0.02),
}
TOLD = {"nats": 4, "kubernetes": 1}  # requests of each waiter after each change, of which the store tells all


def first(name: str) -> list[tuple[float, str]]:
    """How many holders, with as many waiters, each limit allows: the smallest first."""
    one = load(name, 1)._asdict()
    return sorted((most / one[of], what) for what, most, of in LIMITS[name] if one[of])


def waiter_bytes() -> float:
    """What each waiter adds to the document of a lock, where a lock is one."""
    lock = Lock()
    for number in range(100):
        lock.line_up(Claim("nightly", os.urandom(16).hex(), TTL, "web3", 4000 + number, "ops", ("./nightly.sh",)), 2e9)
    return len(lock.written()) / 100


def short(number: float) -> str:
    """Two digits: 1.1k, 130k, 2.2M; a dash for nothing."""
    if number < 0.005:
        return "-"
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if float(f"{number:.2g}") >= unit:
            return f"{float(f'{number:.2g}') / unit:g}{sign}"
    return f"{float(f'{number:.2g}'):g}"


def _costs() -> Iterator[str]:
    yield "            every     renewal           run         waiter, 1 s  conn.  kB"
    yield "COST          s   req  wr    ms   req   wr    ms    req     ms   h w"
    for name in STORES:
        of = constants(name)
        cells = [of.renewal.requests, of.renewal.writes, of.renewal.cpu * 1e3, *of.run[:2], of.run.cpu * 1e3]
        cells += [of.waiter.requests, of.waiter.cpu * 1e3, *of.connections, of.memory / KB]
        widths = (5, 4, 6, 6, 5, 6, 7, 7, 4, 2, 5)
        text = "".join(f"{short(cell):>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{name:11}{of.interval:4g}{text}"


def _loads(holders: int) -> Callable[[], Iterator[str]]:
    def table() -> Iterator[str]:
        yield f"{f'{holders:,}':11} renewals/s requests/s writes/s connections  cores     GB"
        for name in STORES:
            at = load(name, holders)
            cells = zip(at._replace(memory=at.memory / 1e9), (11, 11, 9, 12, 7, 7), strict=True)
            yield f"{name:11}" + "".join(f"{short(cell):>{width}}" for cell, width in cells)

    return table


def _firsts() -> Iterator[str]:
    yield "LIMIT       holders  what                               then at"
    for name in STORES:
        found = first(name)
        if found:
            more = f"{short(found[1][0])}, {found[1][1]}" if len(found) > 1 else ""
            yield f"{name:11} {short(found[0][0]):>7}  {found[0][1]:34} {more}".rstrip()


def _queues() -> Iterator[str]:
    yield "HAND-OFF       10 waiters   more waiters"
    for name in STORES:
        found = {int(size): number for size, number in measured()["stores"][name]["handoff"].items()}
        if found:
            most = max(found)
            yield f"{name:11}{found[10]:14.0f}{found[most]:10.0f} with {most}"


def _crowds() -> Iterator[str]:
    yield "ONE LOCK   document      waiters  answers in    waiters  requests/s of 100"
    each, rate = waiter_bytes(), REFRESHES_PER_LIFE / min(TTL, LONGEST_LIFE)
    for name, (most, answer) in DOCUMENTS.items():
        changes = 1 / (2 * answer)  # a second: a read and a write each
        if name == "gcs":
            changes = 1.0
        room, waiters = most / each, (changes - 1 / interval(name)) / rate
        asked = 100 * constants(name).waiter.requests
        if name in TOLD:
            asked = TOLD[name] * 100 * (100 * rate + 1 / interval(name))
        sizes = f"{short(most / KB):>6} kB{short(room):>13}{answer * 1000:8.0f} ms{short(waiters):>11}"
        yield f"{name:10}{sizes}{short(asked):>19}"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "COST": _costs,
    **{f"{size:,}": _loads(size) for size in SIZES},
    "LIMIT": _firsts,
    "HAND-OFF": _queues,
    "ONE LOCK": _crowds,
}


def filled(page: str) -> str:
    """The page with the tables as they are calculated: each is the indented block with its word."""
    for word, table in TABLES.items():
        block = rf"(?:^    .*\n)*^    {re.escape(word)} .*\n(?:^    .*\n)*"
        lines = "".join(f"    {line}\n" for line in table())
        page, count = re.subn(block, lines.replace("\\", ""), page, flags=re.MULTILINE)
        assert count == 1, word
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
