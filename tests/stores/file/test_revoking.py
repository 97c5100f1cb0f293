"""Taking a lock file from its holder: never from the next one, and only by those who may."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, RequestInterrupted
from lockctl.model import EXCLUSIVE, Claim, Revocation
from lockctl.stores.file import address, ranges
from lockctl.stores.file.lock import FileBackend
from lockctl.supervise import tree
from tests.contract.harness import LIMIT, Background, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.sharing import reader
from tests.stores.file import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.contract.test_file import FileHarness
    from tests.jobs import Lockctl


STRANGER = 65534
ENOUGH = 50  # locks taken away
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def test_a_lock_that_changes_hands_between_the_look_and_the_end_is_not_taken_from_the_next_holder(
    harness: FileHarness,
) -> None:
    one, other, later = harness.client(), harness.client(), harness.client()
    grants = [take(one, harness.claim())]

    def meanwhile() -> int:
        one.release(grants[0], timeout=LIMIT)
        grants.append(take(other, harness.claim()))
        return time.time_ns() // 1000

    operator = FileBackend(str(harness.directory), wall_us=meanwhile)
    assert revoke(operator, holder_of(operator), now=True) is None
    assert other.renew(grants[1], timeout=LIMIT) == grants[1]
    assert later.try_acquire(harness.claim(), timeout=LIMIT) is None
    operator.close()


def test_another_program_is_not_taken_for_an_earlier_one_that_had_its_pid(
    harness: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = harness.client()
    with harness.foreign_hold("nightly"):
        with monkeypatch.context() as before:
            before.setattr(tree, "start_time", lambda _: 1)
            earlier = holder_of(operator)
        assert earlier.pid == holder_of(operator).pid
        assert revoke(operator, earlier, now=True) is None
        assert refused(operator, harness.claim())


@pytest.mark.parametrize("kind", ["alone", "reader"])
def test_nobody_is_granted_a_lock_while_it_is_being_taken_away(harness: FileHarness, kind: str) -> None:
    client = harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT)
    descriptor = os.open(harness.directory / "nightly", os.O_RDWR)
    try:
        assert ranges.take(descriptor, address.REVOKING)
        claim = harness.claim() if kind == "alone" else reader(harness)
        with pytest.raises(BackendUnavailable):
            client.try_acquire(claim, timeout=0.3)
        reading, writing = os.pipe()
        os.write(writing, b".")
        with pytest.raises(RequestInterrupted):
            client.try_acquire(claim, timeout=LIMIT, interrupt=reading)
        os.close(reading)
        os.close(writing)
        attempt = Background(lambda: client.try_acquire(claim, timeout=LIMIT))
        (harness.directory / "new").touch(mode=0o600)
        os.rename(harness.directory / "new", harness.directory / "nightly")
        ranges.free(descriptor, address.REVOKING)
        grant = attempt.result()
    finally:
        os.close(descriptor)
    assert client.renew(grant, timeout=LIMIT) == grant  # of the new file


def test_locks_that_are_taken_away_in_a_crowd_are_only_those_that_were_meant(harness: FileHarness) -> None:
    """Whoever loses the lock is one whom the operator has seen, and was told to have ended."""
    operator = harness.client()
    ended: set[int | None] = set()
    lost: list[int] = []
    over = threading.Event()

    def work() -> None:
        client = harness.client()
        while not over.is_set():
            grant = client.try_acquire(harness.claim(), timeout=LIMIT)
            if grant is None:
                continue
            time.sleep(random.choice((0.001, 0.02)))
            try:
                client.renew(grant, timeout=LIMIT)
            except LeaseLost:
                lost.append(grant.token)
            client.release(grant, timeout=LIMIT)

    workers = [Background(work) for _ in range(3)]
    limit = time.monotonic() + 2 * LIMIT
    try:
        while len(ended) < ENOUGH and time.monotonic() < limit:
            for holder in operator.inspect("nightly", timeout=LIMIT).holders:
                if holder.owner is not None and revoke(operator, holder, now=True) is not None:
                    ended.add(holder.token)
    finally:
        over.set()
    for worker in workers:
        worker.result()
    assert len(ended) >= ENOUGH
    assert set(lost) <= ended


def socket_at(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


OBSTACLES: dict[str, Callable[[str], object]] = {
    "directory": os.mkdir,
    "symbolic link": lambda path: os.symlink("nowhere", path),
    "link to itself": lambda path: os.symlink(os.path.basename(path), path),
    "FIFO": os.mkfifo,
    "socket": socket_at,
    "mode 000": lambda path: os.close(os.open(path, os.O_CREAT, 0)),
    "noise": lambda path: os.close(os.open(path, os.O_CREAT, 0o600)),
}


@pytest.mark.parametrize("kind", ["alone", "reader"])
@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
def test_what_is_no_request_takes_no_lock(harness: FileHarness, obstacle: Callable[[str], object], kind: str) -> None:
    client = harness.client()
    grant = take(client, harness.claim() if kind == "alone" else reader(harness))
    obstacle(str(harness.directory / (".revoked.nightly" if kind == "alone" else ".revoked-0.nightly")))
    assert client.renew(grant, timeout=LIMIT) == grant
    client.release(grant, timeout=LIMIT)


def test_a_job_lives_on_beside_a_directory_in_the_place_of_a_request(lockctl: Lockctl, locks: Path) -> None:
    """The whole way, for longer than its lease."""
    (locks / ".revoked.nightly").mkdir()
    done = lockctl("run", "-t", "1s", "-l", "nightly", "--", "sleep", "2")
    assert (done.returncode, done.stderr) == (0, "")


def as_user(user: int, call: Callable[[], object]) -> str:
    """The name of the error that *call* raises in a process of this user; empty if it does not."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(user)
            call()
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    said = os.read(reading, 100).decode()
    os.close(reading)
    return said


def become(user: int) -> None:
    """This process is another user's from here on."""
    os.setgid(user)
    os.setuid(user)


@pytest.fixture
def shared(harness: FileHarness) -> Path:
    """The directory of the harness is root's, and open to everybody."""
    harness.directory.chmod(0o1777)
    return harness.directory


@as_root
def test_in_a_sticky_directory_a_stranger_takes_nobodys_lock(harness: FileHarness, shared: Path) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    seen = holder_of(client)

    def by_hand() -> None:
        (shared / ".revoked.nightly").write_text(f'{{"owner":"{grant.claim.owner}","by":"x","reason":""}}')

    assert as_user(STRANGER, lambda: revoke(FileBackend(str(shared)), seen)) == "LockctlError"
    assert as_user(STRANGER, lambda: revoke(FileBackend(str(shared)), seen, now=True)) == "LockctlError"
    assert os.listdir(shared) == ["nightly"]
    assert not as_user(STRANGER, by_hand)
    assert client.renew(grant, timeout=LIMIT) == grant
    client.release(grant, timeout=LIMIT)
    assert sorted(os.listdir(shared)) == [".revoked.nightly", "nightly"]


@as_root
def test_in_a_sticky_directory_who_made_the_file_of_a_lock_takes_it_from_nobody_else(
    harness: FileHarness, shared: Path
) -> None:
    """The kernel would let it: in such a directory a file may be replaced by the user whose it is."""

    def use_it_once() -> None:
        own = FileBackend(str(shared))
        own.release(take(own, harness.claim()), timeout=LIMIT)

    assert not as_user(STRANGER, use_it_once)
    assert (shared / "nightly").stat().st_uid == STRANGER
    client = harness.client()
    grant = take(client, harness.claim())
    seen = holder_of(client)
    assert as_user(STRANGER, lambda: revoke(FileBackend(str(shared)), seen, now=True)) == "LockctlError"
    assert client.renew(grant, timeout=LIMIT) == grant
    assert not as_user(0, lambda: revoke(FileBackend(str(shared)), seen, now=True))


@as_root
def test_in_a_sticky_directory_a_hold_is_ended_by_who_may_take_the_lock(harness: FileHarness, shared: Path) -> None:
    client = harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=60.0)
    seen = holder_of(client)
    assert seen.ended_at is not None
    assert as_user(STRANGER, lambda: revoke(FileBackend(str(shared)), seen, now=True)) == "LockctlError"
    assert holder_of(client).ended_at == seen.ended_at
    assert not as_user(0, lambda: revoke(FileBackend(str(shared)), seen, now=True))
    assert client.inspect("nightly", timeout=LIMIT).state == "free"


@as_root
@pytest.mark.parametrize("asking", [0, STRANGER])
def test_in_a_sticky_directory_root_and_the_holders_own_user_are_obeyed(
    harness: FileHarness, shared: Path, asking: int
) -> None:
    with users_process(shared) as (pid, look):
        seen = holder_of(harness.client())
        assert seen.pid == pid
        assert not as_user(asking, lambda: revoke(FileBackend(str(shared)), seen))
        assert (shared / ".revoked.nightly").stat().st_uid == STRANGER
        assert look() == "revoked"
        assert os.listdir(shared) == ["nightly"]


@contextlib.contextmanager
def users_process(directory: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    """The pid of a process of another user that has the lock, and what it says when it looks for a request."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            become(STRANGER)
            hold_until_told(FileBackend(str(directory)), theirs)
        finally:
            os._exit(0)
    theirs.close()

    def look() -> str:
        ours.send(b"look")
        return ours.recv(100).decode()

    try:
        assert ours.recv(100) == b"held"
        yield pid, look
    finally:
        ours.close()
        os.waitpid(pid, 0)


def hold_until_told(backend: FileBackend, link: socket.socket) -> None:
    claim = Claim("nightly", os.urandom(16).hex(), 30.0, "web3", os.getpid(), "ops", ("x",))
    grant = take(backend, claim)
    link.send(b"held")
    link.recv(100)
    try:
        backend.renew(grant, timeout=LIMIT)
        said = "still held"
    except LeaseRevoked:
        said = "revoked"
    backend.release(grant, timeout=LIMIT)
    link.send(said.encode())


@as_root
def test_where_a_group_may_replace_the_files_each_of_it_may_revoke(harness: FileHarness) -> None:
    harness.directory.chmod(0o2770)
    os.chown(harness.directory, -1, STRANGER)
    client = harness.client()
    grant = take(client, harness.claim())
    seen = holder_of(client)
    assert not as_user(STRANGER, lambda: revoke(FileBackend(str(harness.directory)), seen))
    with pytest.raises(LeaseRevoked):
        client.renew(grant, timeout=LIMIT)


@as_root
def test_what_a_stranger_put_in_the_way_of_a_request_is_named(harness: FileHarness, shared: Path) -> None:
    client = harness.client()
    take(client, harness.claim())
    (shared / ".revoked.nightly").mkdir()
    os.chown(shared / ".revoked.nightly", STRANGER, -1)
    with pytest.raises(ConfigError, match=r"\.revoked\.nightly is in the way"):
        revoke(client, holder_of(client))
    assert not [entry for entry in os.listdir(shared) if entry.startswith(".new")]


def test_a_prefix_that_leaves_no_room_for_requests_is_refused_before_anything_runs(harness: FileHarness) -> None:
    longest = FileBackend(str(harness.directory), prefix="p" * 42)
    claim = harness.claim("n" * 200)
    grant = take(longest, claim)
    (holder,) = longest.inspect(claim.name, timeout=LIMIT).holders
    longest.revoke(claim.name, holder, Revocation(now=False, by="x", reason=""), timeout=LIMIT)
    with pytest.raises(LeaseRevoked):
        longest.renew(grant, timeout=LIMIT)
    longest.close()
    with pytest.raises(ConfigError, match="243 characters together: at most 242"):
        FileBackend(str(harness.directory), prefix="p" * 43).try_acquire(claim, timeout=LIMIT)


def test_a_stopped_holder_can_be_asked_and_finds_the_request_when_it_goes_on(harness: FileHarness) -> None:
    with processes.holding(harness.directory, EXCLUSIVE) as process:
        client = harness.client()
        process.send_signal(signal.SIGSTOP)
        assert revoke(client, holder_of(client)) is not None
        assert (harness.directory / ".revoked.nightly").exists()
        process.send_signal(signal.SIGCONT)
