"""What a holder says to a resource: its own token, out of the environment that ``lockctl run`` gave it."""

from __future__ import annotations

from contextlib import contextmanager

from lockctl.errors import UsageError
from lockctl.fence.location import locate
from lockctl.fence.mark import Mark, parse_domain, parse_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT = 10.0  # seconds for one step at a store


def own_mark(environ: Mapping[str, str]) -> Mark:
    """The mark of ``LOCKCTL_TOKEN`` and ``LOCKCTL_TOKEN_DOMAIN``; raises ``UsageError``: missing or wrong."""
    if "LOCKCTL_TOKEN" not in environ:
        raise UsageError("there is no LOCKCTL_TOKEN: run this under `lockctl run`, or say --token and --domain")
    try:
        return Mark(parse_domain(environ.get("LOCKCTL_TOKEN_DOMAIN", "")), parse_token(environ["LOCKCTL_TOKEN"]))
    except ValueError as wrong:
        raise UsageError(f"$LOCKCTL_TOKEN or $LOCKCTL_TOKEN_DOMAIN: {wrong}") from None


def advance(resource: str, mark: Mark, *, store: str | None = None, timeout: float = TIMEOUT) -> Mark:
    """Register the token before the first read; the mark as it is then. Raises ``Stale``."""
    with locate(resource, store) as location:
        return location.store.advance(location.resource, mark, timeout=timeout)


check = advance  # with a write: the same step under the name of its purpose


def put(resource: str, body: bytes, mark: Mark, *, store: str | None = None, timeout: float = TIMEOUT) -> None:
    """Replace the data of an object (``s3://...``, ``https://...`` and more) under a token: see ``ObjectStore.put``.

    Raises ``Stale``, and ``UsageError`` for a resource that is no object.
    """
    from lockctl.fence.stores.objects import ObjectStore

    with locate(resource, store) as location:
        if not isinstance(location.store, ObjectStore):
            raise UsageError("not an object: those are s3://, gcs://, azblob://, https:// and http:// URLs")
        location.store.put(location.resource, body, mark, timeout=timeout)


def current(resource: str, *, store: str | None = None, timeout: float = TIMEOUT) -> Mark | None:
    """The mark of a resource."""
    with locate(resource, store) as location:
        return location.store.current(location.resource, timeout=timeout)


def reset(resource: str, mark: Mark | None, *, store: str | None = None, timeout: float = TIMEOUT) -> Mark | None:
    """Set or remove the mark without a comparison; the one before."""
    with locate(resource, store) as location:
        return location.store.reset(location.resource, mark, timeout=timeout)


@contextmanager
def holding(resource: str, mark: Mark, *, store: str | None = None, timeout: float = TIMEOUT) -> Iterator[None]:
    """A block in which nobody else can advance the mark; raises ``Stale`` before it begins."""
    with locate(resource, store) as location, location.store.holding(location.resource, mark, timeout=timeout):
        yield
