"""Marks of files: in a file beside the resource, ``PATH.fence``, whose lock every step holds.

The lock is flock(2) on that file itself, which is therefore never renamed or removed; what is written in it, and why
a crash cannot lower the mark, is in ``slots``. A symbolic link is followed first, and once: all names of a file that
are links have one mark, and a link that is moved meanwhile does not put the data of one file under the mark of another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager

from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.fence.mark import accept
from lockctl.fence.stores import slots
from lockctl.fence.stores.new_file import NewFile, copy_attributes
from lockctl.names import printable
from lockctl.stores.file import address
from lockctl.url import take_params
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.fence.mark import Mark
    from lockctl.url import Url

SUFFIX = ".fence"
ACL = "system.posix_acl_access"  # the extended attribute that is an access control list
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.02  # seconds between two tries to get a lock that somebody has
MOST_LINKS = 40  # times that a link may turn up where none was, as many as the kernel follows
LOOKS = 5  # readings of a file that somebody may be writing, before it is said to be damaged
FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
HINTS = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "there is no such directory",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.ELOOP: "it is a symbolic link, or there is a loop of them",
    errno.EISDIR: "it is a directory",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENXIO: "it is not a regular file",
}


class SidecarStore:
    """Marks in files, see ``lockctl.fence.store``. The resource is a path, or a name in one directory."""

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
            found = _resolve(path, any_filesystem=self._any_filesystem)
        except OSError as failure:
            raise _refusal(path, failure) from None
        try:
            yield found
        finally:
            os.close(found.directory)

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        """See ``Store``."""
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
        """See ``Store``."""
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


class Resource:
    """One file, whether it exists or not, and its mark: both are names in one directory, which is held open.

    So the mark and the data belong together whatever happens to the links and directories of the path meanwhile.
    """

    def __init__(self, directory: int, path: str, *, any_filesystem: bool) -> None:
        """*directory* is a descriptor; *path* is without links, and is for messages and for its last part, the name."""
        self.directory = directory
        self.path = path
        self.name = os.path.basename(path)
        self._mark = self.name + SUFFIX
        self._mark_path = path + SUFFIX
        self._any_filesystem = any_filesystem

    def advance(self, mark: Mark, *, timeout: float) -> None:
        """See ``Store``."""
        with self.holding(mark, timeout=timeout):
            pass

    def current(self) -> Mark | None:
        """See ``Store``."""
        path = self._mark_path
        try:
            descriptor = os.open(self._mark, os.O_RDONLY | FLAGS, dir_fd=self.directory)
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise _refusal(path, failure) from None
        try:
            _check_regular(descriptor)
            for _ in range(LOOKS):
                newest = slots.read(descriptor).newest
                if newest is not None:
                    return newest.mark
                time.sleep(SHORTEST_NAP)
        except OSError as failure:
            raise _refusal(path, failure) from None
        finally:
            os.close(descriptor)
        raise _damaged(path)

    def reset(self, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``."""
        if mark is None and not self._has_mark():
            return None
        with self._locked(timeout) as descriptor:
            before = slots.read(descriptor)
            try:
                slots.write(descriptor, before, mark)
                os.ftruncate(descriptor, slots.SIZE)
                os.fsync(descriptor)
            except OSError as failure:
                raise _refusal(self._mark_path, failure) from None
        return None if before.newest is None else before.newest.mark

    @contextmanager
    def holding(self, mark: Mark, *, timeout: float) -> Iterator[int]:
        """See ``Store``; the descriptor that has the lock."""
        with self._locked(timeout) as descriptor:
            _advance(descriptor, self.path, mark, self._mark_path)
            yield descriptor

    def _has_mark(self) -> bool:
        try:
            os.stat(self._mark, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as failure:
            raise _refusal(self._mark_path, failure) from None
        return True

    @contextmanager
    def _locked(self, timeout: float) -> Iterator[int]:
        """The open file of the mark, made if it is missing, with its lock."""
        deadline = Deadline(timeout)
        try:
            descriptor = self._open_locked(deadline)
        except OSError as failure:
            raise _refusal(self._mark_path, failure) from None
        try:
            yield descriptor
        finally:
            # not by closing alone: whoever was forked in the meantime has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _open_locked(self, deadline: Deadline) -> int:
        while True:
            descriptor = self._open()
            try:
                _lock(descriptor, self._mark_path, deadline)
                if address.same_file(self._mark, descriptor, self.directory):
                    return descriptor
                deadline.check(f"file: {printable(self._mark_path)} is being replaced")
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody put another file there: its lock is the one that counts

    def _open(self) -> int:
        try:
            descriptor = os.open(self._mark, os.O_RDWR | FLAGS, dir_fd=self.directory)
        except FileNotFoundError:
            self._check_filesystem(os.fstat(self.directory).st_dev)
            self._create()
            descriptor = os.open(self._mark, os.O_RDWR | FLAGS, dir_fd=self.directory)
        try:
            _check_regular(descriptor)
            seen = os.fstat(descriptor)
            self._check_filesystem(seen.st_dev)
            self._check_owner(seen)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _create(self) -> None:
        """Make the file of a resource without a mark, whole from the first moment on, or leave one that is there."""
        new = NewFile(self.directory, self._mark)
        try:
            self._be_like_data(new.descriptor)
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

    def _be_like_data(self, descriptor: int) -> None:
        """Whoever may write the data may advance its mark, and nobody else, as far as this user can have it so."""
        try:
            data = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.directory)
        except OSError:
            return  # no data yet: what open(2) gave it
        try:
            self._give_to_owners(os.fstat(data), data, descriptor)
        finally:
            os.close(data)

    def _give_to_owners(self, seen: os.stat_result, data: int, descriptor: int) -> None:
        mode = seen.st_mode & 0o666 | 0o600
        ours = os.fstat(descriptor)
        in_group = (
            (seen.st_uid, seen.st_gid) == (ours.st_uid, ours.st_gid)
            # only root can give it to another user, but members of a group to this group
            or _is_done(lambda: os.fchown(descriptor, seen.st_uid, seen.st_gid))
            or _is_done(lambda: os.fchown(descriptor, -1, seen.st_gid))
        )
        if in_group and _is_done(lambda: copy_attributes(data, self.path, descriptor, ACL)):
            os.fchmod(descriptor, mode)
            return
        os.fchmod(descriptor, mode & ~0o060)  # nobody in a group, or on a list, that is not that of the data

    def _check_owner(self, seen: os.stat_result) -> None:
        """Raise ``ConfigError`` if a stranger put the mark there before the owner of the data could.

        That is possible in directories such as /tmp, where nobody can replace the data itself.
        """
        parent = os.fstat(self.directory)
        if not parent.st_mode & stat.S_ISVTX:
            return
        trusted = {0, os.geteuid(), parent.st_uid}
        try:
            trusted.add(os.stat(self.name, dir_fd=self.directory, follow_symlinks=False).st_uid)
        except OSError:
            pass  # no data yet
        if seen.st_uid not in trusted:
            message = (
                f"file: {printable(self._mark_path)} belongs to user {seen.st_uid}, who could lower the mark:"
                " remove it, or use a directory that only its users can write to"
            )
            raise ConfigError(message)

    def _check_filesystem(self, device: int) -> None:
        if self._any_filesystem:
            return
        kind = address.filesystem(self.path, device)
        if kind.startswith(address.SHARED):
            shown = printable(self.path)
            message = (
                f"file: {shown} is on {kind}, where a lock of another host may not count: keep its mark in a store"
                f" (--store), or say file://{shown}?any_filesystem=yes if you know better"
            )
            raise ConfigError(message)


def _resolve(path: str, *, any_filesystem: bool) -> Resource:
    """Follow all links of *path*; what is found is a name in a directory that is open, and no link. Raises ``OSError``.

    Links may be moved meanwhile: then another file is found, and never one file's name in another's directory.
    """
    for _ in range(MOST_LINKS):
        real = os.path.realpath(path)
        parent, name = os.path.split(real)
        directory = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not name or not stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return Resource(directory, real, any_filesystem=any_filesystem)
        except FileNotFoundError:
            return Resource(directory, real, any_filesystem=any_filesystem)  # there will be one
        except BaseException:
            os.close(directory)
            raise
        os.close(directory)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _advance(descriptor: int, resource: str, mark: Mark, path: str) -> None:
    """Compare and record, under the lock."""
    before = slots.read(descriptor)
    if before.newest is None:
        raise _damaged(path)
    # the same mark again is written, too, unless it is known to be on the disk
    if accept(resource, before.newest.mark, mark) or not before.settled:
        try:
            slots.write(descriptor, before, mark)
        except OSError as failure:
            raise _refusal(path, failure) from None


def _lock(descriptor: int, path: str, deadline: Deadline) -> None:
    nap = SHORTEST_NAP
    while not address.try_flock(descriptor):
        if deadline.left() <= 0:
            message = f"file: the mark in {printable(path)} is held by another program: not free in time"
            raise BackendUnavailable(message)
        # a random part, so that of many who wait each has its chance
        time.sleep(min(nap * (0.5 + os.urandom(1)[0] / 255), deadline.left()))
        nap = min(2 * nap, LONGEST_NAP)


def _is_done(change: Callable[[], None]) -> bool:
    try:
        change()
    except OSError as failure:
        if failure.errno not in (errno.EPERM, errno.EINVAL):  # the latter: a user that a container does not know
            raise
        return False
    return True


def _check_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _damaged(path: str) -> ConfigError:
    return ConfigError(
        f"file: {printable(path)} is damaged, or not a mark of lockctl: it is left as it is;"
        " if the highest token is known from elsewhere, use: lockctl fence reset"
    )


def _refusal(path: str, failure: OSError) -> ConfigError | BackendUnavailable:
    """What a person must change, or what may pass by itself."""
    shown = printable(path)
    if failure.errno in HINTS:
        return ConfigError(f"file: cannot use {shown}: {HINTS[failure.errno]}")
    return BackendUnavailable(f"file: cannot use {shown}: {failure.strerror}")
