"""Scheme of a URL -> the class that serves it, imported only when asked for. One line per scheme."""

from __future__ import annotations

from lockctl.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Capabilities
    from lockctl.url import Url

SCHEMES = {
    "file": "lockctl.backends.file:FileBackend",
    "redis": "lockctl.backends.redis:RedisBackend",
    "rediss": "lockctl.backends.redis:RedisBackend",
    "redis+unix": "lockctl.backends.redis:RedisBackend",
    "redis+sentinel": "lockctl.backends.redis:RedisBackend",
    "redlock": "lockctl.backends.redlock:RedlockBackend",
    "redlocks": "lockctl.backends.redlock:RedlockBackend",
    "zookeeper": "lockctl.backends.zookeeper:ZooKeeperBackend",
    "zookeepers": "lockctl.backends.zookeeper:ZooKeeperBackend",
    "etcd": "lockctl.backends.etcd:EtcdBackend",
    "etcds": "lockctl.backends.etcd:EtcdBackend",
    "consul": "lockctl.backends.consul:ConsulBackend",
    "consuls": "lockctl.backends.consul:ConsulBackend",
    "postgresql": "lockctl.backends.postgresql:PostgresqlBackend",
    "mysql": "lockctl.stores.mysql.cell:MysqlBackend",
    "sqlite": "lockctl.stores.sqlite.cell:SqliteBackend",
}


def load(scheme: str) -> type[Backend]:
    """The class that serves URLs of this scheme; raises ``ConfigError`` for an unknown one."""
    if scheme not in SCHEMES:
        message = f"no backend for {scheme!r} URLs; there are: {', '.join(sorted(SCHEMES))}"
        raise ConfigError(message)
    module, _, name = SCHEMES[scheme].partition(":")
    # __import__ instead of importlib, which is not loaded yet and slow to load
    found: type[Backend] = getattr(__import__(module, fromlist=[name]), name)
    return found


def capabilities_of(url: Url) -> Capabilities:
    """What the backend of this URL promises; nothing is opened. Raises ``ConfigError``."""
    return load(url.scheme).capabilities


def open_backend(url: Url) -> Backend:
    """The backend of this URL; it connects when it is first used. Raises ``ConfigError``.

    A password that the URL says to read from a file or a command is read here.
    """
    found = load(url.scheme)
    if url.params:
        from lockctl import secret

        url = secret.resolve(url)
    backend: Backend = found.from_url(url)  # type: ignore[attr-defined]
    return backend
