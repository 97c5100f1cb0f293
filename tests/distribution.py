"""Which tests run in the same worker of pytest-xdist, which first, and when one begins: all should end together.

What needs the servers of one backend stays in one worker, which starts them once; so does a file whose tests share
something that takes long to make, and a file of tests that are quick. All others go test by test.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from xdist.workermanage import WorkerController

SERVED = (
    "redlock",
    "redis",
    "etcd",
    "consul",
    "zookeeper",
    "postgresql",
    "mysql",
    "s3",
    "gcs",
    "azblob",
    "dynamodb",
    "nats",
    "kubernetes",
)
SERVER = re.compile(rf"(?<![a-z0-9])({'|'.join(SERVED)})(?![a-z0-9])")
# folders whose tests of one backend are together in a worker, which starts its servers once for all of them
LONG = {"contract": "contract", "stores": "contract", "fence": "faults", "faults": "faults"}
WHOLE = (
    "unit/",
    "surface/test_wheel.py",
    "fence/test_s3.py",
    "fence/test_http.py",
    "fence/test_asgi.py",
    "fence/test_wsgi.py",
    "contract/test_toy.py",
)
# each needs the servers of nearly all backends
MANY = ("faults/test_hiccup.py::test_a_server_that_answers_late", "faults/test_wide_area.py")
# about how long a test takes where it is much more than in other places
SECONDS = {
    "run/test_cron.py": 60.0,
    "surface/test_packages.py": 80.0,
    "run/test_watch.py::test_thousands_of_locks": 15.0,
    "faults/test_hiccup.py::test_a_server_that_answers_late": 30.0,
    "faults/test_wide_area.py": 20.0,
    "lostupdate": 15.0,
    "simulation/test_histories.py::test_nothing_is_wrong": 40.0,
    "simulation/test_histories.py::test_each_fault": 20.0,
    "simulation": 2.0,
    "faults": 3.0,
    "promises": 4.0,
    "fleet": 3.0,
    "bench": 8.0,
    "surface/test_wheel.py": 1.0,
    "contract": 0.8,
    "fence": 1.5,
    "unit/wire/test_http.py": 0.5,
    "unit": 0.05,
}
USUAL = 0.4  # seconds
RUNNING = 4  # processes for each processor: where more run already, another test would only make theirs late
NOT_YET = 0.02  # seconds between two looks at them
AT_LAST = 1.0  # seconds after which a test begins all the same
AHEAD = 2  # tests: a worker that has more is given no further scope


def scope_of(nodeid: str) -> str:
    """What a test has in common with those that run in its worker."""
    path = nodeid.partition("tests/")[2]
    if path.startswith(WHOLE):
        return nodeid.partition("::")[0]
    if path.startswith(MANY):
        return "many servers"
    server = SERVER.search(path)
    return f"{server[0]} {LONG.get(path.partition('/')[0], 'others')}" if server else nodeid


def seconds_of(nodeid: str) -> float:
    """About how long a test takes."""
    path = nodeid.partition("tests/")[2]
    return next((seconds for begin, seconds in SECONDS.items() if path.startswith(begin)), USUAL)


def longest_first(nodeids: Iterable[str]) -> dict[str, float]:
    """A number for each test by which they are sorted: those that stay together have the same."""
    scopes = {nodeid: scope_of(nodeid) for nodeid in nodeids}
    total: Counter[str] = Counter()
    for nodeid, scope in scopes.items():
        total[scope] += seconds_of(nodeid)  # type: ignore[assignment]
    return {nodeid: -total[scope] for nodeid, scope in scopes.items()}


def await_a_processor() -> None:
    """Return when another test can have its share of one, as far as the kernel tells."""
    allowed = 1 + RUNNING * (os.cpu_count() or 1)  # with this process
    until = time.monotonic() + AT_LAST
    with contextlib.suppress(OSError):
        while int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) > allowed and time.monotonic() < until:
            time.sleep(NOT_YET)


class ByServers(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes the tests in the order in which they come, whole scopes."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        """Without the order of xdist, which looks at the number of tests."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def remove_node(self, node: WorkerController) -> str | None:
        """Give the tests that *node* has not run to others, and tell in which test it ended.

        xdist would give away finished scopes, too, and the test that ended the worker: a worker that is given nothing
        waits for its next test for ever.
        """
        left = [
            (scope, {nodeid: done for nodeid, done in unit.items() if not done})
            for scope, unit in self.assigned_work.pop(node).items()
            if not all(unit.values())
        ]
        if not left:
            return None
        crashed: str = next(iter(left[0][1]))
        del left[0][1][crashed]
        self.workqueue.update((scope, unit) for scope, unit in left if unit)
        for each in self.nodes:
            self._reschedule(each)
        return crashed

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker a scope; one that has just ended does not get it, and ``remove_node`` gives it to others."""
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Keep some tests ahead: a worker runs a test when it knows the next one, or that there is none.

        One that takes the place of another has to tell first what it collected.
        """
        if node.shutting_down or node not in self.registered_collections:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= AHEAD:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
