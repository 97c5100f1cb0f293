"""What a URL says about etcd: the members of a cluster, and who we are there."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.stores.etcd.protocol import Cluster
from lockctl.url import Url, endpoint, hostport, incomplete_login
from lockctl.wire import tls_settings
from lockctl.wire.stream import Endpoint

PORT = 2379
PARAMETERS = {"prefix": "lockctl/", **tls_settings.PARAMETERS}


def cluster(url: Url, params: dict[str, str]) -> Cluster:
    """The cluster of a URL whose parameters were taken; nothing is opened. Raises ``ConfigError``."""
    return Cluster(members(url, params), url.user, url.password)


def members(url: Url, params: dict[str, str]) -> tuple[Endpoint, ...]:
    """The members that a URL names. Raises ``ConfigError``."""
    scheme = url.scheme
    if not url.hosts:
        raise ConfigError(f"{scheme}: a URL has the members of the cluster, such as {scheme}://host1,host2/")
    if url.path not in ("", "/"):
        raise ConfigError(f"{scheme}: a URL has no path: where locks are is said by ?prefix={printable(url.path)}")
    if (url.user is None) != (url.password is None):
        raise incomplete_login(url, "a user and a password (or password_file) belong together")
    tls = tls_settings.of_scheme(scheme, params, secured=scheme == "etcds")
    found = []
    for text in url.hosts:
        host, port = endpoint(text, PORT)
        found.append(Endpoint(f"etcd at {printable(hostport(host, port))}", host, port, tls=tls))
    return tuple(found)
