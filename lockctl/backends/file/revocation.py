"""Asking a holder for its lock, and taking it away."""

from __future__ import annotations

import os

from lockctl import documents
from lockctl.backends.file import place
from lockctl.backends.file import record as records
from lockctl.backends.file.record import Record


def ask(directory: int, file: str, owner: str, by: str, reason: str) -> None:
    """Leave a request beside the lock, whole or not at all; its holder looks for it at every heartbeat."""
    _put(directory, file, documents.describe_revocation(owner, by, reason))


def replace_file(directory: int, file: str, key: str, floor: int) -> int:
    """Put a new lock file, whose tokens begin above *floor*, in the place of the held one.

    No call of the kernel takes a flock away. Who comes now locks the new file; the old holder sees at
    its next heartbeat that the path is not its file any more. Returns the smallest token to come.
    """
    temporary = f".new.{os.getpid()}.{file}"
    descriptor = os.open(
        temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=directory
    )
    try:
        os.fchmod(descriptor, place.mode_for_files(directory))
        records.write(descriptor, Record(1, floor, b"null"), durable=True)
        os.rename(temporary, key, src_dir_fd=directory)
        os.fsync(directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
    return floor + 1


def _put(directory: int, file: str, content: bytes) -> None:
    temporary = f".new.{os.getpid()}.{file}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(descriptor, place.mode_for_files(directory))
        os.write(descriptor, content)
        os.fsync(descriptor)
        os.rename(temporary, file, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(descriptor)
