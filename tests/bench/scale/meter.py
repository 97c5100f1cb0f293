"""What a store has done so far: requests and writes, counted by its servers or where they are sent, and their CPU."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl import registry
from lockctl.locks.cell import CellBackend
from lockctl.stores.nats.session import Connection
from lockctl.stores.postgresql.session import Session as Statements
from lockctl.url import parse_url
from lockctl.wire.http import Client
from tests.bench import memory
from tests.bench.scale.counters import REQUESTS, WRITES
from tests.servers.fixtures import RedisServers
from tests.servers.process import descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.scale.servers import Store


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
            with_reads = int(self._store.server is None)  # else a server counts them, or its requests are seen
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
