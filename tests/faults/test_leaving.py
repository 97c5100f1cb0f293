"""Who stops waiting leaves nothing at a server that is far away: no lock that it had already, no place in a queue."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import SERVED, addresses_of, on_backends, on_sample
from tests.faults.network import Network
from tests.faults.waiting import await_in_queue
from tests.fleet.hosts import inspect
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

everywhere = pytest.mark.parametrize("backend_name", on_backends(*SERVED))
of_each_kind = pytest.mark.parametrize("backend_name", on_sample(*SERVED))

FAR, FARTHER = "delay=0.05", "delay=0.1"  # seconds, each way
EARLIER = [f"a{number}" for number in range(3)]  # locks that are free
TTL = "20s"  # nothing of this test ends with its lease
INTERVAL = 3.0  # seconds between two renewals of the locks that a waiter with a lease of nine has


@pytest.fixture
def network(servers: Any) -> Iterator[Network]:
    made = Network(servers)
    yield made
    made.close()


@pytest.fixture
def far(place: Place, backend_name: str, network: Network, servers: Any, lockctl: Lockctl) -> str:
    """The URL by which the waiter finds the servers, far away; all others have them here."""
    word = "t" + os.urandom(6).hex()
    url = place.url(network.addresses, word, lockctl.directory)
    # Redlock's clients must name the same nodes
    lockctl.url = url if backend_name == "redlock" else place.url(addresses_of(servers), word, lockctl.directory)
    if backend_name == "kubernetes":
        (lockctl.directory / "far").mkdir()
        url = place.url(network.addresses, word, lockctl.directory / "far")
    return url


@everywhere
def test_who_is_told_to_end_while_it_waits_for_the_last_of_several_locks_holds_none_of_them(
    far: str, network: Network, lockctl: Lockctl
) -> None:
    lockctl.start_holding("z", "-t", TTL)
    network.fail(FAR)
    names = [word for name in (*EARLIER, "z") for word in ("-l", name)]
    waiting = lockctl.start("run", "-b", far, "-t", TTL, "-w", "forever", *names, "--", "true", stderr=-1)
    await_in_queue(lockctl, "z", waiting)
    assert {inspect(lockctl, name)["state"] for name in EARLIER} == {"held"}
    waiting.send_signal(signal.SIGTERM)
    _, said = waiting.communicate(timeout=LIMIT)
    assert (waiting.returncode, said) == (128 + signal.SIGTERM, "")
    network.fail("pass")
    assert {name: inspect(lockctl, name)["state"] for name in EARLIER} == dict.fromkeys(EARLIER, "free")
    assert not inspect(lockctl, "z")["waiters"]


@everywhere
def test_who_is_told_to_end_while_it_waits_for_one_lock_keeps_nobody_out(
    far: str, network: Network, lockctl: Lockctl
) -> None:
    holder = lockctl.start_holding("z", "-t", TTL)
    network.fail(FARTHER)
    waiting = lockctl.start("run", "-b", far, "-t", TTL, "-l", "z", "-w", "forever", "--", "true")
    await_in_queue(lockctl, "z", waiting)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT) == 128 + signal.SIGTERM
    network.fail("pass")
    assert not inspect(lockctl, "z")["waiters"]
    holder.send_signal(signal.SIGTERM)
    holder.wait(LIMIT)
    done = lockctl("run", "-t", TTL, "-l", "z", "--", "true")
    assert done.returncode == 0, done.stderr


@of_each_kind
def test_a_signal_ends_a_wait_in_which_the_other_locks_cannot_be_renewed(
    far: str, network: Network, lockctl: Lockctl
) -> None:
    lockctl.start_holding("z", "-t", TTL)
    words = ("-t", "9s", "-w", "forever", "-l", "a", "-l", "b", "-l", "z", "--", "true")
    waiting = lockctl.start("run", "-b", far, *words)
    await_in_queue(lockctl, "z", waiting)
    network.fail("blackhole")
    time.sleep(INTERVAL + 0.5)  # it waits for the answer to a renewal, for up to 10 s
    asked = time.monotonic()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT) == 128 + signal.SIGTERM
    assert time.monotonic() - asked < 6.0


@of_each_kind
def test_a_lock_that_cannot_be_given_back_at_the_end_of_a_wait_is_told(
    far: str, network: Network, lockctl: Lockctl
) -> None:
    lockctl.start_holding("z", "-t", TTL)
    report = lockctl.directory / "report"
    words = ("-t", TTL, "-w", "forever", "--report", str(report), "-l", "a", "-l", "b", "-l", "z", "--", "true")
    waiting = lockctl.start("run", "-b", far, *words, stderr=-1)
    await_in_queue(lockctl, "z", waiting)
    network.fail("blackhole")
    waiting.send_signal(signal.SIGTERM)
    _, said = waiting.communicate(timeout=LIMIT)
    assert waiting.returncode == 128 + signal.SIGTERM
    assert said.count("\n") == 1
    assert "could not release the lock; it becomes free when its lease ends: a, b: " in said
    assert json.loads(report.read_text())["not_released"].startswith("a, b: ")
    network.fail("pass")
    eventually(lambda: inspect(lockctl, "z")["state"] == "held", LIMIT)
