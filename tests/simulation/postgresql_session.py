"""A session of PostgreSQL: its settings, its transaction, and what it is doing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from tests.simulation.postgresql_sql import Statement
    from tests.simulation.server_locks import Key, Locks

SET = re.compile(r"SET (LOCAL )?(\w+) = '?([^']*)'?")


class Client(Protocol):
    """Where the answers go: to a client, or to a pooler."""

    def say(self, message: Any) -> None:
        """Answer."""

    def hang_up(self) -> None:
        """The session has ended."""


class WaitsError(Exception):
    """A statement cannot go on now: for *key*, or for some *seconds*."""

    def __init__(self, key: tuple[Key, bool] | None, seconds: float = 0.0) -> None:
        super().__init__()
        self.key = key
        self.seconds = seconds


class TableIsLockedError(WaitsError):
    """A statement cannot go on before another program unlocks the tables."""

    def __init__(self) -> None:
        super().__init__(None)


class Saved(NamedTuple):
    """What a transaction had at a savepoint."""

    locks: dict[tuple[Key, bool, int], int]
    settings: dict[str, str]


class Session:
    """A server process and its client."""

    def __init__(self, pid: int, client: Client, application: str, begun: float) -> None:
        self.pid = pid
        self.client = client
        self.begun = self.changed = begun
        self.settings = {"application_name": application}
        self.local: dict[str, str] = {}  # of the transaction
        self.saved: list[Saved] = []
        self.in_block = self.has_failed = False
        self.query = ""
        self.listens: set[str] = set()
        self.rest: list[Statement] = []  # of the message under way
        self.values: list[Any] = []
        self.found: tuple[tuple[str, ...] | None, list[tuple[Any, ...]]] = (None, [])
        self.is_busy = False
        self.number = 0  # of the present pause, or statement
        self.ends_at = float("inf")  # by the clock of the server, if the client is silent

    def setting(self, name: str) -> str | None:
        """What counts now."""
        return self.local.get(name, self.settings.get(name))

    def command(self, sql: str, locks: Locks) -> None:
        """A statement that is no query."""
        word = sql.partition(" ")[0]
        if word == "EXPLAIN" or sql.startswith("SET TRANSACTION "):
            return
        if word == "SET":
            found = SET.fullmatch(sql)
            assert found, sql
            (self.local if found[1] else self.settings)[found[2]] = found[3]
        elif word == "BEGIN":
            self.in_block = True
        elif word == "SAVEPOINT":
            self.saved.append(Saved(locks.of_transaction(self.pid), dict(self.local)))
        elif word == "RELEASE":
            self.saved.pop()
        elif sql.startswith("ROLLBACK TO "):
            locks.back_to(self.pid, self.saved[-1].locks)
            self.local, self.has_failed = dict(self.saved[-1].settings), False
        elif sql == "ROLLBACK":
            self.in_block = self.has_failed = False
            self.local, self.saved = {}, []
            locks.back_to(self.pid, {})
        elif sql == "UNLISTEN *":
            self.listens.clear()
        else:
            assert word == "LISTEN", sql
            self.listens.add(sql.split('"')[1])

    def activity(self) -> tuple[Any, ...]:
        """As pg_stat_activity shows it."""
        state = "active" if self.is_busy else "idle in transaction" if self.in_block else "idle"
        name = self.setting("application_name")
        return self.pid, name, "ops", "10.0.0.9", self.begun, state, self.changed, self.query[:1024]
