"""The statements of lockctl as SQLite executes them: rewritten where the two differ, with the functions that it lacks.

A statement with parts that write is executed part by part; that is the same, as none of ours reads in a later part what
an earlier one has written. What is not known here makes SQLite fail, and a history with it.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.stores.postgresql.queue import SESSION
from tests.simulation.server_locks import DATABASE
from tests.simulation.server_tables import SqliteTables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

TABLES = ("lockctl_fence", "lockctl_holder", "lockctl_history")
NO_TABLE = "42P01"
MOST_IN_SERIES = 50  # tickets that are tried: never as many wait in a history
VIEWS = ("pg_locks", "pg_stat_activity")
SYSTEM = f"""
CREATE TABLE pg_database (oid, datname);
INSERT INTO pg_database VALUES ({DATABASE}, 'jobs');
CREATE TABLE pg_control_system (system_identifier);
INSERT INTO pg_control_system VALUES (7654321);
CREATE TABLE pg_namespace (oid, nspname);
INSERT INTO pg_namespace VALUES (1, 'public');
CREATE VIEW pg_class AS SELECT 1 AS oid, 1 AS relnamespace, name AS relname, 'r' AS relkind, 'p' AS relpersistence
    FROM sqlite_master WHERE type = 'table' AND name = 'lockctl_fence';
CREATE TABLE pg_locks (locktype, database, classid, objid, objsubid, pid, mode, granted, waitstart);
CREATE TABLE pg_stat_activity (pid, application_name, usename, client_addr, backend_start, state, state_change, query);
"""
PARTS = re.compile(r";\s*(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)")
RENAMED = re.compile(r"(?:UPDATE|DELETE FROM) (\w+) AS (\w+)")
REWRITTEN: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), new)
    for pattern, new in (
        (re.escape(SESSION), "text_of(a.backend_start)"),
        (r'"?(?:pg_catalog|public)"?\.', ""),
        (r"::\w+", ""),
        (r' COLLATE "C"', ""),
        (r"\bcurrent_user\b", "'ops'"),
        (r"FROM pg_lock_status\(\)", "FROM pg_locks"),
        (r"FROM pg_control_system\(\)", "FROM pg_control_system"),
        (r"extract\(epoch FROM ", "epoch("),
        (r"\bleft\(", "leftmost("),
        (r"secs => ", ""),
        (r"to_jsonb\((\w+)\)->>'(\w+)'", r"\1.\2"),
        (r"\(SELECT FROM ", "(SELECT 1 FROM "),
        (r"<> ALL \(ARRAY\((.*)\)\)$", r"NOT IN (\1)"),
        (r"= ANY \(\?\)", "IN (SELECT value FROM json_each(?))"),
        (r"IS NOT DISTINCT FROM", "IS"),
        (r"OFFSET (\d+) LIMIT (\d+)", r"LIMIT \2 OFFSET \1"),
        (r" FOR UPDATE SKIP LOCKED", ""),
        (r"\(SELECT (CASE [^;]*) OFFSET 0\)", r"(SELECT DISTINCT \1)"),  # evaluated once, as there
        (r"(FROM \w+) ON CONFLICT", r"\1 WHERE true ON CONFLICT"),
        (r", LATERAL ", ", "),
        (r"generate_series\((.*?)\) AS t\(n\)", r"json_each(series(\1)) AS t"),
        (r"\bt\.n\b", "t.value"),
        (
            r"SELECT i FROM generate_series\((.*?)\) AS i WHERE (\w+)\((-?\d+) \+ i\)",
            r"SELECT i.value FROM json_each(series(\1)) AS i WHERE \2(\3 + i.value)",
        ),
        (r"GENERATED ALWAYS AS IDENTITY", "DEFAULT (next_id())"),
        (r"DEFAULT clock_timestamp\(\)", "DEFAULT (clock_timestamp())"),
    )
]


class SqlError(Exception):
    """A statement that is refused."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class Statement(NamedTuple):
    """One statement for SQLite: its parts with a name, the last one, and how many values each takes."""

    parts: tuple[tuple[str, str, int], ...]
    last: str
    values: int
    looks_at: frozenset[str]  # which views it is about


@lru_cache(maxsize=2000)
def statements(sql: str, *, has_values: bool) -> tuple[Statement, ...]:
    """The statements in a text."""
    if has_values:
        sql = sql.replace("%s", "?").replace("%%", "%")
    return tuple([_statement(part.strip()) for part in PARTS.split(sql) if part.strip()])


def _statement(sql: str) -> Statement:
    if not sql.startswith(("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", "CREATE ")):
        return Statement((), sql, 0, frozenset())
    for pattern, new in REWRITTEN:
        sql = pattern.sub(new, sql)
    parts, last = _parts(sql) if sql.startswith("WITH ") else ((), sql)
    views = frozenset([view for view in VIEWS if view in sql])
    return Statement(parts, _returning(last), last.count("?"), views)


def _parts(sql: str) -> tuple[tuple[tuple[str, str, int], ...], str]:
    """The named queries of a statement that begins with WITH, and the rest of it."""
    parts, rest = [], sql[len("WITH ") :]
    while True:
        name, _, rest = rest.partition(" AS ")
        rest = rest.removeprefix("MATERIALIZED ")
        end = _closing(rest)
        body = rest[1:end]
        parts.append((name, _returning(body), body.count("?")))
        rest = rest[end + 1 :]
        if not rest.startswith(", "):
            return tuple(parts), rest.strip()
        rest = rest[2:]


def _returning(sql: str) -> str:
    """With the table itself in what a statement returns, where it has another name."""
    found = RENAMED.match(sql)
    if found is None:
        return sql
    before, between, returned = sql.partition(" RETURNING ")
    return before + between + re.sub(rf"\b{found[2]}\.", f"{found[1]}.", returned)


def _closing(text: str) -> int:
    """Where the parenthesis is closed with which a text begins."""
    depth, quoted = 0, False
    for at, char in enumerate(text):
        quoted = quoted != (char == "'")
        if not quoted:
            depth += (char == "(") - (char == ")")
        if not depth:
            return at
    raise AssertionError(text)


class Tables(SqliteTables):
    """What is in a database, and the functions of the server as SQLite calls them."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        super().__init__({**FUNCTIONS, **functions, "next_id": count(1).__next__})
        self.sqlite.executescript(SYSTEM)

    def show(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Have a view show these rows."""
        self.sqlite.execute(f"DELETE FROM {table}")
        self.fill(table, rows)

    def execute(self, statement: Statement, values: list[Any]) -> tuple[tuple[str, ...] | None, list[tuple[Any, ...]]]:
        """The columns and rows of a statement; it takes its *values* from the list."""
        names = []
        try:
            for name, sql, count in statement.parts:
                cursor = self.sqlite.execute(sql, _taken(values, count))
                if cursor.description:
                    self.sqlite.execute(
                        f"CREATE TEMP TABLE {name} ({', '.join([each[0] for each in cursor.description])})"
                    )
                    names.append(name)
                    self.fill(name, cursor.fetchall())
            cursor = self.sqlite.execute(statement.last, _taken(values, statement.values))
            rows = cursor.fetchall()
        finally:
            for name in names:
                self.sqlite.execute(f"DROP TABLE temp.{name}")
        columns = tuple([each[0] for each in cursor.description]) if cursor.description else None
        return columns, [tuple([each.encode() if isinstance(each, str) else each for each in row]) for row in rows]


def _taken(values: list[Any], count: int) -> list[Any]:
    taken, values[:count] = values[:count], []
    return [json.dumps(each) if isinstance(each, list) else each for each in taken]


def refusal(error: sqlite3.Error, statement: Statement) -> SqlError:
    """What the server says where SQLite fails; what it cannot say is a bug of this model."""
    table = str(error).rpartition(" ")[2].rpartition(".")[2]
    if "no such table" in str(error) and table in TABLES:
        return SqlError(f'relation "{table}" does not exist', NO_TABLE)
    raise AssertionError(f"{error}: {statement}") from error


def _series(first: int, last: int) -> str:
    return json.dumps(list(range(first, min(last, first + MOST_IN_SERIES) + 1)))


def _known(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Of the arguments that are not NULL."""
    return lambda *given: choose([each for each in given if each is not None] or [None])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "epoch": lambda seconds: seconds,
    "make_interval": lambda seconds: seconds,
    "to_timestamp": lambda seconds: seconds,
    "floor": lambda number: None if number is None else math.floor(number),
    "greatest": _known(max),
    "least": _known(min),
    "leftmost": lambda text, count: None if text is None else text[:count],
    "octet_length": lambda text: None if text is None else len(text.encode()),
    "split_part": lambda text, between, number: (text.split(between) + [""] * number)[number - 1],
    "text_of": lambda number: None if number is None else str(int(number * 1e6)),
    "host": lambda address: address,
    "series": _series,
    "current_database": lambda: "jobs",
    "current_schema": lambda: "public",
    "pg_is_in_recovery": lambda: False,
}
