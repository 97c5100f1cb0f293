"""Requests as Amazon's services take them: signed (Signature Version 4), with the credentials that its tools find.

Botocore finds and renews the credentials. The rest is small and our own: a request of botocore's has no deadline for
all of it, and is dated by the clock of this host, which may be wrong by hours.
"""

from __future__ import annotations

import hashlib
import hmac
import time

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.value import Value
from lockctl.wire.deadline import Deadline, bounded, password_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(Value):
    """Who asks. *session* goes with keys that end."""

    access: str
    secret: str
    session: str | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Keys({self.access})"


class Chain:
    """The credentials and settings that Amazon's tools find: variables, profiles, SSO, containers, instances."""

    def __init__(self, profile: str | None, keys: Keys | None, extra: str) -> None:
        """*keys* are from the URL, if there are any; *extra* installs botocore. Nothing is loaded yet."""
        self._profile = profile
        self._fixed = keys
        self._extra = extra
        self._again = False  # whether the secret of the URL is to be read anew
        self._found: Any = None  # of botocore, which renews them
        self._session: Any = None

    def load(self) -> None:
        """Load botocore unless nothing has to be found. Raises ``ConfigError``."""
        if self._fixed is None:
            self._loaded()

    def keys(self, deadline: Deadline, where: str) -> Keys:
        """The credentials of now. Raises ``BackendUnavailable``, ``ConfigError``: a person must get some."""
        if self._fixed is None:
            return _usable(bounded(lambda: self._ask(where), deadline, where), where)
        if self._again:
            self._again = False
            self._fixed = Keys(self._fixed.access, password_now(self._fixed.secret, deadline) or "")
        return _usable(self._fixed, where)

    def forget(self) -> None:
        """Look for them anew: a server did not accept them, and a person or a program may have renewed them."""
        self._found, self._again = None, True

    def setting(self, name: str) -> str | None:
        """What variables and files say, such as ``region``. Raises ``ConfigError``."""
        found = self._loaded().get_config_variable(name)
        return found if isinstance(found, str) else None

    def endpoint(self, service: str) -> str | None:
        """The server that variables and files name instead of Amazon's. Raises ``ConfigError``."""
        from botocore.configprovider import ConfiguredEndpointProvider

        session = self._loaded()
        if session.get_config_variable("ignore_configured_endpoint_urls"):
            return None
        found = ConfiguredEndpointProvider(session.full_config, session.get_scoped_config(), service).provide()
        return found if isinstance(found, str) else None

    def _loaded(self) -> Any:
        if self._session is None:
            from lockctl.extras import Needed

            with Needed("this store", self._extra):
                import botocore.session
                from botocore.exceptions import BotoCoreError
            made = botocore.session.Session(profile=self._profile)
            try:
                made.get_scoped_config()
            except BotoCoreError as wrong:
                raise ConfigError(printable(" ".join(str(wrong).split())[:200])) from None
            self._session = made
        return self._session

    def _ask(self, where: str) -> Keys:
        from botocore import exceptions as told

        try:
            if self._found is None:
                # a session keeps what it has found
                self._session = None
                self._found = self._loaded().get_credentials()
            found = None if self._found is None else self._found.get_frozen_credentials()
        except (told.HTTPClientError, told.ConnectionError, told.MetadataRetrievalError) as failure:
            raise BackendUnavailable(f"{where}: the credentials cannot be had now ({type(failure).__name__})") from None
        except (told.BotoCoreError, told.ClientError) as failure:
            self._found = None  # it would ask with the same keys for ever, which may have been exchanged
            kind = type(failure).__name__
            raise ConfigError(
                f"{where}: the credentials cannot be had ({kind}): log in again, or `aws configure`"
            ) from None
        if found is None:
            raise ConfigError(f"{where}: no credentials: `aws configure`, AWS_ACCESS_KEY_ID, or in the URL")
        return Keys(found.access_key, found.secret_key, found.token)


def usable_region(region: str, setting: str) -> str:
    """The *region*; raises ``ConfigError`` with the *setting* for what can be no part of a host and of a signature."""
    if region and not (
        region.isascii() and all(part.replace("-", "a").replace("_", "a").isalnum() for part in region.split("."))
    ):
        raise ConfigError(f"{setting} {printable(region)[:40]!r} must be such as eu-central-1")
    return region


def _usable(keys: Keys, where: str) -> Keys:
    """The same, for a header and a signature. Raises ``ConfigError``."""
    for text in (keys.access, keys.secret, keys.session or ""):
        if not (text.isascii() and text.isprintable()):
            raise ConfigError(f"{where}: a key has characters that none has: `aws configure`, or look at the variables")
    return keys


def signed(
    request: tuple[str, str, bytes], headers: dict[str, str], keys: Keys, scope: tuple[str, str], at: float
) -> tuple[tuple[str, str], ...]:
    """The header fields of a request (method, target, body) with its signature, but for ``host``, which must be there.

    Names of *headers* are in lower case. *scope* is the region and the service, *at* the time by the server's clock.
    The target is encoded, and its query in the order of its names.
    """
    method, target, body = request
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    digest = hashlib.sha256(body).hexdigest()
    fields = {**headers, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if keys.session:
        fields["x-amz-security-token"] = keys.session
    path, _, query = target.partition("?")
    names = sorted(fields)
    lines = [f"{name}:{' '.join(fields[name].split())}" for name in names]
    canonical = "\n".join([method, path, query, *lines, "", ";".join(names), digest])
    place = "/".join([stamp[:8], *scope, "aws4_request"])
    text = "\n".join([ALGORITHM, stamp, place, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + keys.secret.encode()
    for part in place.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    fields["authorization"] = (
        f"{ALGORITHM} Credential={keys.access}/{place}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    del fields["host"]
    return tuple(fields.items())
