"""Words of the user for a resource -> the store of its mark, and its name there."""

from __future__ import annotations

import os

from lockctl import secret
from lockctl.errors import ConfigError, UsageError
from lockctl.names import printable
from lockctl.registry import MARKS, load_marks
from lockctl.url import Url, parse_url, take_params, whole_path
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

    from lockctl.fence.store import Store

OBJECTS = ("s3", "gcs", "azblob", "http", "https")  # the path of their URL is the resource itself
LONGEST_NAME = 300  # characters of a resource
USUAL_NAME = "default"  # the resource of a store whose URL names none with ``resource=``


class Location(Value):
    """A resource: where its mark is, and its name there. A ``with`` block closes the store at its end."""

    store: Store
    resource: str

    @property
    def shown(self) -> str:
        """What people are told: of an object, its URL without credentials; *resource* is only the path of that."""
        shown = getattr(self.store, "shown", None)
        return self.resource if shown is None else str(shown(self.resource))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


def locate(resource: str, store: str | None = None) -> Location:
    """The location that the words of a user mean; nothing is connected yet. Raises ``UsageError`` or ``ConfigError``.

    With *store*, a URL, the *resource* is a name in it. Without, it is a path, whose mark lies beside it in
    ``PATH.fence``, or a URL: of a store, with the name as parameter ``resource``, or of an object. What begins with the
    scheme of a store and is no URL is refused.
    """
    if store is not None:
        if ":" not in store:  # without the word itself: it may have a password
            raise ConfigError("the store of a mark is a URL, such as redis://redis.example/0")
        return Location(_open(parse_url(store)), check_name(resource))
    if "://" not in resource:
        if not resource or "\0" in resource:
            raise UsageError("a resource is a path or a URL, and not empty")
        scheme = resource.partition(":")[0].lower() if ":" in resource else ""
        if scheme in MARKS:  # a mark in a file of this name would protect nothing that is in the store
            # without the words themselves: they may have a password
            raise UsageError(
                f"a URL begins with {scheme}://, and the name of a file that begins with {scheme}: with ./{scheme}:"
            )
        return Location(_open(parse_url("file:///")), _path(resource, whole_path(resource, UsageError)))
    url = parse_url(resource)
    if url.scheme == "file":
        return Location(_open(replace(url, path="/")), _path(url.path, check_name(url.path)))
    if url.scheme in OBJECTS:
        return Location(_open(url), check_name(url.path))
    names = [content for key, content in url.params if key == "resource"]
    others = tuple(pair for pair in url.params if pair[0] != "resource")
    return Location(_open(replace(url, params=others)), check_name(names[-1] if names else USUAL_NAME))


def _path(given: str, path: str) -> str:
    """*path*, unless what was *given* for it means a directory that is not there. Raises ``UsageError``."""
    if given.endswith(("/", "/.")) and not os.path.isdir(path):
        raise UsageError(f"{printable(path)} is not a directory, as the end of the resource says: leave that out")
    return path


def check_name(name: str) -> str:
    """Give *name* back if it can be that of a resource; raises ``UsageError``."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{printable(name[:40])!r} cannot name a resource: 1 to {LONGEST_NAME} printable characters")
    return name


def _open(url: Url) -> Store:
    found = load_marks(url.scheme)
    url = secret.resolve(url)
    take_params(url, found.parameters)
    store: Store = found.from_url(url)
    return store
