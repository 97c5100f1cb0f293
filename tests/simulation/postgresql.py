"""What stands for psycopg2 in its asynchronous mode: the part of lockctl that is in C. See ``stores.postgresql.driver``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.sockets import Socket

DONE, WAITS = 0, 1  # what a poll says: psycopg2.extensions.POLL_OK and POLL_READ
BROKEN = 2


class Error(Exception):
    """What the driver raises. *pgcode* is the SQLSTATE."""

    def __init__(self, text: str, pgcode: str | None = None) -> None:
        super().__init__(text)
        self.pgcode = pgcode


class ProgrammingError(Error):
    """The driver was used in a wrong way, or a statement is wrong."""


types = SimpleNamespace(register_type=lambda _, __: None, BYTES=None)


def conninfo(parameters: dict[str, Any]) -> dict[str, Any]:
    """As the real one, which makes a text of them."""
    return parameters


def connect(parameters: dict[str, Any], async_: int) -> Connection:
    """A connection that is not established yet."""
    assert async_
    return Connection(parameters)


def show_codes(connection: Connection) -> None:
    """The servers here speak English."""


class Cursor:
    """The answer to one statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.description: tuple[str, ...] | None = None
        self.rows: list[tuple[Any, ...]] = []

    def execute(self, sql: str, values: tuple[Any, ...] | None) -> None:
        """Send it."""
        self._connection.send(self, ("query", sql, values))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Its rows."""
        return self.rows


class Connection:
    """A connection."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.closed = 0
        self.notifies: list[SimpleNamespace] = []
        self.server_version = 0
        self.info = SimpleNamespace(backend_pid=0)
        self._process = Here.world.thread.process if Here.world.thread else None
        patience = parameters["tcp_user_timeout"] / 1000
        self._socket: Socket = Here.world.open_socket(self._process, "server", patience)
        self._cursor: Cursor | None = None  # of the statement under way
        self._is_open = False
        Here.world.step()
        self._socket.put(("start", parameters["application_name"]))

    def fileno(self) -> int:
        """The number of its descriptor."""
        if self.closed == 1:
            raise Error("connection already closed")
        return self._socket.number

    def cursor(self) -> Cursor:
        """For one statement."""
        if self.closed:
            raise Error("connection already closed")
        return Cursor(self)

    def send(self, cursor: Cursor, message: tuple[Any, ...]) -> None:
        """Begin a statement."""
        if self.closed:
            raise Error("connection already closed")
        if self._cursor is not None:
            raise ProgrammingError("execute cannot be used while an asynchronous query is underway")
        self._cursor = cursor
        if self._socket.over:
            self._break()
        self._socket.put(message)

    def poll(self) -> int:
        """Take what has come; whether what was begun is done."""
        if self.closed:
            raise Error("connection already closed")
        was_busy = self._is_busy()
        for message in self._socket.taken():
            self._take(*message)
        if self._is_busy() or not was_busy:
            if self._socket.over:
                self._break()
            return WAITS if self._is_busy() else DONE
        return DONE

    def close(self) -> None:
        """End the session, whoever else has the descriptor."""
        if self.closed != 1:
            self.closed = 1
            self._socket.put(("end",))
            self._socket.drop(self._process)

    def _is_busy(self) -> bool:
        return self._cursor is not None or not self._is_open

    def _break(self) -> None:
        self.closed = BROKEN
        raise Error("server closed the connection unexpectedly" if self._is_open else "Connection refused")

    def _take(self, kind: str, *content: Any) -> None:
        if kind == "ready":
            self.info.backend_pid, self.server_version = content
            self._is_open = True
        elif kind == "note":
            self.notifies += [SimpleNamespace(payload=word) for word in content]
        elif kind == "rows":
            assert self._cursor is not None
            self._cursor.description, self._cursor.rows = content
            self._cursor = None
        else:
            text, code, is_fatal = content
            self.closed = BROKEN if is_fatal else 0
            self._cursor = None
            raise Error(text, code)
