"""What `lockctl fence sql` prints; that for SQLite runs as it is printed, and refuses what is stale."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import UsageError
from lockctl.fence import LARGEST, locate, sql
from tests.fence.contract import LIMIT, OTHER, mark
from tests.fence.printed import NAME, STOCK, examples, starting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lockctl.fence import Mark


@pytest.mark.parametrize("dialect", sql.DIALECTS)
def test_the_resource_is_in_what_is_printed(dialect: str) -> None:
    assert "'stock'" in sql.text(dialect)
    assert "'warehouse'" in sql.text(dialect, "warehouse")
    assert "<resource>" not in sql.text(dialect)
    assert all(len(line) <= 120 for line in sql.text(dialect).splitlines())
    for wrong in ("", "a\nb", "a\0b"):
        with pytest.raises(UsageError):
            sql.text(dialect, wrong)


def test_the_schema_is_that_of_postgresql_alone() -> None:
    assert "public.lockctl_mark" in sql.text("postgresql")
    named = sql.text("postgresql", "stock", 'Shop "1"')
    assert '"Shop ""1""".lockctl_mark' in named
    assert "public." not in named
    for wrong in ("", "a\nb", "a$body$b", "x" * 64):
        with pytest.raises(UsageError, match="cannot name a schema"):
            sql.text("postgresql", None, wrong)
    for dialect in ("mysql", "sqlite"):
        with pytest.raises(UsageError, match="--schema is for postgresql"):
            sql.text(dialect, None, "shop")


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(UsageError, match="mysql, postgresql, sqlite"):
        sql.text("oracle")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "stock.db", isolation_level=None)
    for _ in range(2):
        connection.executescript(sql.text("sqlite", NAME))
    connection.executescript(STOCK)
    yield connection
    connection.close()


def named(shown: Mark) -> dict[str, object]:
    return {"domain": shown.domain, "token": shown.token}


def test_sqlite_runs_all_that_is_printed(database: sqlite3.Connection) -> None:
    text = sql.text("sqlite", NAME)
    for statement in examples(text):
        if statement.startswith("ALTER"):  # with 3., of which the triggers know nothing
            break
        database.execute(statement, named(mark(33)) if ":token" in statement else {})
    assert database.execute("select * from lockctl_mark").fetchall() == [(NAME, mark(33).domain, 33)]
    assert database.execute("select amount from stock").fetchall() == [(9,)]
    assert database.execute("select * from lockctl_own").fetchall() == []


def transaction(database: sqlite3.Connection, shown: Mark) -> bool:
    """As 1. and 2. say, with the check between; whether it was let in."""
    text = sql.text("sqlite", NAME)
    begin, upsert, commit = [each for each in examples(text) if each.startswith(("BEGIN", "INSERT", "COMMIT"))][:3]
    own, update, done = [
        each
        for each in examples(text)
        if each.startswith(("INSERT INTO lockctl_own", "UPDATE stock SET amount", "DELETE"))
    ][:3]
    database.execute(begin)
    if database.execute(upsert, named(shown)).rowcount != 1:
        database.execute("ROLLBACK")
        return False
    for statement in (own, update, done, commit):
        database.execute(statement, named(shown) if ":token" in statement else {})
    return True


def test_a_sqlite_program_that_checks_by_itself_sees_whether_it_is_stale(database: sqlite3.Connection) -> None:
    for statement in starting(sql.text("sqlite", NAME), "CREATE TRIGGER"):
        database.execute(statement)
    shown = [mark(33), mark(34), mark(34), mark(33), mark(35, OTHER), mark(LARGEST)]
    assert [transaction(database, each) for each in shown] == [True, True, True, False, False, True]
    assert database.execute("select amount from stock").fetchall() == [(6,)]
    assert database.execute("select token from lockctl_mark").fetchall() == [(LARGEST,)]


@pytest.mark.parametrize(
    "change", ["insert into stock values (2, 5)", "update stock set amount = 7", "delete from stock"]
)
def test_sqlite_triggers_refuse_whoever_shows_no_current_token(database: sqlite3.Connection, change: str) -> None:
    for statement in starting(sql.text("sqlite", NAME), "CREATE TRIGGER"):
        database.execute(statement)
    transaction(database, mark(33))
    before = database.execute("select * from stock").fetchall()
    refusal = "refuses a change without a current fencing token"
    with pytest.raises(sqlite3.IntegrityError, match=refusal) as told:
        database.execute(change)
    assert NAME in str(told.value)
    for offered in (mark(32), mark(34), mark(33, OTHER)):  # a token that was not shown to the mark before is refused
        database.execute("insert into lockctl_own values (1, :domain, :token)", named(offered))
        with pytest.raises(sqlite3.IntegrityError, match=refusal):
            database.execute(change)
        database.execute("delete from lockctl_own")
    assert database.execute("select * from stock").fetchall() == before


def test_a_temporary_table_does_not_stand_in_for_the_mark_of_sqlite(database: sqlite3.Connection) -> None:
    for statement in starting(sql.text("sqlite", NAME), "CREATE TRIGGER"):
        database.execute(statement)
    transaction(database, mark(34))
    database.execute("create temp table lockctl_mark as select resource, domain, 33 as token from main.lockctl_mark")
    database.execute("insert into lockctl_own values (1, :domain, :token)", named(mark(33)))
    with pytest.raises(sqlite3.IntegrityError, match="without a current fencing token"):
        database.execute("update stock set amount = 7")


def test_a_row_with_its_own_mark_in_sqlite_refuses_older_tokens(database: sqlite3.Connection) -> None:
    text = sql.text("sqlite", NAME)
    for statement in starting(text, "ALTER TABLE"):
        database.execute(statement)
    show, write = [each for each in starting(text, "UPDATE stock") if ":token" in each]
    counts = [
        database.execute(statement, named(offered)).rowcount
        for offered in (mark(33), mark(34), mark(34), mark(33), mark(35, OTHER))
        for statement in (show, write)
    ]
    assert counts == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert database.execute("select amount, fence_token from stock").fetchall() == [(7, 34)]


def test_the_store_and_what_is_printed_mean_the_same_rows(database: sqlite3.Connection, tmp_path: Path) -> None:
    location = locate(NAME, f"sqlite://{tmp_path}/stock.db")
    assert location.store.advance(location.resource, mark(33), timeout=LIMIT) == mark(33)
    assert not transaction(database, mark(32))
    assert transaction(database, mark(34))
    assert location.store.current(location.resource, timeout=LIMIT) == mark(34)
    location.store.close()


def test_the_sqlite3_program_takes_what_is_printed(need_tool: Any, tmp_path: Path) -> None:
    words = [need_tool("sqlite3"), str(tmp_path / "x.db")]
    done = subprocess.run(
        words, input=sql.text("sqlite"), capture_output=True, text=True, check=True, timeout=LIMIT, env=os.environ
    )
    assert (done.stdout, done.stderr) == ("", "")
