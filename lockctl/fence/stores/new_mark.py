"""The file of a new mark, which those may write who may write the data."""

from __future__ import annotations

import errno
import os

from lockctl.fence.stores import slots
from lockctl.fence.stores.new_file import NewFile, copy_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ACL = "system.posix_acl_access"  # the extended attribute that is an access control list


def make(directory: int, mark: str, data: str, path: str) -> None:
    """Make the file of a resource without a mark, whole from the first moment on, or leave one that is there.

    *mark* and *data* are names in *directory*, a descriptor; *path* is that of the data, for messages. Raises
    ``OSError``.
    """
    new = NewFile(directory, mark)
    try:
        _be_like(directory, data, path, new.descriptor)
        content = slots.empty()
        if os.pwrite(new.descriptor, content, 0) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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
        return  # no data yet: what open(2) gave it
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
