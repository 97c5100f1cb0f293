"""TERM and INT end a run that waits at once, and nothing of it is left."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.lease.acquire import HURRIED_TIMEOUT
from lockctl.supervise import tree
from tests.faults.backends import addresses_of, on_backends, on_kinds
from tests.faults.waiting import await_waiting
from tests.jobs import LIMIT, alive, best_of_a_few, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.backends import Place
    from tests.jobs import Lockctl
    from tests.servers.proxy import Proxy

AT_ONCE = 0.2  # seconds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("backend_name", on_kinds())
def test_a_signal_ends_the_wait_at_once_and_leaves_nothing_behind(lockctl: Lockctl, number: int) -> None:
    holder = lockctl.start_holding("a", "-t", "30s")
    ran = lockctl.directory / ".ran"

    def attempt() -> float:
        waiter = lockctl.start("run", "-l", "a", "-t", "30s", "--wait", "forever", "--", "touch", str(ran))
        await_waiting(lockctl, "a", [waiter])
        family = tree.descendants(waiter.pid)
        assert family
        begin = time.monotonic()
        tree.send(waiter.pid, number)
        assert waiter.wait(timeout=LIMIT) == 128 + number
        took = time.monotonic() - begin
        assert json.loads(lockctl("inspect", "a", "--json").stdout)["waiters"] in ([], None)
        assert not [pid for pid in family if alive(pid)]
        return took

    best_of_a_few(attempt, AT_ONCE)
    assert not ran.exists()
    holder.terminate()
    holder.wait(timeout=LIMIT)
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0, "whoever waited holds up nobody"


@pytest.mark.parametrize("backend_name", on_backends("consul"))
@pytest.mark.parametrize("when", ["while it waits", "from the beginning"])
def test_a_signal_ends_at_once_a_run_whose_server_has_fallen_silent(
    lockctl: Lockctl, place: Place, servers: Any, start_proxy: Callable[..., Proxy], when: str
) -> None:
    """Who has nothing at the server waits for nothing; a waiter tries to give up its position for half a second."""
    lockctl.start_holding("a", "-t", "30s")
    proxy = start_proxy(addresses_of(servers)[0])
    lockctl.url = place.url([proxy.address], lockctl.url.partition("prefix=")[2].rstrip("/"), lockctl.directory)

    def attempt() -> float:
        proxy.mode = "pass" if when == "while it waits" else "blackhole"
        before = proxy.accepted
        waiter = lockctl.start("run", "-l", "a", "--wait", "forever", "--", "true")
        eventually(lambda: proxy.accepted > before)
        time.sleep(0.5)  # whatever it does by then, the signal ends it
        proxy.mode = "blackhole"
        begin = time.monotonic()
        waiter.send_signal(signal.SIGTERM)
        assert waiter.wait(LIMIT) == 128 + signal.SIGTERM
        return time.monotonic() - begin

    # where it waited it tries for a moment to give up its position
    best_of_a_few(attempt, AT_ONCE + (HURRIED_TIMEOUT if when == "while it waits" else 0.0))


@pytest.mark.parametrize("backend_name", on_backends("redis"))
def test_who_asks_again_and_again_ends_a_bench_whose_server_has_fallen_silent(
    lockctl: Lockctl, servers: Any, start_proxy: Callable[..., Proxy]
) -> None:
    """At first it has the locks given back, and tries to leave no record; then it waits for nothing any more."""
    proxy = start_proxy(addresses_of(servers)[0])

    def attempt() -> float:
        proxy.mode = "pass"
        bench = lockctl.start("bench", "-b", f"redis://{proxy.address}/0", "--rounds", "1", "--for", "60s")
        eventually(lambda: len(tree.children(bench.pid)) > 1)
        proxy.mode = "blackhole"
        begin = time.monotonic()
        while bench.poll() is None:
            bench.send_signal(signal.SIGINT)
            time.sleep(AT_ONCE / 4)
        return time.monotonic() - begin

    best_of_a_few(attempt, 3 * AT_ONCE)
