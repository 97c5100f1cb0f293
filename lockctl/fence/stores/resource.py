"""One file and its mark, which lies beside it: read, compared and written under the lock of the mark."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, accept
from lockctl.fence.stores import filesystem, slots
from lockctl.fence.stores.new_file import make_mark, sync_names
from lockctl.names import printable
from lockctl.stores.file import address
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


SUFFIX = ".fence"
SHORTEST_NAP, LONGEST_NAP = 0.001, 0.02  # seconds between two tries to get a lock that somebody has
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


class Resource:
    """One file, whether it exists or not, and its mark: both are names in one directory, which is held open.

    So the mark and the data belong together whatever happens to the links and directories of the path meanwhile.
    """

    def __init__(self, directory: int, path: str, *, is_name: bool, any_filesystem: bool) -> None:
        """*directory* is a descriptor; *path* is without links, and is for messages and for its last part, the name.

        *is_name*: the last part is only a name, of whatever it may be, and no file of that name is meant.
        """
        self.directory = directory
        self.path = path
        self._is_name = is_name
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
            raise refusal(path, failure) from None
        try:
            _check_regular(descriptor)
            for _ in range(LOOKS):
                newest = slots.read(descriptor).newest
                if newest is not None:
                    return newest.mark
                time.sleep(SHORTEST_NAP)
        except OSError as failure:
            raise refusal(path, failure) from None
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
                self._record(descriptor, before, mark)
                os.ftruncate(descriptor, slots.SIZE)
                os.fsync(descriptor)
            except OSError as failure:
                raise refusal(self._mark_path, failure) from None
        return None if before.newest is None else before.newest.mark

    @contextmanager
    def holding(self, mark: Mark, *, timeout: float) -> Iterator[int]:
        """See ``Store``; the descriptor that has the lock."""
        with self._locked(timeout) as descriptor:
            self._advance(descriptor, mark)
            yield descriptor

    def _advance(self, descriptor: int, mark: Mark) -> None:
        """Compare and record, under the lock."""
        before = slots.read(descriptor)
        if before.newest is None:
            raise _damaged(self._mark_path)
        # the same mark again is written, too, unless it is known to be on the disk
        if accept(self.path, before.newest.mark, mark) or not before.settled:
            try:
                self._record(descriptor, before, mark)
            except OSError as failure:
                raise refusal(self._mark_path, failure) from None

    def _record(self, descriptor: int, before: slots.Slots, mark: Mark | None) -> None:
        """Write the mark, under the lock; on the disk when this returns. Raises ``OSError``."""
        if before.newest is None or before.newest.sequence == 0:
            # or a loss of power could take the file: whoever made it may have been killed before that
            sync_names(self.directory)
        slots.write(descriptor, before, mark)

    def _has_mark(self) -> bool:
        try:
            os.stat(self._mark, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as failure:
            raise refusal(self._mark_path, failure) from None
        return True

    @contextmanager
    def _locked(self, timeout: float) -> Iterator[int]:
        """The open file of the mark, made if it is missing, with its lock."""
        deadline = Deadline(timeout)
        try:
            descriptor = self._open_locked(deadline)
        except OSError as failure:
            raise refusal(self._mark_path, failure) from None
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
            self._check_filesystem(self.directory)
            make_mark(self.directory, self._mark, self.name, self.path)
            descriptor = os.open(self._mark, os.O_RDWR | FLAGS, dir_fd=self.directory)
        try:
            _check_regular(descriptor)
            seen = os.fstat(descriptor)
            self._check_filesystem(descriptor)
            self._check_owner(seen)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

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
            raise ConfigError(
                f"file: {printable(self._mark_path)} belongs to user {seen.st_uid}, who could lower the mark:"
                " remove it, or use a directory that only its users can write to"
            )

    def _check_filesystem(self, mark: int) -> None:
        if not self._any_filesystem:
            filesystem.check(mark, self.path, None if self._is_name else self.directory)


def _lock(descriptor: int, path: str, deadline: Deadline) -> None:
    nap = SHORTEST_NAP
    while not address.try_flock(descriptor):
        if deadline.left() <= 0:
            message = f"file: the mark in {printable(path)} is held by another program: not free in time"
            raise BackendUnavailable(message)
        # a random part, so that of many who wait each has its chance
        time.sleep(min(nap * (0.5 + os.urandom(1)[0] / 255), deadline.left()))
        nap = min(2 * nap, LONGEST_NAP)


def _check_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _damaged(path: str) -> ConfigError:
    return ConfigError(
        f"file: {printable(path)} is damaged, or not a mark of lockctl: it is left as it is;"
        " if the highest token is known from elsewhere, use: lockctl fence reset"
    )


def refusal(path: str, failure: OSError) -> ConfigError | BackendUnavailable:
    """What a person must change, or what may pass by itself."""
    shown = printable(path)
    if failure.errno in HINTS:
        return ConfigError(f"file: cannot use {shown}: {HINTS[failure.errno]}")
    return BackendUnavailable(f"file: cannot use {shown}: {failure.strerror}")
