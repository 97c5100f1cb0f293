"""Whether a mark that is kept in a file is seen by everybody who sees its data, and lasts as long as they do."""

from __future__ import annotations

import os
import stat

from lockctl import mounts
from lockctl.errors import ConfigError
from lockctl.names import printable


def check(mark: int, path: str, directory: int | None) -> None:
    """Raise ``ConfigError`` if somebody may have the data of a mark and not the mark itself. Raises ``OSError``.

    *mark* is a descriptor of the mark, or of the directory where it will be made. *path* is that of the data, which are
    its last part in *directory*, a descriptor; ``None``: that is only a name, and where the data are is not known.
    """
    shown = printable(path)
    number = mount_of(mark)
    kind = mounts.filesystem(os.path.dirname(path), os.fstat(mark).st_dev, number)
    if kind.startswith(mounts.SHARED):
        raise ConfigError(
            f"file: {shown} is on {kind}, where a lock of another host may not count: keep its mark in a store"
            f" (--store), or say file://{shown}?any_filesystem=yes if you know better"
        )
    if directory is None:
        if kind.startswith(mounts.LAYERED):
            place = printable(os.path.dirname(path))
            raise ConfigError(
                f"file: {place} is on {kind}, of which every container has a copy of its own: use a directory in a"
                f" volume, or say file://{place}?any_filesystem=yes if all jobs run in this one container"
            )
        return
    try:
        data = os.open(os.path.basename(path), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return  # they will be made where the mark is
    try:
        if mount_of(data) != number or _is_device(data):
            _check_apart(kind, data, path)
    finally:
        os.close(data)


def mount_of(descriptor: int) -> int | None:
    """The number of the mount that an open file, or path (O_PATH), is in; ``None`` if it is not known.

    Two mounts of one file system have one device, but two numbers.
    """
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as file:
            fields = file.read().split()
        return int(fields[fields.index(b"mnt_id:") + 1])
    except (OSError, ValueError):
        return None


def _is_device(data: int) -> bool:
    """Whether only the name of the data is there: that of a device."""
    mode = os.fstat(data).st_mode
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


def _check_apart(kind: str, data: int, path: str) -> None:
    """The same for data that are elsewhere, while the mark beside their name is on a file system of *kind*."""
    shown = printable(path)
    seen, is_device = os.fstat(data), _is_device(data)
    kind_of_data = mounts.filesystem(path, seen.st_dev, mount_of(data))
    there = (
        f"file: {shown} {'is a device' if is_device else 'is mounted there'}, and its mark would be beside it on {kind}"
    )
    if is_device:
        remedy = "use a name on a disk in place of it"
    else:
        is_directory = stat.S_ISDIR(seen.st_mode)
        remedy = f"use a name in it, such as {shown}/all" if is_directory else "mount its directory in place of it"
    remedies = f"keep its mark in a store (--store), or say file://{shown}?any_filesystem=yes if"
    if kind.startswith(mounts.LAYERED):
        raise ConfigError(
            f"{there}, of which every container has a copy of its own: {remedy}, {remedies} all jobs run in this one"
            " container"
        )
    if kind_of_data.startswith(mounts.SHARED):
        raise ConfigError(
            f"file: {shown} is on {kind_of_data}, and its mark would be beside it on this host alone: {remedies} no"
            " other host uses it"
        )
    if kind in mounts.FORGETFUL and (is_device or kind_of_data not in mounts.FORGETFUL):
        raise ConfigError(f"{there}, which is empty after a boot: {remedy}, {remedies} all jobs run on this one host")
