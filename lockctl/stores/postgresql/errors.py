"""What a refused connection means: by the words of servers that speak English, and else by the SQLSTATE."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError

# refusals that waiting does not cure, as servers, poolers and the driver word them
LASTING = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "does not exist",
    "no such database",
    "no such user",
    "not permitted to log in",
    "permission denied",
    "certificate",
    "private key",
    "SSL error",
    "SSL negotiation",
    "unsupported frontend protocol",
    "unsupported startup parameter",
    "expected authentication request",
    # what libpq says of its own variables, such as PGSERVICE, before it connects
    "definition of service",
    "service file",
    'value: "',
    "invalid SSL protocol version range",
)
# what these refusals are by their SQLSTATE: a setting (PGTZ), a login, a database that is not there, a right
LASTING_CODES = ("22", "28", "3D", "42")
CODE = 5  # characters of an SQLSTATE
SEVERITY = ":  "  # what follows the severity in an error of a server, in each language
# what is said when there are too many connections, by servers and by PgBouncer, and what is to be raised
FULL = {
    "too many clients already": "max_connections in postgresql.conf (100 unless changed)",
    "connection slots are reserved": "max_connections in postgresql.conf (100 unless changed)",
    "too many connections for role": "the CONNECTION LIMIT of the role",
    "too many connections for database": "the CONNECTION LIMIT of the database",
    "no more connections allowed": "max_client_conn in pgbouncer.ini (100 unless changed)",
}


def is_unknown(text: str) -> bool:
    """Whether these words of a server say nothing to us, so that its SQLSTATE is worth another try."""
    return SEVERITY in text and not any(sign in text for sign in (*LASTING, *FULL))


def refused(where: str, text: str) -> BackendUnavailable | ConfigError:
    """The error for a connection that ended with this text; it may have an SQLSTATE, see ``driver.show_codes``."""
    text = text.strip().partition("\n")[0]
    if "does not support SSL" in text:
        return ConfigError(f"{where}: offers no TLS: say tls=no in the URL if the network to it can be trusted")
    code, colon, _ = text.partition(SEVERITY)[2].partition(": ")
    is_lasting = bool(colon) and len(code) == CODE and code.startswith(LASTING_CODES)
    if is_lasting or any(sign in text for sign in LASTING):
        return ConfigError(f"{where}: {text}")
    for sign, limit in FULL.items():
        if sign in text:
            return BackendUnavailable(f"{where}: {text}: each holder and waiter has a connection: raise {limit}")
    return BackendUnavailable(f"{where}: {text}")
