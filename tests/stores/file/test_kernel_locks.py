"""What the kernel says of locks, beside others that come and go."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.stores.file import wait
from lockctl.stores.file.inspect import find
from lockctl.stores.file.queue import KernelLocks
from lockctl.supervise import tree
from tests.contract.harness import LIMIT, take
from tests.contract.waiting import start_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contract.test_file import FileHarness

# two hundred locks, of which half come and go, until the test has ended
CROWD = """
import fcntl, os, sys
files = [open(f"{sys.argv[1]}/{number}", "w") for number in range(200)]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for file in files[::2]:
        fcntl.flock(file, fcntl.LOCK_UN)
    for file in files[::2]:
        fcntl.flock(file, fcntl.LOCK_EX)
"""


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", CROWD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield
        finally:
            process.kill()


@pytest.mark.usefixtures("crowd")
def test_a_held_lock_is_seen_beside_hundreds_that_come_and_go(harness: FileHarness) -> None:
    client = harness.client()
    take(client, harness.claim())
    seen = [client.inspect("nightly", timeout=LIMIT).state for _ in range(500)]
    assert set(seen) == {"held"}


@pytest.mark.usefixtures("crowd")
def test_another_program_is_one_holder_beside_hundreds_of_locks_that_come_and_go(harness: FileHarness) -> None:
    client = harness.client()
    with harness.foreign_hold("nightly"):
        seen = [len(client.inspect("nightly", timeout=LIMIT).holders) for _ in range(120)]
    assert max(seen) == 1


def test_a_lock_that_a_list_of_the_kernel_lacks_is_held_if_its_holder_lives_and_another_list_has_it(
    harness: FileHarness,
) -> None:
    client = harness.client()
    before = KernelLocks()
    grant = take(client, harness.claim())
    lock = find("nightly", grant.key, before)
    assert lock is not None
    assert (lock.state, [holder.token for holder in lock.holders]) == ("held", [grant.token])


def test_a_lock_that_is_given_back_while_it_is_looked_at_is_free_and_no_other_programs(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    before = KernelLocks()
    client.release(grant, timeout=LIMIT)
    lock = find("nightly", grant.key, before)
    assert lock is not None
    assert (lock.state, lock.holders) == ("free", ())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_the_end_of_a_helper_of_a_waiter_takes_no_processor_from_who_has_the_lock(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "RECHECK", 60.0)  # who waits does not look for itself
    before = set(tree.children(os.getpid()))
    holder, waiter = harness.client(), harness.client()
    grant, claim = take(holder, harness.claim(ttl=60.0)), harness.claim(ttl=60.0)
    waiting = start_waiting(waiter, claim, holder)
    (helper,) = set(tree.children(os.getpid())) - before
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    assert os.sched_getscheduler(helper) == os.SCHED_IDLE  # it is collected later
    take(waiter, claim)


def test_a_lock_is_seen_on_a_subvolume_whose_device_the_list_of_the_kernel_does_not_name(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As btrfs has them: the status of a file says a device number that no mount has."""
    client = harness.client()
    grant = take(client, harness.claim())
    stat, fstat, device = os.stat, os.fstat, os.makedev(0, (1 << 20) - 1)

    def of_subvolume(real: Callable[..., os.stat_result], *words: object, **more: object) -> os.stat_result:
        seen = real(*words, **more)
        return os.stat_result((*seen[:2], device, *seen[3:]))

    monkeypatch.setattr("lockctl.stores.file.queue._has_namesake", lambda _pid, _seen: False)  # /proc knows better
    monkeypatch.setattr(os, "fstat", functools.partial(of_subvolume, fstat))
    monkeypatch.setattr(os, "stat", functools.partial(of_subvolume, stat))
    lock = find("nightly", grant.key, KernelLocks())
    assert lock is not None
    assert (lock.state, [holder.token for holder in lock.holders]) == ("held", [grant.token])


def test_the_holder_of_a_file_with_the_same_number_on_another_subvolume_has_nothing_to_do_with_it(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    seen = Path(grant.key).stat()
    elsewhere = os.stat_result((*seen[:2], os.makedev(0, (1 << 20) - 1), *seen[3:]))
    monkeypatch.setattr("lockctl.mounts.superblock", lambda _path, _device: seen.st_dev)
    locks = KernelLocks()
    assert locks.of(grant.key, seen).holding
    assert not locks.of(grant.key, elsewhere).holding
