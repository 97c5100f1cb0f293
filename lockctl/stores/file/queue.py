"""The locks of files as the kernel has them: who holds them, who waits, and who is first in line."""

from __future__ import annotations

import os
import time

from lockctl import mounts
from lockctl.stores.file import ranges
from lockctl.supervise import tree

FIT = 40  # lines that the kernel gives at once, in a page
TICK = 0.02  # seconds by which the time of a file may be before that at which it was written
READINGS = 3  # of a list that is longer
FREEZERS = (
    (b"", b"/sys/fs/cgroup", b"/cgroup.events"),
    (b"", b"/sys/fs/cgroup/unified", b"/cgroup.events"),  # where both versions are in use
    (b"freezer", b"/sys/fs/cgroup/freezer", b"/freezer.state"),
)


class Locks:
    """The pids that have to do with one file, in the kernel's order."""

    __slots__ = ("holding", "in_line", "shared", "waiting")

    def __init__(self) -> None:
        """Nobody yet."""
        self.holding: list[int] = []
        self.shared: set[int] = set()  # those of them that let others in beside them
        self.waiting: list[int] = []
        self.in_line: list[int] = []  # those of them that keep newcomers out, see ``wait``


class KernelLocks:
    """Who has to do with which file: what the kernel's list of locks says, read once where that is enough.

    The kernel gives the list a page at a time, and counts anew for each: a lock that ends meanwhile hides another one,
    and one that begins shows another one twice. So a file without a holder in a list of more than a page is looked for
    in a second and a third one.
    """

    def __init__(self) -> None:
        """The locks as they are now."""
        self.taken_at = time.monotonic()
        self._wall = time.time()
        lines = _lines()
        self._found = _by_inode(lines)
        self._left = READINGS - 1 if len(lines) > FIT else 0
        self._devices: dict[int, int] = {}  # of the status of a file -> of the list

    def of(self, path: str, seen: os.stat_result) -> Locks:
        """Who has to do with the file that was *seen* at *path*."""
        device = self._devices.get(seen.st_dev)
        if device is None:
            device = self._devices[seen.st_dev] = mounts.superblock(path, seen.st_dev)
        found = self._of((os.major(device), os.minor(device), seen.st_ino))
        if device != seen.st_dev:
            # the number of the inode may be that of another file, of another subvolume
            found.holding = [pid for pid in found.holding if not _has_namesake(pid, seen)]
        return found

    def _of(self, inode: tuple[int, int, int]) -> Locks:
        while self._left and not self._present(inode).holding:
            self._left -= 1
            for other, locks in _by_inode(_lines()).items():
                if not self._present(other).holding:
                    self._found[other] = locks
        return self._present(inode)

    def may_be_older(self, seen: os.stat_result) -> bool:
        """Whether these are perhaps the locks as they were before the file that was *seen* was written.

        A holder of ours writes its record when it has the lock, and removes it a moment before it gives the lock back.
        """
        return seen.st_mtime > self._wall - TICK

    def _present(self, inode: tuple[int, int, int]) -> Locks:
        return self._found.get(inode) or Locks()


def _by_inode(lines: list[list[str]]) -> dict[tuple[int, int, int], Locks]:
    """(major, minor, inode) -> who holds a flock, and who waits for one or is a waiting lockctl."""
    found: dict[tuple[int, int, int], Locks] = {}
    registered = str(ranges.WAITERS)
    in_line = (str(ranges.TURN), str(ranges.GATE))
    for fields in lines:
        waiting = fields[:1] == ["->"]
        if waiting:
            del fields[0]
        if len(fields) < 7 or fields[4].count(":") != 2:
            continue
        if fields[0] == "POSIX" and fields[5:7] == [registered, registered]:
            waiting = True
        elif fields[0] != "FLOCK" and (fields[0] != "POSIX" or waiting or fields[5] not in in_line):
            continue
        major, minor, inode = fields[4].split(":")
        locks = found.setdefault((int(major, 16), int(minor, 16), int(inode)), Locks())
        pid = int(fields[3])
        if fields[5] in in_line:
            locks.in_line.append(pid)
            continue
        if waiting:
            if pid not in locks.waiting:
                locks.waiting.append(pid)
            continue
        if pid not in locks.holding:
            locks.holding.append(pid)
        if fields[2] == "READ":
            locks.shared.add(pid)
    for locks in found.values():
        # the first in line of those who wait for a slot tries, too
        locks.holding = [pid for pid in locks.holding if pid not in locks.waiting]
    return found


def _lines() -> list[list[str]]:
    """The words of each line of ``/proc/locks``, without its number."""
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return [line.split()[1:] for line in file]
    except OSError:
        return []


def _has_namesake(pid: int, seen: os.stat_result) -> bool:
    """Whether a process has no such file open, but one of the same inode number, as far as that can be seen."""
    devices = set()
    try:
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            there = descriptor.stat()
            if there.st_ino == seen.st_ino:
                devices.add(there.st_dev)
    except OSError:
        pass  # it may end meanwhile, or be another user's
    return bool(devices) and seen.st_dev not in devices


def is_stopped(pid: int) -> bool:
    """Whether a process does not go on by itself: a signal or a debugger has stopped it, or its container is paused."""
    fields = tree.stat_fields(pid)
    return fields is not None and (fields[0] in (b"T", b"t") or _is_frozen(pid))


def _is_frozen(pid: int) -> bool:
    """Whether the control group of a process is frozen (cgroups(7)), as far as that can be seen."""
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            groups = dict(line.rstrip(b"\n").split(b":", 2)[1:] for line in file)  # by their controllers
    except OSError:
        return False
    for controllers, place, name in FREEZERS:
        try:
            with open(place + groups[controllers] + name, "rb") as file:
                if any(line in (b"FROZEN\n", b"frozen 1\n") for line in file):
                    return True
        except (OSError, KeyError):
            pass
    return False


def in_line(descriptor: int) -> list[int]:
    """The pids that are first in line at a lock file, as far as the kernel shows them here."""
    return KernelLocks().of(f"/proc/self/fd/{descriptor}", os.fstat(descriptor)).in_line
