"""Marks of files: in a file beside the resource, ``PATH.fence``, whose lock every step holds.

The lock is flock(2) on that file itself, which is therefore never renamed or removed; what is written in it, and why
a crash cannot lower the mark, is in ``slots``. A symbolic link is followed first, and once: all names of a file that
are links have one mark, and a link that is moved meanwhile does not put the data of one file under the mark of another.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager

from lockctl.errors import ConfigError, UsageError
from lockctl.fence.stores.resource import Resource, refusal
from lockctl.names import printable
from lockctl.url import Url, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.fence.mark import Mark

MOST_LINKS = 40  # times that a link may turn up where none was, as many as the kernel follows


class SidecarStore:
    """A ``Store`` of marks in files. The resource is a path, or a name in one directory."""

    lockable: ClassVar[bool] = True
    parameters: ClassVar[dict[str, str]] = {"any_filesystem": "no"}

    def __init__(self, directory: str, *, any_filesystem: bool) -> None:
        """Resources are relative to *directory*. *any_filesystem*: also one whose locks other hosts may not see."""
        self._directory = directory
        self._any_filesystem = any_filesystem
        self.descriptor: int | None = None  # of the lock, while a mark is held: a child that has it keeps it

    @classmethod
    def from_url(cls, url: Url) -> SidecarStore:
        """The store of ``file:///DIRECTORY``; raises ``ConfigError``."""
        if url.hosts or url.user or url.password or not url.path.startswith("/"):
            message = f"file: a URL has three slashes and an absolute path, such as file:///srv/stock.json, not {url}"
            raise ConfigError(message)
        params = take_params(url, cls.parameters)
        if params["any_filesystem"] not in ("yes", "no"):
            raise ConfigError("file: any_filesystem is yes or no")
        return cls(url.path.rstrip("/") or "/", any_filesystem=params["any_filesystem"] == "yes")

    @contextmanager
    def resolved(self, resource: str) -> Iterator[Resource]:
        """The file that the resource is now, for several steps; raises ``UsageError``, ``ConfigError``."""
        if self._directory != "/" and ("/" in resource or resource in (".", "..")):
            message = f"{printable(resource)!r} is not a name in the directory of the store: it must be without '/'"
            raise UsageError(message)
        path = os.path.join(self._directory, resource)
        try:
            found = _resolve(path, is_name=not os.path.isabs(resource), any_filesystem=self._any_filesystem)
        except OSError as failure:
            raise refusal(path, failure) from None
        try:
            yield found
        finally:
            os.close(found.directory)

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        with self.resolved(resource) as found:
            found.advance(mark, timeout=timeout)
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        """See ``Store``. It takes no lock, so it answers while the mark is held, too."""
        del timeout  # one reading of a file
        with self.resolved(resource) as found:
            return found.current()

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``. A file that is damaged is written anew."""
        with self.resolved(resource) as found:
            return found.reset(mark, timeout=timeout)

    @contextmanager
    def holding(self, resource: str, mark: Mark, *, timeout: float) -> Iterator[None]:
        with self.resolved(resource) as found, found.holding(mark, timeout=timeout) as descriptor:
            self.descriptor = descriptor
            try:
                yield
            finally:
                self.descriptor = None

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: each step is on the disk when it returns."""
        del timeout

    def close(self) -> None:
        """See ``Store``: nothing stays open."""


def _resolve(path: str, *, is_name: bool, any_filesystem: bool) -> Resource:
    """Follow all links of *path*; what is found is a name in a directory that is open, and no link. Raises ``OSError``.

    Links may be moved meanwhile: then another file is found, and never one file's name in another's directory.
    """
    for _ in range(MOST_LINKS):
        real = os.path.realpath(path)
        parent, name = os.path.split(real)
        directory = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not name or not stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return Resource(directory, real, is_name=is_name, any_filesystem=any_filesystem)
        except FileNotFoundError:
            return Resource(directory, real, is_name=is_name, any_filesystem=any_filesystem)  # there will be one
        except BaseException:
            os.close(directory)
            raise
        os.close(directory)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
