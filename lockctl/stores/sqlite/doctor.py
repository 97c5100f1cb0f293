"""What would break locks in a SQLite database: its file system, who may write, and who keeps others from writing."""

from __future__ import annotations

import os

from lockctl.errors import LockctlError
from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.file.doctor import judge_filesystem
from lockctl.stores.sqlite.cell import SqliteBackend
from lockctl.stores.sqlite.protocol import Connection, read_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PATIENCE = 3.0  # seconds for a turn to write

WRITABLE = Check(
    "sqlite.writable",
    "Each grant and each renewal is a write, and whoever is kept from it loses the lock.",
    "chown or chmod {path} and its directory for the users of locks; end the program that keeps it locked"
    " (fuser {path})",
)
CHECKS = (WRITABLE,)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the database of a URL. Raises ``ConfigError``."""
    path, _ = read_url(url, SqliteBackend.parameters, "sqlite:///srv/locks.db")
    directory = os.path.dirname(path)
    found.words["path"] = printable(path)
    judge_filesystem(directory, found)
    if not os.access(directory, os.W_OK | os.X_OK):
        found.judge(WRITABLE, f"this user may not write in {printable(directory)}", fails=True)
        return
    if not os.path.lexists(path):
        found.judge(WRITABLE, "it is not there yet: the first lock makes it")
        return
    try:
        connection = Connection(path, "rw")
        try:
            found.measure(lambda: _turn(connection, deadline.sooner(PATIENCE)))
        finally:
            connection.close()
    except LockctlError as problem:
        found.judge(WRITABLE, str(problem), fails=True)
    else:
        found.judge(WRITABLE, "it may be written")


def _turn(connection: Connection, deadline: Deadline) -> None:
    """Be the one who may write, and change nothing."""
    connection.execute("BEGIN IMMEDIATE", deadline)
    connection.execute("ROLLBACK", deadline)
