"""kazoo's locks, Curator's queue of nodes, and lockctl keep each other out under one node."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.contract.harness import claim, refused, take
from tests.jobs import LIMIT, eventually
from tests.stores.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from lockctl.model import Claim, LockInfo
    from tests.jobs import Lockctl
    from tests.servers.zookeeper import ZooKeeper

__all__ = ["opened"]  # a fixture

# what a user of kazoo runs: says when it has the lock, and gives it back when its stdin is closed
KAZOO = """
import sys
from kazoo.client import KazooClient
client = KazooClient(hosts=sys.argv[1], timeout=2.0)
client.start()
lock = getattr(client, sys.argv[2])(sys.argv[3], "another program")
if not lock.acquire(blocking=sys.argv[4] == "wait", timeout=60 if sys.argv[4] == "wait" else None):
    sys.exit(9)
print("held", flush=True)
sys.stdin.read()
lock.release()
client.stop()
"""


class Run:
    """`lockctl` with its locks below a node that nobody else uses."""

    def __init__(self, lockctl: Lockctl, server: ZooKeeper, layout: str, opened: Callable[[str], Backend]) -> None:
        self.root = f"/interop-{os.urandom(6).hex()}"
        self.path = f"{self.root}/nightly"
        self.lockctl = lockctl
        self.options = ("-b", f"zookeeper://{server.address}{self.root}?layout={layout}", "-t", "4s")
        self.client, self.waiter = opened(self.options[1]), opened(self.options[1])

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.lockctl("run", *self.options, "-l", "nightly", *words)

    def holding(self) -> subprocess.Popen[str]:
        return self.lockctl.start_holding("nightly", *self.options)

    def waiting(self, *words: str) -> subprocess.Popen[str]:
        return self.lockctl.start("run", *self.options, "-l", "nightly", "-w", "30s", "--", *words)

    def refused(self, wanted: Claim | None = None) -> bool:
        return refused(self.client, wanted or claim())

    def seen(self) -> LockInfo:
        return self.client.inspect("nightly", timeout=LIMIT)


@pytest.fixture
def kazoo_layout(lockctl: Lockctl, zookeeper_server: ZooKeeper, opened: Callable[[str], Backend]) -> Run:
    return Run(lockctl, zookeeper_server, "kazoo", opened)


@pytest.fixture
def curator_layout(lockctl: Lockctl, zookeeper_server: ZooKeeper, opened: Callable[[str], Backend]) -> Run:
    return Run(lockctl, zookeeper_server, "curator", opened)


@pytest.fixture
def kazoo(zookeeper_server: ZooKeeper) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that uses one of kazoo's locks."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, path: str, mode: str = "wait") -> subprocess.Popen[str]:
        words = [sys.executable, "-c", KAZOO, zookeeper_server.address, kind, path, mode]
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT)


def has_it(process: subprocess.Popen[str]) -> bool:
    """Wait until it says that it has the lock."""
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(LIMIT) == 0


@pytest.fixture
def admin(zookeeper_server: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper_server.address)
    client.start()
    yield client
    client.stop()
    client.close()


def queued(admin: KazooClient, run: Run) -> int:
    try:
        return len(admin.get_children(run.path))
    except NoNodeError:
        return 0


@pytest.mark.parametrize("kind", ["Lock", "ReadLock", "WriteLock"])
def test_lockctl_is_refused_while_kazoo_holds_and_kazoo_while_lockctl_does(
    kazoo_layout: Run, kazoo: Callable[..., subprocess.Popen[str]], kind: str
) -> None:
    holder = kazoo(kind, kazoo_layout.path)
    assert has_it(holder)
    assert kazoo_layout.refused()
    seen = kazoo_layout.seen()
    assert (seen.state, seen.key, seen.holders[0].host) == ("foreign", kazoo_layout.path, "another program")
    let_go(holder)
    ours = kazoo_layout.holding()
    if kind != "ReadLock":  # kazoo's ReadLock does not know how to not wait
        assert kazoo(kind, kazoo_layout.path, "try").wait(LIMIT) == 9
    later = kazoo(kind, kazoo_layout.path)
    (waiter,) = eventually(lambda: kazoo_layout.seen().waiters)
    assert waiter.host == "another program"
    ours.terminate()
    assert has_it(later)
    assert kazoo_layout("--", "true").returncode == 75
    let_go(later)


def test_both_wait_in_one_queue_and_are_served_in_its_order(
    kazoo_layout: Run, kazoo: Callable[..., subprocess.Popen[str]], admin: KazooClient, lockctl: Lockctl
) -> None:
    done = lockctl.directory / "done"
    holder = kazoo_layout.holding()
    first = kazoo_layout.waiting("sh", "-c", f"echo ran >> {done}")
    eventually(lambda: queued(admin, kazoo_layout) == 2)
    second = kazoo("Lock", kazoo_layout.path)
    eventually(lambda: queued(admin, kazoo_layout) == 3)
    third = kazoo_layout.waiting("sh", "-c", f"echo ran >> {done}")
    eventually(lambda: queued(admin, kazoo_layout) == 4)
    holder.terminate()
    assert has_it(second)
    assert first.wait(LIMIT) == 0
    assert done.read_text() == "ran\n", "the third still waits"
    let_go(second)
    assert third.wait(LIMIT) == 0
    assert done.read_text() == "ran\nran\n"


def test_the_lock_of_a_kazoo_client_that_was_killed_comes_to_lockctl(
    kazoo_layout: Run, kazoo: Callable[..., subprocess.Popen[str]]
) -> None:
    holder = kazoo("Lock", kazoo_layout.path)
    assert has_it(holder)
    waiter = kazoo_layout.waiting("true")
    holder.kill()
    assert waiter.wait(LIMIT) == 0  # when its session of two seconds has ended


class CuratorMutex:
    """Curator's InterProcessMutex (LockInternals, StandardLockInternalsDriver): names, order and watches."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self.client = client
        self.path = path
        self.node: str | None = None

    def join(self) -> None:
        """createsTheLock: an ephemeral sequential node with protection."""
        made = self.client.create(
            f"{self.path}/_c_{uuid.uuid4()}-lock-", b"10.0.0.7", ephemeral=True, sequence=True, makepath=True
        )
        self.node = made.rpartition("/")[2]

    def ahead(self) -> str | None:
        """getsTheLock: the child before ours, by the text after the last "lock-", or by the whole name without it."""

        def fixed(name: str) -> str:
            _, marker, rest = name.rpartition("lock-")
            return rest if marker else name

        line = sorted(self.client.get_children(self.path), key=fixed)
        position = line.index(self.node)
        return line[position - 1] if position else None

    def acquire(self, limit: float) -> bool:
        """internalLockLoop: wait for the child before ours, and look again."""
        if self.node is None:
            self.join()
        while (before := self.ahead()) is not None:
            gone = threading.Event()
            try:
                self.client.get(f"{self.path}/{before}", watch=lambda _event, gone=gone: gone.set())
            except NoNodeError:
                continue
            if not gone.wait(limit):
                return False
        return True

    def release(self) -> None:
        self.client.delete(f"{self.path}/{self.node}")
        self.node = None


def test_lockctl_is_refused_while_a_curator_client_holds_and_runs_afterwards(
    curator_layout: Run, admin: KazooClient
) -> None:
    mutex = CuratorMutex(admin, curator_layout.path)
    assert mutex.acquire(LIMIT)
    assert curator_layout.refused()
    seen = curator_layout.seen()
    assert (seen.state, seen.holders[0].host) == ("foreign", "10.0.0.7")
    waiter = curator_layout.waiting("true")
    eventually(lambda: queued(admin, curator_layout) == 2)
    mutex.release()
    assert waiter.wait(LIMIT) == 0


def test_a_curator_client_waits_while_lockctl_holds_and_is_served_in_its_turn(
    curator_layout: Run, admin: KazooClient
) -> None:
    holder = curator_layout.holding()
    mutex = CuratorMutex(admin, curator_layout.path)
    assert not mutex.acquire(0.3)
    later = curator_layout.waiting("true")
    eventually(lambda: queued(admin, curator_layout) == 3)
    holder.terminate()
    assert mutex.acquire(LIMIT)
    assert later.poll() is None
    mutex.release()
    assert later.wait(LIMIT) == 0


def test_kazoo_told_of_curators_names_and_lockctl_keep_each_other_out(curator_layout: Run, admin: KazooClient) -> None:
    lock = admin.Lock(curator_layout.path, "mixed", extra_lock_patterns=["lock-"])
    assert lock.acquire(timeout=LIMIT)
    assert curator_layout.refused()
    lock.release()
    grant = take(curator_layout.client, claim())
    assert not lock.acquire(blocking=False)
    curator_layout.client.release(grant, timeout=LIMIT)
    assert lock.acquire(timeout=LIMIT)
    lock.release()


def test_the_parent_that_curator_makes_and_removes_is_made_again(curator_layout: Run, admin: KazooClient) -> None:
    assert not curator_layout.refused()
    admin.delete(curator_layout.path)
    assert not curator_layout.refused()
