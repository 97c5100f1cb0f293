"""Where tests and measurements may put lock files."""

from __future__ import annotations

import os
import tempfile

from lockctl import mounts


def local_directory() -> str:
    """A directory for scratch files whose file system lockctl accepts: in a container /tmp may be an overlay."""
    for candidate in (tempfile.gettempdir(), "/dev/shm", "/run"):
        if os.access(candidate, os.W_OK):
            kind = mounts.filesystem(candidate, os.stat(candidate).st_dev)
            if not kind.startswith((*mounts.SHARED, *mounts.LAYERED)):
                return candidate
    raise RuntimeError("no local file system for lock files: set TMPDIR to one")
