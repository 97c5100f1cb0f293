"""A server that does not answer, in every way: no request outlives its limit, no job its deadline."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
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


def test_acquiring_ends_with_69_within_its_limit_and_nothing_runs(
    place: Place, networks: dict[str, Network], lockctl: Lockctl, tmp_path: Path
) -> None:
    def attempt(way: str) -> str:
        url = place.url(networks[way].addresses, "h" + os.urandom(6).hex(), lockctl.directory)
        networks[way].fail(way)
        before = time.monotonic()
        # a short lease: a trickle that brings the whole answer at last brings it too late
        done = lockctl("run", "-b", url, "-t", "5s", "-l", "nightly", "--", "touch", str(tmp_path / way))
        took = time.monotonic() - before
        if done.returncode != 69 or (tmp_path / way).exists() or done.stderr.count("\n") != 1:
            return f"status {done.returncode}, {done.stderr}"
        return "" if took < ACQUIRE_TIMEOUT + GIVE_BACK_TIMEOUT + BUSY else f"took {took} s"

    all_at_once(attempt, WAYS)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="another resolver for one process needs root (unshare -m)")
def test_dead_name_servers_end_with_69_within_the_limit(
    place: Place, servers: Any, lockctl: Lockctl, tmp_path: Path
) -> None:
    name_server = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # other tests may have theirs now
    (tmp_path / "resolv.conf").write_text(f"nameserver {name_server}\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    ports = [address.rpartition(":")[2] for address in addresses_of(servers)]
    url = place.url([f"db{number}.example:{port}" for number, port in enumerate(ports)], "h", lockctl.directory)
    tool = shutil.which("unshare")
    assert tool is not None
    line = (
        "mount --bind $0/resolv.conf /etc/resolv.conf && mount --bind $0/nsswitch.conf /etc/nsswitch.conf"
        ' && ip link set lo up; exec "$@"'
    )
    command = [tool, "-m", "sh", "-c", line, str(tmp_path), lockctl.command, "run", "-b", url, "-l", "nightly"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((name_server, 53))  # takes every question and answers none
        before = time.monotonic()
        done = subprocess.run(
            [*command, "--", "touch", str(tmp_path / "ran")],
            env=lockctl.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        took = time.monotonic() - before
    assert done.returncode == 69, done.stderr
    assert took < ACQUIRE_TIMEOUT + GIVE_BACK_TIMEOUT + BUSY
    assert not (tmp_path / "ran").exists()
