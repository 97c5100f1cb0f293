"""How long ``list`` takes of many locks, which are written by what writes them in real life."""

from __future__ import annotations

import os
import resource
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from lockctl import registry, url
from lockctl.clock import wall
from lockctl.documents import describe
from lockctl.model import Claim, Run
from lockctl.stores.zookeeper import queue
from tests.bench.tools import LOCKCTL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lockctl.backend import Backend
    from tests.bench.scale.servers import Store

LEASE = 3600.0  # seconds: longer than all of this takes
LIMIT = 60.0  # seconds
WRITERS = 4  # threads that fill a store
# a server takes no connection for each of so many locks: they are seen as given back
FREE = ("postgresql",)
RUN = Run("web3", "ops", ("./nightly.sh",), None, 1.0, 2.0, 1.0, 0.0, "exited", 0)


class Took(NamedTuple):
    """How many locks were listed, and what that took."""

    locks: int
    table: float  # seconds of a whole process that prints a table
    as_json: float  # and of one that prints JSON
    cpu: float  # seconds of the first, of a core
    operations: float | None  # of the servers for the first


def claim(number: int) -> Claim:
    """That of a job of its own."""
    return Claim(f"job-{number:05}", os.urandom(16).hex(), LEASE, "web3", 4000 + number, "ops", ("./nightly.sh",))


def fill(name: str, place: str, count: int) -> list[Backend]:
    """Have *count* locks taken, and a run of each remembered; who holds them closes what is returned."""
    if name == "zookeeper":
        _fill_zookeeper(place, count)
        return []
    if name == "consul":
        place += "&lock_delay=15s"  # its longest delay would end the sessions of a longer lease
    holders = [registry.open_backend(url.parse_url(place)) for _ in range(1 if name in ("file", "sqlite") else WRITERS)]
    with ThreadPoolExecutor(len(holders)) as pool:
        shares = [range(number, count, len(holders)) for number in range(len(holders))]
        list(pool.map(lambda each: _fill(name, *each), zip(holders, shares, strict=True)))
    return holders


def _fill(name: str, holder: Backend, numbers: Iterable[int]) -> None:
    for number in numbers:
        wanted = claim(number)
        grant = holder.try_acquire(wanted, timeout=LIMIT)
        assert grant is not None, f"{wanted.name} is not free"
        if name in FREE:
            holder.release(grant, timeout=LIMIT)
        holder.remember(wanted.name, RUN, timeout=LIMIT)


def _fill_zookeeper(place: str, count: int) -> None:
    """As those who hold them do, in one session: a server would need as many connections as locks."""
    from kazoo.client import KazooClient

    from lockctl.stores.zookeeper.address import read_url

    where = read_url(url.parse_url(place))
    client = KazooClient(where.addresses)
    client.start()
    under_way = []
    for number in range(count):
        wanted = claim(number)
        path = f"{where.key(wanted.name)}/{queue.prefix(uuid.uuid4().hex, where.layout)}"
        data = describe(wanted, {"acquired_at": wall()})
        under_way.append(client.create_async(path, data, sequence=True, makepath=True))
        if len(under_way) == 200:
            for each in under_way:
                each.get()
            under_way.clear()
    for each in under_way:
        each.get()
    client.stop()
    client.close()


def measure(store: Store, env: Mapping[str, str]) -> Took:
    """Whole processes: one that prints a table, and one that prints JSON."""
    before, used = store.operations(), resource.getrusage(resource.RUSAGE_CHILDREN)
    table, lines = _listed(store.url, env)
    after, now = store.operations(), resource.getrusage(resource.RUSAGE_CHILDREN)
    as_json, _ = _listed(store.url, env, "--json")
    asked = None if before is None or after is None else after - before
    return Took(lines - 1, table, as_json, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, asked)


def _listed(place: str, env: Mapping[str, str], *options: str) -> tuple[float, int]:
    words = [LOCKCTL, "list", "-b", place, *options]
    began = time.monotonic()
    done = subprocess.run(words, env=env, capture_output=True, check=True, timeout=LIMIT)
    return time.monotonic() - began, done.stdout.count(b"\n")
