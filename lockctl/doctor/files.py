"""The files that a URL names: a run reads them when it connects, and here they are tried before."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.url import Url, absolute
from lockctl.wire import tls
from lockctl.wire.tls_settings import TlsSettings

FILES = ("kubeconfig", "credentials", "creds", "nkey")  # parameters that name one, beside those of TLS
NUMBERS = frozenset("0123456789,-")  # a key of these is an advisory lock of PostgreSQL


def check(url: Url) -> None:
    """Whether they can be used. Raises ``ConfigError``."""
    params = dict(url.params)
    key = params.get("sslkey") or params.get("key", "")
    params["key"] = "" if NUMBERS.issuperset(key) else key
    ca, cert, key_file = (absolute(params[name]) if params.get(name) else None for name in ("ca", "cert", "key"))
    if ca or cert:
        tls.context(TlsSettings(ca, cert, key_file))
    for name in FILES:
        if params.get(name):
            _read(name, params[name])


def _read(name: str, path: str) -> None:
    try:
        with open(absolute(path), "rb") as file:
            file.read(1)
    except OSError as failure:
        raise ConfigError(f"{name} {printable(path)}: {failure.strerror}") from None


def check_database(path: str) -> None:
    """Whether there is one, or may be made; nothing is made. Raises ``ConfigError``."""
    import sqlite3  # which not every Python has
    import urllib.parse
    from contextlib import closing

    if not os.path.lexists(path) and os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        return
    try:
        with closing(sqlite3.connect(f"file://{urllib.parse.quote(path)}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as failure:
        if os.path.isfile(path) and os.access(path, os.R_OK):
            return  # it is in use, and a run waits
        raise ConfigError(f"sqlite: {printable(path)}: {failure}") from None
    except sqlite3.DatabaseError as failure:
        raise ConfigError(f"sqlite: {printable(path)}: {failure}") from None
