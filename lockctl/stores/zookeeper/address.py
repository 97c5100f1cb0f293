"""Where the locks are: the servers of an ensemble, the node above all locks, and how to show who we are."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import domain_name, read_domain_name
from lockctl.url import Url, endpoint, hostport, incomplete_login, take_params
from lockctl.value import Discreet
from lockctl.wire.tls_settings import PARAMETERS, TlsSettings, of_scheme

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


PORT = 2181
TLS_PORT = 2281  # the usual secureClientPort
ROOT = "/lockctl"
UNNAMED = "\ufff0"  # the first character that no node can have in its name, nor any above it
KEPT = ".kept"  # below ROOT: what outlives a holder; no lock can have this name
NAMED = b"lockctl:"  # data of ROOT begin with it if they name the tokens of the locks below
MADE_BY_US = b"lockctl"  # data of the node of a lock: no other program made it, so none misses it
LAYOUTS = ("kazoo", "curator", "curator-rw")
USUAL = {"layout": LAYOUTS[0], **PARAMETERS}  # the parameters of a URL


class Place(Discreet):
    """What a URL says. Never print *password*; ``str`` hides it."""

    hosts: tuple[tuple[str, int], ...]
    root: str  # the node whose children are the locks
    layout: str
    user: str | None
    password: str | None
    tls: TlsSettings | None

    def __str__(self) -> str:
        """For messages."""
        return f"zookeeper at {self.addresses}"

    @property
    def addresses(self) -> str:
        """``HOST:PORT,...``, IPv6 in brackets, as clients write it."""
        return ",".join(map(self.shown, self.hosts))

    @staticmethod
    def shown(server: tuple[str, int]) -> str:
        """One of :attr:`hosts` as clients write it."""
        return hostport(*server)

    @property
    def root_data(self) -> bytes:
        """What is written into the node above all locks when it is made: the name of its tokens."""
        return NAMED + domain_name(",".join(sorted(self.addresses.split(","))) + self.root).encode()

    def key(self, name: str) -> str:
        """The node of a lock: what another tool must be given."""
        return f"{self.root}/{name}"

    @property
    def records(self) -> str:
        """The node above those for what is kept of locks; its data are the floor of tokens."""
        return f"{self.root}/{KEPT}"

    def kept(self, name: str) -> str:
        """The node for what is kept of a lock without a holder: outside of the lock, where no tool looks for one."""
        return f"{self.records}/{name}"

    def runs(self, name: str) -> str:
        """The node whose children are the runs of a lock."""
        return f"{self.kept(name)}/runs"


def token_domain(data: bytes, stat: Any) -> str:
    """The domain of the tokens below a root with these *data* and *stat*.

    One without a name, which another program or an older lockctl has made, is known by when it was made.
    """
    name = read_domain_name(data[len(NAMED) :]) if data.startswith(NAMED) else None
    return f"zookeeper:{name or f'{stat.czxid:x}-{stat.ctime:x}'}"


def read_url(url: Url) -> Place:
    """The place that a URL names; raises ``ConfigError``, whose text never repeats a secret."""
    params = take_params(url, USUAL)
    if params["layout"] not in LAYOUTS:
        message = f"{url.scheme}: layout is {', '.join(LAYOUTS[:-1])} or {LAYOUTS[-1]}: the tool whose locks these are"
        raise ConfigError(message)
    secured = url.scheme.endswith("s")
    tls = of_scheme(url.scheme, params, secured=secured)
    if not url.hosts:
        message = f"{url.scheme}: a URL names at least one server, such as {url.scheme}://zk1:{PORT},zk2:{PORT}{ROOT}"
        raise ConfigError(message)
    if (url.user is None) != (url.password is None) or (url.user is not None and ":" in url.user):
        raise incomplete_login(url, "digest authentication takes a user name without ':' and a password")
    hosts = tuple(endpoint(host, TLS_PORT if secured else PORT) for host in url.hosts)
    return Place(hosts, _root(url), params["layout"], url.user, url.password, tls)


def _root(url: Url) -> str:
    path = url.path.rstrip("/") or ROOT
    parts = path[1:].split("/")
    bad = not path.isprintable() or max(path) >= UNNAMED or any(part in ("", ".", "..") for part in parts)
    if bad or parts[0] == "zookeeper":
        raise ConfigError(
            f"{url.scheme}: the path of the URL is the node above all locks, such as {ROOT}: printable,"
            " of characters before U+FFF0, without empty parts, '.' or '..', and not below /zookeeper"
        )
    return path
