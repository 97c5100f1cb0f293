"""The password of ``$LOCKCTL_PASSWORD``, for URLs that take one and have none."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.registry import SCHEMES, load
from lockctl.settings import PASSWORD
from lockctl.url import SECRETS, Url
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def from_variable(url: Url, environ: Mapping[str, str]) -> Url:
    """*url* with the password of the variable, if that is set and meant for it: one shell may use several stores.

    Raises ``ConfigError`` for a password that is no text.
    """
    has_own = url.password is not None or any(name in SECRETS for name, _ in url.params)
    if PASSWORD not in environ or has_own or url.scheme not in SCHEMES or not load(url.scheme).takes_password(url):
        return url
    try:
        environ[PASSWORD].encode()
    except UnicodeEncodeError:
        raise ConfigError(f"${PASSWORD}: the password must be UTF-8 text") from None
    return replace(url, password=environ[PASSWORD])
