"""The file system that a path is on, as ``/proc/self/mountinfo`` has it (proc(5))."""

from __future__ import annotations

import os

# file systems whose flock(2) is not, or not always, seen by every process that can open the file
SHARED = (
    *("nfs", "cifs", "smb", "fuse", "9p", "virtiofs", "vboxsf", "prl_fs"),
    *("lustre", "ceph", "afs", "gfs2", "ocfs2", "beegfs", "gpfs", "orangefs", "pvfs2"),
)
LAYERED = ("overlay", "aufs", "unionfs")  # of which every container has a copy of its own
FORGETFUL = ("tmpfs", "ramfs", "devtmpfs")  # empty after a boot


def filesystem(path: str, device: int, number: int | None = None) -> str:
    """The type of the file system that *path* is on, whose status has this *device*; empty if not known.

    *number* is that of its mount, if it is known.
    """
    mount = _mount(path, device, number)
    return mount[mount.index(b"-") + 1].decode("ascii", "replace") if mount else ""


def superblock(path: str, device: int) -> int:
    """The device that the kernel's list of locks names for *path*, whose status has this *device*.

    btrfs gives each subvolume a device number of its own, which is in the status of its files and nowhere else.
    """
    mount = None if os.major(device) else _mount(path, device)  # no disk has the major number 0
    return os.makedev(*map(int, mount[2].split(b":"))) if mount else device


def _mount(path: str, device: int, number: int | None = None) -> list[bytes] | None:
    """The fields of the mount that *path* is on; ``None`` if it is not known."""
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            mounts = [line.split(b" ") for line in file.read().splitlines()]
    except OSError:
        return None
    for fields in mounts if number is not None else ():
        if int(fields[0]) == number:
            return fields
    for fields in mounts:
        if fields[2] == wanted:
            return fields
    # a device number that no mount has: then the longest mount point decides, and of several there the last one
    real = os.fsencode(os.path.realpath(path)) + b"/"
    longest, found = -1, None
    for fields in mounts:
        point = fields[4].decode("unicode_escape").encode("latin-1").rstrip(b"/") + b"/"  # such as \040 for a blank
        if real.startswith(point) and len(point) >= longest:
            longest, found = len(point), fields
    return found
