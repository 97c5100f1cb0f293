"""What refusals of a Consul agent mean, in words."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.answer import Response

FULL = "more connections from this address than the agent's limits.http_max_conns_per_client (200 unless changed)"


class Forbidden(ConfigError):
    """The token does not allow it, or is not known."""


def strange(where: str, answer: Response, said: str, query: str) -> BackendUnavailable:
    """The error for an answer that means nothing to us; *query* is what the URL adds to each request."""
    if b"Missing node registration" in answer.body and query:
        said += ": a session needs a node of its datacenter: ask an agent there instead of saying dc="
    if answer.status == 429:
        said += f": {FULL}"
    doubt = "; is this address a Consul server's?" if answer.status == 404 else ""
    return BackendUnavailable(f"{where}: status {answer.status}: {said}{doubt}")


def forbidden(where: str, answer: Response, said: str, needed: str, *, anonymous: bool) -> Forbidden:
    """The error for an answer that says that we may not; *needed* is what the token must allow."""
    if b"ACL not found" in answer.body:
        return Forbidden(f"{where}: the token is not known there")
    if anonymous:
        return Forbidden(f"{where}: a token is needed (token_file=FILE) that has {needed}")
    return Forbidden(f"{where}: {said}: the token needs {needed}")


def mistaken(where: str, answer: Response, said: str) -> ConfigError:
    """The error for an answer that says that what we ask cannot be."""
    if b"Invalid Session TTL" in answer.body:
        return ConfigError(f"{where}: {_limits(said)}: change --ttl (or session_ttl_min in the servers' configuration)")
    if b"HTTPS server" in answer.body:
        return ConfigError(f"{where}: it speaks TLS: use consuls://")
    return ConfigError(f"{where}: {said}")


def _limits(said: str) -> str:
    """``must be between [10s=24h0m0s]`` in words."""
    shortest, _, longest = said.partition("[")[2].partition("]")[0].partition("=")
    return f"the ttl must be from {shortest} to {longest}" if longest else said
