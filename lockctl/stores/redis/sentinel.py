"""Asking sentinels which server is the primary, through redis-py; it is talked to over our own connection."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, RequestInterrupted
from lockctl.names import printable
from lockctl.stores.redis import address as addresses
from lockctl.wire.deadline import Deadline, bounded, password_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.stream import Endpoint

LONGEST_ANSWER = 1.0  # seconds for one sentinel: a dead one must leave time for the next


def find_primary(watched: addresses.Watched, deadline: Deadline) -> Endpoint:
    """Where the primary is now. Raises ``BackendUnavailable``, ``ConfigError``, ``RequestInterrupted``.

    The library obeys no deadline of ours, so it runs in a thread that is left behind when the time is over.
    """
    from lockctl.extras import Needed

    with Needed("redis+sentinel", "redis"):
        from redis import exceptions
        from redis.sentinel import Sentinel
    each = max(0.05, min(LONGEST_ANSWER, deadline.left() / len(watched.sentinels)))
    options: dict[str, Any] = {"socket_timeout": each, "socket_connect_timeout": each, "retry": None}
    options.update(username=watched.user, password=password_now(watched.password, deadline), **_tls(watched))

    def ask() -> tuple[str, int]:
        sentinels = Sentinel(list(watched.sentinels), sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        try:
            host, port = sentinels.discover_master(watched.name)  # type: ignore[no-untyped-call]
        finally:
            for client in sentinels.sentinels:
                client.close()
        return (host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)), int(port)

    try:
        host, port = bounded(ask, deadline, watched.where)
    except exceptions.AuthenticationError:
        raise ConfigError(
            f"{watched.where}: the sentinels want another password: name its file with sentinel_password_file="
        ) from None
    except (RequestInterrupted, BackendUnavailable):
        raise
    except Exception as failure:  # noqa: BLE001 - what the library makes of an answer that it did not expect
        reasons = _reasons(watched, failure)
        if any(word in reason for reason in reasons for word in ("NOAUTH", "Authentication", "WRONGPASS")):
            raise ConfigError(
                f"{watched.where}: the sentinels want a password: name its file with sentinel_password_file="
            ) from None
        raise BackendUnavailable(f"{watched.where}: {'; '.join(reasons)[:300]}") from None
    return addresses.endpoint("redis", host, port, watched.tls)


def _tls(watched: addresses.Watched) -> dict[str, Any]:
    if watched.tls is None:
        return {}
    settings = watched.tls
    options: dict[str, Any] = {
        "ssl": True,
        "ssl_ca_certs": settings.ca,
        "ssl_certfile": settings.cert,
        "ssl_keyfile": settings.key or settings.cert,
        "ssl_cert_reqs": "none" if settings.insecure else "required",
        # the library knows no other name to verify than the host's: with tls_name it verifies the authority alone
        "ssl_check_hostname": not settings.insecure and settings.tls_name is None,
    }
    return options


def _reasons(watched: addresses.Watched, failure: BaseException) -> list[str]:
    """What the library says, without what is secret and without its descriptions of itself."""
    text = printable(str(failure))
    if watched.password:
        text = text.replace(watched.password, "***")
    # it names each client at length, then after a dash what went wrong with it
    whole, *parts = text.split(" - ")
    said = {part.partition(", <")[0] for part in parts}
    return [whole.partition(" : <")[0] or type(failure).__name__, *sorted(said)]
