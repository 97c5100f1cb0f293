"""Files and directories that were just made: their owner can use them, whatever the umask says."""

from __future__ import annotations

import os
import stat


def open_to_owner(made: int | str) -> None:
    """Give the owner back what the umask took: to read and to write a file, and all of a directory.

    *made* is its descriptor, or the path of a directory. Raises ``OSError``.
    """
    mode = os.stat(made).st_mode
    own = 0o700 if stat.S_ISDIR(mode) else 0o600
    if mode & own != own:
        os.chmod(made, stat.S_IMODE(mode) | own)


def make_directory(path: str, mode: int = 0o777) -> None:
    """Make a directory with *mode*, and those above it that are missing, unless it is there. Raises ``OSError``."""
    above = os.path.dirname(path.rstrip("/"))
    if above and not os.path.exists(above):
        make_directory(above)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    open_to_owner(path)
