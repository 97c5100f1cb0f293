"""What a URL says about Azure Blob Storage: a container, a path in it, whose account it is, and who we are there."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.url import Url, endpoint, take_params
from lockctl.value import Discreet
from lockctl.wire.stream import Endpoint
from lockctl.wire.tls_settings import of_endpoint

PARAMETERS = {"account": "", "endpoint": "", "ca": ""}


class Address(Discreet):
    """One container. What is empty is found in the environment. Never print *secret*: a key or a SAS token."""

    container: str
    path: str
    account: str
    server: str
    ca: str
    secret: str | None

    def __str__(self) -> str:
        """As messages name it."""
        return f"azblob://{self.container}"


def from_url(url: Url, parameters: dict[str, str]) -> Address:
    """Read *url*, which may have these parameters; raises ``ConfigError``."""
    params = take_params(url, parameters)
    if len(url.hosts) != 1 or not is_name(url.hosts[0].replace("-", "")):
        raise ConfigError("azblob: a URL is azblob://CONTAINER/PREFIX?account=ACCOUNT")
    if url.user:
        raise ConfigError("azblob: there are no users: say account=ACCOUNT; a key or SAS token is the password")
    if "\\" in url.path:
        raise ConfigError("azblob: the path must have no backslash: programs for Azure take it for a slash")
    if params["account"] and not is_name(params["account"]):
        raise ConfigError("azblob: an account has letters and digits alone")
    if params["endpoint"]:
        server_of(params["endpoint"], "", params["ca"])
    return Address(
        container=url.hosts[0],
        path=url.path,
        account=params["account"],
        server=params["endpoint"],
        ca=params["ca"],
        secret=url.password or None,
    )


def is_name(text: str) -> bool:
    """Whether an account may have this name."""
    return text.isascii() and text.isalnum()


def server_of(text: str, where: str, ca: str) -> tuple[Endpoint, str]:
    """The server that the URL of an endpoint names, and how its paths begin. Raises ``ConfigError``."""
    scheme, _, rest = text.partition("://")
    server, _, path = rest.partition("/")
    if scheme not in ("http", "https") or not server or "?" in text or printable(path) != path:
        raise ConfigError("azblob: endpoint is the URL of an account: https://HOST, or http://HOST:PORT/ACCOUNT")
    tls = of_endpoint("azblob", ca, secured=scheme == "https")
    host, port = endpoint(server, 443 if tls else 80)
    return Endpoint(where, host, port, tls=tls), f"/{path.rstrip('/')}".rstrip("/")
