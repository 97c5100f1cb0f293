"""What it means that servers refuse a connection or a request, and the words for it."""

from __future__ import annotations

import errno

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from lockctl.stores.zookeeper.address import Place

NOBODY_THERE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOENT}  # said at once by our own host
FULL = "more connections from this host than maxClientCnxns in zoo.cfg (60 unless changed)"
CLOSES = f"it closes the connection: no quorum, {FULL}, not ZooKeeper, or a port for TLS (zookeepers://)"
CLOSES_KNOWN = f"it closes the connection: no quorum, {FULL}, or its data are older than what this session has seen"


def refusal(place: Place, failure: Exception, path: str) -> BackendUnavailable:
    """The error that says how the server refused a request for a node, for no reason that has a remedy."""
    return BackendUnavailable(f"{place}: the server refuses {printable(path)}: {type(failure).__name__}")


def forbidden(place: Place) -> ConfigError:
    """The error that says that the ACL of a node keeps us out."""
    return ConfigError(f"{place}: no permission below {place.root}: check user, password and the ACLs there")


def not_accepted(place: Place) -> ConfigError:
    """The error that says that the servers do not accept who we are."""
    if place.user is None:
        return ConfigError(f"{place}: the server wants a user name and a password")
    return ConfigError(f"{place}: the server does not accept the user name or password")


def are_final(failures: Iterable[BaseException]) -> bool:
    """Whether all these attempts to connect failed for reasons that only a person can change."""
    return all(_is_final(failure) for failure in failures)


def find_nobody(failures: Iterable[BaseException]) -> bool:
    """Whether all these attempts to connect found no server."""
    return all(getattr(failure, "errno", None) in NOBODY_THERE for failure in failures)


def say_nothing(failures: Iterable[BaseException]) -> bool:
    """Whether in all these attempts to connect the server closed the connection and said nothing."""
    return not any(map(_reason, failures))


def in_words(failures: dict[str, BaseException], *, known: bool) -> str:
    """One reason of each server on one line, equal ones together; *known*: the session has seen data of theirs."""
    closes = CLOSES_KNOWN if known else CLOSES
    reasons: dict[str, list[str]] = {}
    for server, failure in sorted(failures.items()):
        reasons.setdefault(_reason(failure) or closes, []).append(server)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{', '.join(servers)}: {reason}" for reason, servers in reasons.items())


def _is_final(failure: BaseException) -> bool:
    """Whether an attempt to connect failed for a reason that only a person can change."""
    if "ssl" not in type(failure).__module__:
        return False
    import ssl

    # TLS 1.3 tells with an alert, after the handshake, that our certificate is missing or refused
    return isinstance(failure, ssl.SSLCertVerificationError) or "ALERT" in (getattr(failure, "reason", "") or "")


def _reason(failure: BaseException) -> str:
    """Why an attempt to connect failed; empty when the server closed the connection and said nothing."""
    verify = getattr(failure, "verify_message", "")
    if verify:
        remedy = "ca= names the file of its authority, tls_name= the name in it"
        return f"the server's certificate is not accepted: {verify} ({remedy})"
    reason = getattr(failure, "reason", None)
    if isinstance(reason, str):
        words = reason.replace("_", " ").lower()
        if "ALERT" in reason:
            return f"the server refuses TLS with us: {words} (cert= and key= name our certificate)"
        return f"TLS: {words}"
    if isinstance(failure, ConfigError):
        return str(failure)
    if isinstance(failure, (BrokenPipeError, ConnectionResetError)):
        return ""  # it was closed before all was sent: sooner than the server that closes it is usually seen to
    if isinstance(failure, OSError):
        return printable(failure.strerror or str(failure) or "failed")
    if type(failure).__name__ == "KazooTimeoutError":
        return "no answer"
    return ""
