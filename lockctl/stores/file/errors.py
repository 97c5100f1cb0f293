"""What it means that the system refuses a file or a directory."""

from __future__ import annotations

import errno

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable

HINTS = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "it is not a directory, or a symbolic link",
    errno.ELOOP: "it is a symbolic link, and those are refused here",
    errno.EISDIR: "it is a directory",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ENXIO: "it is not a regular file",
}


def in_words(path: str, failure: OSError) -> BackendUnavailable | ConfigError:
    """The error for what a person must change, or for what may pass by itself."""
    cannot = f"file: cannot use {printable(path)}"
    hint = HINTS.get(failure.errno or 0)
    if hint is not None:
        return ConfigError(f"{cannot}: {hint}; choose a place with --backend file:///DIRECTORY")
    return BackendUnavailable(f"{cannot}: {failure.strerror}")
