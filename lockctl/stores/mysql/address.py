"""What a URL says about MySQL and MariaDB: a database, who we are there, TLS; and the way to its server."""

from __future__ import annotations

import socket

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import Url, endpoint, socket_path, take_params
from lockctl.value import Discreet
from lockctl.wire import tls_settings
from lockctl.wire.stream import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline

PORT = 3306
PARAMETERS = {
    "tls": "",  # yes, no; empty: yes unless the server is on this machine
    **tls_settings.PARAMETERS,
}


class Address(Discreet):
    """One database. ``str`` shows no secret."""

    host: str  # one that starts with "/" is a Unix socket
    port: int
    database: str
    user: str | None
    password: str | None
    use_tls: bool | None  # None: if the server is not on this machine
    tls: tls_settings.TlsSettings

    def __str__(self) -> str:
        """As messages name it."""
        return printable(self.host if self.host.startswith("/") else f"{self.host}:{self.port}")


def from_url(url: Url, more: dict[str, str] | None = None) -> Address:
    """Read *url*, which may have *more* parameters; raises ``ConfigError``."""
    taken = take_params(url, {**PARAMETERS, **(more or {})})
    use_tls, tls = tls_settings.of_database("mysql", taken)
    database = url.path.removeprefix("/")
    if len(url.hosts) != 1 or not database:
        raise ConfigError(
            "mysql: the URL needs one host and a database: mysql://user@host/database;"
            " a Unix socket is written %2Frun%2Fmysqld%2Fmysqld.sock"
        )
    host, port = endpoint(url.hosts[0], PORT, sockets=True)
    if host.encode("utf-8", "replace").decode() != host:
        raise ConfigError("mysql: the URL has a part that is not UTF-8 text")
    if host.startswith("/"):
        socket_path(host, "mysql")
    return Address(
        host=host,
        port=port,
        database=database,
        user=url.user,
        password=url.password,
        use_tls=use_tls,
        tls=tls,
    )


def open_stream(address: Address, deadline: Deadline, where: str) -> socket.socket:
    """A connection to the first address of the host that accepts one. Raises ``BackendUnavailable``."""
    problem = "the name has no address"
    places = resolve(address.host, address.port, deadline, where)
    for (family, place), share in zip(places, deadline.shares(len(places)), strict=True):
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.settimeout(max(0.05, share.left()))
            stream.connect(place)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as failure:
            stream.close()
            problem = f"cannot connect: {printable(str(failure.strerror or failure))}"
        else:
            return stream
    raise BackendUnavailable(f"{where}: {problem}")


def tls_of(address: Address, place: str) -> dict[str, Any]:
    """What the driver must be told about TLS, for a server at the numeric address *place*. Raises ``ConfigError``."""
    if address.use_tls is False:
        return {"ssl_disabled": True}
    if address.use_tls is None and (place == "::1" or place.startswith("127.")):
        return {}  # as the server wants, unverified: nobody stands between
    from lockctl.wire.tls import context

    return {"ssl": context(address.tls)}
