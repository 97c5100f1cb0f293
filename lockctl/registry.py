"""Scheme of a URL -> the class that serves it, imported only when asked for. One line per backend."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.url import parse_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Capabilities

SCHEMES = {
    "file": "lockctl.backends.file:FileBackend",
}


def _load(text: str) -> tuple[type, object]:
    url = parse_url(text)
    if url.scheme not in SCHEMES:
        message = f"no backend for {url.scheme!r} URLs; there are: {', '.join(sorted(SCHEMES))}"
        raise ConfigError(message)
    module, _, name = SCHEMES[url.scheme].partition(":")
    # __import__ instead of importlib, which is not loaded yet and slow to load
    found: type = getattr(__import__(module, fromlist=[name]), name)
    return found, url


def capabilities_of(text: str) -> Capabilities:
    """What the backend of this URL promises; nothing is opened. Raises ``ConfigError``."""
    found: Capabilities = _load(text)[0].capabilities  # type: ignore[attr-defined]
    return found


def open_backend(text: str) -> Backend:
    """The backend of this URL; it connects when it is first used. Raises ``ConfigError``."""
    found, url = _load(text)
    backend: Backend = found.from_url(url)  # type: ignore[attr-defined]
    return backend
