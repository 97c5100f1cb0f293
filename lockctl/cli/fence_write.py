"""``lockctl fence write``: a file or an object that is replaced by stdin, whole, and only under a current token."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

from lockctl.cli import exit_status
from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence.stores.objects import ObjectStore
from lockctl.fence.stores.sidecar import SUFFIX, SidecarStore
from lockctl.names import printable

if TYPE_CHECKING:
    from typing import NoReturn

    from lockctl.cli.fence import Order

PIECE = 1 << 20  # bytes that are copied at a time
LOST_ATTRIBUTES = ("security.", "trusted.")  # extended attributes that the system may keep for itself
PERMISSIONS = (errno.EPERM, errno.EACCES, errno.EROFS)


def fence_write(order: Order) -> int:
    """Replace the file; 0: it is on the disk. Raises ``Stale``, and everything else with the file as it was.

    The token is shown before stdin is read, too; the lock is taken for the moment of the replacement alone, however
    slowly stdin comes. Compare and replace are one step of that lock.
    """
    mark, limit, place = order.mark(os.environ), order.seconds(), order.place()
    store = place.store
    if sys.stdin is None:
        raise UsageError("there is no stdin to read from: it was closed before lockctl started")
    if isinstance(store, ObjectStore):
        store.advance(place.resource, mark, timeout=limit)
        store.put(place.resource, sys.stdin.buffer.read(), mark, timeout=limit)
        return exit_status.OK
    if not isinstance(store, SidecarStore):
        raise UsageError("FILE is a path or an object: for another resource, check in a transaction of its own")
    path = store.data_path(place.resource)
    if path.endswith(SUFFIX):
        message = f"{printable(path)} is the mark of a file: name that file"
        raise UsageError(message)
    try:
        _check_replaceable(path)
        store.advance(place.resource, mark, timeout=limit)
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        new = Replacement(directory, os.path.basename(path))
        try:
            new.fill(0)
            with store.holding(place.resource, mark, timeout=limit):
                new.put(_check_replaceable(path), path)
        finally:
            new.discard()
    except OSError as failure:
        _refuse(path, failure)
    return exit_status.OK


class Replacement:
    """A new file that has no name until it is put in the place of the old one: a kill leaves nothing behind."""

    def __init__(self, directory: int, name: str) -> None:
        """Will be *name* in *directory*, a descriptor. Raises ``OSError``."""
        self._directory = directory
        self._name = name
        self._temporary = f".{name[:200]}.{os.urandom(6).hex()}"
        self._named = False
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            self._descriptor = os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=directory)
        except OSError as failure:
            if failure.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
                raise
            flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # a file system without files that have no name
            self._descriptor = os.open(self._temporary, flags, 0o666, dir_fd=directory)
            self._named = True

    def fill(self, source: int) -> None:
        """Copy everything that is read from the descriptor *source*. Raises ``OSError``."""
        while piece := os.read(source, PIECE):
            view = memoryview(piece)
            while view:
                view = view[os.write(self._descriptor, view) :]
        os.fsync(self._descriptor)

    def put(self, old: os.stat_result | None, path: str) -> None:
        """Replace *path*, with the owner, mode and attributes of what is *old*; on the disk when this returns.

        Raises ``OSError``.
        """
        if old is not None:
            os.fchown(self._descriptor, old.st_uid, old.st_gid)
            _copy_attributes(path, self._descriptor)
            os.fchmod(self._descriptor, stat.S_IMODE(old.st_mode))
        os.fsync(self._descriptor)
        if not self._named:
            source = f"/proc/self/fd/{self._descriptor}"
            os.link(source, self._temporary, dst_dir_fd=self._directory, follow_symlinks=True)
            self._named = True
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._named = False
        os.fsync(self._directory)

    def discard(self) -> None:
        """Leave nothing that was not put."""
        os.close(self._descriptor)
        if self._named:
            os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)


def _check_replaceable(path: str) -> os.stat_result | None:
    """What is there, ``None`` for nothing; raises ``ConfigError`` for what must not be replaced."""
    try:
        old = os.lstat(path)
    except FileNotFoundError:
        return None
    shown = printable(path)
    if not stat.S_ISREG(old.st_mode):
        message = f"{shown} is not a regular file: it cannot be replaced by one"
        raise ConfigError(message)
    if old.st_nlink > 1:
        message = f"{shown} has {old.st_nlink} hard links: the others would keep the old content, and have other marks"
        raise ConfigError(message)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return old


def _copy_attributes(path: str, descriptor: int) -> None:
    """The extended attributes, of which access control lists are some. Raises ``OSError``."""
    try:
        names = os.listxattr(path)
    except OSError as failure:
        if failure.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            return
        raise
    for name in names:
        try:
            os.setxattr(descriptor, name, os.getxattr(path, name))
        except OSError:
            if not name.startswith(LOST_ATTRIBUTES):
                raise


def _refuse(path: str, failure: OSError) -> NoReturn:
    shown = printable(path)
    if failure.errno in PERMISSIONS:
        message = f"cannot replace {shown} with its owner and mode: {failure.strerror}"
        raise ConfigError(message) from None
    message = f"cannot replace {shown}: {failure.strerror}"
    raise BackendUnavailable(message) from None
