"""Who we are at Azure Blob Storage: the key of an account, a SAS token, or what azure-identity finds.

The key and the SAS token are those of the URL, or of the variables that the Azure command line reads, too.
"""

from __future__ import annotations

import os
import time
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64

from lockctl.errors import ConfigError
from lockctl.stores.azblob.address import Address, is_name
from lockctl.value import Value
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.token import Token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.http import Fields

VERSION = "2021-12-02"  # of the protocol
SCOPE = "https://storage.azure.com/.default"
VARIABLES = ("ACCOUNT", "KEY", "SAS_TOKEN", "CONNECTION_STRING")  # behind AZURE_STORAGE_
USUAL_SUFFIX = "core.windows.net"
SIGNED: tuple[str, ...] = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
)
SIGNED += ("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range")


class Login(Value):
    """Where requests go, and with what they are signed; without a *secret*, azure-identity is asked."""

    account: str
    server: str
    secret: str | None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Login({self.account})"


class Access:
    """One account and who asks it. Nothing is sent yet."""

    def __init__(self, wanted: Address) -> None:
        """Reads the environment; raises ``ConfigError``."""
        self.where = str(wanted)
        found = _from_environment(wanted)
        self.account, self.server = found.account, found.server
        self._secret = found.secret
        self._again = False  # whether the secret is to be read anew
        self._token = Token(self._asked, f"{self.where}: azure-identity")
        if self._secret is not None and not _is_sas(_checked(self._secret, self.where)) and not self.account:
            raise ConfigError(f"{self.where}: of which account is the key? Say account=, or AZURE_STORAGE_ACCOUNT")

    def load(self) -> None:
        """Load what takes long, unless a key is there. Raises ``ConfigError``."""
        if self._secret is not None:
            return
        from lockctl.extras import Needed

        with Needed("this store without a key", "azure"):
            import azure.identity  # noqa: F401
        import logging

        # it warns of each place that has no credentials; what matters is in the error
        for name in ("azure", "msal"):
            logging.getLogger(name).addHandler(logging.NullHandler())

    def signed(
        self, request: tuple[str, str, Fields, int], headers: dict[str, str], at: float, deadline: Deadline
    ) -> tuple[str, Fields]:
        """What follows the query, and the header fields, of a request of now.

        *request*: its method, path, query and the length of its body; names of *headers* are in lower case. *at* is
        the time by the server's clock. Raises ``BackendUnavailable``, ``ConfigError``: a person must log in.
        """
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))
        fields = {**headers, "x-ms-date": date, "x-ms-version": VERSION}
        if self._secret is None:
            return "", (*fields.items(), ("authorization", f"Bearer {self._token.now(deadline)}"))
        if self._again:
            self._again = False
            self._secret = _checked(password_now(self._secret, deadline) or "", self.where)
        if _is_sas(self._secret):
            return self._secret.lstrip("?"), tuple(fields.items())
        import hmac  # a SAS token and azure-identity do without

        text = string_to_sign(self.account, request, fields)
        signature = b2a_base64(
            hmac.digest(_decoded(self._secret, self.where), text.encode(), "sha256"), newline=False
        ).decode()
        return "", (*fields.items(), ("authorization", f"SharedKey {self.account}:{signature}"))

    def forget(self) -> None:
        """Look for credentials anew: the server did not accept them, and somebody may have renewed them."""
        self._again = True
        self._token.forget()

    def _asked(self) -> tuple[str, float]:
        import azure.identity
        from azure.core.exceptions import AzureError

        try:
            # a new one for each token: it remembers which of its places had credentials
            with azure.identity.DefaultAzureCredential() as credential:
                found = credential.get_token(SCOPE)
        except (AzureError, OSError, ValueError):  # its text has pages, and may have secrets
            raise ConfigError(
                f"{self.where}: no credentials: AZURE_STORAGE_KEY, `az login`, or an identity that this host was given"
            ) from None
        return found.token, float(found.expires_on)


def string_to_sign(account: str, request: tuple[str, str, Fields, int], headers: dict[str, str]) -> str:
    """What the key of an account signs (Shared Key). The path is as it is sent, the query as it was before encoding."""
    method, path, query, length = request
    fields = {**headers, "content-length": str(length) if length else ""}
    lines = [method, *(fields.get(name, "") for name in SIGNED)]
    ours = [name for name in fields if name.startswith("x-ms-")]
    ours.sort(key=lambda name: name.replace("_", "!"))  # as Azure sorts: a low line before digits, other than ASCII
    lines += [f"{name}:{fields[name].strip()}" for name in ours]
    lines.append(f"/{account}{path}")
    lines += [f"{name}:{text}" for name, text in sorted(query)]
    return "\n".join(lines)


def _is_sas(secret: str) -> bool:
    return "sig=" in secret


def _from_environment(wanted: Address) -> Login:
    """Who asks, and where: as the URL says, and where it says nothing, as the variables do. Raises ``ConfigError``.

    Variables count only for the account that the URL names, if it names one.
    """
    said = {
        name: os.environb.get(f"AZURE_STORAGE_{name}".encode(), b"").decode("utf-8", "replace") for name in VARIABLES
    }
    parts = dict(part.partition("=")[::2] for part in said["CONNECTION_STRING"].split(";") if part)
    account = parts.get("AccountName") or said["ACCOUNT"]
    if wanted.account and account not in ("", wanted.account):
        parts, said = {}, dict.fromkeys(VARIABLES, "")
    account = wanted.account or account
    server = wanted.server or parts.get("BlobEndpoint", "")
    if not server:
        if not is_name(account):
            raise ConfigError(f"{wanted}: which account? Say account=, or AZURE_STORAGE_ACCOUNT")
        scheme, suffix = parts.get("DefaultEndpointsProtocol", "https"), parts.get("EndpointSuffix", USUAL_SUFFIX)
        server = f"{scheme}://{account}.blob.{suffix}"
    of_string = parts.get("AccountKey") or parts.get("SharedAccessSignature")
    return Login(account, server, wanted.secret or of_string or said["KEY"] or said["SAS_TOKEN"] or None)


def _checked(secret: str, where: str) -> str:
    """A SAS token, or the key of an account. Raises ``ConfigError``."""
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ConfigError(f"{where}: a key or SAS token has characters that none has")
    if not _is_sas(secret):
        _decoded(secret, where)
    return secret


def _decoded(key: str, where: str) -> bytes:
    try:
        found = a2b_base64(key)
    except NotBase64:
        found = b""
    if not found:
        raise ConfigError(f"{where}: neither the key of an account (base64) nor a SAS token (with sig=)")
    return found
