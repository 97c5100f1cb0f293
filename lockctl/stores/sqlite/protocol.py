"""Connections to SQLite: what a URL says, time limits, and what a refusal means."""

from __future__ import annotations

import os

try:
    import _sqlite3 as sqlite3  # the package around it loads `datetime`, for types that no statement of ours has
except ImportError:
    import sqlite3  # type: ignore[no-redef]

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.driver import sleep
from lockctl.names import printable
from lockctl.umask import open_to_owner
from lockctl.url import Url, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline

    Result = tuple[list[tuple[Any, ...]], int]

LONGEST_TABLE = 63  # characters
# texts of sqlite3_errstr(3) for what may pass by itself; all others need a person
PASSING = ("locked", "locking protocol", "is full", "disk I/O error", "out of memory", "interrupted")
UNWRITABLE = ("readonly database", "unable to open")  # texts for what this user may not write, among others
STICKY = 0o1000  # S_ISVTX
LEAST = 0.001  # seconds: SQLite takes a limit of 0 for one that it must not wait for at all
LONGEST = 0.05  # seconds: a wait there hears no signal and no interrupt
AGAIN = 0.01  # seconds before a database that is locked is asked again


def read_url(url: Url, parameters: dict[str, str], example: str) -> tuple[str, dict[str, str]]:
    """The path and the parameters of ``sqlite:///PATH?table=T``; raises ``ConfigError``, which shows an *example*."""
    if url.hosts or url.user or url.password or not url.path.strip("/") or "\0" in url.path:
        raise ConfigError(f"sqlite: a URL has three slashes and an absolute path, such as {example}, not {url}")
    taken = take_params(url, parameters)
    table = taken["table"]
    if not table.isidentifier() or not table.isascii() or len(table) > LONGEST_TABLE:
        raise ConfigError(f"sqlite: {printable(table[:40])!r} is not a name for a table: letters, digits and _")
    return url.path, taken


def where(path: str) -> str:
    """The database, for messages."""
    return f"sqlite: {printable(path)}"


class Connection:
    """One connection to a database in a file. Any thread may use it, one at a time."""

    def __init__(self, path: str, mode: str, advice: str = "") -> None:
        """*mode* ``rwc`` makes the file, ``rw`` does not. *advice* is for who has not made the table.

        Raises ``BackendUnavailable``, ``ConfigError``.
        """
        self._path = path
        self._where = where(path)
        self._advice = advice
        name = "".join(char if char not in "?#%" else f"%{ord(char):02x}" for char in path)
        try:
            self._connection = sqlite3.connect(
                f"file://{name}?mode={mode}", uri=True, isolation_level=None, timeout=0, check_same_thread=False
            )
        except sqlite3.Error as failure:
            raise self._refusal(failure) from None
        # what is not UTF-8 becomes text that is not printable: no mark and no name of a lock has it
        self._connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")

    def execute(self, statement: str, deadline: Deadline, *values: Any) -> Result:
        """The rows of a statement, and how many it has written; it waits for other writers until the deadline.

        Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``.
        """
        while True:
            limit = max(min(deadline.left(), LONGEST), LEAST)
            try:
                self._connection.execute(f"PRAGMA busy_timeout = {int(limit * 1000)}")
                cursor = self._connection.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
            except sqlite3.Error as failure:
                # nothing was done; while the last connection of others is closed, or the log is made, SQLite does not
                # wait itself
                if "locked" not in str(failure) or deadline.left() <= AGAIN:
                    raise self._refusal(failure) from None
            sleep(AGAIN, deadline.interrupt, self._where)

    def rollback(self) -> None:
        """Undo what was not committed, and let others write."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return  # the end of the connection does the same

    def close(self) -> None:
        """End it, and with it a transaction."""
        self._connection.close()

    def _refusal(self, failure: sqlite3.Error) -> ConfigError | BackendUnavailable:
        said = printable(str(failure))
        if any(text in said for text in PASSING):
            return BackendUnavailable(f"{self._where}: {said}")
        if self._advice and ("no such table" in said or "no such column" in said):
            said = f"{said}: {self._advice}"
        if any(text in said for text in UNWRITABLE):
            said += _whose(self._path)
        return ConfigError(f"{self._where}: {said}")


def _whose(path: str) -> str:
    """Which file of a database, or its directory, another user keeps from being written, and what to do; or nothing."""
    directory = os.path.dirname(path)
    for each in (path, path + "-wal", path + "-shm", directory):
        try:
            seen, kept = os.stat(each), os.stat(directory).st_mode & STICKY
        except OSError:
            continue
        # in a sticky directory the kernel may refuse what the mode allows (fs.protected_regular)
        if seen.st_uid != os.geteuid() and (kept or not os.access(each, os.W_OK, effective_ids=True)):
            remedy = (
                "use a place of your own, or a directory that is not sticky, where all who use it may write; if they"
                " may by its group, remove the database, and give new files that group: chmod g+s"
            )
            return f": {printable(each)} belongs to user {seen.st_uid}: {remedy}"
    return ""


def make_file(path: str) -> None:
    """Make an empty database, unless one is there, that whoever may replace it may write: SQLite's is its owner's."""
    try:
        directory = os.stat(os.path.dirname(path)).st_mode
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError:
        return  # it is there, or SQLite says what is wrong
    try:
        open_to_owner(descriptor)
        if not directory & STICKY:
            for bits in (0o020, 0o002):
                writers = bits * 3 if directory & bits else 0  # to read, too
                os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o777 | writers)
    finally:
        os.close(descriptor)


def identity(path: str) -> tuple[int, int] | None:
    """The file that is there now; ``None``: none is."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
