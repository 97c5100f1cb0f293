"""What stands for PyMySQL's connection, and for the sockets that it is given. See ``stores.mysql.session``.

Messages are statements with their values, and their answers: how they are written as bytes is left out.
"""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pymysql import err
from typing_extensions import Self

from tests.simulation.sockets import OPENED
from tests.simulation.system import Poll
from tests.simulation.world import Here

if TYPE_CHECKING:
    from types import TracebackType

    from tests.simulation.sockets import Socket

PATIENCE = 900.0  # seconds: how long a kernel sends again what is not received
GONE, LOST = 2006, 2013  # numbers of the driver itself


class Stream:
    """A socket that blocks, for so long at most."""

    def __init__(self, *_: object) -> None:
        self._timeout: float | None = None
        self._process = Here.world.thread.process if Here.world.thread else None
        self._link: Socket | None = None
        self._place = ("", 0)

    def settimeout(self, seconds: float | None) -> None:
        """As of a socket."""
        self._timeout = seconds

    def connect(self, place: tuple[str, int]) -> None:
        """As of a socket; any address is that of the server."""
        self._place = place
        self._link = Here.world.open_socket(self._process, "server", PATIENCE)
        if self._come() != OPENED:
            raise ConnectionRefusedError(111, "Connection refused")

    def setsockopt(self, *_: object) -> None:
        """Of no consequence here."""

    def getpeername(self) -> tuple[str, int]:
        """As of a socket."""
        return self._place

    def put(self, message: Any) -> None:
        """Send one."""
        assert self._link is not None
        if self._link.over:
            raise ConnectionResetError(104, "Connection reset by peer")
        self._link.put(message)

    def get(self) -> Any:
        """The next message; ``None``: there will be none."""
        return self._come()

    def _come(self) -> Any:
        link = self._link
        assert link is not None
        poll = Poll()
        poll.register(link.number)
        if not poll.poll(None if self._timeout is None else self._timeout * 1000):
            raise TimeoutError("timed out")
        return link.content.popleft() if link.content else None

    def shutdown(self, _: int) -> None:
        """As of a socket, in both directions."""
        if self._link is None or self._link.over:
            raise OSError(107, "Transport endpoint is not connected")
        self._link.shut()

    def close(self) -> None:
        """As of a socket. A thread that waits for it goes on waiting."""
        if self._link is not None:
            self._link.drop(self._process)


SOCKET = SimpleNamespace(**{**vars(socket), "socket": Stream})


class Cursor:
    """The answer to one statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def execute(self, sql: str, values: tuple[Any, ...] | None) -> int:
        """Send it, and wait for its answer: how many rows it gives, or has changed."""
        written, self._rows = self._connection.query(sql, values)
        return written

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Its rows."""
        return self._rows


class Connection:
    """As far as lockctl uses it."""

    def __init__(self, *, read_timeout: float, defer_connect: bool, **_: object) -> None:
        assert defer_connect
        self.come = 0
        self._sock: Stream | None = None
        self._read_timeout = self._write_timeout = read_timeout
        self._closed = False

    def connect(self, sock: Stream) -> None:
        """Log in over this socket."""
        self._sock = sock
        self._answer(("start",))

    def cursor(self) -> Cursor:
        """For one statement."""
        return Cursor(self)

    def query(self, sql: str, values: tuple[Any, ...] | None) -> tuple[int, list[tuple[Any, ...]]]:
        """The answer of the server."""
        if self._sock is None:
            raise err.InterfaceError(0, "")
        written, rows = self._answer(("query", sql, values))
        return written, rows

    def _answer(self, message: tuple[Any, ...]) -> Any:
        assert self._sock is not None
        try:
            self._sock.put(message)
        except OSError as failure:
            self._break()
            raise err.OperationalError(GONE, f"MySQL server has gone away ({failure!r})") from None
        self._sock.settimeout(self._read_timeout)
        try:
            answer = self._sock.get()
        except OSError as failure:
            self._break()
            raise err.OperationalError(LOST, f"Lost connection to MySQL server during query ({failure})") from None
        if answer is None:
            self._break()
            raise err.OperationalError(LOST, "Lost connection to MySQL server during query")
        kind, *content = answer
        if kind == "error":
            raise err.OperationalError(*content)
        return content

    def close(self) -> None:
        """End the session."""
        if self._closed:
            raise err.Error("Already closed")
        self._closed = True
        if self._sock is not None:
            try:
                self._sock.put(("end",))
            except OSError:
                pass
            self._break()

    def _break(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
