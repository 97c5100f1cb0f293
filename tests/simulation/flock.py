"""Locks on whole files and on single bytes, by the rules of the kernel (flock(2), fcntl(2)), and who else uses them.

Of the rules those that matter: whose each kind of lock is, when it is freed, and that a lock of a whole file is given up
before it is exchanged for one of another kind.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from lockctl.stores.file.ranges import FLOCK
from tests.simulation.files import END, OpenFile, call, opened
from tests.simulation.processes import me
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.processes import Process


def flock(number: int, asked: int) -> None:
    """As ``fcntl.flock``."""
    call()
    file = opened(number)
    inode, process = file.inode, me()
    kind = asked & (fcntl.LOCK_SH | fcntl.LOCK_EX)
    if file in inode.whole and inode.whole[file][0] == kind:
        return
    if inode.whole.pop(file, None):
        inode.freed()
    if asked & fcntl.LOCK_UN:
        return
    asking = (file, process, kind)
    while any(fcntl.LOCK_EX in (kind, other) for other, _ in inode.whole.values()):
        if asked & fcntl.LOCK_NB:
            raise BlockingIOError(errno.EAGAIN, "others have it")
        if asking not in inode.asking:
            inode.asking.append(asking)
        inode.wait()
    if asking in inode.asking:
        inode.asking.remove(asking)
    inode.whole[file] = kind, process.pid


KINDS = {fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}


def lockf(number: int, asked: int, length: int, start: int) -> None:
    """As ``fcntl.lockf``: the locks are those of the process."""
    call()
    inode, process = opened(number).inode, me()
    kind = KINDS[asked & ~fcntl.LOCK_NB]
    while kind != fcntl.F_UNLCK and inode.in_the_way(process, start, start + length, kind):
        if asked & fcntl.LOCK_NB:
            raise BlockingIOError(errno.EAGAIN, "others have it")
        inode.wait()
    inode.put(process, start, start + length, kind)


def control(number: int, command: int, asked: bytes | int = 0) -> bytes | int:
    """As ``fcntl.fcntl``, with leases and the locks of open files."""
    call()
    file = opened(number)
    if isinstance(asked, int):
        return _lease(file, command, asked)
    kind, _, start, length, _ = FLOCK.unpack(asked)
    end = start + length if length else END
    others = [] if kind == fcntl.F_UNLCK else file.inode.in_the_way(file, start, end, kind)
    if command == fcntl.F_OFD_GETLK:
        if not others:
            return FLOCK.pack(fcntl.F_UNLCK, 0, start, length, 0)
        byte, its = others[0]
        return FLOCK.pack(its, 0, byte, 1, -1)
    if others:
        raise BlockingIOError(errno.EAGAIN, "others have it")
    file.inode.put(file, start, end, kind)
    return bytes(asked)


def _lease(file: OpenFile, command: int, asked: int) -> int:
    inode = file.inode
    if command == fcntl.F_GETLEASE:
        return fcntl.F_WRLCK if inode.lease is file and not inode.is_wanted else fcntl.F_UNLCK
    if command == fcntl.F_SETLEASE and asked == fcntl.F_WRLCK:
        if inode.opened > 1 or inode.lease is not None:
            raise BlockingIOError(errno.EAGAIN, "others have it open")
        inode.lease, inode.is_wanted = file, False
    elif command == fcntl.F_SETLEASE:
        inode.end_lease(file)
    return 0


class Flock:
    """A program that is not lockctl, and has the same file locked for some *seconds*, as flock(1) does."""

    def __init__(self, process: Process, name: str, seconds: float) -> None:
        self.span: tuple[float, float] | None = None  # when it had the lock
        self._process = process
        self._name = name
        self._seconds = seconds

    def start(self) -> None:
        """Ask for the lock."""
        self._process.start(self._run)

    def _run(self) -> None:
        world = Here.world
        number = world.files.open(self._name, os.O_RDONLY | os.O_CREAT)
        flock(number, fcntl.LOCK_EX)
        world.tell("flock", f"has the lock for {self._seconds:.3f} s")
        self.span = world.now, world.now + self._seconds
        world.block(self.span[1])
        me().let_go(world.descriptors[number])


def unlock(number: int) -> None:
    """As ``kernel.unlock``."""
    Here.world.step()
    file = Here.world.descriptors[number]
    if isinstance(file, OpenFile):  # else it is the connection of a lock of another kind
        file.inode.unlock(file)
