"""Connections to MySQL and MariaDB: what a URL says, TLS, time limits, and what a refusal means.

The driver blocks, and its limits are per system call. So whole steps run in a thread (``bounded``), and what is late
is never committed: each statement looks at the deadline first.
"""

from __future__ import annotations

import socket

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import endpoint, take_params
from lockctl.value import Value
from lockctl.wire.stream import LARGEST_ANSWER, TooLarge, resolve
from lockctl.wire.tls_settings import TlsSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PORT = 3306
LONGEST_MESSAGE = 500  # characters of what a server says
READ_LIMIT = 60.0  # seconds for one read, so that a thread that was left to its fate ends; steps have their deadline
LOCK_WAIT, DEADLOCK, UNKNOWN_VARIABLE = 1205, 1213, 1193
NO_TABLE = (1146, 1049, 1046)  # nor database
FORBIDDEN = (1142, 1143)
NO_ENTRY = (1044, 1045, 1130, 1698)
READ_ONLY = (1290, 1792, 1836)
BROKEN = (3819, 4025)  # a row is against a constraint of the table
FOREIGN = (1054, 1062, 1264, 1364, 1366, 1406)  # columns that are not ours
NO_TLS, NO_PLUGIN = 2026, 2059
# strict: nothing is cut off to fit; backslashes mean what the driver thinks. This level waits for rows, knows all
# formats of the binary log, and is what servers usually have.
USUAL = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 0",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
PARAMETERS = {
    "tls": "",  # yes, no; empty: yes unless the server is on this machine
    "ca": "",
    "cert": "",
    "key": "",
    "tls_name": "",
    "insecure": "no",
}


class Address(Value):
    """One database. ``str`` shows no secret."""

    host: str  # one that starts with "/" is a Unix socket
    port: int
    database: str
    user: str | None
    password: str | None
    use_tls: bool | None  # None: if the server is not on this machine
    tls: TlsSettings

    def __repr__(self) -> str:
        """Where, without the password."""
        return f"Address({self})"

    def __str__(self) -> str:
        """As messages name it."""
        return printable(self.host if self.host.startswith("/") else f"{self.host}:{self.port}")


class SessionGone(BackendUnavailable):
    """The connection has ended."""


class SqlError(BackendUnavailable):
    """The server refused a statement. *code* is its number."""

    def __init__(self, message: str, code: int) -> None:
        """Keep the code."""
        super().__init__(message)
        self.code = code


def from_url(url: Url, more: dict[str, str] | None = None) -> Address:
    """Read *url*, which may have *more* parameters; raises ``ConfigError``."""
    taken = take_params(url, {**PARAMETERS, **(more or {})})
    if taken["tls"] not in ("", "yes", "no"):
        raise ConfigError("mysql: tls is yes or no")
    tls = TlsSettings.from_params("mysql", taken)
    wanted = bool(taken["ca"] or taken["cert"] or taken["tls_name"] or tls.insecure)
    if wanted and taken["tls"] == "no":
        raise ConfigError("mysql: tls=no contradicts ca, cert, tls_name and insecure")
    database = url.path.removeprefix("/")
    if len(url.hosts) != 1 or not database:
        raise ConfigError(
            "mysql: the URL needs one host and a database: mysql://user@host/database;"
            " a Unix socket is written %2Frun%2Fmysqld%2Fmysqld.sock"
        )
    host, port = endpoint(url.hosts[0], PORT)
    for text in (host, database, url.user or "", url.password or ""):
        if text.encode("utf-8", "replace").decode() != text:
            raise ConfigError("mysql: the URL has a part that is not UTF-8 text")
    return Address(
        host=host,
        port=port,
        database=database,
        user=url.user,
        password=url.password,
        use_tls=True if wanted or taken["tls"] == "yes" else False if taken["tls"] == "no" else None,
        tls=tls,
    )


class Session:
    """One connection, outside of autocommit. To be used by one thread at a time."""

    def __init__(self, address: Address, deadline: Deadline) -> None:
        """Connect and log in. Raises ``BackendUnavailable``, ``ConfigError``."""
        self.where = f"mysql at {address}"
        self.written = 0  # rows that the last statement has changed
        deadline.check(self.where)
        self._connection = self._translated(_connected, address, deadline, self.where)
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
        rows: list[tuple[Any, ...]] = self._translated(self._rows, sql, values)
        return rows

    def limit_waits(self, deadline: Deadline) -> None:
        """Have the server end waits for rows and tables, whose limits are whole seconds there."""
        seconds = max(1, int(deadline.left()))
        self.ask(f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}", deadline)

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
                raise self._needs_tls() from None
            raise SessionGone(f"{self.where}: {type(error).__name__} in an answer") from None

    def _needs_tls(self) -> ConfigError:
        return ConfigError(f"{self.where}: the server takes this password over TLS only: say tls=yes in the URL")

    def _meaning(self, error: Exception) -> BackendUnavailable | ConfigError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = printable(str(error.args[-1]).strip().partition("\n")[0])[:LONGEST_MESSAGE] if error.args else ""
        unverified = getattr(getattr(error, "original_exception", None), "verify_message", None)
        if unverified is not None:
            return ConfigError(
                f"{self.where}: the server's certificate is not accepted: {printable(str(unverified))}"
                " (ca= names the file of its authority, tls_name= the name in it)"
            )
        if code == NO_TLS:
            return ConfigError(f"{self.where}: offers no TLS: say tls=no if the network to it can be trusted")
        if code == NO_PLUGIN or code in NO_ENTRY:
            return ConfigError(f"{self.where}: {said}")
        if code == 0 or 2000 <= code < 3000:  # numbers of the driver itself
            return SessionGone(f"{self.where}: {said or 'the server closed the connection'}")
        return SqlError(f"{self.where}: {said}", code)


def driver() -> Any:
    """The module ``pymysql``; raises ``ConfigError`` that says how to get it."""
    try:
        import pymysql
    except ImportError:
        raise ConfigError("MySQL needs PyMySQL: pip install 'lockctl[mysql]'") from None
    return pymysql


def _bounded(where: str) -> Any:
    """The driver's class of connections, with a bound on what comes: a packet is as long as the server says."""
    from pymysql.connections import Connection

    class Bounded(Connection):
        come = 0  # bytes since the last statement

        def _read_bytes(self, num_bytes: int) -> bytes:
            self.come += num_bytes
            if self.come > LARGEST_ANSWER:
                self._force_close()  # type: ignore[attr-defined]
                raise TooLarge(where)
            data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
            return data

    return Bounded


def _connected(address: Address, deadline: Deadline, where: str) -> Any:
    driver()
    connection = _bounded(where)
    limit = max(READ_LIMIT, deadline.left())
    settings: dict[str, Any] = {
        "user": address.user,
        "password": (address.password or "").encode(),
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
    stream = _stream(address, deadline, where)
    try:
        settings.update(_tls(address, stream.getpeername()[0]))
        made = connection(host=address.tls.tls_name or address.host, port=address.port, defer_connect=True, **settings)
        made.connect(stream)
    except BaseException:
        stream.close()
        raise
    return made


def _stream(address: Address, deadline: Deadline, where: str) -> socket.socket:
    """A connection to the first address of the host that accepts one. Raises ``BackendUnavailable``."""
    problem = "the name has no address"
    places = resolve(address.host, address.port, deadline, where)
    for number, (family, place) in enumerate(places):
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            # an address that swallows packets must leave time for the next one
            stream.settimeout(max(0.05, deadline.left() / (len(places) - number)))
            stream.connect(place)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as failure:
            stream.close()
            problem = f"cannot connect: {printable(str(failure.strerror or failure))}"
        else:
            return stream
    raise SessionGone(f"{where}: {problem}")


def _tls(address: Address, place: str) -> dict[str, Any]:
    if address.use_tls is False:
        return {"ssl_disabled": True}
    if address.use_tls is None and (place == "::1" or place.startswith("127.")):
        return {}  # as the server wants, unverified: nobody stands between
    from lockctl.wire.tls import context

    return {"ssl": context(address.tls)}
