"""What a URL says about Consul."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.stores.consul.layout import quoted
from lockctl.url import Url, endpoint, hostport, take_params
from lockctl.value import Value
from lockctl.wire import tls_settings
from lockctl.wire.stream import Endpoint

PORT = 8500
TLS_PORT = 8501
LONGEST_DELAY = 60.0  # seconds of lock delay that Consul allows
MARGIN = (0.25, 1 / 20, 2.0)  # seconds, part of a ttl, seconds: least, usual and largest time that a delay is longer
LONGEST_TTL = LONGEST_DELAY - MARGIN[2]  # seconds for which the longest delay is long enough


class Settings(Value):
    """Where a cluster is and how we are known there. Never print *token*."""

    endpoint: Endpoint
    token: str | None
    query: str  # parameters of every request, such as ``dc=dc1``; may be empty
    prefix: str
    lock_delay: float | None  # seconds; None: as the ttl needs it
    datacenter: str = ""  # the one in *query*; empty: that of the agent

    def terms(self, ttl: float) -> tuple[float, float]:
        """The ttl and the lock delay of a session, in seconds, for a lease of *ttl*.

        Consul may end a session long before its ttl, and cannot tell a holder that is cut off: when Autopilot removes a
        server that failed, or when an agent leaves. So the delay alone must last as long as the holder believes in its
        lease, and a lease that Consul's longest delay does not cover is made shorter.
        """
        if self.lock_delay is not None:
            return ttl, self.lock_delay
        least, part, largest = MARGIN
        ttl = min(ttl, LONGEST_TTL)
        return ttl, ttl + min(max(ttl * part, least), largest)


def from_url(url: Url, parameters: dict[str, str]) -> Settings:
    """The settings in a URL with these parameters; raises ``ConfigError``."""
    params = take_params(url, parameters)
    if url.user:
        raise ConfigError(f"{url.scheme}: there are no users, only tokens: say token_file=FILE, or :TOKEN@ in the URL")
    if len(url.hosts) != 1:
        raise ConfigError(f"{url.scheme}: one host, that of an agent, such as {url.scheme}://127.0.0.1")
    if url.path not in ("", "/"):
        raise ConfigError(f"{url.scheme}: no path after the host: say prefix=, as in /?prefix=locks/")
    if url.password and not (url.password.isascii() and url.password.isprintable()):
        raise ConfigError(f"{url.scheme}: the token has characters that no token has")
    tls = tls_settings.of_scheme(url.scheme, params, secured=url.scheme == "consuls")
    host, port = endpoint(url.hosts[0], TLS_PORT if tls else PORT)
    return Settings(
        endpoint=Endpoint(f"consul at {printable(hostport(host, port))}", host, port, tls=tls),
        token=url.password or None,
        query="&".join(f"{name}={_in_query(params[name])}" for name in ("dc", "ns", "partition") if params[name]),
        prefix=_prefix(params["prefix"]),
        lock_delay=_lock_delay(params["lock_delay"]),
        datacenter=params["dc"],
    )


def _prefix(written: str) -> str:
    """The prefix as ``consul lock`` would use it."""
    prefix = written.removeprefix("/")
    if not prefix.isprintable() or not {"", ".", ".."}.isdisjoint(prefix.split("/")[:-1]):
        raise ConfigError(f"consul: prefix {printable(written)!r} must be such as locks/ or app/locks/")
    return prefix


def _lock_delay(written: str) -> float | None:
    if written == "ttl":
        return None
    if written == "0":
        return 0.0
    from lockctl.durations import parse_duration

    try:
        delay = parse_duration(written)
    except ValueError as wrong:
        raise ConfigError(f"consul: lock_delay: {printable(str(wrong))}") from None
    if delay > LONGEST_DELAY:
        raise ConfigError("consul: lock_delay is at most 60s")
    return delay


def _in_query(text: str) -> str:
    return quoted(text).replace("/", "%2F")
