"""What would break locks in files: the file system of their directory, and who may do what there."""

from __future__ import annotations

import os

from lockctl import mounts
from lockctl.errors import ConfigError, LockctlError
from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.file.address import check, open_existing, read_url
from lockctl.stores.file.lock import FileBackend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

LEAST_SPACE = 1 << 20  # bytes: locks are small, a full disk keeps the next one from being made
LEAST_FILES = 100

FILESYSTEM = Check(
    "file.filesystem",
    "Not every program that can open the lock file sees its lock there, or its counter is gone after a boot.",
    "use a directory on a local disk (--backend file:///DIRECTORY; in a container: a volume), or a backend for"
    " many hosts",
)
DIRECTORY = Check(
    "file.directory",
    "Whoever can replace a lock file can take the lock twice; who cannot write there has no lock.",
    "install -d -m 755 -o root {path}, or a directory of your own: --backend file:///DIRECTORY",
)
SPACE = Check(
    "file.space",
    "On a full or read-only disk no new lock can be made.",
    "df -h {path}; df -i {path}; and make room, or have it mounted for writing",
)
CHECKS = (FILESYSTEM, DIRECTORY, SPACE)


def examine(url: Url, found: Examination, _: Deadline) -> None:
    """Look at the directory of a URL. Raises ``ConfigError``, ``BackendUnavailable``."""
    path, _prefix, any_filesystem = read_url(url, FileBackend.parameters)
    found.words["path"] = printable(path)
    descriptor = open_existing(path)
    there = path
    if descriptor is None:
        there = os.path.dirname(path)
        while not os.path.isdir(there):
            there = os.path.dirname(there)
    else:
        os.close(descriptor)
    judge_filesystem(there, found, any_filesystem=any_filesystem)
    problem = "" if os.access(there, os.W_OK | os.X_OK) else f"this user may not write in {printable(there)}"
    if there == path:
        try:
            check(path, os.stat(path), any_filesystem=True)
        except LockctlError as wrong:
            problem = str(wrong)
    seen = "may be used" if there == path else "is not there yet: the first lock makes it"
    found.judge(DIRECTORY, problem or f"{printable(path)} {seen}", fails=bool(problem))


def judge_filesystem(path: str, found: Examination, *, any_filesystem: bool = False) -> None:
    """Whether the file system of a directory is one for locks, and has room. Raises ``ConfigError``."""
    try:
        seen = os.statvfs(path)
        kind = mounts.filesystem(path, os.stat(path).st_dev)
    except OSError as failure:
        raise ConfigError(f"{printable(path)}: {failure.strerror}") from None
    wrong = kind.startswith(mounts.SHARED + mounts.LAYERED)
    found.judge(
        FILESYSTEM,
        f"{printable(path)} is on {kind or 'a file system of an unknown kind'}",
        fails=wrong and not any_filesystem,
        warns=wrong or kind in mounts.FORGETFUL or not kind,
    )
    space, files = seen.f_bavail * seen.f_frsize, seen.f_favail
    # some file systems have no fixed number of files, and say 0
    few = space < LEAST_SPACE or (seen.f_files > 0 and files < LEAST_FILES)
    read_only = bool(seen.f_flag & os.ST_RDONLY)
    text = "read-only" if read_only else f"room for {space >> 20} MiB"
    found.judge(SPACE, text, fails=read_only, warns=few)
