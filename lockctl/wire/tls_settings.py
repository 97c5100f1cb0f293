"""What a URL says about TLS, apart from ``ssl`` itself, which is loaded only for a connection that uses it."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.url import absolute, is_host
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
        if params["insecure"] == "yes" and params["ca"]:
            raise ConfigError(f"{scheme}: insecure=yes contradicts ca: with it nobody verifies the server")
        if params["key"] and not params["cert"]:
            raise ConfigError(f"{scheme}: key needs cert, the certificate it belongs to")
        return cls(
            ca=absolute(params["ca"]) if params["ca"] else None,
            cert=absolute(params["cert"]) if params["cert"] else None,
            key=absolute(params["key"]) if params["key"] else None,
            tls_name=server_name(params["tls_name"], f"{scheme}: tls_name"),
            insecure=params["insecure"] == "yes",
        )


def server_name(text: str, setting: str) -> str | None:
    """The name that a server's certificate must have, as *setting* says; ``None`` if that is empty.

    Raises ``ConfigError`` for a name that no host can have.
    """
    if text and not is_host(text):
        raise ConfigError(f"{setting} must be the name of a host, or an address")
    return text or None


def of_scheme(scheme: str, params: dict[str, str], *, secured: bool) -> TlsSettings | None:
    """What the parameters of a URL say, if its scheme is for TLS (*secured*). Raises ``ConfigError``."""
    if secured:
        return TlsSettings.from_params(scheme, params)
    for name, usual in PARAMETERS.items():
        if params[name] != usual:
            raise ConfigError(f"{scheme}: {name} is for TLS, and this scheme is without: use {scheme}s://")
    return None


def of_endpoint(scheme: str, ca: str, *, secured: bool) -> TlsSettings | None:
    """How the server that ``endpoint`` names is verified: by the file *ca*, else by what the system trusts.

    *secured*: it begins with ``https:``. Raises ``ConfigError``.
    """
    if secured:
        return TlsSettings(ca=absolute(ca) if ca else None)
    if ca:
        raise ConfigError(f"{scheme}: ca is for TLS, and this endpoint is without: it begins with http:")
    return None


def of_database(scheme: str, params: dict[str, str]) -> tuple[bool | None, TlsSettings]:
    """What the parameters of a URL and its ``tls`` say: whether to use TLS, and how. Raises ``ConfigError``.

    ``None``: unless the server is on this machine.
    """
    if params["tls"] not in ("", "yes", "no"):
        raise ConfigError(f"{scheme}: tls is yes or no")
    tls = TlsSettings.from_params(scheme, params)
    if params["ca"] or params["cert"] or params["tls_name"] or tls.insecure:
        if params["tls"] == "no":
            raise ConfigError(f"{scheme}: tls=no contradicts ca, cert, tls_name and insecure")
        return True, tls
    return {"yes": True, "no": False, "": None}[params["tls"]], tls
