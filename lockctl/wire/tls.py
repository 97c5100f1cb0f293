"""TLS for a stream: verified by default, loaded only when a URL asks for it."""

from __future__ import annotations

import os
import ssl

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.tls_settings import TlsSettings

_contexts: dict[TlsSettings, tuple[tuple[object, ...], ssl.SSLContext]] = {}  # with what the files were like


def context(settings: TlsSettings) -> ssl.SSLContext:
    """What ``ssl`` needs to know; made anew when a file has changed. Raises ``ConfigError`` for unusable files.

    To be asked for at each connection: certificates are exchanged while jobs run.
    """
    files = _files(settings)
    known = _contexts.get(settings)
    if known is not None and known[0] == files:
        return known[1]
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif settings.ca is None:
        made.load_default_certs()
    else:
        try:
            made.load_verify_locations(settings.ca)
        except (OSError, ssl.SSLError) as failure:
            raise ConfigError(f"ca {_shown(settings.ca)}: {_reason(failure)}") from None
    if settings.cert is not None:
        _show(made, settings.cert, settings.key)
    _contexts[settings] = files, made
    return made


def _show(made: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Show servers this certificate. Raises ``ConfigError``."""
    encrypted = False

    def password() -> str:  # would be asked for on the terminal, where nobody may be
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        made.load_cert_chain(cert, key, password=password)
    except (OSError, ssl.SSLError) as failure:
        named = " and ".join(_shown(path) for path in (cert, key) if path)
        reason = _reason(failure)
        if encrypted:
            reason = "the private key is encrypted: lockctl needs one without a passphrase (openssl pkey)"
        elif isinstance(failure, ssl.SSLError) and not failure.reason:  # what is missing, OpenSSL does not say
            reason = "there must be a certificate and its private key, in PEM (key= names the file of the key)"
        raise ConfigError(f"client certificate {named}: {reason}") from None


def _shown(path: str) -> str:
    return printable(getattr(path, "name", path))


def _files(settings: TlsSettings) -> tuple[object, ...]:
    """What tells whether the content of a file, or another file under its name, is new."""
    usual = ssl.get_default_verify_paths()
    paths = [settings.cert, settings.key] + ([settings.ca] if settings.ca else [usual.cafile, usual.capath])
    found: list[object] = []
    for path in paths:
        try:
            status = None if path is None else os.stat(path)
        except OSError:
            status = None
        found.append(status and (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


class TlsLayer:
    """One TLS session over buffers: what to do with the socket stays with the stream."""

    def __init__(
        self, settings: TlsSettings, host: str, where: str, closed: Callable[[str], BackendUnavailable]
    ) -> None:
        """Nothing is sent yet. *closed* makes the error for a session that the other side has ended."""
        self._where = where
        self._closed = closed
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        name = settings.tls_name or host
        self._session = context(settings).wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def handshake(self) -> bool:
        """One step; whether it is complete. Raises ``ConfigError`` when the server is not who it should be."""
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLCertVerificationError as failure:
            raise ConfigError(
                f"{self._where}: the server's certificate is not accepted: {failure.verify_message}"
                " (ca= names the file of its authority, tls_name= the name in it)"
            ) from None
        except ssl.SSLError as failure:
            raise refusal(self._where, failure) or ConfigError(
                f"{self._where}: no TLS there: {_reason(failure)}"
            ) from None
        return True

    def feed(self, data: bytes) -> None:
        """Bytes of the socket, during the handshake."""
        self._incoming.write(data)

    def wrap(self, data: bytes) -> bytes:
        """What goes to the socket for *data*."""
        try:
            if data:
                self._session.write(data)
        except ssl.SSLError as failure:
            raise BackendUnavailable(f"{self._where}: TLS: {_reason(failure)}") from None
        return self.to_send()

    def unwrap(self, data: bytes) -> bytes:
        """What came for us in *data* of the socket; empty: nothing yet. Raises what *closed* makes."""
        if data:
            self._incoming.write(data)
        pieces = []
        try:
            while piece := self._session.read(65536):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLError) as failure:
            if not pieces:
                # TLS 1.3 tells only now that our certificate is refused
                raise refusal(self._where, failure) or self._closed(f"{self._where}: TLS: {_reason(failure)}") from None
        return b"".join(pieces)

    def to_send(self) -> bytes:
        """What the protocol itself wants to send now."""
        return self._outgoing.read()


def refusal(where: str, failure: BaseException | None) -> ConfigError | None:
    """The error for what a server has against us, such as our certificate; ``None`` if *failure* is anything else."""
    if isinstance(failure, ssl.SSLError) and "ALERT" in (failure.reason or ""):
        return ConfigError(f"{where}: the server refuses TLS with us: {_reason(failure)}")
    return None


def _reason(failure: Exception) -> str:
    if isinstance(failure, ssl.SSLError):
        return (failure.reason or "failed").replace("_", " ").lower()
    return getattr(failure, "strerror", None) or "cannot be read"
