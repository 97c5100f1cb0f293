"""A server that does not answer, in every way: no request outlives its limit, no job its deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.lease.acquire import ACQUIRE_TIMEOUT
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT
from lockctl.lease.schedule import plan
from lockctl.registry import load
from tests.faults.backends import SERVED, addresses_of, on_backends
from tests.faults.network import Network
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from subprocess import Popen

    from tests.faults.backends import Place
    from tests.jobs import Lockctl

pytestmark = pytest.mark.parametrize("backend_name", on_backends(*SERVED))

WAYS = ("blackhole", "drop_replies", "trickle", "reset", "refuse")
NO_NAMES = "dead name servers"
TTL, GRACE = 4.0, 0.5  # seconds
BUSY = 4.0  # seconds for starting and ending processes when all of this runs at once
STAMP = """
import os, sys, time
path = sys.argv[1]
while True:
    with open(path + ".new", "w") as file:
        file.write(str(time.clock_gettime(time.CLOCK_BOOTTIME)))
    os.rename(path + ".new", path)
    time.sleep(0.02)
"""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def networks(servers: Any) -> Iterator[dict[str, Network]]:
    """A network for each way of failing: they are tried side by side."""
    made = {way: Network(servers) for way in WAYS}
    yield made
    for network in made.values():
        network.close()


def all_at_once(call: Callable[[str], str], ways: tuple[str, ...]) -> None:
    """Try all ways side by side; each says what was wrong, or nothing."""
    with ThreadPoolExecutor(len(ways)) as pool:
        wrong = {way: said for way, said in zip(ways, pool.map(call, ways), strict=True) if said}
    assert not wrong


@contextlib.contextmanager
def dead_name_servers(directory: Path) -> Iterator[list[str]]:
    """What is put before a command whose questions for names nobody answers."""
    address = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # other tests may have theirs now
    (directory / "resolv.conf").write_text(f"nameserver {address}\n")
    (directory / "nsswitch.conf").write_text("hosts: dns\n")
    line = (
        "mount --bind $0/resolv.conf /etc/resolv.conf && mount --bind $0/nsswitch.conf /etc/nsswitch.conf"
        ' && ip link set lo up; exec "$@"'
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((address, 53))  # takes every question and answers none
        yield ["unshare", "-m", "sh", "-c", line, str(directory)]


def test_acquiring_ends_with_69_within_its_limit_and_nothing_runs(
    place: Place, servers: Any, networks: dict[str, Network], lockctl: Lockctl, tmp_path: Path
) -> None:
    def attempt(way: str) -> str:
        if way == NO_NAMES:
            ports = [address.rpartition(":")[2] for address in addresses_of(servers)]
            addresses = [f"db{number}.example:{port}" for number, port in enumerate(ports)]
        else:
            addresses = networks[way].addresses
            networks[way].fail(way)
        url = place.url(addresses, "h" + os.urandom(6).hex(), lockctl.directory)
        before = time.monotonic()
        # a short lease: a trickle that brings the whole answer at last brings it too late
        words = ("-b", url, "-t", "5s", "-l", "nightly", "--", "touch", str(tmp_path / way))
        done = lockctl("run", *words, within=unnamed if way == NO_NAMES else ())
        took = time.monotonic() - before
        if done.returncode != 69 or (tmp_path / way).exists() or done.stderr.count("\n") != 1:
            return f"status {done.returncode}, {done.stderr}"
        return "" if took < ACQUIRE_TIMEOUT + GIVE_BACK_TIMEOUT + BUSY else f"took {took} s"

    with dead_name_servers(tmp_path) as unnamed:
        all_at_once(attempt, (*WAYS, NO_NAMES) if os.geteuid() == 0 else WAYS)  # another resolver needs root


def test_a_running_job_is_stopped_by_its_deadline_and_no_sooner(
    place: Place, backend_name: str, networks: dict[str, Network], lockctl: Lockctl, tmp_path: Path
) -> None:
    schedule = plan(TTL, GRACE, load(backend_name).capabilities)
    # a session lock of PostgreSQL is gone with its connection: there a closed one is a certain loss
    ends_at_once = ("reset", "refuse") if backend_name == "postgresql" else ()

    def rehearse(way: str) -> str:
        url = place.url(networks[way].addresses, "h" + os.urandom(6).hex(), lockctl.directory)
        stamps = tmp_path / way
        words = (
            "-b",
            url,
            "-t",
            f"{TTL}s",
            "-k",
            f"{GRACE}s",
            "--",
            sys.executable,
            "-I",
            "-S",
            "-c",
            STAMP,
            str(stamps),
        )
        job = lockctl.start("run", "-l", "nightly", *words)
        eventually(stamps.exists)
        time.sleep(2 * schedule.interval)  # it has renewed its lease through the network
        failed_at = now()
        networks[way].fail(way)
        status = job.wait(LIMIT)
        ended_at, last_stamp = now(), float(stamps.read_text())
        wrong = [] if status == 76 else [f"status {status}"]
        # the last renewal that was answered was sent at most one interval (and what a request may take) before
        soonest = (
            schedule.signal_at(schedule.deadline(failed_at, TTL)) - 1.2 * schedule.interval - schedule.request_timeout
        )
        if last_stamp < soonest - 0.1 and way not in ends_at_once:
            wrong.append(f"stopped {soonest - last_stamp} s too soon")
        if last_stamp > schedule.deadline(failed_at, TTL):
            wrong.append(f"still alive {last_stamp - failed_at} s after the failure")
        if ended_at > failed_at + TTL + GRACE + BUSY:
            wrong.append(f"exited {ended_at - failed_at} s after the failure")
        return ", ".join(wrong)

    all_at_once(rehearse, WAYS)


def test_a_server_that_is_stopped_is_no_different(place: Place, servers: Any, lockctl: Lockctl, tmp_path: Path) -> None:
    stamps = tmp_path / "stamps"
    words = ("-t", f"{TTL}s", "-k", f"{GRACE}s", "--", sys.executable, "-I", "-S", "-c", STAMP, str(stamps))
    job: Popen[str] = lockctl.start("run", "-l", "nightly", *words)
    eventually(stamps.exists)
    paused = servers if isinstance(servers, list) else [servers]
    for server in paused:
        server.pause()
    try:
        stopped_at = now()
        refused = lockctl.start("run", "-l", "other", "--", "touch", str(tmp_path / "ran"))
        assert job.wait(LIMIT) == 76
        assert now() - stopped_at < TTL + GRACE + 2
        assert float(stamps.read_text()) - stopped_at < TTL
        assert refused.wait(LIMIT) == 69
        assert now() - stopped_at < ACQUIRE_TIMEOUT + GIVE_BACK_TIMEOUT + BUSY
        assert not (tmp_path / "ran").exists()
    finally:
        for server in paused:
            server.resume()
    # what the stopped server still had to do does not hold the lock for longer than a lease
    limit = f"{place.freed_within / place.ttl * 30 + 5}s"
    assert lockctl("run", "-l", "nightly", "--wait", limit, "--", "true", limit=90).returncode == 0


def test_a_signal_ends_an_attempt_that_gets_no_answer(
    place: Place, networks: dict[str, Network], lockctl: Lockctl
) -> None:
    url = place.url(networks["blackhole"].addresses, "h" + os.urandom(6).hex(), lockctl.directory)
    networks["blackhole"].fail("blackhole")
    waiting = lockctl.start("run", "-b", url, "-l", "nightly", "--wait", "forever", "--", "true")
    time.sleep(1.0)  # it has sent its request and waits for the answer
    asked = time.monotonic()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT) == 128 + signal.SIGTERM
    assert time.monotonic() - asked < 0.5 + 2 * BUSY  # HURRIED_TIMEOUT for leaving no trace; the attempt has 10 s
