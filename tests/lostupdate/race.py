"""One backend, several variants side by side: workers, and the nemesis that pauses holders.

``python -m tests.lostupdate.race URL DIRECTORY SECONDS`` reads its orders as JSON from stdin, and writes the results
as JSON to stdout. It is a process of its own, because it forks, and so must have no thread.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lockctl import kernel, registry
from lockctl.clock import boottime
from lockctl.url import parse_url
from tests.lostupdate.plan import AFTER_CHECK, VARIANTS, WORST, Order, Pace, Result
from tests.lostupdate.resource import Resource
from tests.lostupdate.worker import ACKNOWLEDGED, CELLS, HALTED, INSIDE, STATE, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOOK = 0.002  # seconds between two looks of the nemesis
QUIET = 2.0  # seconds at the beginning without a pause
ENDING = 40.0  # seconds until workers that were told to end have ended: longer than any wait of theirs
WIDTH = 4  # bytes of a cell


class Paused(NamedTuple):
    """A worker that is stopped; times are on the boot clock, in seconds."""

    worker: int
    since: float
    until: float


class Group:
    """The workers of one resource, and the nemesis of their lock."""

    def __init__(self, order: Order, number: int, url: str, pace: Pace, directory: Path, stop: int) -> None:
        """Nothing runs yet."""
        self.variant = VARIANTS[order.variant]
        self.name = f"{order.variant}.{number}"
        self.url = url
        self.order = order
        self.pace = pace
        self.resource = Resource(str(directory / self.name))
        self.stop = stop
        memory = memoryview(mmap.mmap(-1, WIDTH * (CELLS * order.workers + 1))).cast("I")
        self.halt = memory[:1]
        self.cells = [memory[1 + CELLS * at : 1 + CELLS * (at + 1)] for at in range(order.workers)]
        self.pids: list[int] = []
        self.paused: Paused | None = None
        self.next_pause = boottime() + QUIET + random.uniform(0, pace.every)
        self.pauses = 0

    def start(self, deadline: float) -> None:
        """Fork the workers."""
        self.resource.make()
        for number in range(self.order.workers):
            pid = os.fork()
            if pid == 0:
                self._be_worker(number, deadline)
            self.pids.append(pid)

    def _be_worker(self, number: int, deadline: float) -> None:
        status = 1
        try:
            kernel.set_death_signal(signal.SIGKILL)
            Worker(
                number,
                self.name,
                self.url,
                self.order.variant,
                self.pace,
                self.resource,
                self.cells[number],
                self.halt,
                self.stop,
            ).work(deadline)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def acknowledged(self) -> int:
        """Updates that were acknowledged until now."""
        return sum(cells[ACKNOWLEDGED] for cells in self.cells)

    def torment(self) -> None:
        """What the nemesis does now."""
        now = boottime()
        if self.paused is not None:
            successor = any(self._is(at, INSIDE) for at in range(len(self.pids)) if at != self.paused.worker)
            if now >= self.paused.until or (self.variant.continued == WORST and successor):
                self.go_on()
            return
        if now < self.next_pause:
            return
        if self.variant.paused == AFTER_CHECK:
            self.halt[0] = 1
        wanted = HALTED if self.variant.paused == AFTER_CHECK else INSIDE
        for number, pid in enumerate(self.pids):
            if self._is(number, wanted):
                os.kill(pid, signal.SIGSTOP)
                if not self._is(number, wanted):  # it came out in this moment
                    os.kill(pid, signal.SIGCONT)
                    continue
                longest = self.pace.longest_pause + (self.pace.ttl if self.variant.continued == WORST else 0)
                shortest = longest if self.variant.continued == WORST else self.pace.shortest_pause
                self.paused = Paused(number, now, now + random.uniform(shortest, longest))
                return

    def go_on(self) -> None:
        """Continue the worker that is stopped."""
        if self.paused is not None:
            os.kill(self.pids[self.paused.worker], signal.SIGCONT)
            self.pauses += 1
            self.next_pause = boottime() + self.pace.every
            self.paused = None

    def _is(self, number: int, state: int) -> bool:
        return self.cells[number][STATE] == state

    def is_done(self) -> bool:
        """Whether its share of updates and pauses is reached."""
        share = self.order.updates / self.order.groups
        return self.acknowledged() >= share and self.pauses >= self.order.pauses / self.order.groups

    def result(self) -> Result:
        """Compare what was acknowledged with what is in the list."""
        said: dict[str, set[str]] = {"acknowledged": set(), "refused": set()}
        for number in range(self.order.workers):
            for line in Path(f"{self.resource.path}.{number}").read_text().splitlines():
                word, update = line.split()
                said[word].add(update)
        there = self.resource.read()
        wrong = len(there) - len(set(there)) + len(said["refused"] & set(there))
        lost = said["acknowledged"] - set(there)
        return Result(
            self.order.variant, len(said["acknowledged"]), len(lost), len(said["refused"]), wrong, self.pauses
        )


def race(url: str, directory: Path, pace: Pace, orders: Sequence[Order], seconds: float) -> Iterator[Result]:
    """Run all orders side by side until each is fulfilled, or for so many seconds."""
    registry.capabilities_of(parse_url(url))  # loaded once, before the workers are forked
    stop, told = os.pipe2(os.O_CLOEXEC)
    groups = [Group(order, number, url, pace, directory, stop) for order in orders for number in range(order.groups)]
    end = boottime() + seconds
    try:
        for group in groups:
            group.start(end + ENDING)
        while boottime() < end and not all(group.is_done() for group in groups):
            for group in groups:
                group.torment()
            time.sleep(LOOK)
        for group in groups:
            group.halt[0] = 0
            group.go_on()
        os.write(told, b"." * len(groups))
        yield from _results(groups)
    finally:
        for group in groups:
            for pid in group.pids:
                os.kill(pid, signal.SIGKILL)


def _results(groups: Sequence[Group]) -> Iterator[Result]:
    until = boottime() + ENDING
    for group in groups:
        while group.pids:
            pid, status = os.waitpid(group.pids[0], os.WNOHANG)
            if not pid and boottime() > until:
                raise RuntimeError(f"a worker of {group.name} does not end")
            if not pid:
                os.kill(group.pids[0], signal.SIGCONT)  # one that stopped itself in the last moment
                time.sleep(LOOK)
                continue
            group.pids.pop(0)
            if status:
                raise RuntimeError(f"a worker of {group.name} ended with {status}")
    for variant in {group.order.variant: None for group in groups}:
        parts = [group.result() for group in groups if group.order.variant == variant]
        yield Result(variant, *(sum(numbers) for numbers in zip(*(part[1:] for part in parts), strict=True)))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    results = race(
        sys.argv[1],
        Path(sys.argv[2]),
        Pace(**given["pace"]),
        [Order(**each) for each in given["orders"]],
        float(sys.argv[3]),
    )
    json.dump([each._asdict() for each in results], sys.stdout)
