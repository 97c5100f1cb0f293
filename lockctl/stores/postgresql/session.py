"""One connection to PostgreSQL on which every wait has a deadline.

The driver is used in its asynchronous mode, in which it never blocks: it says what it waits for, and the
wait is ours. An answer that is late can be waited for again, so a connection that holds a lock is not
given up because one renewal got no answer in time.
"""

from __future__ import annotations

import _socket
import _thread
import os
import resource
import sys

from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.wire.deadline import READABLE, WRITABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = tuple[Any, ...]
    Request = tuple[str, tuple[Any, ...] | None]  # statements, and their values

LONGEST_MESSAGE = 500  # characters of what a server says
# bytes of the answer to one statement: those about all locks have up to 200 for each session
LARGEST_ANSWER = 16 << 20
MOST_MEMORY = 128 << 20  # bytes that the driver may take for an answer: several times what it has of it
LONGEST_SILENCE = 32767  # seconds: Linux takes no longer time before keepalives, nor between two of them
# struct tcp_info of <linux/tcp.h>: its size, and the place of tcpi_bytes_received, since Linux 4.1
INFO_SIZE, RECEIVED = 136, slice(128, 136)


def keepalives(patience: float) -> tuple[int, int]:
    """Seconds of silence before the first one, and between two of them, so that nothing is given up any earlier.

    After a long *patience* it is the user timeout that does.
    """
    idle = int(patience) + 1
    return min(idle, LONGEST_SILENCE), min(max(1, idle // 4), LONGEST_SILENCE)


class SessionGone(BackendUnavailable):
    """The connection has ended, and with it everything that its session held."""


class SqlError(BackendUnavailable):
    """The server refused a statement; the connection is as before. *code* is the SQLSTATE."""

    def __init__(self, message: str, code: str) -> None:
        """Keep the code."""
        super().__init__(message)
        self.code = code


class Session:
    """One connection. Texts in answers are bytes: what a server stores need not be UTF-8."""

    def __init__(self, connection: Any, where: str) -> None:
        """Use a connection of psycopg2 in asynchronous mode, established or not."""
        self._connection = connection
        self._cursor: Any = None
        self.where = where
        self.pid = 0  # of the server process, as it says itself
        self.pending = False  # a statement was sent and not answered
        self._before: int | None = None  # bytes that had come when the answer was first waited for

    @property
    def announced_pid(self) -> int:
        """The pid that came with the connection: a pooler sends one of its own making."""
        return int(self._connection.info.backend_pid)

    @property
    def version(self) -> int:
        """Of the server, such as 150004."""
        return int(self._connection.server_version)

    def ask(self, sql: str, deadline: Deadline, args: tuple[Any, ...] | None = None) -> list[Row]:
        """The rows of the last statement in *sql*. Raises as :meth:`finish`."""
        self.send(sql, args)
        return self.finish(deadline)

    def row(self, sql: str, columns: int, deadline: Deadline, args: tuple[Any, ...] | None = None) -> Row:
        """The row of a statement in *sql* that always gives one. Raises as :meth:`finish`."""
        rows = self.ask(sql, deadline, args)
        if len(rows) != 1 or len(rows[0]) != columns:
            self.close()
            raise misled(self.where)
        return rows[0]

    def send(self, sql: str, args: tuple[Any, ...] | None = None) -> None:
        """Send statements; :meth:`finish` waits for their answer. Raises ``SessionGone``, ``SqlError``."""
        self._before = None
        self._cursor = self._translated(self._start, sql, args)
        self.pending = True

    def finish(self, deadline: Deadline) -> list[Row]:
        """The answer to what was sent. Raises ``SessionGone``, ``SqlError``.

        Raises ``BackendUnavailable`` and ``RequestInterrupted`` when there is none in time: it may then
        be waited for again.
        """
        self.drive(deadline)
        self.pending = False
        rows: list[Row] = self._translated(self._rows)
        self._cursor = None
        return rows

    def notifications(self) -> list[str]:
        """What those say that have come; each is told once. Only between two statements. Raises ``SessionGone``."""
        self._translated(self._connection.poll)
        notes = self._connection.notifies
        found = [note.payload for note in notes]
        notes.clear()
        return found

    def drive(self, deadline: Deadline) -> None:
        """Wait until the connection is established or the statement under way is done."""
        most = _memory() + MOST_MEMORY
        while True:
            state = self._translated(self._polled, most)
            if state == 0:  # psycopg2.extensions.POLL_OK, POLL_READ, POLL_WRITE
                return
            received = self._received()
            if self._before is None:
                self._before = received  # what had come by then had room in the kernel
            elif received - self._before > LARGEST_ANSWER:
                self.close()  # the driver keeps all of it in memory
                raise SessionGone(f"{self.where}: the answer is larger than {LARGEST_ANSWER >> 20} MiB")
            deadline.wait(self._connection.fileno(), READABLE if state == 1 else WRITABLE, self.where)

    def _polled(self, most: int) -> int:
        """One step of the driver. It makes room for as long a message as a server announces, and reads while it can.

        The limit is one of the process: beside other threads there is none, which would then have no memory either.
        """
        if _thread._count() > 0:  # noqa: SLF001 - threads, as threading counts them
            return int(self._connection.poll())
        before = resource.getrlimit(resource.RLIMIT_DATA)
        soft = most if before[0] == resource.RLIM_INFINITY else min(most, before[0])
        resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
        try:
            return int(self._connection.poll())
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)

    def fileno(self) -> int:
        """The descriptor of the connection; a copy of it keeps the session alive when this process is killed."""
        return int(self._connection.fileno())

    def close(self) -> None:
        """End the connection; idempotent. The server frees what its session held when it sees this."""
        try:
            self._connection.close()
        except Exception:  # noqa: BLE001 - whatever the driver has against it, it is of no more use
            return

    def _received(self) -> int:
        """Bytes that have come so far, as the kernel counts them; 0 where it does not, as for a Unix socket."""
        try:
            descriptor = self._connection.fileno()
            # which kind it is need not be asked for what follows
            connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, descriptor)
        except Exception:  # noqa: BLE001 - no connection (yet): the driver says more
            return 0
        try:
            info = connection.getsockopt(_socket.IPPROTO_TCP, _socket.TCP_INFO, INFO_SIZE)
        except OSError:
            return 0
        finally:
            connection.detach()
        return int.from_bytes(info[RECEIVED], sys.byteorder)

    def _start(self, sql: str, args: tuple[Any, ...] | None) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(sql, args)
        return cursor

    def _rows(self) -> list[Row]:
        rows = list(self._cursor.fetchall()) if self._cursor.description else []
        if any(value for row in rows for value in row if isinstance(value, str)):
            raise ValueError("a type that no statement of ours gives: texts are bytes here")
        return rows

    def _translated(self, call: Any, *args: Any) -> Any:
        from lockctl.stores.postgresql import driver

        try:
            return call(*args)
        except driver.Error as error:
            self.pending = False
            text = first_line(error)
            is_misused = isinstance(error, driver.ProgrammingError)
            if self._connection.closed or (error.pgcode is None and not is_misused):
                # not what a server says of a statement: what comes next could be taken for the answer to another one
                self.close()
                raise SessionGone(f"{self.where}: {text or 'the server closed the connection'}") from None
            raise SqlError(f"{self.where}: {text}", error.pgcode or "") from None
        except (ValueError, OverflowError, UnicodeError):
            # an answer that the driver cannot read is no answer
            self.pending = False
            raise SqlError(f"{self.where}: an answer that the driver cannot read", "") from None


def _memory() -> int:
    """Bytes of data that this process has, as ``RLIMIT_DATA`` counts them."""
    file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(file, 128).split()[5]) * resource.getpagesize()
    finally:
        os.close(file)


def misled(where: str) -> SessionGone:
    """The error for an answer of another form than that of the statement: it may be that to another one."""
    return SessionGone(f"{where}: gave an answer that PostgreSQL does not give")


def first_line(error: Exception) -> str:
    """What a server or the driver says, as one printable line."""
    return printable(str(error).strip().partition("\n")[0])[:LONGEST_MESSAGE]
