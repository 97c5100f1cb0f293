"""Scheme of a URL -> the classes that serve it, imported only when asked for. One line per scheme."""

from __future__ import annotations

import sys

from lockctl import loading
from lockctl.errors import ConfigError
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.backend import Backend
    from lockctl.model import Capabilities
    from lockctl.url import Url

# scheme -> the class of its locks, the class of its marks for ``fence``; each has a class method ``from_url(url)``
STORES: dict[str, tuple[str | None, str | None]] = {
    "file": ("lockctl.stores.file.lock:FileBackend", "lockctl.fence.stores.sidecar:SidecarStore"),
    "redis": ("lockctl.stores.redis.lock:RedisBackend", "lockctl.fence.stores.redis:RedisStore"),
    "rediss": ("lockctl.stores.redis.lock:RedisBackend", "lockctl.fence.stores.redis:RedisStore"),
    "redis+unix": ("lockctl.stores.redis.lock:UnixBackend", "lockctl.fence.stores.redis:RedisStore"),
    "redis+sentinel": ("lockctl.stores.redis.lock:SentinelBackend", None),
    "redlock": ("lockctl.stores.redlock.lock:RedlockBackend", None),
    "redlocks": ("lockctl.stores.redlock.lock:RedlockBackend", None),
    "zookeeper": ("lockctl.stores.zookeeper.lock:ZooKeeperBackend", "lockctl.fence.stores.zookeeper:ZooKeeperStore"),
    "zookeepers": ("lockctl.stores.zookeeper.lock:ZooKeeperBackend", "lockctl.fence.stores.zookeeper:ZooKeeperStore"),
    "etcd": ("lockctl.stores.etcd.lock:EtcdBackend", "lockctl.fence.stores.etcd:EtcdStore"),
    "etcds": ("lockctl.stores.etcd.lock:EtcdBackend", "lockctl.fence.stores.etcd:EtcdStore"),
    "consul": ("lockctl.stores.consul.lock:ConsulBackend", "lockctl.fence.stores.consul:ConsulStore"),
    "consuls": ("lockctl.stores.consul.lock:ConsulBackend", "lockctl.fence.stores.consul:ConsulStore"),
    "postgresql": (
        "lockctl.stores.postgresql.lock:PostgresqlBackend",
        "lockctl.fence.stores.postgresql:PostgresqlStore",
    ),
    "mysql": ("lockctl.stores.mysql.cell:MysqlBackend", "lockctl.fence.stores.mysql:MysqlStore"),
    "sqlite": ("lockctl.stores.sqlite.cell:SqliteBackend", "lockctl.fence.stores.sqlite:SqliteStore"),
    "nats": ("lockctl.stores.nats.cell:NatsBackend", "lockctl.fence.stores.nats:NatsStore"),
    "kubernetes": (
        "lockctl.stores.kubernetes.cell:KubernetesBackend",
        "lockctl.fence.stores.kubernetes:KubernetesStore",
    ),
    "dynamodb": ("lockctl.stores.dynamodb.cell:DynamoDbBackend", "lockctl.fence.stores.dynamodb:DynamoDbStore"),
    "s3": ("lockctl.stores.s3.cell:S3Backend", "lockctl.fence.stores.s3:S3Store"),
    "gcs": ("lockctl.stores.gcs.cell:GcsBackend", "lockctl.fence.stores.gcs:GcsStore"),
    "azblob": ("lockctl.stores.azblob.cell:AzureBlobBackend", "lockctl.fence.stores.azblob:AzureBlobStore"),
    "http": (None, "lockctl.fence.stores.http:HttpStore"),
    "https": (None, "lockctl.fence.stores.http:HttpStore"),
}
SCHEMES = {scheme: locks for scheme, (locks, _) in STORES.items() if locks}
MARKS = {scheme: marks for scheme, (_, marks) in STORES.items() if marks}


def load(scheme: str, source: str = "") -> type[Backend]:
    """The class that serves URLs of this scheme; raises ``ConfigError`` for an unknown one, from this *source*."""
    if scheme not in SCHEMES:
        raise ConfigError(f"{source}no backend for {scheme!r} URLs; there are: {', '.join(sorted(SCHEMES))}")
    found: type[Backend] = _loaded(SCHEMES[scheme])
    return found


def load_more(scheme: str, what: str, usual: str) -> None:
    """Load what the store of such URLs names as *what*, or the *usual* modules: ``RECORDS`` when a job begins.

    ``LOOK`` is for who was refused, and is to be told who holds the lock.
    """
    loading.load(getattr(sys.modules.get(SCHEMES[scheme].rpartition(".")[0]), what, usual))


def load_doctor(scheme: str) -> Any:
    """The module that looks for what would break locks at URLs of this scheme; ``None``: its store has none.

    Raises ``ConfigError``.
    """
    load(scheme)
    module = SCHEMES[scheme].rpartition(".")[0] + ".doctor"
    try:
        return __import__(module, fromlist=["examine"])
    except ModuleNotFoundError as missing:
        if missing.name != module:
            raise
        return None


def load_marks(scheme: str) -> Any:
    """The class that keeps marks at URLs of this scheme; raises ``ConfigError`` for an unknown one."""
    if scheme not in MARKS:
        raise ConfigError(f"no store of marks for {printable(scheme)!r} URLs; there are: {', '.join(sorted(MARKS))}")
    return _loaded(MARKS[scheme])


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    if module not in sys.modules:
        package = module.rpartition(".")[0]
        loading.load(package.removeprefix("lockctl."))
        store = __import__(package, fromlist=["PATH"])
        loading.load_in_c(getattr(store, "IN_C", ""))
        loading.load(getattr(store, "PATH", ""))
    # __import__ instead of importlib, which is not loaded yet and slow to load
    return getattr(__import__(module, fromlist=[name]), name)


def capabilities_of(url: Url) -> Capabilities:
    """What the backend of this URL promises; nothing is opened. Raises ``ConfigError``."""
    return load(url.scheme, url.source).capabilities


def open_backend(
    url: Url, interrupt: int | None = None, ending_signal: Callable[[], int | None] | None = None
) -> Backend:
    """The backend of this URL; it connects when it is first used. Raises ``ConfigError``.

    A password that the URL says to read from a file or a command is read here; that raises ``Interrupted`` if
    *interrupt* is readable and *ending_signal* then says that a signal came to end it.
    """
    found = load(url.scheme, url.source)
    try:
        # the name of each parameter that says where a password is ends so
        if any([name.endswith(("_file", "_command")) for name, _ in url.params]):  # noqa: C419 - a generator costs more
            from lockctl import secret

            url = secret.resolve(url, interrupt, ending_signal)
        backend: Backend = found.from_url(url)  # type: ignore[attr-defined]
    except ConfigError as wrong:
        wrong.args = (url.source + str(wrong),)
        raise
    return backend
