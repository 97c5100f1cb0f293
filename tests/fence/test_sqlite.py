"""Marks in a SQLite database: the contract, and what can be wrong with a file that belongs to another program."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import Mark, Stale, locate, sql
from tests.fence.contract import LIMIT, FenceHarness, StoreContract, mark
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


class SqliteHarness(FenceHarness):
    crashes = 6

    def __init__(self, directory: Path, journal: str = "delete") -> None:
        self.path = directory / "sh op?#%.db"
        with contextlib.closing(self.connect()) as base:
            base.execute(f"PRAGMA journal_mode = {journal}")
            base.executescript(sql.text("sqlite"))

    @property
    def url(self) -> str:
        name = str(self.path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return f"sqlite://{name}"

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def words(self, resource: str = "stock") -> tuple[str, str]:
        return f"{self.url}?resource={resource}", ""

    def damage(self, resource: str = "stock") -> None:
        with contextlib.closing(self.connect()) as base:
            base.execute("UPDATE lockctl_mark SET token = 'x' || token WHERE resource = ?", (resource,))

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        with contextlib.closing(self.connect()) as base:
            base.execute("BEGIN EXCLUSIVE")
            yield
            base.execute("ROLLBACK")


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="lockctl-fence-", dir=local_directory()))
    yield path
    shutil.rmtree(path)


class TestSqlite(StoreContract):
    @pytest.fixture
    def harness(self, directory: Path) -> SqliteHarness:
        return SqliteHarness(directory)


class TestSqliteWithWriteAheadLog(StoreContract):
    @pytest.fixture
    def harness(self, directory: Path) -> SqliteHarness:
        return SqliteHarness(directory, "wal")


@pytest.fixture
def harness(directory: Path) -> SqliteHarness:
    return SqliteHarness(directory)


def advance(words: str, token: int, timeout: float = LIMIT) -> Mark:
    location = locate(words)
    return location.store.advance(location.resource, mark(token), timeout=timeout)


def current(words: str) -> Mark | None:
    location = locate(words)
    return location.store.current(location.resource, timeout=LIMIT)


def test_a_missing_table_is_not_made_but_said(harness: SqliteHarness) -> None:
    with contextlib.closing(harness.connect()) as base:
        base.execute("DROP TABLE lockctl_mark")
        with pytest.raises(ConfigError, match="lockctl fence sql --dialect sqlite"):
            advance(harness.url, 33)
        assert base.execute("SELECT name FROM sqlite_master WHERE name = 'lockctl_mark'").fetchall() == []


def test_a_missing_database_is_not_made_but_said(directory: Path) -> None:
    with pytest.raises(ConfigError, match="no such database"):
        advance(f"sqlite://{directory}/none.db", 33)
    assert not list(directory.iterdir())


def test_a_file_that_is_no_database_stays_as_it_is(directory: Path) -> None:
    (directory / "text").write_text("x" * 5000)
    with pytest.raises(ConfigError, match="not a database"):
        advance(f"sqlite://{directory}/text", 33)
    assert (directory / "text").read_text() == "x" * 5000


def test_another_table_can_be_named(harness: SqliteHarness) -> None:
    with contextlib.closing(harness.connect()) as base:
        base.execute(
            "CREATE TABLE marks (resource TEXT PRIMARY KEY, domain TEXT, token INTEGER, since TEXT DEFAULT 'a')"
        )
        advance(f"{harness.url}?table=marks", 33)
        base.execute("UPDATE marks SET since = 'b'")
        advance(f"{harness.url}?table=marks", 34)
        assert base.execute("SELECT * FROM marks").fetchall() == [("default", mark(34).domain, 34, "b")]
    assert current(harness.url) is None


@pytest.mark.parametrize("table", ['x"; DROP TABLE lockctl_mark; --', "", "a b", "9a", "t" * 64])
def test_a_name_that_is_more_than_a_name_is_refused(harness: SqliteHarness, table: str) -> None:
    quoted = table.replace("%", "%25").replace(";", "%3b").replace(" ", "%20")
    with pytest.raises(ConfigError, match="not a name for a table"):
        advance(f"{harness.url}?table={quoted}", 33)


@pytest.mark.parametrize(
    "row",
    [
        ("x", 0),
        ("x", -5),
        ("x", 1.5),
        ("x", "33"),
        ("x", b"33"),
        ("", 33),
        (b"x", 33),
        ("a\nb", 33),
        ("x" * 301, 33),
        (None, 33),
        ("x", None),
    ],
)
def test_a_row_that_cannot_be_a_mark_is_neither_believed_nor_overwritten(
    harness: SqliteHarness, row: tuple[object, object]
) -> None:
    with contextlib.closing(harness.connect()) as base:
        base.execute("CREATE TABLE loose (resource TEXT PRIMARY KEY, domain, token)")
        base.execute("INSERT INTO loose VALUES ('default', ?, ?)", row)
        for step in (
            lambda: advance(f"{harness.url}?table=loose", 10**18),
            lambda: current(f"{harness.url}?table=loose"),
        ):
            with pytest.raises(ConfigError, match="not a mark of lockctl"):
                step()
        assert base.execute("SELECT domain, token FROM loose").fetchall() == [row]


def test_two_rows_for_one_resource_are_not_a_mark(harness: SqliteHarness) -> None:
    with contextlib.closing(harness.connect()) as base:
        base.execute("CREATE TABLE loose (resource, domain, token)")
        base.execute("INSERT INTO loose VALUES ('default', 'x', 5), ('default', 'x', 50)")
        with pytest.raises(ConfigError, match="not a mark of lockctl"):
            advance(f"{harness.url}?table=loose", 20)


def test_text_that_is_not_utf8_is_not_a_mark(harness: SqliteHarness) -> None:
    with contextlib.closing(harness.connect()) as base:
        base.execute("INSERT INTO lockctl_mark VALUES ('default', CAST(x'61ff62' AS TEXT), 5)")
        with pytest.raises(ConfigError, match="not a mark of lockctl"):
            advance(harness.url, 33)


def test_a_database_that_cannot_be_written_says_so(harness: SqliteHarness) -> None:
    advance(harness.url, 33)
    with contextlib.closing(harness.connect()) as base:
        base.execute("CREATE TRIGGER no BEFORE UPDATE ON lockctl_mark BEGIN SELECT RAISE(ABORT, 'not on Sundays'); END")
    with pytest.raises(ConfigError, match="not on Sundays"):
        advance(harness.url, 34)
    assert current(harness.url) == mark(33)


def test_the_database_that_is_full_is_out_of_reach_and_keeps_its_mark(harness: SqliteHarness) -> None:
    advance(f"{harness.url}?resource=a", 33)
    long = "r" * 290
    limit = os.stat(harness.path).st_size
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            for number in range(100):
                advance(f"{harness.url}?resource={long}{number}", 1)
        except BackendUnavailable:
            status = 42
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert current(f"{harness.url}?resource=a") == mark(33)
    assert advance(f"{harness.url}?resource=a", 34) == mark(34)


def test_a_writer_that_ends_in_time_is_waited_for(harness: SqliteHarness) -> None:
    advance(harness.url, 33)
    with contextlib.closing(sqlite3.connect(harness.path, isolation_level=None, check_same_thread=False)) as base:
        base.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: base.execute("COMMIT"))
        timer.start()
        assert advance(harness.url, 34) == mark(34)
        timer.join()


def test_the_limit_is_for_the_whole_step_however_many_locks_it_meets(harness: SqliteHarness) -> None:
    """A reader keeps a commit from ending: that is a second wait, after the one for the writer's place."""
    advance(harness.url, 33)
    with contextlib.closing(harness.connect()) as writer, contextlib.closing(harness.connect()) as reader:
        writer.execute("BEGIN IMMEDIATE")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM lockctl_mark").fetchall()
        before = time.monotonic()
        timer = threading.Timer(0.5, lambda: None)
        timer.start()
        with pytest.raises(BackendUnavailable, match="locked"):
            advance(harness.url, 34, timeout=0.7)
        writer.execute("ROLLBACK")
        with pytest.raises(BackendUnavailable, match="locked"):
            advance(harness.url, 34, timeout=0.7)
        assert time.monotonic() - before < 6
        timer.join()
    assert current(harness.url) == mark(33)


def test_a_mark_that_is_held_is_on_the_disk_and_can_be_read(harness: SqliteHarness) -> None:
    location = locate(harness.url)
    with location.store.holding(location.resource, mark(33), timeout=LIMIT):
        assert current(harness.url) == mark(33)
    with pytest.raises(Stale):
        advance(harness.url, 32)


def replace(harness: SqliteHarness) -> None:
    """Another database with the table takes the place of the one that is there."""
    new = harness.path.with_name("new")
    with contextlib.closing(sqlite3.connect(new)) as base:
        base.executescript(sql.text("sqlite"))
    new.rename(harness.path)


def test_a_database_that_is_replaced_during_a_wait_is_not_the_one_that_counts(harness: SqliteHarness) -> None:
    advance(harness.url, 33)
    with contextlib.closing(sqlite3.connect(harness.path, isolation_level=None, check_same_thread=False)) as base:

        def let_in() -> None:
            replace(harness)
            base.execute("COMMIT")

        base.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, let_in)
        timer.start()
        location = locate(harness.url)
        with location.store.holding(location.resource, mark(34), timeout=LIMIT):
            assert current(harness.url) == mark(34)
            with pytest.raises(BackendUnavailable, match="locked"):
                advance(harness.url, 35, timeout=0.2)
        timer.join()


def test_who_holds_a_mark_is_told_that_the_database_was_replaced(harness: SqliteHarness) -> None:
    location = locate(harness.url)
    holding = location.store.holding(location.resource, mark(34), timeout=LIMIT)
    with pytest.raises(BackendUnavailable, match="was replaced"), holding:
        replace(harness)
