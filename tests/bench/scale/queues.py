"""What passing a lock on costs when many wait for it.

The waiters are processes that wait and take as ``lockctl run`` does, by the same calls of a backend, and have no command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from lockctl import registry
from lockctl.errors import LockctlError
from lockctl.model import Claim
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.scale.servers import Store

TTL = {"zookeeper": 20.0}  # seconds: a session lasts twice as long, at most 40 s
USUAL_TTL = 30.0
PASSES = 20  # of the lock, at most
STARTED_AT_ONCE = 20  # processes that are not waiting yet
NICE = 10  # of the waiters: a thousand of them must not keep everything else from running
LIMIT = 120.0  # seconds for any one thing
SETTLE = 3.0  # seconds until all are in the queue, and again to see what waiting alone costs


class Passed(NamedTuple):
    """What one size of a queue has cost."""

    waiters: int
    milliseconds: float  # median, from before the release to the next grant
    operations: float | None  # of the servers for one hand-off, without what waiting itself costs
    waiting: float | None  # operations a second for one waiter


class TooLate(Exception):
    """Nothing happened for ``LIMIT``."""


def measure(store: Store, waiters: int) -> Passed:
    """Have a lock passed on among so many."""
    with _crowd(store, waiters) as crowd:
        time.sleep(SETTLE)
        before, began = store.operations(), time.monotonic()
        time.sleep(SETTLE)
        after, now = store.operations(), time.monotonic()
        rate = None if before is None or after is None else (after - before) / (now - began)
        took = [crowd.passed() for _ in range(min(PASSES, waiters - 1))]
        last, end = store.operations(), time.monotonic()
    each = None
    if after is not None and last is not None and rate is not None:
        each = max(0.0, (last - after - rate * (end - now)) / len(took))
    per_waiter = None if rate is None else rate / waiters
    return Passed(waiters, 1000 * statistics.median(took), each, per_waiter)


class _Crowd:
    """Processes at one lock: whoever has it releases it when a byte comes."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self.pids: list[int] = []
        self._said, self._say = os.pipe()
        self._go, self._tell = os.pipe()
        self._left = b""

    def start(self) -> None:
        """One holder, then all who wait."""
        self._fork()
        assert self._next()[0] == "granted"
        waiting = 0
        for _ in range(self._size):
            self._fork()
            if len(self.pids) - 1 - waiting >= STARTED_AT_ONCE:
                waiting += self._next()[0] == "waits"
        while waiting < self._size:
            waiting += self._next()[0] == "waits"

    def passed(self) -> float:
        """Seconds from before the release to the next grant."""
        os.write(self._tell, b".")
        times = dict(self._next() for _ in range(2))
        return times["granted"] - times["releases"]

    def end(self) -> None:
        """Kill all."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        for descriptor in (self._said, self._say, self._go, self._tell):
            os.close(descriptor)

    def _next(self) -> tuple[str, float]:
        while b"\n" not in self._left:
            if not select.select([self._said], [], [], LIMIT)[0]:
                raise TooLate(f"{self._store.name}: nobody got the lock within {LIMIT:g} s")
            self._left += os.read(self._said, 65536)
        line, _, self._left = self._left.partition(b"\n")
        word, _, at = line.decode().partition(" ")
        return word, float(at)

    def _fork(self) -> None:
        pid = os.fork()
        if pid == 0:
            self._take_part()
        self.pids.append(pid)

    def _take_part(self) -> NoReturn:
        status = 1
        try:
            os.nice(NICE)
            ttl = TTL.get(self._store.name, USUAL_TTL)
            mine = Claim(
                f"crowd-{self._size}", os.urandom(16).hex(), ttl, "here", os.getpid(), "ops", ("./nightly.sh",)
            )
            backend = registry.open_backend(parse_url(self._store.url))
            first = True
            while (grant := backend.try_acquire(mine, timeout=LIMIT)) is None:
                if first:
                    self._report("waits")
                first = False
                with contextlib.suppress(LockctlError):
                    backend.wait(mine, timeout=float("inf"), interrupt=None)
            self._report("granted")
            while not select.select([self._go], [], [], ttl / 3)[0]:
                backend.renew(grant, timeout=ttl)
            os.read(self._go, 1)
            self._report("releases")
            backend.release(grant, timeout=LIMIT)
            status = 0
            signal.pause()  # its end is none of what is measured
        finally:
            os._exit(status)

    def _report(self, word: str) -> None:
        os.write(self._say, f"{word} {time.monotonic()}\n".encode())


@contextlib.contextmanager
def _crowd(store: Store, size: int) -> Iterator[_Crowd]:
    crowd = _Crowd(store, size)
    try:
        crowd.start()
        yield crowd
    finally:
        crowd.end()
