"""The locks of files as the kernel has them: who holds them, who waits, and who is first in line."""

from __future__ import annotations

import os
import time

from lockctl.stores.file import protocol
from lockctl.supervise import tree

PAGE = 4096  # bytes
READS = 3  # of a list that is longer


class Locks:
    """The pids that have to do with one file, in the kernel's order."""

    __slots__ = ("holding", "in_line", "shared", "waiting")

    def __init__(self) -> None:
        """Nobody yet."""
        self.holding: list[int] = []
        self.shared: set[int] = set()  # those of them that let others in beside them
        self.waiting: list[int] = []
        self.in_line: list[int] = []  # those of them that keep newcomers out, see ``wait``


class LocksByInode(dict[tuple[int, int, int], Locks]):
    """The locks of the kernel as they were at one moment: (major, minor, inode) of a file -> who."""

    def __init__(self) -> None:
        """As they are now."""
        super().__init__()
        self.taken_at = time.monotonic()


def kernel_locks() -> LocksByInode:
    """(major, minor, inode) -> who holds a flock, and who waits for one or is a waiting lockctl."""
    locks = LocksByInode()
    registered = str(protocol.WAITERS)
    in_line = (str(protocol.TURN), str(protocol.GATE))
    for line in lines():
        fields = line.split()
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
        entry = locks.setdefault((int(major, 16), int(minor, 16), int(inode)), Locks())
        pid = int(fields[3])
        if fields[5] in in_line:
            entry.in_line.append(pid)
            continue
        if waiting:
            if pid not in entry.waiting:
                entry.waiting.append(pid)
            continue
        entry.holding.append(pid)
        if fields[2] == "READ":
            entry.shared.add(pid)
    for entry in locks.values():
        # the first in line of those who wait for a slot tries, too
        entry.holding = [pid for pid in entry.holding if pid not in entry.waiting]
    return locks


def lines() -> list[str]:
    """The lines of ``/proc/locks`` without their numbers.

    The kernel gives a page at a time, and counts anew for each: a lock that ends meanwhile hides another one. So more
    than a page is read three times, which hardly hides the same one, and what any of them has counts.
    """
    found = _read()
    for _ in range(READS - 1 if sum(map(len, found)) > PAGE // 2 else 0):
        missing: dict[str, int] = {}  # how often a line is there more than it was found
        for line in _read():
            missing[line] = missing.get(line, 0) + 1
        for line in found:
            missing[line] = missing.get(line, 0) - 1
        found += [line for line, times in missing.items() for _ in range(times)]
    return found


def _read() -> list[str]:
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return [line.partition(": ")[2] for line in file]
    except OSError:
        return []


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped this process (SIGSTOP, a debugger), so that it does not go on by itself."""
    fields = tree.stat_fields(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def in_line(descriptor: int) -> list[int]:
    """The pids that are first in line at a lock file, as far as the kernel shows them here."""
    return of_inode(kernel_locks(), os.fstat(descriptor)).in_line


def of_inode(locks: LocksByInode, seen: os.stat_result) -> Locks:
    """Who has to do with the file that was *seen*."""
    return locks.get((os.major(seen.st_dev), os.minor(seen.st_dev), seen.st_ino)) or Locks()
