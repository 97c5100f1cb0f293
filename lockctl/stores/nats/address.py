"""What a URL says about NATS: servers, a bucket, a prefix, who we are there, and TLS."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.url import Url, absolute, endpoint, incomplete_login, take_params
from lockctl.value import Discreet
from lockctl.wire import tls_settings
from lockctl.wire.stream import Endpoint

PORT = 4222
LOGINS = ("creds", "nkey")  # parameters that say who we are, in place of a user or a token
PARAMETERS = {"tls": "", **dict.fromkeys(LOGINS, ""), **tls_settings.PARAMETERS}
LONGEST_PREFIX = 300  # bytes


class Address(Discreet):
    """One bucket. ``str`` shows no secret."""

    endpoints: tuple[Endpoint, ...]
    bucket: str
    prefix: str
    user: str | None
    password: str | None  # of the user; without one it is a token
    creds: str  # path of a file with a JWT and a seed
    nkey: str  # path of a file with a seed
    wants_tls: bool
    tls: tls_settings.TlsSettings

    @property
    def rights(self) -> str:
        """The least that a user must be allowed to do, in words that follow "to"."""
        keys, stream = f"$KV.{self.bucket}.>", f"KV_{self.bucket}"
        return (
            f"publish to {keys}, $JS.API.STREAM.INFO.{stream} and $JS.API.STREAM.MSG.GET.{stream},"
            f" and to subscribe to {keys} and _INBOX.>"
        )

    def __str__(self) -> str:
        """As messages name it."""
        return f"nats bucket {self.bucket} at {', '.join(each.where for each in self.endpoints)}"


def read_url(url: Url) -> Address:
    """Read ``nats://[USER:PASSWORD@]HOST[:4222],HOST/BUCKET/PREFIX``; raises ``ConfigError``."""
    params = take_params(url, PARAMETERS)
    bucket, _, prefix = url.path.removeprefix("/").partition("/")
    if not url.hosts or not bucket.replace("-", "a").replace("_", "a").isalnum() or not bucket.isascii():
        raise ConfigError("nats: a URL names servers and a bucket: nats://HOST,HOST/BUCKET/PREFIX")
    if len(prefix.encode()) > LONGEST_PREFIX:
        raise ConfigError(f"nats: a prefix has at most {LONGEST_PREFIX} bytes")
    if params["tls"] not in ("", "yes"):
        raise ConfigError("nats: tls is yes, or left out: then the server says whether it wants TLS")
    if sum(map(bool, (url.user or url.password, *[params[name] for name in LOGINS]))) > 1:
        raise ConfigError("nats: a user or token in the URL, creds and nkey contradict each other")
    if url.user and not url.password:
        raise incomplete_login(url, "the user has no password: say password_file=FILE; a token is written :TOKEN@")
    tls = tls_settings.TlsSettings.from_params("nats", params)
    wanted = params["tls"] == "yes" or any(params[name] != usual for name, usual in tls_settings.PARAMETERS.items())
    places = [endpoint(each, PORT) for each in url.hosts]
    return Address(
        endpoints=tuple(Endpoint(printable(f"{host}:{port}"), host, port) for host, port in places),
        bucket=bucket,
        prefix=prefix if not prefix or prefix.endswith("/") else prefix + "/",
        user=url.user or None,
        password=url.password or None,
        creds=absolute(params["creds"]) if params["creds"] else "",
        nkey=absolute(params["nkey"]) if params["nkey"] else "",
        wants_tls=wanted,
        tls=tls,
    )
