"""Readers and slots beside the locks of kazoo and Curator: who keeps whom out, in both directions."""

from __future__ import annotations

import functools
import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import claim, one_of, reader, take, waiters
from tests.contract.waiting import start_waiting
from tests.interop.test_zookeeper import CuratorMutex, Run, admin, has_it, kazoo, let_go, opened, queued
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.jobs import Lockctl
    from tests.servers.zookeeper import ZooKeeper

__all__ = ["admin", "kazoo", "opened"]  # fixtures
SEVERAL = pytest.mark.parametrize("wanted", [reader, functools.partial(one_of, 3)], ids=["shared", "slots"])


@pytest.fixture
def layout(lockctl: Lockctl, zookeeper_server: ZooKeeper, opened: Callable[[str], Backend]) -> Callable[[str], Run]:
    return lambda name: Run(lockctl, zookeeper_server, name, opened)


# kazoo


def test_readers_of_kazoo_and_of_lockctl_are_inside_together_and_keep_writers_of_both_out(
    layout: Callable[[str], Run], kazoo: Callable[..., subprocess.Popen[str]]
) -> None:
    run = layout("kazoo")
    reader = kazoo("ReadLock", run.path)
    assert has_it(reader)
    ours = run.lockctl.start_holding("nightly", *run.options, "--shared")
    seen = run.seen()
    assert [(each.host, each.mode) for each in seen.holders] == [
        ("another program", "shared"),
        (os.uname().nodename, "shared"),
    ]
    assert seen.state == "foreign"
    let_go(reader)
    assert run.refused()
    assert kazoo("WriteLock", run.path, "try").wait(LIMIT) == 9
    late = kazoo("ReadLock", run.path)
    assert has_it(late)
    ours.terminate()
    ours.wait(LIMIT)
    assert run.refused()
    let_go(late)
    assert not run.refused()


@SEVERAL
@pytest.mark.parametrize("kind", ["Lock", "WriteLock"])
def test_readers_and_slots_of_lockctl_are_refused_while_kazoo_holds(
    layout: Callable[[str], Run],
    kazoo: Callable[..., subprocess.Popen[str]],
    kind: str,
    wanted: Callable[[], Claim],
) -> None:
    run, mine = layout("kazoo"), wanted()
    holder = kazoo(kind, run.path)
    assert has_it(holder)
    assert run.refused(wanted())
    waiting = start_waiting(run.waiter, mine, run.client)
    let_go(holder)
    waiting.result()
    take(run.waiter, mine)


@pytest.mark.parametrize("kind", ["Lock", "ReadLock", "WriteLock"])
def test_slots_of_lockctl_keep_every_lock_of_kazoo_out(
    layout: Callable[[str], Run], kazoo: Callable[..., subprocess.Popen[str]], kind: str
) -> None:
    run = layout("kazoo")
    grants = [take(run.client, one_of(3)) for _ in range(2)]
    waiter = kazoo(kind, run.path)
    eventually(lambda: waiters(run.client) == 1)
    assert run.refused(one_of(3)), "there is a slot, but kazoo came first"
    run.client.release(grants[0], timeout=LIMIT)
    assert waiters(run.client) == 1
    run.client.release(grants[1], timeout=LIMIT)
    assert has_it(waiter)


def test_a_writer_of_kazoo_waits_for_readers_of_lockctl_and_is_not_overtaken_by_them(
    layout: Callable[[str], Run], kazoo: Callable[..., subprocess.Popen[str]]
) -> None:
    run = layout("kazoo")
    grant = take(run.client, reader())
    writer = kazoo("WriteLock", run.path)
    eventually(lambda: waiters(run.client) == 1)
    assert run.refused(reader())
    run.client.release(grant, timeout=LIMIT)
    assert has_it(writer)


def test_kazoos_plain_lock_sees_no_readers_neither_its_own_nor_ours(
    layout: Callable[[str], Run], kazoo: Callable[..., subprocess.Popen[str]]
) -> None:
    run = layout("kazoo")
    take(run.client, reader())
    assert has_it(kazoo("Lock", run.path)), "no limit any more: say so in the manual"


# Curator


class CuratorReadWriteLock(CuratorMutex):
    """Curator's InterProcessReadWriteLock: SortingLockInternalsDriver and readLockPredicate."""

    def __init__(self, client: KazooClient, path: str, marker: str) -> None:
        super().__init__(client, path)
        self.marker = marker

    def join(self) -> None:
        made = self.client.create(
            f"{self.path}/_c_{uuid.uuid4()}-{self.marker}", b"10.0.0.7", ephemeral=True, sequence=True, makepath=True
        )
        self.node = made.rpartition("/")[2]

    def ahead(self) -> str | None:
        def fixed(name: str) -> str:
            for marker in ("__READ__", "__WRIT__"):
                _, found, rest = name.rpartition(marker)
                name = rest if found else name
            return name

        line = sorted(self.client.get_children(self.path), key=fixed)
        position = line.index(self.node)
        if self.marker == "__WRIT__":
            return line[position - 1] if position else None
        return next((name for name in line[:position] if "__WRIT__" in name), None)


@SEVERAL
def test_curators_mutex_and_readers_and_slots_of_lockctl_keep_each_other_out(
    layout: Callable[[str], Run], admin: KazooClient, wanted: Callable[[], Claim]
) -> None:
    run = layout("curator")
    grants = [take(run.client, wanted()) for _ in range(2)]
    mutex = CuratorMutex(admin, run.path)
    assert not mutex.acquire(0.3)
    assert run.refused(wanted()), "the mutex waits"
    for grant in grants:
        assert mutex.ahead() is not None
        run.client.release(grant, timeout=LIMIT)
    assert mutex.acquire(LIMIT)
    assert run.refused(wanted())
    mutex.release()
    assert not run.refused(wanted())


def test_curators_read_write_lock_and_lockctl_share_and_exclude_in_its_layout(
    layout: Callable[[str], Run], admin: KazooClient
) -> None:
    run = layout("curator-rw")
    writer, beside = (CuratorReadWriteLock(admin, run.path, marker) for marker in ("__WRIT__", "__READ__"))
    ours = take(run.client, reader())
    assert beside.acquire(0.3)
    assert not writer.acquire(0.3)
    assert run.refused(reader()), "the writer waits"
    run.client.release(ours, timeout=LIMIT)
    beside.release()
    assert writer.acquire(LIMIT)
    assert all(run.refused(wanted) for wanted in (claim(), reader(), one_of(3)))
    writer.release()
    for wanted in (claim(), one_of(3)):
        ours = take(run.client, wanted)
        assert not CuratorReadWriteLock(admin, run.path, "__READ__").acquire(0.3)
        waiting = CuratorReadWriteLock(admin, run.path, "__WRIT__")
        assert not waiting.acquire(0.3)
        run.client.release(ours, timeout=LIMIT)
        for node in admin.get_children(run.path):
            admin.delete(f"{run.path}/{node}")


def test_curators_reader_is_served_in_the_order_of_one_queue_with_ours(
    layout: Callable[[str], Run], admin: KazooClient
) -> None:
    run = layout("curator-rw")
    reader = CuratorReadWriteLock(admin, run.path, "__READ__")
    assert reader.acquire(LIMIT)
    writer = run.waiting("true")
    eventually(lambda: queued(admin, run) == 2)
    late = CuratorReadWriteLock(admin, run.path, "__READ__")
    assert not late.acquire(0.3)
    reader.release()
    assert writer.wait(LIMIT) == 0
    assert late.acquire(LIMIT)


# What other programs do not know of


def test_a_hold_is_not_seen_by_kazoo_and_both_are_shown(
    layout: Callable[[str], Run], kazoo: Callable[..., subprocess.Popen[str]]
) -> None:
    run = layout("kazoo")
    run.client.release(take(run.client, claim()), timeout=LIMIT, hold=60.0)
    assert run.refused()
    holder = kazoo("Lock", run.path)
    assert has_it(holder), "no limit any more: say so in the manual"
    seen = run.seen()
    assert (seen.state, len(seen.holders)) == ("foreign", 2)
    let_go(holder)
    assert run.seen().state == "held"
    assert run.refused()


def test_what_is_kept_is_no_child_of_a_lock_and_a_kazoo_semaphore_keeps_its_number(
    layout: Callable[[str], Run], admin: KazooClient
) -> None:
    run = layout("kazoo")
    semaphore = admin.Semaphore(run.path, "another program", max_leases=2)
    assert semaphore.acquire(timeout=LIMIT)
    semaphore.release()
    assert run("--min-hold", "60s", "--once-per", "1h", "--", "true").returncode == 0
    assert admin.get(run.path)[0] == b"2"
    assert admin.get_children(run.path) == []
    assert sorted(admin.get_children(f"{run.root}/.kept/nightly")) == ["runs", "success"]
