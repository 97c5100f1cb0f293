"""Connections to MySQL and MariaDB: TLS, time limits, and what a refusal means.

The driver blocks, and its limits are per system call. So whole steps run in a thread, see
:mod:`lockctl.stores.mysql.connection`, and what is late is never committed: each statement looks at the deadline first.
"""

from __future__ import annotations

import socket
import sys

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.stores.mysql.address import Address, open_stream, tls_of
from lockctl.wire.deadline import password_now
from lockctl.wire.stream import LARGEST_ANSWER, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline

LONGEST_MESSAGE = 500  # characters of what a server says
LATE = 0.5  # seconds after the deadline of a step at which each of its reads has ended, in whatever thread
LOCK_WAIT, DEADLOCK, UNKNOWN_VARIABLE = 1205, 1213, 1193
NO_TABLE = (1146, 1049, 1046)  # nor database
FORBIDDEN = (1142, 1143)
EXPIRED, LOCKED = (1820, 1862), (3118, 4151)  # a password; an account, as MySQL and MariaDB say it
NO_RIGHT_THERE = 1044  # in the database; whether there is one, is not said then
NO_ENTRY = (NO_RIGHT_THERE, 1045, 1130, 1698, *EXPIRED, *LOCKED)
READ_ONLY = (1290, 1792, 1836)
BROKEN = (3819, 4025)  # a row is against a constraint of the table
FOREIGN = (1054, 1062, 1264, 1364, 1366, 1406)  # columns that are not ours
NO_TLS, NO_PLUGIN = 2026, 2059
# what is said when there are too many connections, and what is to be raised
FULL = {1040: "max_connections there (151 unless changed)"}
FULL |= dict.fromkeys((1203, 1226), "max_user_connections there, or MAX_USER_CONNECTIONS of the user")
HOURLY = ("max_queries_per_hour", "max_updates_per_hour", "max_connections_per_hour")  # of a user, with 1226, too
# strict: nothing is cut off to fit; backslashes mean what the driver thinks. This level waits for rows, knows all
# formats of the binary log, and is what servers usually have. Transactions may write, whatever is usual there.
USUAL = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 0, sql_safe_updates = 0",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
)


class SessionGone(BackendUnavailable):
    """The connection has ended."""


class SqlError(BackendUnavailable):
    """The server refused a statement. *code* is its number."""

    account = "USER"  # who lacks the right, as a statement has it, if that was asked

    def __init__(self, message: str, code: int) -> None:
        """Keep the code."""
        super().__init__(message)
        self.code = code


class Session:
    """One connection, outside of autocommit. To be used by one thread at a time."""

    def __init__(self, address: Address, deadline: Deadline) -> None:
        """Connect and log in. Raises ``BackendUnavailable``, ``ConfigError``."""
        self.where = f"mysql at {address}"
        self.written = 0  # rows that the last statement has changed
        self.locks: set[str] = set()  # names of the locks by GET_LOCK that it has asked for
        deadline.check(self.where)
        password = password_now(address.password, deadline)
        self._connection = self._translated(_connected, address, password, deadline, self.where)
        try:
            for statement in USUAL:
                self.ask(statement, deadline)
        except BaseException:
            self.close()
            raise

    def ask(self, sql: str, deadline: Deadline, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement gives. Raises ``SessionGone``, ``SqlError``, ``BackendUnavailable`` (too late)."""
        deadline.check(self.where)
        self._connection.come = 0
        self._connection._read_timeout = self._connection._write_timeout = deadline.left() + LATE  # noqa: SLF001 - as above
        rows: list[tuple[Any, ...]] = self._translated(self._rows, sql, values)
        return rows

    def limit_waits(self, deadline: Deadline) -> None:
        """Have the server end waits for rows and tables, whose limits are whole seconds there."""
        seconds = max(1, int(deadline.left()))
        self.ask(f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}", deadline)

    def break_off(self) -> None:
        """End a statement that another thread waits for: there :meth:`ask` raises ``SessionGone``."""
        try:
            socket.socket.shutdown(self._connection._sock, socket.SHUT_RDWR)  # noqa: SLF001 - the driver has no such call
        except (AttributeError, OSError, TypeError):
            return  # it was over

    def close(self) -> None:
        """End the connection, and the transaction with it; idempotent."""
        try:
            self._connection.close()
        except Exception:  # noqa: BLE001 - whatever the driver has against it, it is of no more use
            return

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            self.written = cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def _translated(self, call: Any, *args: Any) -> Any:
        pymysql = driver()
        try:
            return call(*args)
        except pymysql.err.MySQLError as error:
            raise self._meaning(error) from None
        except OSError as failure:
            raise SessionGone(f"{self.where}: {printable(str(failure.strerror or failure))}") from None
        except (ConfigError, BackendUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - the driver trusts what comes, and trips over garbage anywhere
            if "cryptography" in str(error):
                said = "the server takes this password over TLS only: say tls=yes in the URL"
                raise ConfigError(f"{self.where}: {said}") from None
            raise SessionGone(f"{self.where}: an answer that cannot be understood: is this MySQL?") from None

    def _meaning(self, error: Exception) -> BackendUnavailable | ConfigError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = printable(str(error.args[-1]).strip().partition("\n")[0])[:LONGEST_MESSAGE] if error.args else ""
        refused = _refusal(self.where, getattr(error, "original_exception", None))
        if refused is not None:
            return refused
        unverified = getattr(getattr(error, "original_exception", None), "verify_message", None)
        if unverified is not None:
            return ConfigError(
                f"{self.where}: the server's certificate is not accepted: {printable(str(unverified))}"
                " (ca= names the file of its authority, tls_name= the name in it)"
            )
        if code == NO_TLS:
            return ConfigError(f"{self.where}: offers no TLS: say tls=no if the network to it can be trusted")
        if code == NO_RIGHT_THERE:
            said += ": make the database if it is not there, and GRANT this user SELECT, INSERT, UPDATE, DELETE in it"
        if code == NO_PLUGIN or code in NO_ENTRY:
            return ConfigError(f"{self.where}: {said}")
        if code == 0 or 2000 <= code < 3000:  # numbers of the driver itself
            return SessionGone(f"{self.where}: {said or 'the server closed the connection'}")
        hourly = next((limit for limit in HOURLY if limit in said), None)
        if hourly is not None:
            said += f": raise {hourly.upper()} of the user"
        elif code in FULL:
            said += f": each holder and waiter has a connection: raise {FULL[code]}"
        return SqlError(f"{self.where}: {said}", code)


def driver() -> Any:
    """The module ``pymysql``; raises ``ConfigError`` that says how to get it."""
    from lockctl.extras import Needed

    with Needed("the mysql backend", "mysql"):
        import pymysql
    return pymysql


def _bounded(where: str) -> Any:
    """The driver's class of connections, with a bound on what comes: a packet is as long as the server says."""
    from pymysql.connections import Connection

    from lockctl.wire.tls import context
    from lockctl.wire.tls_settings import TlsSettings

    class Bounded(Connection):
        _sock: Any

        come = 0  # bytes since the last statement

        def _read_bytes(self, num_bytes: int) -> bytes:
            self.come += num_bytes
            if self.come > LARGEST_ANSWER:
                self._force_close()
                raise TooLarge(where)
            data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
            return data

        def _force_close(self) -> None:
            # called where an error is handled, of a read, or of a write whose answer says more
            refused = _refusal(where, sys.exc_info()[1]) or _last_words(where, self._sock)
            super()._force_close()  # type: ignore[misc]
            if refused is not None:
                raise refused

        def _create_ssl_ctx(self, options: Any) -> Any:
            # told of no options the driver verifies nothing, and takes 20 ms to read whom it could trust
            return options or context(TlsSettings(insecure=True))

    return Bounded


def _refusal(where: str, failure: BaseException | None) -> ConfigError | None:
    """See ``tls.refusal``."""
    if "ssl" not in sys.modules:
        return None
    from lockctl.wire.tls import refusal

    return refusal(where, failure)


def _last_words(where: str, stream: Any) -> ConfigError | None:
    """What a server has against our certificate: it says so and closes, maybe before it has read what we send."""
    if not hasattr(stream, "context"):  # no TLS
        return None
    try:
        stream.settimeout(0)
        stream.recv(1)
    except (OSError, ValueError) as failure:
        return _refusal(where, failure)
    return None


def _connected(address: Address, password: str | None, deadline: Deadline, where: str) -> Any:
    driver()
    connection = _bounded(where)
    limit = deadline.left() + LATE
    settings: dict[str, Any] = {
        "user": address.user,
        "password": (password or "").encode(),
        "database": address.database,
        "charset": "utf8mb4",
        "connect_timeout": max(0.05, deadline.left()),
        "read_timeout": limit,
        "write_timeout": limit,
        "program_name": "lockctl",
        "autocommit": None,
    }
    if address.host.startswith("/"):
        return connection(unix_socket=address.host, ssl_disabled=True, **settings)
    stream = open_stream(address, deadline, where)
    try:
        settings.update(tls_of(address, stream.getpeername()[0]))
        made = connection(host=address.tls.tls_name or address.host, port=address.port, defer_connect=True, **settings)
        made.connect(stream)
    except BaseException:
        stream.close()
        raise
    return made
