"""``lockctl fence write``: a file or an object that is replaced by stdin, whole, and only under a current token."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli import exit_status
from lockctl.cli.fence.options import TIMEOUT, Arguments, own_token
from lockctl.cli.group import verb
from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence.stores.filesystem import mount_of
from lockctl.fence.stores.new_file import NewFile, NotSynced, copy_attributes
from lockctl.fence.stores.objects import ObjectStore
from lockctl.fence.stores.resource import HINTS, SUFFIX, Resource
from lockctl.fence.stores.sidecar import SidecarStore
from lockctl.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from lockctl.fence.mark import Mark

PIECE = 1 << 20  # bytes that are copied at a time
OWNERSHIP = (errno.EPERM, errno.EINVAL)  # of what cannot be as it was; the last: an owner that a container lacks


@verb(
    "write",
    examples={
        "./compute /srv/stock.json > new && lockctl fence write /srv/stock.json < new": (
            "In a command of lockctl run --fence /srv/stock.json."
        ),
        "./export | lockctl fence write s3://bucket/stock.json": "An object.",
    },
)
@click.argument("resource", metavar="FILE", type=click.Path(readable=False))
@own_token
@TIMEOUT
def command(**given: Any) -> int:
    """Replace FILE with stdin if the token is the newest.

    Atomically.
    """
    # The token is shown before stdin is read, too; the lock is taken for the moment of the replacement alone, however
    # slowly stdin comes. Compare and replace are one step of that lock. 0: it is on the disk.
    arguments = Arguments(store=None, **given)
    mark, location = arguments.mark(os.environ), arguments.location()
    store = location.store
    if sys.stdin is None:
        raise UsageError("there is no stdin to read from: it was closed before lockctl started")
    if isinstance(store, ObjectStore):
        store.advance(location.resource, mark, timeout=arguments.timeout)
        store.put(location.resource, b"".join(_pieces()), mark, timeout=arguments.timeout)
        return exit_status.OK
    if not isinstance(store, SidecarStore):
        raise UsageError(
            "FILE must be a path or an object: for another resource, check the token in its own transaction"
        )
    with store.resolved(location.resource) as resource:
        if resource.name.endswith(SUFFIX):
            raise UsageError(f"{printable(resource.path)} is the mark of a file: give the path of that file")
        try:
            _write(resource, mark, arguments.timeout)
        except OSError as failure:
            _refuse(resource.path, failure)
    return exit_status.OK


def _write(resource: Resource, mark: Mark, limit: float) -> None:
    """Mark and data are names in the directory of *resource*, whatever its path means by now. Raises ``OSError``."""
    with _replaceable(resource):
        resource.advance(mark, timeout=limit)
    new = Replacement(resource.directory, resource.name)
    try:
        new.fill()
        with resource.holding(mark, timeout=limit), _replaceable(resource) as old:
            new.put(old, resource.path)
    finally:
        new.discard()


class Replacement(NewFile):
    """What comes on stdin, and then is in the place of the old file."""

    def fill(self) -> None:
        """Copy stdin to its end. Raises ``OSError``, ``BackendUnavailable``."""
        for piece in _pieces():
            view = memoryview(piece)
            while view:
                view = view[os.write(self.descriptor, view) :]
        os.fsync(self.descriptor)

    def put(self, old: int | None, path: str) -> None:
        """Replace what is open as *old*, and get its owner, mode and attributes; on the disk when this returns.

        Raises ``OSError``.
        """
        if old is not None:
            seen = os.fstat(old)
            os.fchown(self.descriptor, seen.st_uid, seen.st_gid)
            copy_attributes(old, path, self.descriptor)
            os.fchmod(self.descriptor, stat.S_IMODE(seen.st_mode))
        os.fsync(self.descriptor)
        self.replace()


def _pieces() -> Iterator[bytes]:
    """What comes on stdin, to its end. Raises ``BackendUnavailable``.

    A pipe that another program has made non-blocking is waited for: what is there now is not all of it.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while True:
        try:
            piece = os.read(0, PIECE)
        except BlockingIOError:
            poll.poll()
            continue
        except OSError as failure:
            raise BackendUnavailable(f"cannot read stdin: {failure.strerror}") from None
        if not piece:
            return
        yield piece


@contextmanager
def _replaceable(resource: Resource) -> Iterator[int | None]:
    """A descriptor (O_PATH) of the file that is there, ``None`` for nothing.

    Raises ``ConfigError`` for what must not be replaced, ``OSError``.
    """
    try:
        descriptor = os.open(resource.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=resource.directory)
    except FileNotFoundError:
        yield None
        return
    try:
        old = os.fstat(descriptor)
        shown = printable(resource.path)
        if not stat.S_ISREG(old.st_mode):
            raise ConfigError(f"{shown} is not a regular file: it cannot be replaced by one")
        if mount_of(descriptor) != mount_of(resource.directory):
            raise ConfigError(f"{shown} is a mount point, which cannot be replaced: mount its directory in place of it")
        if old.st_nlink > 1:
            raise ConfigError(
                f"{shown} has {old.st_nlink} hard links: the others would keep the old content, and have other marks"
            )
        if not os.access(resource.name, os.W_OK, dir_fd=resource.directory):
            # the interpreter does not give the reason
            read_only = os.statvfs(descriptor).f_flag & os.ST_RDONLY
            reason = errno.EROFS if read_only else errno.EACCES
            raise OSError(reason, os.strerror(reason))
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse(path: str, failure: OSError) -> NoReturn:
    shown = printable(path)
    if isinstance(failure, NotSynced):
        message = f"{shown} was replaced, but that may not survive a loss of power: {failure.strerror}"
        raise BackendUnavailable(message) from None
    if failure.errno in (errno.EACCES, errno.EROFS):
        raise ConfigError(f"cannot replace {shown}: {HINTS[failure.errno]}") from None
    if failure.errno in OWNERSHIP:
        raise ConfigError(f"cannot replace {shown} with its owner and mode: {failure.strerror}") from None
    raise BackendUnavailable(f"cannot replace {shown}: {failure.strerror}") from None
