"""Knowing from outside that a run waits for its lock, and what a waiting process costs."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from lockctl.registry import open_backend
from lockctl.supervise import tree
from lockctl.url import parse_url
from tests.jobs import LIMIT, eventually, guard_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import Popen

    from tests.jobs import Lockctl

TICK = 1 / os.sysconf("SC_CLK_TCK")


def await_waiting(lockctl: Lockctl, name: str, runs: Sequence[Popen[str]]) -> None:
    """Return when exactly these runs wait for lock *name*.

    A backend that cannot list its waiters says so with ``null``: then they wait when they use no CPU.
    """
    for run in runs:
        guard_of(run.pid)

    with contextlib.closing(open_backend(parse_url(lockctl.url))) as observer:

        def all_wait() -> bool:
            waiters = observer.inspect(name, timeout=LIMIT).waiters
            if waiters is None:
                return cpu_seconds([run.pid for run in runs], span=0.2) == 0
            return len(waiters) == len(runs)

        eventually(all_wait, LIMIT, pause=0.02)


def await_in_queue(lockctl: Lockctl, name: str, run: Popen[str]) -> None:
    """Return when this run waits for lock *name*, whoever else does."""
    guard_of(run.pid)

    with contextlib.closing(open_backend(parse_url(lockctl.url))) as observer:

        def waits() -> bool:
            waiters = observer.inspect(name, timeout=LIMIT).waiters
            if waiters is None:
                return cpu_seconds([run.pid], span=0.2) == 0
            return run.pid in [waiter.pid for waiter in waiters]

        eventually(waits, LIMIT, pause=0.02)


def cpu_seconds(roots: Sequence[int], span: float) -> float:
    """CPU time that these processes and all below them use in the next *span* seconds."""
    family = [pid for root in roots for pid in (root, *tree.descendants(root))]
    before = sum(map(_used, family))
    time.sleep(span)  # the span is what is measured
    return sum(map(_used, family)) - before


def _used(pid: int) -> float:
    fields = tree.stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) * TICK if fields else 0.0
