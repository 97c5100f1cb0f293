"""`etcdctl lock`, Go's `concurrency.Mutex` behind the gateway, and lockctl keep each other out, in one queue."""

from __future__ import annotations

import base64
import contextlib
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.model import SHARED, SLOT
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.harness import Background, claim, refused, take, waiters
from tests.contract.remembering import a_run
from tests.jobs import LIMIT, eventually
from tests.servers import programs
from tests.stores.etcd.conftest import prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.etcd import Etcd

    Start = Callable[..., subprocess.Popen[str]]

__all__ = ["prefix"]  # a fixture


@pytest.fixture
def backend(etcd_server: Etcd, prefix: str) -> tuple[str, str]:
    """The options that lead lockctl there."""
    return ("-b", f"etcd://{etcd_server.address}/?prefix={prefix}")


@pytest.fixture
def etcdctl_lock(etcd_server: Etcd, prefix: str) -> Iterator[Start]:
    """Start `etcdctl lock` on the lock `nightly`, with a command, or else until it is interrupted."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = ("--", *words) if words else ()
        process = subprocess.Popen(
            [programs.find("etcdctl"), f"--endpoints={etcd_server.url}", "lock", f"{prefix}nightly", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=programs.environment(ETCDCTL_API="3"),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        end(process)


@pytest.fixture
def client(etcd_server: Etcd, prefix: str) -> Iterator[Backend]:
    """A client of lockctl's own."""
    made = open_backend(parse_url(f"etcd://{etcd_server.address}/?prefix={prefix}"))
    yield made
    made.close()


def end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)


def acquired(process: subprocess.Popen[str]) -> str:
    """The key of the lock, which `etcdctl lock` prints when it has it."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def queue(server: Etcd, prefix: str) -> list[str]:
    return [*server.read(f"{prefix}nightly/")]


def test_etcdctl_waits_while_lockctl_holds_and_goes_on_when_it_ends(
    lockctl: Lockctl, backend: tuple[str, str], client: Backend, etcdctl_lock: Start, etcd_server: Etcd, prefix: str
) -> None:
    holder = lockctl.start_holding("nightly", *backend)
    other = etcdctl_lock()
    eventually(lambda: len(queue(etcd_server, prefix)) == 2)
    shown = client.inspect("nightly", timeout=LIMIT)
    assert (shown.state, shown.key) == ("held", f"{prefix}nightly")
    (waiter,) = shown.waiters or ()
    assert (waiter.host, waiter.pid, waiter.user, waiter.since) == (None, None, None, None)
    holder.terminate()
    assert holder.wait(LIMIT) == 128 + signal.SIGTERM
    assert acquired(other) == queue(etcd_server, prefix)[0]


def test_lockctl_is_refused_while_etcdctl_holds_and_goes_on_when_it_ends(
    lockctl: Lockctl, backend: tuple[str, str], client: Backend, etcdctl_lock: Start, locks: Path
) -> None:
    other = etcdctl_lock()
    assert acquired(other)
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert lockctl("run", *backend, "-l", "nightly", "--", "true").returncode == 75
    marker = locks / "ran"
    waiter = lockctl.start("run", *backend, "-l", "nightly", "-w", "20", "--", "touch", str(marker))
    eventually(lambda: waiters(client) == 1)
    assert not marker.exists()
    end(other)
    assert waiter.wait(LIMIT) == 0
    assert marker.exists()


def test_both_wait_in_one_queue_and_are_served_in_the_order_they_came(
    lockctl: Lockctl, backend: tuple[str, str], etcdctl_lock: Start, etcd_server: Etcd, prefix: str, locks: Path
) -> None:
    log = locks / "log"
    holder = lockctl.start_holding("nightly", *backend)
    turns = []
    for number in range(4):
        words = ("sh", "-c", f"echo {number} >> {log}")
        if number % 2:
            turns.append(etcdctl_lock(*words))
        else:
            turns.append(lockctl.start("run", *backend, "-l", "nightly", "-w", "forever", "--", *words))
        eventually(lambda number=number: len(queue(etcd_server, prefix)) == number + 2)  # type: ignore[misc]
    holder.terminate()
    holder.wait(LIMIT)
    assert [turn.wait(LIMIT) for turn in turns] == [0, 0, 0, 0]
    assert log.read_text().split() == ["0", "1", "2", "3"]


def test_contenders_of_both_kinds_are_never_inside_together(
    lockctl: Lockctl, backend: tuple[str, str], etcdctl_lock: Start, locks: Path
) -> None:
    inside = locks / "inside"
    job = ("sh", "-c", f"mkdir {inside} && sleep 0.05 && rmdir {inside}")
    contenders = [etcdctl_lock(*job) for _ in range(4)]
    contenders += [lockctl.start("run", *backend, "-l", "nightly", "-w", "60", "--", *job) for _ in range(4)]
    assert [contender.wait(LIMIT) for contender in contenders] == [0] * 8


def test_the_mutex_of_the_server_itself_excludes_and_is_excluded(
    client: Backend, etcd_server: Etcd, prefix: str
) -> None:
    name = base64.b64encode(f"{prefix}nightly".encode()).decode()
    _, lease = etcd_server.request("/v3/lease/grant", {"TTL": "30"})
    _, held = etcd_server.request("/v3/lock/lock", {"name": name, "lease": lease["ID"]})
    assert refused(client, claim())
    etcd_server.request("/v3/lock/unlock", {"key": held["key"]})
    take(client, claim())
    with pytest.raises(OSError, match="timed out"):
        etcd_server.request("/v3/lock/lock", {"name": name, "lease": lease["ID"]})
    etcd_server.request("/v3/lease/revoke", {"ID": lease["ID"]})


def test_an_operator_frees_a_lock_of_etcdctl(lockctl: Lockctl, backend: tuple[str, str], etcdctl_lock: Start) -> None:
    assert acquired(etcdctl_lock())
    done = lockctl("force-release", *backend, "nightly", "--yes")
    assert done.returncode != 0
    assert "another program" in done.stderr
    assert lockctl("force-release", *backend, "nightly", "--yes", "--now").returncode == 0
    assert lockctl("run", *backend, "-l", "nightly", "--", "true").returncode == 0


def test_a_key_that_etcdctl_deletes_stops_the_job_within_a_second(
    lockctl: Lockctl, backend: tuple[str, str], etcd_server: Etcd, prefix: str
) -> None:
    holder = lockctl.start_holding("nightly", *backend)
    eventually(lambda: queue(etcd_server, prefix))
    etcd_server.command("del", f"{prefix}nightly/", "--prefix")
    assert holder.wait(2.5) == 76


@pytest.mark.parametrize(("mode", "slots"), [(SHARED, 1), (SLOT, 3)])
def test_etcdctl_waits_for_the_last_of_several_holders_and_they_for_it(
    client: Backend, etcdctl_lock: Start, etcd_server: Etcd, prefix: str, mode: str, slots: int
) -> None:
    grants = [take(client, claim(mode=mode, slots=slots)) for _ in range(2)]
    other = etcdctl_lock()
    assert other.stdout is not None
    eventually(lambda: len(queue(etcd_server, prefix)) == 3)
    assert refused(client, claim(mode=mode, slots=slots)), "it came first"
    mine = claim(mode=mode, slots=slots)
    waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
    eventually(lambda: len(queue(etcd_server, prefix)) == 4)
    client.release(grants[1], timeout=LIMIT)
    assert client.inspect("nightly", timeout=LIMIT).holders[0].token == grants[0].token
    assert not select.select([other.stdout], [], [], 0.5)[0]
    client.release(grants[0], timeout=LIMIT)
    assert acquired(other) == queue(etcd_server, prefix)[0]
    assert waits.running
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert refused(client, claim(mode=mode, slots=slots))
    end(other)
    waits.result()
    assert take(client, mine).token > grants[1].token


def test_etcdctl_is_kept_out_by_a_hold_until_its_end(client: Backend, etcdctl_lock: Start) -> None:
    grant = take(client, claim())
    released = time.monotonic()
    client.release(grant, timeout=LIMIT, hold=3.0)
    assert acquired(etcdctl_lock())
    assert 3.0 <= time.monotonic() - released < 5.0


def test_etcdctl_does_not_find_a_lock_in_what_is_remembered(
    client: Backend, etcdctl_lock: Start, etcd_server: Etcd, prefix: str
) -> None:
    grant = take(client, claim())
    client.note_success(grant, timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert queue(etcd_server, prefix) == []
    assert acquired(etcdctl_lock())
