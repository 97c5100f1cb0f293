"""What a ``postgresql`` URL says: where the servers are, how to get in, and how locks become keys."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.stores.postgresql import layout
from lockctl.url import Url, endpoint, socket_path, take_params
from lockctl.value import Discreet, replace
from lockctl.wire import tls_settings

PORT = 5432
PREFIX = "lockctl:"
LONGEST_PREFIX = 1000  # characters: prefix and name are a key of the fence table's index
SESSION, TRANSACTION = "session", "transaction"
PARAMETERS = {
    **tls_settings.PARAMETERS,
    "prefix": PREFIX,  # before every lock name
    "schema": "",  # of the fence table; empty: the first of the connection's search_path
    "key": "",  # an advisory key instead of one made from the name; or a file, the key of cert
    "sslkey": "",  # the key of cert, where key is an advisory key
    "scope": SESSION,
    "tls": "",  # yes, no; empty: yes unless the server is on this machine
}


class Address(Discreet):
    """One database, and the locks in it. ``str`` shows no secret."""

    hosts: tuple[tuple[str, int], ...]  # a host that starts with "/" is the directory of a Unix socket
    database: str | None
    user: str | None
    password: str | None
    prefix: str
    schema: str | None
    key: layout.Key | None  # for every name the same one
    scope: str
    use_tls: bool | None  # None: if the server is not on this machine
    tls: tls_settings.TlsSettings

    def __str__(self) -> str:
        """As messages name it."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    def key_of(self, name: str) -> layout.Key:
        """The advisory key of the lock *name*."""
        return self.key or layout.of_name(self.prefix + name)

    def slots_of(self, name: str) -> layout.Key:
        """The key that is followed by those of the slots of the lock *name*."""
        return layout.slots(f"{self.key.text}#" if self.key is not None else self.prefix + name)

    def queue_of(self, name: str) -> layout.Key:
        """The tickets of those who wait for the lock *name*."""
        return layout.queue(f"{self.key.text}#" if self.key is not None else self.prefix + name)

    def full_name(self, name: str) -> str | None:
        """The lock *name* as the tables have it: with the prefix; ``None`` where all names are one lock."""
        return None if self.key is not None else self.prefix + name


def from_url(url: Url) -> Address:
    """Read *url*; raises ``ConfigError``."""
    params = dict(url.params)
    advisory = None
    if params.get("key"):
        advisory = layout.parse(params["key"])
    given = replace(url, params=tuple(pair for pair in url.params if advisory is None or pair[0] != "key"))
    # with both a number and a file, the number is left out above and the file is "sslkey"
    taken = take_params(given, PARAMETERS)
    _check(taken)
    taken["key"] = taken["sslkey"] or taken["key"]
    use_tls, tls = tls_settings.of_database("postgresql", taken)
    if not url.hosts:
        raise ConfigError(
            "postgresql: the URL needs a host: postgresql://user@host/database;"
            " a directory of Unix sockets is written %2Frun%2Fpostgresql"
        )
    hosts = tuple(endpoint(host, PORT, sockets=True) for host in url.hosts)
    for host, port in hosts:
        if host.startswith("/"):
            socket_path(f"{host}/.s.PGSQL.{port}", "postgresql")
    database = url.path.removeprefix("/")
    return Address(
        hosts=hosts,
        database=database or None,
        user=url.user,
        password=url.password,
        prefix=taken["prefix"],
        schema=taken["schema"] or None,
        key=advisory,
        scope=taken["scope"],
        use_tls=use_tls,
        tls=tls,
    )


def _check(taken: dict[str, str]) -> None:
    if taken["scope"] not in (SESSION, TRANSACTION):
        raise ConfigError(f"postgresql: scope is {SESSION} or {TRANSACTION}")
    if len(taken["prefix"]) > LONGEST_PREFIX:
        raise ConfigError(f"postgresql: the prefix is longer than {LONGEST_PREFIX} characters")
    looks_like_number = taken["key"] and not taken["key"].strip("-0123456789, ")
    if looks_like_number:
        raise ConfigError(
            f"postgresql: key {printable(taken['key'])} is no advisory key: one bigint, or two int with a comma"
        )
