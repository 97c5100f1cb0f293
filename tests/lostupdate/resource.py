"""What the workers share: a list of updates in SQLite, in one row with the mark of its fence."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from lockctl.fence.mark import Mark, accept

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 60.0  # seconds: a worker that is paused inside of a transaction holds up the others for longer than a pause


class Resource:
    """A list that is read as a whole and replaced as a whole, as files, rows and objects are."""

    def __init__(self, path: str) -> None:
        """A file that need not exist."""
        self.path = path

    def make(self) -> None:
        """Create it, empty and without a mark."""
        with closing(self._connect()) as database:
            database.execute("CREATE TABLE resource (content TEXT NOT NULL, domain TEXT, token INTEGER)")
            database.execute("INSERT INTO resource VALUES ('[]', NULL, NULL)")

    def read(self) -> list[str]:
        """The updates that are in the list."""
        with closing(self._connect()) as database:
            ((content,),) = database.execute("SELECT content FROM resource")
        found: list[str] = json.loads(content)
        return found

    def advance(self, mark: Mark) -> None:
        """Register the token of a tenure. Raises ``Stale``."""
        self._step(mark, None)

    def write(self, content: Sequence[str], mark: Mark | None) -> None:
        """Replace the list; with a *mark*, only if it is not stale: compare and write are one transaction.

        Raises ``Stale``; nothing was written then.
        """
        self._step(mark, content)

    def _step(self, mark: Mark | None, content: Sequence[str] | None) -> None:
        with closing(self._connect()) as database:
            database.execute("BEGIN IMMEDIATE")
            if mark is not None:
                ((domain, token),) = database.execute("SELECT domain, token FROM resource")
                if accept("the list", None if token is None else Mark(domain, token), mark):
                    database.execute("UPDATE resource SET domain = ?, token = ?", (mark.domain, mark.token))
            if content is not None:
                database.execute("UPDATE resource SET content = ?", (json.dumps(content),))
            database.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        database.execute("PRAGMA synchronous = OFF")  # processes are paused here, and no machine crashes
        return database
