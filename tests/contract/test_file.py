"""The contract, held by files under ``flock(2)``, and what only files and processes can show."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LeaseLost
from lockctl.kernel import unlock
from lockctl.model import Revocation
from lockctl.stores.file import hold, inspect, layout, prune, records, revoke, share
from lockctl.stores.file.lock import FileBackend
from lockctl.supervise import tree
from tests.contract.harness import LIMIT, Harness, claim, refused, take
from tests.contract.suite import BackendContract
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from lockctl.model import Grant

LOADED = (
    hold,
    records,
    revoke,
    inspect,
    share,
    prune,
)  # a client that cannot open a file cannot import them either
HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
ACQUIRE = """
import os, sys
from lockctl.stores.file import inspect, revoke
from lockctl.stores.file.lock import FileBackend
from lockctl.errors import LeaseLost
from lockctl.supervise import tree
from lockctl.model import Claim
backend = FileBackend(sys.argv[1])
for _ in range(int(sys.argv[2])):
    claim = Claim("nightly", os.urandom(16).hex(), 30.0, "web3", os.getpid(), "ops", ("x",))
    while (grant := backend.try_acquire(claim, timeout=10)) is None:
        backend.wait(claim, timeout=10, interrupt=None)
    log = os.open(sys.argv[1] + "/.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, b"in %d\\n" % grant.token)
    if sys.argv[3:] == ["stay"]:
        print("held", flush=True)
        sys.stdin.read()
    os.write(log, b"out %d\\n" % grant.token)
    os.close(log)
    backend.release(grant, timeout=10)
"""


class FileHarness(Harness):
    """A directory of its own."""

    capabilities = FileBackend.capabilities
    always_in_reach = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._clients: list[FileBackend] = []
        self._limits: tuple[int, int] | None = None

    def client(self) -> FileBackend:
        self._clients.append(FileBackend(str(self.directory)))
        return self._clients[-1]

    def expire(self, grant: Grant) -> None:
        """Free the lock and write nothing: all that the kernel does for a dead process.

        Closing alone is not enough: a waiter's helper that was forked in this process may have a copy.
        """
        for client in self._clients:
            granted = client._granted.get(grant.claim.owner)
            if granted is not None and granted.descriptor is not None:
                unlock(granted.descriptor)
                client.close()

    def usurp(self, name: str) -> None:
        (self.directory / name).unlink()

    def forget(self, name: str) -> None:
        (self.directory / name).unlink()

    def sever(self, client: Backend) -> None:
        """No file can be opened any more: the one way in which local files are out of reach for a while.

        Whoever has a lock has it open already, and needs no more.
        """
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, self._limits[1]))

    def heal(self, client: Backend) -> None:
        assert self._limits is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        with _process(HOLD, str(self.directory / name)) as holder:
            yield holder

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextlib.contextmanager
def _process(script: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has said that it holds the lock, and leaves when the block ends."""
    process = subprocess.Popen([sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.stdin.close()
        process.wait(timeout=10)
    finally:
        process.kill()
        process.wait(timeout=10)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def harness(locks: Path) -> Iterator[FileHarness]:
    made = FileHarness(locks)
    yield made
    made.close()


class TestFile(BackendContract):
    """Every promise, and what only this backend has."""

    def test_a_killed_process_loses_its_lock_at_once_and_its_record_is_not_believed(
        self, harness: FileHarness, backend: Backend
    ) -> None:
        with _process(ACQUIRE, str(harness.directory), "1", "stay") as holder:
            lock = backend.inspect("nightly", timeout=LIMIT)
            assert (lock.state, lock.holders[0].pid) == ("held", holder.pid)
            assert refused(backend, harness.claim())
            holder.send_signal(signal.SIGKILL)
            holder.wait(timeout=10)
            assert backend.inspect("nightly", timeout=LIMIT).state == "free"
            token = lock.holders[0].token
            assert token is not None
            assert take(backend, harness.claim()).token > token

    def test_eight_processes_are_never_inside_together_and_their_tokens_rise(self, harness: FileHarness) -> None:
        words = [sys.executable, "-c", ACQUIRE, str(harness.directory), "10"]
        contenders = [subprocess.Popen(words) for _ in range(8)]
        assert [contender.wait(timeout=60) for contender in contenders] == [0] * 8
        log = [line.split() for line in (harness.directory / ".log").read_text().splitlines()]
        assert [what for what, _ in log] == ["in", "out"] * 80
        entered = [int(token) for what, token in log if what == "in"]
        left = [int(token) for what, token in log if what == "out"]
        assert entered == left
        assert all(earlier < later for earlier, later in itertools.pairwise(entered))

    def test_the_lock_lives_as_long_as_any_process_has_its_descriptor(
        self, harness: FileHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        assert grant.descriptor is not None
        heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[grant.descriptor])
        backend.close()
        assert refused(other, harness.claim())
        heir.communicate(timeout=10)
        take(other, harness.claim())

    def test_a_release_frees_the_lock_although_another_process_has_its_descriptor(
        self, harness: FileHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        assert grant.descriptor is not None
        heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[grant.descriptor])
        backend.release(grant, timeout=LIMIT)
        take(other, harness.claim())
        heir.communicate(timeout=10)

    def test_a_lock_that_was_freed_for_a_stopped_holder_and_went_to_another_is_not_touched_by_its_release(
        self, harness: FileHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        assert grant.descriptor is not None
        fcntl.flock(grant.descriptor, fcntl.LOCK_UN)
        later = take(other, harness.claim())
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token
        assert refused(harness.client(), harness.claim())

    def test_our_lock_excludes_another_program(self, harness: FileHarness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        probe = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), 6)"
        words = [sys.executable, "-c", probe, grant.key]
        assert subprocess.run(words, check=False, timeout=10, stderr=subprocess.DEVNULL).returncode != 0
        backend.release(grant, timeout=LIMIT)
        assert subprocess.run(words, check=False, timeout=10).returncode == 0

    def test_another_program_is_shown_with_its_process_and_command(
        self, harness: FileHarness, backend: Backend
    ) -> None:
        with harness.foreign_hold("nightly") as process:
            (holder,) = backend.inspect("nightly", timeout=LIMIT).holders
        assert holder.pid == process.pid
        assert holder.command is not None
        assert holder.command[0] == sys.executable

    def test_waiting_leaves_no_process_behind(self, harness: FileHarness, backend: Backend, other: Backend) -> None:
        take(backend, harness.claim())
        before = set(tree.children(os.getpid()))
        other.wait(harness.claim(), timeout=0.1, interrupt=None)
        assert set(tree.children(os.getpid())) <= before

    def test_the_file_of_a_lock_is_never_removed_and_its_size_stays(
        self, harness: FileHarness, backend: Backend
    ) -> None:
        inodes = set()
        for _ in range(3):
            grant = take(backend, harness.claim())
            inodes.add((os.stat(grant.key).st_ino, os.stat(grant.key).st_size))
            backend.release(grant, timeout=LIMIT)
        inodes.add((os.stat(grant.key).st_ino, os.stat(grant.key).st_size))
        assert len({number for number, _ in inodes}) == 1
        assert max(size for _, size in inodes) <= 8192

    def test_one_grant_in_a_while_waits_for_the_disk(
        self, backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synchronised: list[int] = []
        fdatasync = os.fdatasync

        def count(number: int) -> None:
            synchronised.append(number)
            fdatasync(number)

        monkeypatch.setattr(os, "fdatasync", count)
        for client in (backend, other, backend):
            client.release(take(client, claim()), timeout=LIMIT)
        assert len(synchronised) == 1
        monkeypatch.setattr(layout, "boot_id", lambda: "00000000-0000-0000-0000-000000000000")
        client.release(take(client, claim()), timeout=LIMIT)
        assert len(synchronised) == 2

    def test_the_name_of_a_file_whose_maker_was_killed_is_on_the_disk_before_the_first_token(
        self, harness: FileHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or a loss of power would take the file, and the token with it."""
        path = harness.directory / "nightly"
        path.touch()  # and it was killed before it waited for the directory
        sizes_at_sync: list[int] = []
        fsync = os.fsync

        def note(number: int) -> None:
            fsync(number)
            if os.path.samestat(os.fstat(number), os.stat(harness.directory)):
                sizes_at_sync.append(path.stat().st_size)

        monkeypatch.setattr(os, "fsync", note)
        for _ in range(2):
            backend.release(take(backend, claim()), timeout=LIMIT)
        assert sizes_at_sync == [0]

    def test_the_token_rises_although_the_clock_was_set_back(self, harness: FileHarness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT)
        late = FileBackend(str(harness.directory), wall_us=lambda: 1)
        assert take(late, harness.claim()).token == grant.token + 1
        late.close()

    def test_a_request_to_give_a_lock_back_is_no_lock_itself(
        self, harness: FileHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        (holder,) = other.inspect("nightly", timeout=LIMIT).holders
        other.revoke("nightly", holder, Revocation(now=False, by="ops", reason=""), timeout=LIMIT)
        assert [lock.name for lock in other.list("*", timeout=LIMIT)] == ["nightly"]
        backend.release(grant, timeout=LIMIT)
        eventually(lambda: sorted(os.listdir(harness.directory)) == ["nightly"])
