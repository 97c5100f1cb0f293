"""Tables of lockctl at a server of SQL, kept by SQLite: what of them is there, and what is left of it after a restart."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class SqliteTables:
    """The tables, and the *functions* of the server as SQLite calls them."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None)
        for name, function in functions.items():
            self.sqlite.create_function(name, -1, function)

    def there(self) -> list[str]:
        """Those of lockctl that there are."""
        found = self.sqlite.execute("SELECT name FROM sqlite_master WHERE name LIKE 'lockctl_%' AND type = 'table'")
        return [name for (name,) in found]

    def memory(self) -> Any:
        """A copy of all that is to be kept."""
        made = dict(self.sqlite.execute("SELECT name, sql FROM sqlite_master"))
        return {name: (made[name], self.sqlite.execute(f"SELECT * FROM {name}").fetchall()) for name in self.there()}

    def remember(self, memory: Any) -> None:
        """Have that and nothing else."""
        for name in self.there():
            self.sqlite.execute(f"DROP TABLE {name}")
        for name, (made, rows) in (memory or {}).items():
            self.sqlite.execute(made)
            self.fill(name, rows)

    def fill(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows."""
        rows = list(rows)
        if rows:
            self.sqlite.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
