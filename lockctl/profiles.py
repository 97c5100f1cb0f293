"""Backend profiles of the configuration file: names for URLs."""

from __future__ import annotations

from lockctl.config_file import ConfigFile, at
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.registry import load
from lockctl.url import SECRETS, Url, parse_url
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def profile_url(file: ConfigFile, name: str) -> Url:
    """The URL of a profile: its other keys are the user, the password, and parameters of the URL.

    Raises ``ConfigError`` with file, key and line.
    """
    profile = file.tables["backends"][name]
    try:
        url = parse_url(str(profile["url"]))
        known = ("url", "user", "password", *SECRETS, *load(url.scheme).parameters)
    except ConfigError as wrong:
        raise at(file, ("backends", name), "url", str(wrong)) from None
    params = dict(url.params)
    for key, content in profile.items():
        if key not in known:
            raise at(file, ("backends", name), key, f"unknown key; this backend has: {', '.join(known)}")
        if key not in ("url", "user", "password"):
            params[key] = ("yes" if content else "no") if isinstance(content, bool) else str(content)
    changes: dict[str, Any] = {key: str(profile[key]) for key in ("user", "password") if key in profile}
    return replace(url, params=tuple(params.items()), source=printable(f"{file.path} [backends.{name}]: "), **changes)
