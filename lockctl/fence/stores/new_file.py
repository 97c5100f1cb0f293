"""A file that has no name before it is whole: whoever is killed while it is made leaves nothing behind."""

from __future__ import annotations

import errno
import os

from lockctl.fence.stores import slots
from lockctl.stores.file.layout import write_at
from lockctl.umask import open_to_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)  # of file systems that have no files without names
NO_ATTRIBUTES = (errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems that have none
KEPT_BY_SYSTEM = ("security.", "trusted.")  # extended attributes that the system may keep for itself
LONGEST_STEM = 200  # bytes of the name that a name for a moment begins with: a name has at most 255
ACL = "system.posix_acl_access"  # the extended attribute that is an access control list


class NotSynced(OSError):
    """Everybody sees a new name, but it may not have reached the disk."""


class NewFile:
    """A new file in a directory, open to be read and written. All raise ``OSError``."""

    def __init__(self, directory: int, name: str) -> None:
        """It will be *name* in *directory*, a descriptor of any kind, which stays the caller's.

        The umask and an access control list of the directory count.
        """
        stem = os.fsencode(name)[:LONGEST_STEM].decode("utf-8", "ignore")
        self._name = name
        self._temporary = f".{stem}.{os.urandom(6).hex()}"
        self._named = False
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            self.descriptor = self._open()
        except BaseException:
            os.close(self._directory)
            raise

    def link(self) -> None:
        """Give it its name, which is on the disk after :func:`sync_names`. Raises ``FileExistsError``."""
        self._link(self._name)

    def replace(self) -> None:
        """Put it in the place of whatever has its name, on the disk when this returns. Raises ``NotSynced``, too."""
        if not self._named:
            self._link(self._temporary)
            self._named = True
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._named = False
        try:
            os.fsync(self._directory)
        except OSError as failure:
            raise NotSynced(failure.errno, failure.strerror) from None

    def discard(self) -> None:
        """Close it, and leave nothing that was not given its name."""
        os.close(self.descriptor)
        if self._named:
            os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            descriptor = os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=self._directory)
        except OSError as failure:
            if failure.errno not in NAMELESS:
                raise
        else:
            if os.path.exists(f"/proc/self/fd/{descriptor}"):
                return descriptor
            os.close(descriptor)  # no /proc: it could never be given a name
        flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(self._temporary, flags, 0o666, dir_fd=self._directory)
        self._named = True
        return descriptor

    def _link(self, name: str) -> None:
        there = self._directory
        if self._named:
            os.link(self._temporary, name, src_dir_fd=there, dst_dir_fd=there, follow_symlinks=False)
        else:
            os.link(f"/proc/self/fd/{self.descriptor}", name, dst_dir_fd=there, follow_symlinks=True)


def sync_names(directory: int) -> None:
    """Have the names in *directory*, a descriptor of any kind, reach the disk. Raises ``OSError``."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_attributes(old: int, path: str, descriptor: int, only: str = "") -> None:
    """Give an open file the extended attributes of *old*, of which access control lists are some, and no others.

    What a new file got from its directory goes. *old* may be a descriptor of a path alone (O_PATH); *path* is its name,
    for where there is no /proc. *only*: the beginning of the names that count. Raises ``OSError``.
    """
    file = f"/proc/self/fd/{old}"
    if not os.path.exists(file):
        file = path
    wanted, there = _attributes(file, only), _attributes(descriptor, only)
    for name in there:
        if name not in wanted and not name.startswith(KEPT_BY_SYSTEM):
            os.removexattr(descriptor, name)
    for name in wanted:
        try:
            os.setxattr(descriptor, name, os.getxattr(file, name))
        except OSError:
            if not name.startswith(KEPT_BY_SYSTEM):
                raise


def _attributes(file: str | int, only: str) -> list[str]:
    try:
        return [name for name in os.listxattr(file) if name.startswith(only)]
    except OSError as failure:
        if failure.errno in NO_ATTRIBUTES:
            return []
        raise


def make_mark(directory: int, mark: str, data: str, path: str) -> None:
    """Make the file of a resource without a mark, whole from the first moment on, or leave one that is there.

    Its name need not have reached the disk, whoever made it: see :func:`sync_names`.

    *mark* and *data* are names in *directory*, a descriptor; *path* is that of the data, for messages. Raises
    ``OSError``.
    """
    new = NewFile(directory, mark)
    try:
        _be_like(directory, data, path, new.descriptor)
        write_at(new.descriptor, slots.empty(), 0)
        os.fsync(new.descriptor)
        try:
            new.link()
        except FileExistsError:
            pass  # another was faster
    finally:
        new.discard()


def _be_like(directory: int, name: str, path: str, descriptor: int) -> None:
    """Whoever may write the data may advance its mark, and nobody else, as far as this user can have it so."""
    try:
        data = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return open_to_owner(descriptor)  # no data yet: else what open(2) gave it
    try:
        _give_to_owners(data, path, descriptor)
    finally:
        os.close(data)


def _give_to_owners(data: int, path: str, descriptor: int) -> None:
    seen = os.fstat(data)
    mode = seen.st_mode & 0o666 | 0o600
    ours = os.fstat(descriptor)
    in_group = (
        (seen.st_uid, seen.st_gid) == (ours.st_uid, ours.st_gid)
        # only root can give it to another user, but members of a group to this group
        or _is_done(lambda: os.fchown(descriptor, seen.st_uid, seen.st_gid))
        or _is_done(lambda: os.fchown(descriptor, -1, seen.st_gid))
    )
    if in_group and _is_done(lambda: copy_attributes(data, path, descriptor, ACL)):
        os.fchmod(descriptor, mode)
        return
    os.fchmod(descriptor, mode & ~0o060)  # nobody in a group, or on a list, that is not that of the data


def _is_done(change: Callable[[], None]) -> bool:
    try:
        change()
    except OSError as failure:
        if failure.errno not in (errno.EPERM, errno.EINVAL):  # the latter: a user that a container does not know
            raise
        return False
    return True
