"""Where lock files live: a directory that nobody else can replace, on a file system whose locks hold."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from errno import EIO, ENXIO

from lockctl import mounts
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import ALLOWED, printable
from lockctl.url import Url, plain_path, take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


TRIES = 100  # times that a file is replaced meanwhile before something is badly wrong
LEASED = 0.02  # seconds between two tries to open a file that somebody has a lease on
REVOKING = (1 << 40) + 4  # byte of a lock file, see ``protocol``: who takes the lock away has it locked
REQUEST = ".revoked."  # before the name of a lock file: the file in which its lock is asked back
LONGEST = 242  # bytes of a lock file's name: a name has up to 255, and that of its request has 13 more
FLOOR = ".forgotten"  # the file with the greatest token of all lock files that were removed, as no lock's name begins


def read_url(url: Url, parameters: dict[str, str]) -> tuple[str, str, bool]:
    """(directory, prefix, whether any file system will do) of a URL, whose parameters have these defaults."""
    if url.hosts or url.user or url.password or not url.path.startswith("/"):
        message = f"file: a URL has three slashes and an absolute path, such as file:///var/lib/lockctl, not {url}"
        raise ConfigError(message)
    params = take_params(url, parameters)
    if params["any_filesystem"] not in ("yes", "no"):
        raise ConfigError("file: any_filesystem is yes or no")
    prefix = params["prefix"]
    if not ALLOWED.issuperset(prefix) or prefix.startswith((".", "-")):
        allowed = "only letters, digits and ._:@+-, and not begin with . or -"
        raise ConfigError(f"file: prefix {printable(prefix)!r} may have {allowed}")
    return plain_path(url.path), prefix, params["any_filesystem"] == "yes"


def request_file(file: str, number: int | None) -> str:
    """Where the holder of this lock file, alone or in this slot of several, is asked to give the lock back."""
    return f"{REQUEST}{file}" if number is None else f".revoked-{number}.{file}"  # as no lock's name begins


def open_directory(path: str, *, any_filesystem: bool) -> int:
    """A descriptor of the directory, made if it is missing; raises ``ConfigError``, ``BackendUnavailable``."""
    try:
        return _open(path, any_filesystem=any_filesystem)
    except FileNotFoundError:
        pass
    except OSError as failure:
        refuse(path, failure)
    from lockctl.umask import make_directory  # once on each host

    try:
        make_directory(path, 0o755 if os.geteuid() == 0 else 0o700)
        return _open(path, any_filesystem=any_filesystem)
    except OSError as failure:
        refuse(path, failure)


def open_existing(path: str) -> int | None:
    """For readers: a descriptor of the directory, ``None`` when nobody has made it yet."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as failure:
        refuse(path, failure)


def open_file(directory: int, file: str) -> int:
    """A descriptor of a regular file in the directory, for reading and writing, made if it is missing.

    Raises ``OSError``.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    for _ in range(TRIES):
        try:
            descriptor = opened(file, flags, directory)
            break
        except FileNotFoundError:
            pass
        try:
            descriptor = _create(file, flags, directory)
            break
        except FileExistsError:
            continue
    else:
        raise OSError(EIO, "it comes and goes")
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(ENXIO, "not a regular file")
        if not seen.st_size:
            # or a loss of power could take what is written: who made it may have been killed before that
            os.fsync(directory)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def opened(path: str, flags: int, directory: int | None = None) -> int:
    """A descriptor of a file, as soon as nobody has a lease on it, who is about to remove it. Raises ``OSError``."""
    for _ in range(TRIES):
        try:
            return os.open(path, flags, dir_fd=directory)
        except BlockingIOError:
            time.sleep(LEASED)
    return os.open(path, flags, dir_fd=directory)


def _create(file: str, flags: int, directory: int) -> int:
    descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    try:
        open_to_writers(descriptor, directory)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def exists(directory: int, file: str) -> bool:
    """Whether there is anything of this name in the directory, as far as that can be seen."""
    try:
        os.stat(file, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def try_flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock the open file as a whole, or keep it locked; ``False``: others keep it from us."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def same_file(path: str, descriptor: int, directory: int | None = None) -> bool:
    """Whether *path*, in *directory* if it is relative, is, still, the file that is open as *descriptor*."""
    ours = os.fstat(descriptor)
    try:
        there = os.stat(path, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def open_to_writers(descriptor: int, directory: int) -> None:
    """Let whoever may make files in the directory take its locks; nobody else may open, read or block them."""
    seen, mode = os.fstat(directory), 0o600
    if seen.st_mode & stat.S_IWGRP:
        try:
            os.fchown(descriptor, -1, seen.st_gid)
            mode |= 0o060
        except PermissionError:
            pass  # we are not in that group, and ours may not make files there
    if seen.st_mode & stat.S_IWOTH:
        mode |= 0o006
    os.fchmod(descriptor, mode)


def refuse(path: str, failure: OSError) -> NoReturn:
    """Translate what the system says: what a person must change, or what may pass by itself."""
    import errno

    shown = printable(path)
    hints = {
        errno.EACCES: "no permission",
        errno.EPERM: "no permission",
        errno.EROFS: "the file system is read-only",
        errno.ENOTDIR: "it is not a directory, or a symbolic link",
        errno.ELOOP: "it is a symbolic link, and those are refused here",
        errno.EISDIR: "it is a directory",
        errno.ENAMETOOLONG: "the name is too long for the file system",
        errno.ENXIO: "it is not a regular file",
    }
    if failure.errno in hints:
        why = hints[failure.errno] + (_of_another(path) if failure.errno in (errno.EACCES, errno.EPERM) else "")
        message = f"file: cannot use {shown}: {why}; choose a place with --backend file:///DIRECTORY"
        raise ConfigError(message) from failure
    raise BackendUnavailable(f"file: cannot use {shown}: {failure.strerror}") from failure


def _of_another(path: str) -> str:
    """Whose the file is, for a message, if it is another user's and that can be seen."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return ""
    return "" if owner == os.geteuid() else f": it belongs to user {owner}"


def _open(path: str, *, any_filesystem: bool) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        check(path, os.fstat(descriptor), any_filesystem=any_filesystem)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(path: str, seen: os.stat_result, *, any_filesystem: bool) -> None:
    """Raise ``ConfigError`` if the directory at *path* is none for locks."""
    shown = printable(path)
    if seen.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"file: {shown} belongs to user {seen.st_uid}, who could replace the locks in it:"
            " use a directory of your own, or of root"
        )
    if seen.st_mode & stat.S_IWOTH and not seen.st_mode & stat.S_ISVTX:
        message = f"file: everybody may replace files in {shown}: make it sticky (chmod +t) or close it (chmod o-w)"
        raise ConfigError(message)
    if any_filesystem:
        return
    kind = mounts.filesystem(path, seen.st_dev)
    if kind.startswith(mounts.SHARED):
        raise ConfigError(
            f"file: {shown} is on {kind}, where a lock of another host may not count: use a local directory"
            " or a backend for many hosts, or add ?any_filesystem=yes if you know better"
        )
    if kind.startswith(mounts.LAYERED):
        raise ConfigError(
            f"file: {shown} is on {kind}, of which every container has a copy of its own: mount a volume there,"
            " or add ?any_filesystem=yes if all jobs run in this one container"
        )
