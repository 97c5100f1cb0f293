"""A mark as a lock server keeps it: ``DOMAIN;TOKEN`` under a key of its own, both for people to read."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.fence.mark import Mark, parse_mark
from lockctl.names import printable

LONGEST = 2048  # bytes: longer than any mark, whose domain has at most 300 characters


def written(mark: Mark) -> bytes:
    """The content of the key."""
    return str(mark).encode()


def read(data: bytes, where: str, key: str) -> Mark:
    """The mark in the content of *key*; raises ``ConfigError`` for what :func:`written` did not write.

    The content is not shown: it may be anybody's secret.
    """
    mark = understood(data)
    if mark is None:
        raise not_a_mark(where, key, f"{len(data)} bytes that are not DOMAIN;TOKEN")
    return mark


def understood(data: bytes | None) -> Mark | None:
    """The mark in the content of a key; ``None`` for what is none."""
    if data is None or len(data) > LONGEST:
        return None
    try:
        mark = parse_mark(data.decode())
    except ValueError:  # not UTF-8 is one, too
        return None
    return mark if written(mark) == data else None


def not_a_mark(where: str, key: str, what: str) -> ConfigError:
    """The error that says that *what* is in the place of a mark is not ours."""
    message = f"{where}: {printable(key)} holds {what}: see who writes there, then use: lockctl fence reset"
    return ConfigError(message)


def cannot_hold(where: str) -> ConfigError:
    """The error for :meth:`Store.holding`: whatever would keep others out ends with a lease, maybe in the middle."""
    return ConfigError(
        f"{where}: nothing can hold a mark there, for a lease could end before the work does:"
        " keep the mark beside the resource, with a path or a database"
    )
