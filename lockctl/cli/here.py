"""What this host must have for a run, as far as that can be seen without a server and without making anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockctl.cli.options import REQUEST_TIMEOUT
from lockctl.doctor import files
from lockctl.errors import ConfigError
from lockctl.fence.location import locate
from lockctl.names import is_name, printable
from lockctl.url import Url, absolute, parse_url

if TYPE_CHECKING:
    from lockctl.backend import Backend

NO_SERVER = ("file", "sqlite")
ANY_LOCK = "any"


def check_backend(url: Url, backend: Backend, lock: str = ANY_LOCK) -> None:
    """Whether its files can be used, and if no server has it, this *lock*, or a pattern. Raises ``ConfigError``."""
    try:
        files.check(url)
        if url.scheme == "file":
            backend.inspect(lock if is_name(lock) else ANY_LOCK, timeout=REQUEST_TIMEOUT)
        elif url.scheme == "sqlite":
            files.check_database(absolute(url.path))
    except ConfigError as wrong:
        raise ConfigError(url.source + str(wrong)) from None


def check_resource(words: str) -> None:
    """Whether the mark of a resource could be kept, if no server does that. Raises ``ConfigError``, ``UsageError``."""
    url = parse_url(words) if "://" in words else None
    with locate(words) as location:
        path = location.shown  # refused if it cannot be one
        if url is not None:
            files.check(url)
        if url is not None and url.scheme not in NO_SERVER:
            return
        location.store.current(location.resource, timeout=REQUEST_TIMEOUT)
    if url is None or url.scheme == "file":
        mark = os.path.realpath(path) + ".fence"
        if not os.access(mark if os.path.exists(mark) else os.path.dirname(mark), os.W_OK):
            raise ConfigError(f"cannot write to {printable(mark)}: no permission")
