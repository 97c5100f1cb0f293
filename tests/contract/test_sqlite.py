"""The contract, held by the sqlite backend on a real database, and what only this backend has."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, RequestInterrupted
from lockctl.registry import open_backend
from lockctl.stores.sqlite import cell, wait
from lockctl.stores.sqlite.cell import CLOCK, SqliteBackend, SqliteCells
from lockctl.stores.sqlite.wait import Presence
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.contract.cells import CellHarness
from tests.contract.following import Following
from tests.contract.harness import LIMIT, Background, refused, take
from tests.contract.suite import BackendContract
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lockctl.backend import Backend

pytestmark = pytest.mark.slow


class SqliteHarness(CellHarness):
    """A database of its own. What is cut off finds another program writing."""

    capabilities = SqliteBackend.capabilities

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="lockctl-test-", dir=local_directory())
        self.path = f"{self.directory}/locks.db"
        self.clients: list[Backend] = []
        self.writer = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)

    def client(self, prefix: str = "") -> Backend:
        made = open_backend(parse_url(f"sqlite://{self.path}?prefix={prefix}"))
        self.clients.append(made)
        return made

    def neighbour(self) -> Backend:
        return self.client("another/")

    def cells(self) -> SqliteCells:
        return SqliteCells(self.path, "lockctl_lock")

    def sever(self, client: Backend) -> None:
        # nobody else reads or writes meanwhile; without a connection, nobody keeps the database from that
        for each in self.clients:
            each.close()
        self.writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.writer.execute("PRAGMA journal_mode = DELETE")
        self.writer.execute("BEGIN EXCLUSIVE")

    def heal(self, client: Backend) -> None:
        self.writer.execute("ROLLBACK")
        self.writer.execute("PRAGMA locking_mode = NORMAL")
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.writer.execute("SELECT 1 FROM sqlite_master").fetchall()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.writer.close()
        shutil.rmtree(self.directory)


@pytest.fixture
def harness() -> Iterator[SqliteHarness]:
    made = SqliteHarness()
    yield made
    made.close()


class TestSqlite(Following, BackendContract):
    """Every promise, and what only this backend has."""

    def test_a_clock_that_is_set_changes_nothing(
        self, harness: SqliteHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = take(backend, harness.claim(ttl=30.0))
        for wrong in (1e6, -1e6):
            monkeypatch.setattr(clock, "wall", lambda wrong=wrong: 1_790_000_000.0 + wrong)
            assert refused(harness.client(), harness.claim())
            backend.release(first, timeout=LIMIT)
            later = take(harness.client(), harness.claim(ttl=30.0))
            assert 0 < later.token - first.token < 60 * 1_000_000
            backend, first = harness.client(), later

    def test_tokens_rise_after_a_boot_with_a_clock_that_is_behind(
        self, harness: SqliteHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = take(backend, harness.short())
        monkeypatch.setattr(cell, "_boot_id", lambda: "another-boot")
        monkeypatch.setattr(clock, "wall", lambda: 1_000_000.0)
        other = harness.client()
        assert refused(other, harness.claim()), "its lease has not run out"
        harness.pass_time(first.ttl)
        assert take(other, harness.claim()).token > first.token

    def test_a_container_with_another_boot_id_heeds_a_clock_that_was_set_when_nobody_holds_a_lock(
        self, harness: SqliteHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cells, ahead = harness.cells(), time.time() + 1e6
        first = take(backend, harness.claim(ttl=30.0))
        monkeypatch.setattr(cell, "_boot_id", lambda: "a-container")
        monkeypatch.setattr(clock, "wall", lambda: ahead)
        assert refused(harness.client(), harness.claim())
        assert abs(cells.read(CLOCK, Deadline(LIMIT)).at - time.time()) < cell.STEP
        backend.renew(first, timeout=LIMIT)
        backend.release(first, timeout=LIMIT)
        later = take(harness.client(), harness.claim(ttl=30.0))
        assert refused(backend, harness.claim()), "who was there before goes by the new clock"
        assert abs(cells.read(CLOCK, Deadline(LIMIT)).at - ahead) < LIMIT
        harness.client().renew(later, timeout=LIMIT)
        cells.close()

    def test_what_was_decided_by_a_clock_that_has_changed_meanwhile_is_not_written(
        self, harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cells = harness.cells()
        assert cells.write("a", cells.read("a", Deadline(LIMIT)), b"1", Deadline(LIMIT))
        seen = cells.read("a", Deadline(LIMIT))
        monkeypatch.setattr(cell, "_boot_id", lambda: "a-container")
        monkeypatch.setattr(clock, "wall", lambda: seen.at + 1e6)
        other = harness.cells()
        assert other.read("a", Deadline(LIMIT)).at - seen.at > 1e5
        for data in (b"2", None):
            assert not cells.write("a", seen, data, Deadline(LIMIT))
        assert cells.write("a", cells.read("a", Deadline(LIMIT)), None, Deadline(LIMIT))
        cells.close()
        other.close()

    @pytest.mark.parametrize("wrong", [-1e6, 1e6])
    def test_a_lease_of_before_a_boot_ends_whatever_the_clock_says(
        self, harness: SqliteHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch, wrong: float
    ) -> None:
        first = take(backend, harness.short())
        booted, real, today = clock.boottime(), clock.boottime, time.time()
        monkeypatch.setattr(cell, "_boot_id", lambda: "another-boot")
        monkeypatch.setattr(clock, "boottime", lambda: real() - booted)
        monkeypatch.setattr(clock, "wall", lambda: today + wrong)
        other = harness.client()
        if wrong < 0:
            assert refused(other, harness.claim()), "its lease has not run out"
            harness.pass_time(first.ttl)
        assert take(other, harness.claim()).token > first.token

    def test_an_attempt_that_has_failed_before_the_clock_was_read_leaves_no_wrong_one(
        self, harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cells = harness.cells()
        with monkeypatch.context() as patch:
            patch.setattr(cell, "_boot_id", unavailable)
            with pytest.raises(BackendUnavailable):
                cells.read("a", Deadline(LIMIT))
        assert abs(cells.read("a", Deadline(LIMIT)).at - time.time()) < 2.0
        cells.close()

    def test_who_waits_for_another_writer_can_be_interrupted(self, harness: SqliteHarness) -> None:
        cells, (reading, writing) = harness.cells(), os.pipe()
        seen = cells.read("a", Deadline(LIMIT))
        connection = cells._connection
        assert connection is not None
        connection._connection.set_trace_callback(lambda said: said.startswith("INSERT") and os.write(writing, b"!"))
        harness.writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(RequestInterrupted):
            cells.write("a", seen, b"1", Deadline(LIMIT, reading))
        harness.writer.execute("ROLLBACK")
        assert cells.read("a", Deadline(LIMIT)).data is None
        cells.close()
        os.close(reading)
        os.close(writing)

    @pytest.mark.parametrize("end", ["removed", "replaced"])
    def test_a_holder_finds_out_that_the_database_is_another_one(
        self, harness: SqliteHarness, backend: Backend, end: str
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        if end == "removed":
            for each in ("", "-wal", "-shm"):
                os.unlink(harness.path + each)
        else:
            sqlite3.connect(f"{harness.path}.new").close()
            os.replace(f"{harness.path}.new", harness.path)
        later = take(harness.client(), harness.claim(ttl=30.0))
        assert later.token > grant.token
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert refused(backend, harness.claim()), "what another has taken meanwhile is left alone"

    def test_of_waiters_that_come_and_go_nothing_is_left_at_the_holder(
        self, harness: SqliteHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wait, "FOLLOWERS", 3)
        grant = take(backend, harness.claim(ttl=30.0))
        for _ in range(20):
            passing = Presence()
            assert passing.follow(grant.claim.owner, Deadline(0.0), "here")
            passing.close()
            backend.renew(grant, timeout=LIMIT)
        staying, told = Presence(), Presence()
        assert staying.follow(grant.claim.owner, Deadline(0.0), "here")
        backend.renew(grant, timeout=LIMIT)
        following = Background(lambda: told.follow(grant.claim.owner, Deadline(math.inf), "here"))
        backend.release(grant, timeout=LIMIT)
        following.result(LIMIT)
        assert staying.follow(grant.claim.owner, Deadline(math.inf), "here")
        assert not staying.follow(grant.claim.owner, Deadline(0.0), "here")

    def test_anybody_may_connect_and_nobody_can_use_up_the_descriptors_of_a_holder(
        self, harness: SqliteHarness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        strangers = [Presence() for _ in range(50)]
        for each in strangers:
            assert each.follow(grant.claim.owner, Deadline(0.0), "here")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            backend.renew(grant, timeout=LIMIT)
        assert len(os.listdir("/proc/self/fd")) - before <= wait.ACCEPTED
        for each in strangers:
            each.close()


# the locks of those who read the log, see the format of the -shm file
READERS_KEPT_OUT = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 5, 123)
print("held", flush=True)
sys.stdin.read()
"""


def unavailable() -> str:
    raise BackendUnavailable("not now")


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_a_file_that_is_no_database_is_refused_and_an_empty_one_becomes_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    backend = open_backend(parse_url(f"sqlite://{path}"))
    if content:
        with pytest.raises(ConfigError, match="not a database"):
            backend.inspect("nightly", timeout=LIMIT)
        assert path.read_bytes() == content
    else:
        assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    backend.close()


def test_a_log_that_others_keep_locked_for_too_long_is_out_of_reach(tmp_path: Path) -> None:
    """SQLite itself asks for ten seconds, then says "locking protocol"."""
    backend, path = open_backend(parse_url(f"sqlite://{tmp_path}/locks.db")), tmp_path / "locks.db-shm"
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    held = subprocess.Popen(
        (sys.executable, "-c", READERS_KEPT_OUT, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert held.stdout is not None
    assert held.stdout.readline() == b"held\n"
    with pytest.raises(BackendUnavailable):
        backend.inspect("nightly", timeout=LIMIT)
    held.communicate(timeout=LIMIT)
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    backend.close()


def test_a_path_that_begins_with_two_slashes_is_the_one_with_one(tmp_path: Path) -> None:
    """As in ``sqlite:///$PWD/locks.db``."""
    for place in (f"/{tmp_path}", tmp_path):
        backend = open_backend(parse_url(f"sqlite://{place}/locks.db"))
        assert backend.inspect("nightly", timeout=LIMIT).state == "free"
        backend.close()
    assert (tmp_path / "locks.db").exists()


def test_a_directory_that_is_not_there_or_may_not_be_written_is_named() -> None:
    backend = open_backend(parse_url(f"sqlite:///nonexistent-{os.getpid()}/locks.db"))
    with pytest.raises(ConfigError, match="unable to open"):
        backend.inspect("nightly", timeout=LIMIT)


LOOK = """
import os, sys, time
from lockctl.registry import open_backend
from lockctl.url import parse_url
made = [open_backend(parse_url(f"sqlite://{sys.argv[1]}/{number}.db")) for number in range(20)]
print("ready", flush=True)
sys.stdin.read()
for backend in made:
    print(backend.inspect("nightly", timeout=10.0).state)
"""


def test_many_who_make_a_database_at_the_same_moment_all_get_it(tmp_path: Path) -> None:
    words = (sys.executable, "-c", LOOK, str(tmp_path))
    looks = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for look in looks:
        assert look.stdout is not None
        assert look.stdout.readline() == "ready\n"
    for look in looks:
        assert look.stdin is not None
        look.stdin.close()
        look.stdin = None
    assert [look.communicate(timeout=60)[0].split() for look in looks] == [["free"] * 20] * 6


@pytest.mark.parametrize(("directory", "file"), [(0o755, 0o644), (0o2775, 0o664), (0o777, 0o666), (0o1777, 0o644)])
def test_whoever_may_replace_a_database_may_write_it(tmp_path: Path, directory: int, file: int) -> None:
    """As the message to who may not says: SQLite itself lets nobody but the owner write to what it makes."""
    tmp_path.chmod(directory)
    before = os.umask(0o022)
    try:
        backend = open_backend(parse_url(f"sqlite://{tmp_path}/locks.db"))
        assert backend.inspect("nightly", timeout=LIMIT).state == "free"
        assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
            "locks.db": file,
            "locks.db-shm": file,
            "locks.db-wal": file,
        }
        backend.close()
    finally:
        os.umask(before)
