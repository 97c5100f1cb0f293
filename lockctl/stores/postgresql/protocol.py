"""Opening connections: names, addresses, TLS, and what a refusal means."""

from __future__ import annotations

import _socket
import os

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.postgresql.session import Session, SessionGone, SqlError, keepalives
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.stream import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.postgresql.address import Address

# where systems keep the authorities they trust: the driver's own TLS library does not know
SYSTEM_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
IDENTITY = (
    "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.current_database(),"
    " current_user::text, pg_catalog.set_config('extra_float_digits', '1', false)"  # times are told with all digits
)
CLUSTER = ", (SELECT system_identifier FROM pg_catalog.pg_control_system())"  # not everybody may ask everywhere


class Standby(BackendUnavailable):
    """A server that only replays another one's changes; it may be the primary soon."""


class Opened(Session):
    """A connection that was established, to a server that can hold locks."""

    database = ""
    user = ""
    cluster = "unknown"


def connect(
    address: Address, deadline: Deadline, application: str, patience: float, *, identify: bool = True
) -> Opened:
    """A connection to the first server of *address* that can be reached and, if it is to *identify* itself, no standby.

    *application* is what the server shows for it; after *patience* seconds (at least a lease) without
    an acknowledgement the kernel gives it up. Raises ``BackendUnavailable``, ``RequestInterrupted``,
    ``ConfigError``.
    """
    problem: BackendUnavailable | None = None
    for (host, port), share in zip(address.hosts, deadline.shares(len(address.hosts)), strict=True):
        try:
            session = _to_host(address, host, port, share, application, patience)
            if identify:
                _identify(session, share)
        except BackendUnavailable as failure:
            # a server that cannot be reached may be the one that is no standby
            if problem is None or isinstance(problem, Standby):
                problem = failure
        else:
            return session
    assert problem is not None
    raise problem


def _to_host(address: Address, host: str, port: int, deadline: Deadline, application: str, patience: float) -> Opened:
    where = f"postgresql at {host}:{port}"
    if host.startswith("/"):
        places: list[str | None] = [None]
    else:
        places = [found[0] for _, found in resolve(host, port, deadline, where)]
    problem: BackendUnavailable | None = None
    for place, share in zip(places, deadline.shares(len(places)), strict=True):
        try:
            password = password_now(address.password, share)
            parameters = _parameters(address, password, host, port, place, application, patience)
            return _established(parameters, share, where)
        except BackendUnavailable as failure:
            problem = problem or failure
    raise problem or BackendUnavailable(f"{where}: the name has no address")


def _established(parameters: dict[str, Any], deadline: Deadline, where: str, *, codes: bool = False) -> Opened:
    from lockctl.stores.postgresql import driver

    try:
        connection = driver.connect(driver.conninfo(parameters), async_=1)
    except driver.Error as error:
        from lockctl.stores.postgresql.errors import refused

        raise refused(where, str(error)) from None
    session = Opened(connection, where)
    try:
        if codes:
            driver.show_codes(connection)
        session.drive(deadline)
    except SessionGone as error:
        session.close()
        from lockctl.stores.postgresql.errors import is_unknown, refused

        text = str(error).removeprefix(f"{where}: ")
        if is_unknown(text) and not codes:
            return _established(parameters, deadline, where, codes=True)
        raise refused(where, text) from None
    except BaseException:
        session.close()
        raise
    driver.types.register_type(driver.types.BYTES, connection)
    return session


def _identify(session: Opened, deadline: Deadline) -> None:
    try:
        try:
            ((session.pid, in_recovery, database, user, _, cluster),) = session.ask(IDENTITY + CLUSTER, deadline)
            session.cluster = str(cluster)
        except SqlError:
            ((session.pid, in_recovery, database, user, _),) = session.ask(IDENTITY, deadline)
        session.database, session.user = bytes(database).decode(), bytes(user).decode()
        if in_recovery:
            raise Standby(
                f"{session.where}: is a standby, whose locks exclude nobody elsewhere: name the primary in the URL"
            )
    except (SqlError, TypeError, ValueError) as error:  # refused, or other columns than were asked for
        session.close()
        said = error if isinstance(error, SqlError) else "its answers are others"
        raise ConfigError(f"{session.where}: is not PostgreSQL as lockctl knows it: {said}") from None
    except BaseException:
        session.close()
        raise


def _parameters(
    address: Address,
    password: str | None,
    host: str,
    port: int,
    place: str | None,
    application: str,
    patience: float,
) -> dict[str, Any]:
    idle, interval = keepalives(patience)
    found: dict[str, Any] = {
        "host": host,
        "port": port,
        "hostaddr": place,
        "dbname": address.database,
        "user": address.user,
        "password": password,
        "application_name": application,
        "client_encoding": "UTF8",
        "options": "",  # instead of $PGOPTIONS, which poolers refuse
        "gssencmode": "disable",  # its library asks name servers and Kerberos without a time limit
        "target_session_attrs": "any",  # the check for a standby is ours
        # a connection that was cut may not be given up before its lease: it may heal, and a job runs under it
        "keepalives": 1,
        "keepalives_idle": idle,
        "keepalives_interval": interval,
        "keepalives_count": 4,
        "tcp_user_timeout": (int(patience) + 1) * 1000,
        **_tls(address, place),
    }
    if place is not None and address.tls.tls_name is not None:
        found["host"] = address.tls.tls_name
    return {name: content for name, content in found.items() if content is not None}


def _tls(address: Address, place: str | None) -> dict[str, Any]:
    if place is None:
        return {"sslmode": "disable"}  # a Unix socket
    if address.use_tls is False:
        return {"sslmode": "disable"}
    if address.use_tls is None and _is_here(place):
        return {"sslmode": "prefer"}  # as the server wants: nobody stands between
    tls = address.tls
    for path in (tls.ca, tls.cert, tls.key):
        if path is not None and not os.access(path, os.R_OK):
            raise ConfigError(f"postgresql: cannot read {path}")
    found: dict[str, Any] = {"sslcert": tls.cert, "sslkey": tls.key or tls.cert}
    if tls.insecure:
        # a file that cannot be: with one that happens to be in the home directory it would verify after all
        return {**found, "sslmode": "require", "sslrootcert": "/dev/null/none"}
    authorities = tls.ca or next((path for path in SYSTEM_AUTHORITIES if os.access(path, os.R_OK)), None)
    if authorities is None:
        raise ConfigError("postgresql: no certificate authorities were found on this system: say ca=FILE in the URL")
    return {**found, "sslmode": "verify-full", "sslrootcert": authorities}


def _is_here(place: str) -> bool:
    try:
        return _socket.inet_aton(place)[0] == 127
    except OSError:
        return place == "::1"
