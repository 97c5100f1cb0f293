"""Readers and slots in a lock file: what the kernel frees, who is let in, and whom a stopped process can harm."""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl import mounts
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, RequestInterrupted
from lockctl.kernel import unlock
from lockctl.model import EXCLUSIVE, SHARED, SLOT, Revocation
from lockctl.stores.file import layout, ranges, share
from lockctl.stores.file.layout import Record
from lockctl.stores.file.lock import FileBackend
from lockctl.stores.file.queue import KernelLocks, is_stopped
from lockctl.supervise import tree
from tests.contract.harness import LIMIT, Background, refused, take, wait_for_turn
from tests.contract.keeping import revoke
from tests.contract.sharing import one_of, reader
from tests.contract.waiting import start_waiting
from tests.jobs import eventually
from tests.stores.file import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Claim, Grant
    from tests.contract.test_file import FileHarness

# Python 3.12 warns of any fork beside a thread; the file backend's helper only makes system calls after its own
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture
def flock(need_tool: Callable[[str], str], locks: Path) -> Callable[..., bool]:
    """Try to lock the file with the other program; whether it got it."""
    program = need_tool("flock")

    def attempt(*options: str) -> bool:
        words = [program, "-n", "-E", "9", *options, str(locks / "nightly"), "true"]
        status = subprocess.run(words, check=False, timeout=LIMIT).returncode
        assert status in {0, 9}
        return status == 0

    return attempt


def descriptor_of(grant: Grant) -> int:
    assert grant.descriptor is not None
    return grant.descriptor


@contextlib.contextmanager
def opened(harness: FileHarness) -> Iterator[int]:
    """The lock file, open for another hand."""
    descriptor = os.open(harness.directory / "nightly", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


KINDS = pytest.mark.parametrize("claim", [reader, lambda harness: one_of(harness, 3)], ids=["reader", "slot"])


@KINDS
def test_flock_is_a_fellow_reader_and_no_writer(
    harness: FileHarness, flock: Callable[..., bool], claim: Callable[[FileHarness], Claim]
) -> None:
    client = harness.client()
    grant = take(client, claim(harness))
    assert flock("-s")
    assert not flock("-x")
    client.release(grant, timeout=LIMIT)
    assert flock("-x")


@KINDS
def test_a_shared_flock_is_shown_beside_our_holders_and_keeps_only_writers_out(
    harness: FileHarness, need_tool: Callable[[str], str], claim: Callable[[FileHarness], Claim]
) -> None:
    words = [need_tool("flock"), "-s", str(harness.directory / "nightly"), "cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as other:
        client = harness.client()
        eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "foreign")
        grant = take(client, claim(harness))
        lock = client.inspect("nightly", timeout=LIMIT)
        assert lock.state == "held"
        ours, theirs = lock.holders
        assert (ours.owner, ours.token) == (grant.claim.owner, grant.token)
        assert (theirs.owner, theirs.pid, theirs.mode) == (None, other.pid, SHARED)
        client.release(grant, timeout=LIMIT)
        lock = client.inspect("nightly", timeout=LIMIT)
        assert (lock.state, [holder.pid for holder in lock.holders]) == ("foreign", [other.pid])
        assert refused(client, harness.claim())
        assert other.stdin is not None
        other.stdin.close()


@pytest.mark.parametrize("mode", [SHARED, SLOT])
def test_the_seat_of_a_killed_process_is_free_at_once_and_the_others_stay(harness: FileHarness, mode: str) -> None:
    client = harness.client()
    claim = harness.claim(mode=mode, slots=2 if mode == SLOT else 1)
    kept = take(client, claim)
    with processes.holding(harness.directory, mode, claim.slots) as process:
        holders = client.inspect("nightly", timeout=LIMIT).holders
        assert [holder.pid for holder in holders] == [os.getpid(), process.pid]
        processes.end(process)
        assert [holder.pid for holder in client.inspect("nightly", timeout=LIMIT).holders] == [os.getpid()]
        assert client.renew(kept, timeout=LIMIT) == kept
        assert take(harness.client(), harness.claim(mode=mode, slots=claim.slots)).token > (holders[1].token or 0)


@KINDS
def test_a_seat_is_held_as_long_as_any_process_has_its_descriptor(
    harness: FileHarness, claim: Callable[[FileHarness], Claim]
) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, claim(harness))
    heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor_of(grant)])
    client.close()
    lock = other.inspect("nightly", timeout=LIMIT)
    assert [holder.token for holder in lock.holders] == [grant.token]
    heir.communicate(timeout=LIMIT)
    take(other, harness.claim())


@KINDS
def test_unlocking_the_descriptor_frees_the_lock_for_all_who_have_it(
    harness: FileHarness, claim: Callable[[FileHarness], Claim]
) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, claim(harness))
    heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor_of(grant)])
    unlock(descriptor_of(grant))
    assert other.inspect("nightly", timeout=LIMIT).state == "free"
    later = take(other, harness.claim())
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert other.renew(later, timeout=LIMIT) == later
    heir.communicate(timeout=LIMIT)


@pytest.mark.parametrize("mode", [EXCLUSIVE, SHARED, SLOT])
def test_a_seat_that_was_freed_for_us_is_lost_once_others_have_come_and_gone(harness: FileHarness, mode: str) -> None:
    clients = [harness.client(), harness.client()]
    grants = [take(client, reader(harness)) for client in clients]
    for client, grant in zip(clients, grants, strict=True):
        unlock(descriptor_of(grant))
        assert client.renew(grant, timeout=LIMIT) == grant, "nobody came in between"
        unlock(descriptor_of(grant))
    other = harness.client()
    other.release(take(other, harness.claim(mode=mode)), timeout=LIMIT)
    for client, grant in zip(clients, grants, strict=True):  # the page of the second is as it was
        with pytest.raises(LeaseLost):
            client.renew(grant, timeout=LIMIT)


def log_of(harness: FileHarness) -> list[tuple[str, str, int]]:
    lines = [line.split() for line in (harness.directory / ".log").read_text().splitlines()]
    return [(what, mode, int(token)) for what, mode, token in lines]


def test_eight_processes_with_three_slots_are_never_four_inside_and_their_tokens_rise(harness: FileHarness) -> None:
    contenders = [processes.start(harness.directory, SLOT, 3, rounds=6) for _ in range(8)]
    for each in contenders:
        each.communicate(timeout=60)
    assert [each.returncode for each in contenders] == [0] * 8
    inside: set[int] = set()
    most = 0
    tokens = []
    for what, _, token in log_of(harness):
        if what == "in":
            inside.add(token)
            tokens.append(token)
        else:
            inside.remove(token)
        most = max(most, len(inside))
    assert len(set(tokens)) == 48
    assert most == 3


def test_processes_that_read_and_write_are_never_inside_with_a_writer(harness: FileHarness) -> None:
    kinds = [SHARED] * 4 + [EXCLUSIVE] * 3
    contenders = [processes.start(harness.directory, mode, rounds=6) for mode in kinds]
    for each in contenders:
        each.communicate(timeout=60)
    assert [each.returncode for each in contenders] == [0] * 7
    inside: collections.Counter[str] = collections.Counter()
    for what, mode, _ in log_of(harness):
        inside[mode] += 1 if what == "in" else -1
        assert inside[EXCLUSIVE] == 0 or (inside[EXCLUSIVE], inside[SHARED]) == (1, 0)
    tokens = {mode: [token for what, each, token in log_of(harness) if (what, each) == ("in", mode)] for mode in kinds}
    assert tokens[EXCLUSIVE] == sorted(tokens[EXCLUSIVE])
    assert len({*tokens[EXCLUSIVE], *tokens[SHARED]}) == 42


def blocked(harness: FileHarness) -> int:
    """How many processes the kernel has blocked for any lock of the lock file."""
    inode = str((harness.directory / "nightly").stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return len([line for line in lines if line[1] == "->" and line[6].endswith(":" + inode)])


def test_readers_and_writers_that_wait_are_served_in_the_order_they_came(harness: FileHarness) -> None:
    grant = take(harness.client(), harness.claim(ttl=30.0))
    served: list[str] = []

    def turn(name: str, mode: str) -> None:
        client, claim = harness.client(), harness.claim(ttl=30.0, mode=mode)
        mine = wait_for_turn(client, claim)
        served.append(name)
        time.sleep(0.05)
        client.release(mine, timeout=LIMIT)

    turns = []
    for count, (name, mode) in enumerate([("w1", EXCLUSIVE), ("r1", SHARED), ("w2", EXCLUSIVE), ("r2", SHARED)]):
        turns.append(Background(lambda name=name, mode=mode: turn(name, mode)))  # type: ignore[misc]
        eventually(lambda count=count: blocked(harness) > count)  # type: ignore[misc]
    # the kernel tells of its locks page by page, and who lines up meanwhile may hide another one
    eventually(lambda: len(harness.client().inspect("nightly", timeout=LIMIT).waiters or ()) == 4)
    unlock(descriptor_of(grant))
    for each in turns:
        each.result()
    assert served == ["w1", "r1", "w2", "r2"]


def test_a_writer_that_was_killed_while_it_waited_keeps_no_reader_out(harness: FileHarness) -> None:
    client = harness.client()
    take(client, reader(harness))
    with processes.started(harness.directory, EXCLUSIVE) as writer:
        eventually(lambda: refused(harness.client(), reader(harness)))
        processes.end(writer)
        eventually(lambda: not refused(harness.client(), reader(harness)))


def test_a_writer_that_was_stopped_while_it_waited_keeps_readers_out_no_longer_than_its_lease(
    harness: FileHarness,
) -> None:
    client = harness.client()
    grant = take(client, reader(harness))
    with processes.started(harness.directory, EXCLUSIVE, ttl=1.0) as writer:
        eventually(lambda: refused(harness.client(), reader(harness)))
        writer.send_signal(signal.SIGSTOP)
        client.release(grant, timeout=LIMIT)
        assert refused(harness.client(), reader(harness))
        eventually(lambda: not refused(harness.client(), reader(harness)), limit=5.0)


def test_a_stopped_waiter_that_was_given_a_slot_gives_it_up_after_its_lease_and_waits_again(
    harness: FileHarness,
) -> None:
    client = harness.client()
    grant = take(client, one_of(harness, 1))
    with processes.started(harness.directory, SLOT, ttl=1.0) as waiter:
        eventually(lambda: client.inspect("nightly", timeout=LIMIT).waiters)
        waiter.send_signal(signal.SIGSTOP)
        client.release(grant, timeout=LIMIT)
        later = harness.client()
        eventually(lambda: later.inspect("nightly", timeout=LIMIT).state == "held")
        claim = one_of(harness, 1)
        mine = eventually(lambda: later.try_acquire(claim, timeout=LIMIT), limit=5.0)
        (helper,) = tree.children(waiter.pid)
        assert os.sched_getscheduler(helper) == os.sched_getscheduler(0)  # or a busy machine lets it give up late
        waiter.send_signal(signal.SIGCONT)
        eventually(lambda: later.inspect("nightly", timeout=LIMIT).waiters)
        assert later.renew(mine, timeout=LIMIT) == mine
        later.release(mine, timeout=LIMIT)
        processes.await_held(waiter)


def stop_with_helper(harness: FileHarness, process: subprocess.Popen[str]) -> None:
    """Stop a process that waits and the helper that waits for it, as by SIGSTOP to their group."""
    (helper,) = eventually(lambda: tree.children(process.pid))
    file = harness.directory / "nightly"
    first = eventually(lambda: KernelLocks().of(str(file), file.stat()).in_line)
    assert set(first) == {helper}  # twice, if it went on while the kernel's list was read
    for pid in (process.pid, helper):
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda pid=pid: is_stopped(pid))  # type: ignore[misc]


FIRST = pytest.mark.parametrize("first", [SHARED, SLOT, EXCLUSIVE])


@FIRST
@pytest.mark.parametrize("mode", [SHARED, SLOT, EXCLUSIVE])
def test_who_is_stopped_at_the_head_of_the_line_keeps_no_waiter_from_a_free_lock(
    harness: FileHarness, first: str, mode: str
) -> None:
    holder = harness.client()
    grant = take(holder, harness.claim() if first != EXCLUSIVE else reader(harness))
    with processes.started(harness.directory, first) as stopped:
        stop_with_helper(harness, stopped)
        with processes.started(harness.directory, mode) as waiter:
            eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) >= 2 or has_spoken(waiter))
            holder.release(grant, timeout=LIMIT)
            eventually(lambda: has_spoken(waiter))
            processes.await_held(waiter)
        for pid in (*tree.children(stopped.pid), stopped.pid):
            os.kill(pid, signal.SIGCONT)
        processes.await_held(stopped)


def has_spoken(process: subprocess.Popen[str]) -> bool:
    """Whether a process has written something."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def test_a_frozen_process_at_the_head_of_the_line_that_does_not_look_stopped_holds_nobody_up_for_ever(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the freezer of a container leaves it: asleep, by what /proc says."""
    holder = harness.client()
    grant = take(holder, harness.claim())
    with processes.started(harness.directory, SHARED) as stopped:
        stop_with_helper(harness, stopped)
        monkeypatch.setattr("lockctl.stores.file.queue.is_stopped", lambda _pid: False)
        for claim in (reader(harness), harness.claim()):
            client = harness.client()
            waiting = start_waiting(client, claim, holder, count=2)
            holder.release(grant, timeout=LIMIT)
            waiting.result()
            holder, grant = client, take(client, claim)


@FIRST
def test_who_is_stopped_at_the_head_of_the_line_does_not_turn_newcomers_away(harness: FileHarness, first: str) -> None:
    grant = take(harness.client(), reader(harness) if first == EXCLUSIVE else harness.claim())
    with processes.started(harness.directory, first) as stopped:
        stop_with_helper(harness, stopped)
        if first != EXCLUSIVE:
            unlock(descriptor_of(grant))
        mode = SHARED if first == EXCLUSIVE else first
        take(harness.client(), harness.claim(mode=mode))


@contextlib.contextmanager
def control_group() -> Iterator[tuple[Path, str]]:
    """A control group of our own that can be frozen, and the word that freezes it."""
    found = [
        (Path("/sys/fs/cgroup"), "cgroup.freeze", "1"),
        (Path("/sys/fs/cgroup/unified"), "cgroup.freeze", "1"),
        (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN"),
    ]
    for place, name, word in found:
        group = place / f"lockctl-test-{os.getpid()}"
        if not (place / "cgroup.procs").exists() or not os.access(place, os.W_OK):
            continue
        group.mkdir()
        try:
            yield group / name, word
            eventually(lambda group=group: not (group / "cgroup.procs").read_text())  # type: ignore[misc]
        finally:
            group.rmdir()
        return
    pytest.skip("no control group can be made here")


@FIRST
def test_a_paused_container_at_the_head_of_the_line_does_not_turn_newcomers_away(
    harness: FileHarness, first: str
) -> None:
    grant = take(harness.client(), reader(harness) if first == EXCLUSIVE else harness.claim())
    with control_group() as (switch, frozen), processes.started(harness.directory, first) as paused:
        (helper,) = eventually(lambda: tree.children(paused.pid))
        file = harness.directory / "nightly"
        eventually(lambda: KernelLocks().of(str(file), file.stat()).in_line)
        for pid in (paused.pid, helper):
            (switch.parent / "cgroup.procs").write_text(str(pid))
        switch.write_text(frozen)
        try:
            eventually(lambda: is_stopped(paused.pid) and is_stopped(helper))
            if first != EXCLUSIVE:
                unlock(descriptor_of(grant))
            take(harness.client(), harness.claim(mode=SHARED if first == EXCLUSIVE else first))
        finally:
            switch.write_text("THAWED" if frozen == "FROZEN" else "0")


def test_a_free_slot_beside_a_long_job_is_had_by_the_next_in_line_although_the_first_is_stopped(
    harness: FileHarness,
) -> None:
    clients = [harness.client(), harness.client()]
    grants = [take(client, one_of(harness, 2)) for client in clients]
    with processes.started(harness.directory, SLOT, 2) as stopped:
        stop_with_helper(harness, stopped)
        with processes.started(harness.directory, SLOT, 2) as waiter:
            eventually(lambda: len(clients[0].inspect("nightly", timeout=LIMIT).waiters or ()) == 2)
            clients[0].release(grants[0], timeout=LIMIT)
            eventually(lambda: has_spoken(waiter))
            processes.await_held(waiter)
            assert clients[1].renew(grants[1], timeout=LIMIT) == grants[1]


def test_who_waits_for_a_slot_or_for_writers_is_shown(harness: FileHarness) -> None:
    holder, looker = harness.client(), harness.client()
    grant = take(holder, one_of(harness, 1))
    first = start_waiting(harness.client(), one_of(harness, 1), looker)
    second = start_waiting(harness.client(), reader(harness), looker, count=2)
    lock = looker.inspect("nightly", timeout=LIMIT)
    assert [waiter.pid for waiter in lock.waiters or ()] == [os.getpid()] * 2
    assert [holder.token for holder in lock.holders] == [grant.token]
    holder.release(grant, timeout=LIMIT)
    # on a busy machine the second may be the one that finds the lock free
    assert len(eventually(lambda: [each for each in (first, second) if not each.running])) == 1


def test_who_is_stopped_while_it_changes_the_record_holds_nobody_up_for_ever(harness: FileHarness) -> None:
    client = harness.client()
    take(client, reader(harness))
    with opened(harness) as stopped:
        assert ranges.take(stopped, ranges.MUTEX)
        begun = time.monotonic()
        with pytest.raises(BackendUnavailable):
            harness.client().try_acquire(reader(harness), timeout=0.5)
        assert 0.45 < time.monotonic() - begun < 6.0
        reading, writing = os.pipe()
        os.write(writing, b".")
        with pytest.raises(RequestInterrupted):
            harness.client().try_acquire(reader(harness), timeout=LIMIT, interrupt=reading)
        assert select.select([reading], [], [], 0)[0]
        os.close(reading)
        os.close(writing)
        assert len(client.inspect("nightly", timeout=LIMIT).holders) == 1
    take(harness.client(), reader(harness))


def test_an_exclusive_claim_is_not_held_up_by_a_crowd_that_has_no_seat_yet(harness: FileHarness) -> None:
    client = harness.client()
    with opened(harness) as stopped:
        assert ranges.take(stopped, ranges.MUTEX)
        late = Background(lambda: harness.client().try_acquire(reader(harness), timeout=1.0))
        client.release(take(client, harness.claim()), timeout=LIMIT)
        with pytest.raises(BackendUnavailable):
            late.result()


def test_two_holders_that_are_asked_for_the_lock_are_both_told(harness: FileHarness) -> None:
    clients = [harness.client(), harness.client()]
    grants = [take(client, one_of(harness, 2)) for client in clients]
    for number, holder in enumerate(clients[0].inspect("nightly", timeout=LIMIT).holders):
        clients[0].revoke("nightly", holder, Revocation(now=False, by=f"ops{number}", reason=""), timeout=LIMIT)
    for number, (client, grant) in enumerate(zip(clients, grants, strict=True)):
        with pytest.raises(LeaseRevoked) as told:
            client.renew(grant, timeout=LIMIT)
        assert told.value.by == f"ops{number}"
        client.release(grant, timeout=LIMIT)
    assert sorted(os.listdir(harness.directory)) == ["nightly"]


def test_a_revocation_at_once_takes_the_lock_from_all_and_later_tokens_are_above_all_theirs(
    harness: FileHarness,
) -> None:
    clients = [harness.client(), harness.client()]
    grants = [take(client, reader(harness)) for client in clients]
    late = FileBackend(str(harness.directory), wall_us=lambda: 1)  # the clock was set back
    holder = late.inspect("nightly", timeout=LIMIT).holders[0]
    floor = revoke(late, holder, now=True)
    later = take(late, harness.claim())
    assert floor is not None
    assert grants[0].token < grants[1].token < floor <= later.token
    for client, grant in zip(clients, grants, strict=True):
        with pytest.raises(LeaseLost):
            client.renew(grant, timeout=LIMIT)
        client.release(grant, timeout=LIMIT)
    assert late.renew(later, timeout=LIMIT) == later
    late.close()


def test_there_is_room_for_so_many_readers_and_slots_and_the_next_is_told(harness: FileHarness) -> None:
    client = harness.client()
    take(client, reader(harness))
    with opened(harness) as crowd:
        for number in range(1, share.MOST):
            assert ranges.take(crowd, ranges.SEATS + number)
        with pytest.raises(ConfigError, match="1000 readers"):
            harness.client().try_acquire(reader(harness), timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).state == "held"
    take(harness.client(), reader(harness))
    with pytest.raises(ConfigError, match="at most 1000 slots"):
        harness.client().try_acquire(one_of(harness, share.MOST + 1), timeout=LIMIT)


def test_the_file_of_many_readers_stays_small_and_their_pages_are_used_again(harness: FileHarness) -> None:
    sizes = []
    for _ in range(3):
        clients = [harness.client() for _ in range(20)]
        grants = [take(client, reader(harness)) for client in clients]
        assert len(clients[0].inspect("nightly", timeout=LIMIT).holders) == 20
        for client, grant in zip(clients, grants, strict=True):
            client.release(grant, timeout=LIMIT)
        sizes.append((harness.directory / "nightly").stat().st_size)
    assert sizes == [layout.SIZE + 20 * layout.PAGE] * 3
    assert b"owner" not in (harness.directory / "nightly").read_bytes()


def test_a_seat_that_cannot_be_written_down_is_not_held(harness: FileHarness) -> None:
    client, other = harness.client(), harness.client()
    take(client, reader(harness))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (layout.SIZE + layout.PAGE, limits[1]))
    try:
        with pytest.raises(BackendUnavailable):
            other.try_acquire(reader(harness), timeout=LIMIT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(client.inspect("nightly", timeout=LIMIT).holders) == 1
    take(other, reader(harness))


GARBAGE = [
    b"",
    b"null",
    b"7",
    b'{"sharing":',
    b'{"sharing":"shared"}',
    b'{"sharing":"shared","slots":1,"first":"x"}',
    b'{"sharing":"shared","slots":-1,"first":0}',
    b'{"sharing":"slot","slots":1e999,"first":0}',
    b'{"sharing":["slot"],"slots":true,"first":null}',
    b'{"sharing":"slot","slots":100000,"first":0}',
    b'{"sharing":' + b"[" * 3800,
]


@pytest.mark.parametrize("document", GARBAGE, ids=lambda document: repr(document[:40]))
def test_who_is_inside_loses_a_record_that_another_hand_changed_and_nobody_is_let_in_beside(
    harness: FileHarness, document: bytes
) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, reader(harness))
    with opened(harness) as hand:
        before = layout.read(hand)
        assert before is not None
        layout.write(hand, Record(before.sequence + 1, before.token, document), durable=False)
    assert refused(other, reader(harness))
    assert refused(other, harness.claim())
    assert other.inspect("nightly", timeout=LIMIT).state in {"foreign", "held"}
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert take(other, reader(harness)).token > grant.token


PAGES = [
    b"",
    b"x" * layout.PAGE,
    layout.MAGIC + b"\xff" * 100,
    b"\0" * layout.PAGE,
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: repr(page[:12]))
def test_who_is_inside_loses_a_page_that_another_hand_changed_and_is_still_counted(
    harness: FileHarness, page: bytes
) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, one_of(harness, 1))
    with opened(harness) as hand:
        os.ftruncate(hand, layout.SIZE)
        os.pwrite(hand, page, layout.SIZE)
    lock = other.inspect("nightly", timeout=LIMIT)
    assert (lock.state, [holder.owner for holder in lock.holders]) == ("held", [None])
    assert refused(other, one_of(harness, 1))
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert take(other, one_of(harness, 1)).token > grant.token


def test_what_stands_on_the_page_of_a_free_seat_is_not_shown_and_not_believed(harness: FileHarness) -> None:
    client = harness.client()
    grant = take(client, one_of(harness, 2))
    with opened(harness) as hand:
        page = layout.read_page(hand, 0)
        assert page is not None
        layout.write_page(hand, 1, page)
    assert [holder.token for holder in client.inspect("nightly", timeout=LIMIT).holders] == [grant.token]
    assert take(harness.client(), one_of(harness, 2)).token > grant.token


def test_where_byte_ranges_cannot_be_locked_only_one_holds_the_lock_and_waiting_still_works(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = mounts.filesystem(str(harness.directory), os.stat(harness.directory).st_dev)
    monkeypatch.setattr(mounts, "SHARED", (kind,))
    clients = [FileBackend(str(harness.directory), any_filesystem=True) for _ in range(2)]
    for claim in (reader(harness), one_of(harness, 2)):
        with pytest.raises(ConfigError, match="local file system"):
            clients[0].try_acquire(claim, timeout=LIMIT)
    grant = take(clients[0], harness.claim())
    claim = harness.claim()
    waiting = start_waiting(clients[1], claim, clients[0])
    clients[0].release(grant, timeout=LIMIT)
    waiting.result()
    assert take(clients[1], claim).token > grant.token
    for client in clients:
        client.close()


def test_waiting_for_a_slot_leaves_no_process_and_no_lock_behind(harness: FileHarness) -> None:
    holder, client = harness.client(), harness.client()
    grant = take(holder, one_of(harness, 1))
    before = set(tree.children(os.getpid()))
    client.wait(one_of(harness, 1), timeout=0.1, interrupt=None)
    assert set(tree.children(os.getpid())) <= before
    with opened(harness) as hand:
        assert not ranges.is_taken(hand, ranges.START, ranges.SEATS)
    holder.release(grant, timeout=LIMIT)
    take(client, harness.claim())


def test_a_look_needs_no_right_to_write(harness: FileHarness) -> None:
    client = harness.client()
    for _ in range(2):
        take(harness.client(), one_of(harness, 3))
    descriptor = os.open(harness.directory / "nightly", os.O_RDONLY)
    assert share.slots_taken(descriptor) == [0, 1]
    assert not share.turned_away(descriptor)
    os.close(descriptor)
    assert len(client.inspect("nightly", timeout=LIMIT).holders) == 2
