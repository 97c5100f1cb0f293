"""A session of MySQL, and its statements as SQLite executes them.

What is not known here makes SQLite fail, and a history with it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tests.simulation.world import INFINITE

if TYPE_CHECKING:
    import sqlite3

    from tests.simulation.sockets import Socket

TABLE = "lockctl_lock"
NO_TABLE, EXISTS = 1146, 1050
REWRITTEN = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r" ENGINE=InnoDB$", ""),
        (r"^INSERT IGNORE ", "INSERT OR IGNORE "),
        (r"\bIF\(", "iif("),
        (r"\bLEFT\(", "leftmost("),
        (r"%s", "?"),
    )
]


class SqlError(Exception):
    """A statement that is refused: its number and its text."""


class WaitsError(Exception):
    """A statement cannot go on now: for the lock *name*, or for rows; for some *seconds* at most."""

    def __init__(self, name: str | None, seconds: float) -> None:
        super().__init__()
        self.name = name
        self.seconds = seconds


@lru_cache(maxsize=500)
def rewritten(sql: str) -> str:
    """A statement for SQLite."""
    for pattern, new in REWRITTEN:
        sql = pattern.sub(new, sql)
    return sql


class Session:
    """A thread of the server and its client."""

    def __init__(self, pid: int, client: Socket) -> None:
        self.pid = pid
        self.client = client
        self.settings: dict[str, str] = {}
        self.sql = ""
        self.values: tuple[Any, ...] = ()
        self.began = 0.0  # the present statement, by the wall clock
        self.given: list[Any] = []  # by its functions
        self.next = 0  # of these
        self.unread: list[tuple[str, tuple[Any, ...] | None]] = []  # statements that came before its end
        self.is_busy = self.is_alone = False  # without a client: it ends with its statement
        self.number = 0  # of the present pause, or statement
        self.ends_at = INFINITE  # by the clock of the server, if the client is silent


def refusal(error: sqlite3.Error, sql: str) -> SqlError:
    """What the server says where SQLite fails; what it cannot say is a bug of this model."""
    if f"no such table: {TABLE}" in str(error):
        return SqlError(NO_TABLE, f"Table 'jobs.{TABLE}' doesn't exist")
    if f"table {TABLE} already exists" in str(error):
        return SqlError(EXISTS, f"Table '{TABLE}' already exists")
    raise AssertionError(f"{error}: {sql}") from error
