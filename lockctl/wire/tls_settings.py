"""What a URL says about TLS, apart from ``ssl`` itself, which is loaded only for a connection that uses it."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.url import absolute
from lockctl.value import Value

PARAMETERS = {"ca": "", "cert": "", "key": "", "tls_name": "", "insecure": "no"}  # of every URL with TLS


class TlsSettings(Value):
    """How a server is verified and how we show who we are. Paths of PEM files."""

    ca: str | None = None  # whom to trust; None: what the system trusts
    cert: str | None = None
    key: str | None = None  # None: it is in the file of the certificate
    tls_name: str | None = None  # the name to verify, instead of the host of the URL
    insecure: bool = False  # anybody may be the server

    @classmethod
    def from_params(cls, scheme: str, params: dict[str, str]) -> TlsSettings:
        """From the parameters of a URL; raises ``ConfigError``."""
        if params["insecure"] not in ("yes", "no"):
            raise ConfigError(f"{scheme}: insecure is yes or no")
        if params["key"] and not params["cert"]:
            raise ConfigError(f"{scheme}: key needs cert, the certificate it belongs to")
        return cls(
            ca=absolute(params["ca"]) if params["ca"] else None,
            cert=absolute(params["cert"]) if params["cert"] else None,
            key=absolute(params["key"]) if params["key"] else None,
            tls_name=params["tls_name"] or None,
            insecure=params["insecure"] == "yes",
        )


def without_tls(scheme: str, params: dict[str, str]) -> None:
    """Refuse TLS parameters on a URL whose scheme does not use it; raises ``ConfigError``."""
    for name, usual in PARAMETERS.items():
        if params[name] != usual:
            raise ConfigError(f"{scheme}: {name} is for TLS, and this scheme is without: use {scheme}s://")
