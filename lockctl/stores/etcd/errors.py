"""What an answer that is no answer of etcd's gateway tells about the server."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.answer import Response


def not_a_gateway(where: str, response: Response) -> BackendUnavailable | ConfigError:
    """The error that names the cause, as far as it can be told."""
    if response.status == 404:
        return ConfigError(
            f"{where}: no JSON gateway at /v3: etcd must be 3.4 or later, and when it is started with"
            " --config-file, that file needs enable-grpc-gateway: true"
        )
    if b"CommonName" in response.body:
        return ConfigError(
            f"{where}: etcd's gateway does not take a client certificate with a name (CN) while authentication"
            " is on: use a certificate without CN, and a user and its password"
        )
    return BackendUnavailable(f"{where}: not etcd's answer: HTTP status {response.status}: {response.excerpt()}")
