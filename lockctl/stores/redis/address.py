"""What a URL says about a Redis server. No network."""

from __future__ import annotations

from lockctl import url as urls
from lockctl.errors import ConfigError
from lockctl.names import printable, token_domain
from lockctl.stores.redis.layout import PREFIX
from lockctl.url import Named, Url
from lockctl.value import Value
from lockctl.wire import tls_settings
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.stream import Endpoint

PORT = 6379
SENTINEL_PORT = 26379
LARGEST_DB = 1 << 31
TCP_PARAMETERS = {"prefix": PREFIX, **tls_settings.PARAMETERS}
UNIX_PARAMETERS = {"prefix": PREFIX, "db": "0"}
SENTINEL_PARAMETERS = {**TCP_PARAMETERS, "db": "0", "tls": "no", "sentinel_user": "", "sentinel_password_file": ""}


class Login(Value):
    """How to introduce oneself. Its text shows no secret."""

    user: str | None
    password: str | None
    db: int

    def __repr__(self) -> str:
        """Show nothing that a report must not have."""
        return f"Login(db={self.db})"

    @property
    def is_read_anew(self) -> bool:
        """Whether the password is read again for each connection, which may take a while."""
        return isinstance(self.password, Named)

    def greeting(self, deadline: Deadline) -> list[tuple[bytes | str | int, ...]]:
        """The first commands on a connection."""
        commands: list[tuple[bytes | str | int, ...]] = []
        password = password_now(self.password, deadline)
        if password is not None:
            commands.append(("AUTH", password) if self.user is None else ("AUTH", self.user, password))
        if self.db:
            commands.append(("SELECT", self.db))
        return commands


class Watched(Value):
    """A primary that sentinels know. Its text shows no secret."""

    name: str
    sentinels: tuple[Endpoint, ...]
    login: Login  # of the sentinels themselves
    tls: tls_settings.TlsSettings | None  # of all servers
    where: str

    def __repr__(self) -> str:
        """Show nothing that a report must not have."""
        return f"Watched({self.where})"


class Address(Value):
    """Where the locks live."""

    place: Endpoint | Watched
    login: Login
    prefix: str
    domain: str


def from_url(url: Url) -> Address:
    """The address that a URL means; raises ``ConfigError``."""
    if url.scheme == "redis+unix":
        return _unix(url)
    if url.scheme == "redis+sentinel":
        return _sentinel(url)
    ((host, port), *more), login, prefix, tls = tcp(url)
    if more:
        raise ConfigError(
            f"{url.scheme}: one host: for several independent ones use redlock://,"
            " for a primary that sentinels watch redis+sentinel://"
        )
    place = endpoint("redis", host, port, tls)
    return Address(place, login, prefix, f"redis:{urls.hostport(host, port)}/{login.db}")


def tcp(url: Url) -> tuple[list[tuple[str, int]], Login, str, tls_settings.TlsSettings | None]:
    """Hosts, login, prefix and TLS of ``scheme://user:password@host,host/db?...``."""
    params = urls.take_params(url, TCP_PARAMETERS)
    if not url.hosts:
        raise ConfigError(f"{url.scheme}: the URL names no host: {url.scheme}://HOST:{PORT}/0")
    hosts = [urls.endpoint(host, PORT) for host in url.hosts]
    tls = tls_settings.of_scheme(url.scheme, params, secured=url.scheme in ("rediss", "redlocks"))
    return hosts, _login(url, url.path[1:] if url.path != "/" else ""), _prefix(url, params["prefix"]), tls


def endpoint(scheme: str, host: str, port: int, tls: tls_settings.TlsSettings | None) -> Endpoint:
    """A server over TCP, named in messages as ``redis at host:port``."""
    return Endpoint(f"{scheme} at {printable(urls.hostport(host, port))}", host, port, tls=tls)


def _unix(url: Url) -> Address:
    params = urls.take_params(url, UNIX_PARAMETERS)
    path = urls.socket_path(urls.plain_path(url.path), url.scheme)
    if url.hosts or not url.path.startswith("/") or path == "/":
        raise ConfigError("redis+unix: the URL is redis+unix:///PATH/OF/THE/SOCKET?db=0")
    login = _login(url, params["db"])
    place = Endpoint(f"redis at {printable(path)}", "", unix=path)
    return Address(place, login, _prefix(url, params["prefix"]), f"redis:{printable(path)}/{login.db}")


def _sentinel(url: Url) -> Address:
    params = urls.take_params(url, SENTINEL_PARAMETERS)
    name = url.path[1:]
    if not url.hosts or not name or "/" in name or not name.isprintable():
        raise ConfigError("redis+sentinel: the URL is redis+sentinel://HOST:26379,HOST:26379/NAME-OF-THE-PRIMARY?db=0")
    if params["tls"] not in ("yes", "no"):
        raise ConfigError("redis+sentinel: tls is yes or no")
    tls = None
    if params["tls"] == "yes":
        tls = tls_settings.TlsSettings.from_params(url.scheme, params)
    elif any(params[key] != usual for key, usual in tls_settings.PARAMETERS.items()):
        raise ConfigError("redis+sentinel: a parameter for TLS without tls=yes")
    hosts = [urls.endpoint(host, SENTINEL_PORT) for host in url.hosts]
    password = None
    if params["sentinel_password_file"]:
        from lockctl import secret

        password = secret.from_file(params["sentinel_password_file"], "sentinel_password_file")
    if params["sentinel_user"] and password is None:
        raise ConfigError("redis+sentinel: sentinel_user without sentinel_password_file")
    where = f"redis primary {name} of sentinels {', '.join(printable(urls.hostport(*each)) for each in hosts)}"
    sentinels = tuple(endpoint("sentinel", *each, tls) for each in hosts)
    login = _login(url, params["db"])
    place = Watched(name, sentinels, Login(params["sentinel_user"] or None, password, 0), tls, where)
    return Address(place, login, _prefix(url, params["prefix"]), token_domain(f"redis:sentinel:{name}/{login.db}"))


def _login(url: Url, db: str) -> Login:
    number = db or "0"
    if not (number.isascii() and number.isdigit()) or len(number) > 10 or int(number) >= LARGEST_DB:
        raise ConfigError(f"{url.scheme}: the database is a number such as 0")
    if url.user is not None and url.password is None:
        raise urls.incomplete_login(url, "a user without a password: name its file with password_file=")
    # an empty one is that of a user who needs none; without a user there is no login then
    password = url.password if url.user is not None else url.password or None
    return Login(url.user, password, int(number))


def _prefix(url: Url, prefix: str) -> str:
    if not prefix.isprintable() or "{" in prefix or "}" in prefix:
        raise ConfigError(f"{url.scheme}: prefix is printable text without braces")
    return prefix
