"""Backend URLs, taken apart without ``urllib`` (its import costs more than a lock)."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError, LockctlError
from lockctl.names import printable
from lockctl.value import Discreet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


SECRETS = ("password_file", "password_command", "token_file", "token_command")  # token: what Consul calls it
LOCAL = ("file", "redis+unix", "sqlite")  # schemes whose place is a path, in which an @ is a letter like others
REGULAR, KIND = 0o100000, 0o170000  # S_IFREG, S_IFMT: the module stat takes long to load
HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
PATHS = ("file", "redis+unix")  # schemes whose path is one of a file system, in any bytes
LONGEST_HOST = 255  # bytes of a name in DNS and in TLS
LONGEST_SOCKET = 107  # bytes of the path of a Unix socket, see unix(7)
NOT_A_URL = "a backend is a URL such as file:///var/lib/lockctl, or the name of a profile"


# where the command was started, if this process has left that directory; empty if that was deleted
started_in: str | None = None


def absolute(path: str) -> str:
    """The path of a file or directory that a user named, which counts from where the command was started."""
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.getcwd() if started_in is None else started_in, path)
    except OSError:  # that directory was deleted
        return path


def plain_path(path: str) -> str:
    """An absolute path in its usual spelling, which is a part of a domain: no slash twice or at the end, no ``.``."""
    return "/" + "/".join([name for name in path.split("/") if name not in ("", ".")])


def socket_path(path: str, scheme: str) -> str:
    """The path of a Unix socket. Raises ``ConfigError`` for one that the kernel does not take."""
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise ConfigError(f"{scheme}: the path of a Unix socket has at most {LONGEST_SOCKET} bytes")
    return path


def whole_path(path: str, wrong: type[LockctlError]) -> str:
    """The same without links to itself such as ``..``; raises *wrong* if that directory was deleted."""
    found = absolute(path)
    if not found.startswith("/"):
        raise wrong(f"{printable(path)}: the working directory was deleted: give the whole path")
    return os.path.normpath(found)


class Named(str):
    """A password or a path, and the *name* by which people know it.

    ``again`` reads a password anew for a new connection, within so many seconds; it raises ``BackendUnavailable``.
    """

    __slots__ = ("again", "name")
    again: Callable[[float], str]
    name: str


class Url(Discreet):
    """The parts of a backend URL, percent-decoded. Never print *password*; ``str`` hides it."""

    scheme: str
    user: str | None
    password: str | None
    hosts: tuple[str, ...]
    path: str
    params: tuple[tuple[str, str], ...]
    source: str = ""  # what errors say first: the setting that it comes from, and a colon

    def __str__(self) -> str:
        """The URL without secrets: neither userinfo nor parameters."""
        return f"{self.scheme}://{','.join(self.hosts)}{self.path}"


def parse_url(text: str) -> Url:
    """Take a URL apart; raises ``ConfigError``, whose text never repeats a secret."""
    if "\0" in text or "%00" in text:
        raise ConfigError("a backend URL must not contain a NUL character (%00)")
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or not scheme.replace("+", "a").replace("-", "a").isalnum():
        raise ConfigError(NOT_A_URL)
    rest, _, query = rest.partition("?")
    netloc, path = "", rest
    if rest.startswith("//"):
        netloc, slash, tail = rest[2:].partition("/")
        path = slash + tail
    elif rest and not rest.startswith("/"):
        raise ConfigError(NOT_A_URL)
    # file:/user:password@host is a path as well; nobody's directory is called so
    has_login = ":" in path[1:].partition("/")[0].partition("@")[0] and not rest.startswith("//")
    if not netloc and "@" in path and (has_login or scheme.lower() not in LOCAL):
        raise ConfigError("the user and the password of a backend URL must be between // and the host")
    if netloc and ("@" in path or "@" in query):
        # most likely the end of a password with a raw "/" or "?", whose pieces would be taken for something to show
        raise ConfigError("in a user name or password of a backend URL, write / ? # @ % as %2F %3F %23 %40 %25")
    userinfo, at, hosts = netloc.rpartition("@")
    user, has_password, password = userinfo.partition(":")
    params = []
    for pair in query.split("&") if query else ():
        key, _, content = pair.partition("=")
        params.append((unquote(key), unquote(content)))
    url = Url(
        scheme=scheme.lower(),
        user=unquote(user) if at and user else None,
        password=unquote(password) if has_password else None,
        hosts=tuple(host for host in hosts.split(",") if host),
        path=unquote(path),
        params=tuple(params),
    )
    _check_parts(url)
    return url


def _check_parts(url: Url) -> None:
    parts = [url.user or "", url.password or "", "" if url.scheme in PATHS else url.path]
    for part in (*parts, *[word for pair in url.params for word in pair]):
        if not _is_text(part):
            raise ConfigError("a backend URL has a part that is not UTF-8 text")
    names = [name for name, _ in url.params]
    for name in names:
        if names.count(name) > 1:  # nobody can know which one is meant
            raise ConfigError(f"{url.scheme}: the parameter {name!r} is given more than once")


def _is_text(part: str) -> bool:
    return part.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in part)


def incomplete_login(url: Url, why: str) -> ConfigError:
    """The error for a URL that has a user and no password, or the other way round; *why* says how it should be."""
    wrong = ConfigError(f"{url.scheme}: {why}")
    wrong.wants_password = url.user is not None and url.password is None
    return wrong


def endpoint(text: str, default_port: int, *, sockets: bool = False) -> tuple[str, int]:
    """Host and port of one element of :attr:`Url.hosts`; IPv6 in brackets. Raises ``ConfigError``.

    *sockets*: the host may be a path, that of a Unix socket or of a directory of them.
    """
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(default_port)
    host = unquote(host)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError("an IPv6 address in a backend URL must be in brackets: [::1]:6379")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536:
        raise ConfigError("a port in a backend URL must be a number from 1 to 65535")
    if not host:
        raise ConfigError("a backend URL has a port without a host")
    if host.startswith("/"):
        if not sockets:
            raise ConfigError("a host in a backend URL must be a name, or an address, and not a path")
    elif not is_host(host):
        raise ConfigError("a host in a backend URL must be a name, or an address: [::1] for IPv6")
    return host, int(port)


def hostport(host: str, port: int | str) -> str:
    """Both as in a URL: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(text: str) -> bool:
    """Whether a resolver can be asked for it, and a certificate can have it: a name, or an address without brackets."""
    if not text.isascii():
        try:
            text = text.encode("idna").decode("ascii")
        except UnicodeError:
            return False
    labels = text.removesuffix(".").split(".")
    plain = text.isprintable() and set(text).isdisjoint(" []/") and len(text) <= LONGEST_HOST
    return plain and all(0 < len(label) < 64 for label in labels)


def take_params(url: Url, allowed: dict[str, str]) -> dict[str, str]:
    """The parameters of *url* over their defaults; raises ``ConfigError`` for one that is not allowed."""
    taken = dict(allowed)
    for key, content in url.params:
        if key not in allowed:
            raise ConfigError(f"{url.scheme}: no parameter {key!r}; there are: {', '.join(sorted(allowed))}")
        taken[key] = content
    return taken


def unquote(text: str) -> str:
    """*text* without percent-encoding, in any bytes. Raises ``ConfigError``."""
    if "%" not in text:
        return text
    pieces = text.encode("utf-8", "surrogateescape").split(b"%")
    out = [pieces[0]]
    for piece in pieces[1:]:
        digits = piece[:2]
        if len(digits) != 2 or not set(digits) <= HEXADECIMAL:
            raise ConfigError("a '%' in a backend URL must be followed by two hexadecimal digits")
        out.append(bytes([int(digits, 16)]) + piece[2:])
    return b"".join(out).decode("utf-8", "surrogateescape")
