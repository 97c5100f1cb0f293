"""The files of one host as its kernel has them: names, open files, the locks on them, and pipes between processes.

A program can be held up before each call, while others go on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.network import Server
from tests.simulation.processes import Process, me
from tests.simulation.system import Descriptor
from tests.simulation.world import INFINITE, Here

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Thread

DIRECTORY = "/locks"
DEVICE = os.makedev(254, 1)
HELD_UP = 0.2  # the part of the calls before which others go on
OPENING = 0.5  # the same between finding a file and opening it
LONGEST_HELD_UP = 0.001  # seconds
SLOWEST_SYNC = 0.005  # seconds until something has reached the disk
REACHED = 0.5  # the part of what was not waited for that has reached the disk when the power fails
SECTOR = 512  # bytes that reach the disk together, or not
TORN = 0.5  # the part of the blocks that it fails in, of which only the beginning is on the disk
BREAK_TIME = 45.0  # seconds after which the kernel ends a lease that somebody else wants to be ended
END = 1 << 63  # of all files, which no lock goes beyond


def call() -> None:
    """Something that others see is about to be done."""
    Here.world.step()
    hold_up()


def hold_up(often: float = HELD_UP) -> None:
    """Others may go on meanwhile, so *often*."""
    world = Here.world
    if world.chance() < often:
        world.block(world.now + LONGEST_HELD_UP * world.chance())


class Inode:
    """A file, whatever its name is, and the locks on it."""

    def __init__(self, number: int, mode: int) -> None:
        self.number = number
        self.mode = mode
        self.content = bytearray()
        self._on_disk = b""
        self._unsynced: list[tuple[int, bytes]] = []  # what was written where, and may not have reached it
        self.changes = 0
        self.changed_at = me().clock.wall() if Here.world.thread else 0.0
        self.opened = 0  # how many have it open, or are about to
        self.lease: OpenFile | None = None  # who is asked before another one opens it
        self.is_wanted = False  # whether somebody was made to wait for the end of the lease
        self.whole: dict[OpenFile, tuple[int, int]] = {}  # flock(2): of which kind, and the pid of who asked
        self.bytes: dict[int, dict[object, int]] = {}  # of open files, or of processes: of which kind
        self.asking: list[tuple[OpenFile, Process, int]] = []  # who waits for flock(2), and for which kind
        self._waits: list[tuple[Thread, int]] = []

    def seen(self) -> Any:
        """As ``os.stat_result``."""
        return SimpleNamespace(
            st_dev=DEVICE,
            st_ino=self.number,
            st_mode=self.mode,
            st_uid=0,
            st_size=len(self.content),
            st_mtime_ns=self.changes,
            st_mtime=self.changed_at,
        )

    def write(self, data: bytes, offset: int) -> None:
        """Change what it contains."""
        self._change()
        self._unsynced.append((offset, data))
        _put(self.content, data, offset)

    def cut(self, size: int) -> None:
        """Forget what is behind *size*."""
        self._change()
        del self.content[size:]
        self._unsynced = [(0, bytes(self.content))]  # a journal has the length

    def sync(self) -> None:
        """All of it has reached the disk."""
        self._on_disk, self._unsynced = bytes(self.content), []

    def lose_power(self) -> None:
        """What was not waited for has reached the disk, or some of it, or not."""
        chance = Here.world.chance
        self.content = bytearray(self._on_disk)
        for offset, data in self._unsynced:
            if chance() < REACHED:
                reached = int(len(data) * chance() ** 3) // SECTOR * SECTOR if chance() < TORN else len(data)
                _put(self.content, data[:reached], offset)
        self.sync()

    def _change(self) -> None:
        self.changes += 1
        self.changed_at = me().clock.wall()

    def wait(self) -> None:
        """Until a lock is freed."""
        world = Here.world
        thread = world.thread
        assert thread is not None
        self._waits.append((thread, thread.number + 1))
        world.block(INFINITE)

    def admit(self, *, waits: bool) -> None:
        """Let somebody open it, who *waits* for the end of a lease or is refused."""
        self.opened += 1
        try:
            while self.lease is not None:
                if not self.is_wanted:
                    self.is_wanted = True
                    Here.world.at(Here.world.now + BREAK_TIME, self.end_lease, self.lease)
                if not waits:
                    raise BlockingIOError(errno.EWOULDBLOCK, "there is a lease")
                self.wait()
        except BaseException:
            self.opened -= 1
            raise

    def end_lease(self, file: OpenFile) -> None:
        """That of an open file, if it has one."""
        if self.lease is file:
            self.lease = None
            self.freed()

    def freed(self) -> None:
        """Those who wait try again."""
        waits, self._waits = self._waits, []
        for thread, number in waits:
            if thread.number == number:
                Here.world.wake(thread)

    def in_the_way(self, owner: object, start: int, end: int, kind: int) -> list[tuple[int, int]]:
        """Locks of others on these bytes, in order, which one of this kind does not go with: (byte, kind)."""
        return [
            (byte, its)
            for byte, owners in sorted(self.bytes.items())
            if start <= byte < end
            for other, its in owners.items()
            if other is not owner and fcntl.F_WRLCK in (kind, its)
        ]

    def put(self, owner: object, start: int, end: int, kind: int) -> None:
        """Lock these bytes, or free them."""
        if kind == fcntl.F_UNLCK:
            for byte in [byte for byte in self.bytes if start <= byte < end]:
                self.bytes[byte].pop(owner, None)
            self.freed()
        else:
            assert end == start + 1, "only single bytes are locked"
            self.bytes.setdefault(start, {})[owner] = kind

    def unlock(self, file: OpenFile) -> None:
        """Free all that an open file has locked."""
        self.whole.pop(file, None)
        self.put(file, 0, END, fcntl.F_UNLCK)


def _put(content: bytearray, data: bytes, offset: int) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class OpenFile(Descriptor):
    """One that was opened once."""

    def __init__(self, inode: Inode) -> None:
        """*inode* has counted it already."""
        super().__init__()
        self.inode = inode
        self._at = 0

    def left_by(self, holder: object) -> None:
        """See ``Descriptor``: a process frees its own locks of a file when it closes any descriptor of it."""
        self.inode.put(holder, 0, END, fcntl.F_UNLCK)

    def gone(self) -> None:
        """See ``Descriptor``."""
        self.inode.unlock(self)
        self.inode.opened -= 1
        self.inode.end_lease(self)

    def read(self, size: int) -> bytes:
        """As ``os.read``."""
        data = bytes(self.inode.content[self._at : self._at + size])
        self._at += len(data)
        return data

    def write(self, data: bytes) -> int:
        """As ``os.write``."""
        self.inode.write(data, self._at)
        self._at += len(data)
        return len(data)


class Files(Server):
    """The files of a directory; nothing but its host can fail."""

    def __init__(self, rate: float) -> None:
        super().__init__(0, rate)
        self._inodes = 1
        self._directory = Inode(1, stat.S_IFDIR | 0o755)
        self.names: dict[str, Inode] = {}
        self._on_disk: dict[str, Inode] = {}
        self._unsynced: list[dict[str, Inode]] = []  # the names after each change that may not have reached it
        self.boots = 0
        Here.world.files = self

    def find(self, path: str) -> Inode:
        """Of an absolute path, or of a name in the directory."""
        if path.rstrip("/") == DIRECTORY:
            return self._directory
        found = self.names.get(os.path.basename(path))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return found

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """As ``os.open``."""
        call()
        name = os.path.basename(path)
        if flags & os.O_EXCL and name in self.names:
            raise FileExistsError(errno.EEXIST, "there is such a file", path)
        if flags & os.O_CREAT and name not in self.names:
            self._inodes += 1
            self._rename({**self.names, name: Inode(self._inodes, stat.S_IFREG | mode)})
        inode = self.find(path)
        if name in self.names:
            hold_up(OPENING)  # it was found, and its name may be gone when it is opened
        inode.admit(waits=not flags & os.O_NONBLOCK)
        file = OpenFile(inode)
        me().receive(file)
        return file.number

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
        """As ``os.stat``."""
        call()
        return self.find(path).seen()

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """As ``os.rename``."""
        call()
        names = dict(self.names)
        names[new] = names.pop(old)
        self._rename(names)

    def link(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """As ``os.link``."""
        call()
        if new in self.names:
            raise FileExistsError(errno.EEXIST, "there is such a file", new)
        self._rename({**self.names, new: self.find(old)})

    def unlink(self, path: str, *, dir_fd: int) -> None:
        """As ``os.unlink``."""
        call()
        self.find(path)
        self._rename({name: inode for name, inode in self.names.items() if name != os.path.basename(path)})

    def _rename(self, names: dict[str, Inode]) -> None:
        self.names = names
        self._unsynced.append(names)

    def sync(self, inode: Inode) -> None:
        """A file, or the names in the directory, have reached the disk."""
        if inode is self._directory:
            self._on_disk, self._unsynced = self.names, []
        else:
            inode.sync()

    def lose_power(self, boots: int) -> None:
        """The host starts again, so often, with what has reached the disk; all its processes are gone already."""
        states = [self._on_disk, *self._unsynced]
        self.names = states[int(Here.world.chance() * len(states))]
        self.sync(self._directory)
        for inode in dict.fromkeys(self.names.values()):
            inode.lose_power()
        self.boots += boots

    def locks(self) -> list[list[str]]:
        """The words of each line of ``/proc/locks``, without its number."""
        lines = []
        of_whole = {fcntl.LOCK_SH: "READ", fcntl.LOCK_EX: "WRITE"}
        of_bytes = {fcntl.F_RDLCK: "READ", fcntl.F_WRLCK: "WRITE"}
        for inode in self.names.values():
            where = f"{os.major(DEVICE):02x}:{os.minor(DEVICE):02x}:{inode.number}"
            for kind, pid in inode.whole.values():
                lines.append(["FLOCK", "ADVISORY", of_whole[kind], str(pid), where, "0", "EOF"])
            for _, process, kind in inode.asking:
                if not process.dead:
                    lines.append(["->", "FLOCK", "ADVISORY", of_whole[kind], str(process.pid), where, "0", "EOF"])
            for byte, owners in sorted(inode.bytes.items()):
                for owner, kind in owners.items():
                    whose, pid = ("POSIX", owner.pid) if isinstance(owner, Process) else ("OFDLCK", -1)
                    lines.append([whose, "ADVISORY", of_bytes[kind], str(pid), where, str(byte), str(byte)])
        return lines


class ReadingEnd(Descriptor):
    """The end of a pipe that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.content = b""

    def read(self, size: int) -> bytes:
        """As ``os.read`` of one that does not block."""
        if not (self.content or self.over):
            raise BlockingIOError
        data: bytes = self.content[:size]
        self.content = self.content[size:]
        return data


class WritingEnd(Descriptor):
    """The end that others write to."""

    def __init__(self, reading: ReadingEnd) -> None:
        super().__init__()
        self._reading = reading

    def write(self, data: bytes) -> int:
        """As ``os.write``."""
        self._reading.content += data
        self._reading.changed()
        return len(data)

    def gone(self) -> None:
        """See ``Descriptor``."""
        self._reading.over = True
        self._reading.changed()


def lines() -> list[list[str]]:
    """Those of ``/proc/locks``."""
    found: list[list[str]] = Here.world.files.locks()
    return found


def pipe2(_: int) -> tuple[int, int]:
    """As ``os.pipe2``."""
    reading = ReadingEnd()
    writing = WritingEnd(reading)
    me().receive(writing)
    return reading.number, writing.number


def opened(number: int) -> OpenFile:
    """The open file of this number."""
    file: OpenFile = Here.world.descriptors[number]
    return file


def _of_files(name: str) -> Callable[..., Any]:
    def called(*given: Any, **more: Any) -> Any:
        return getattr(Here.world.files, name)(*given, **more)

    return called


def _sync(number: int) -> None:
    call()
    world = Here.world
    inode = opened(number).inode
    world.block(world.now + SLOWEST_SYNC * world.chance())
    world.files.sync(inode)


def _pread(number: int, size: int, offset: int) -> bytes:
    call()
    return bytes(opened(number).inode.content[offset : offset + size])


def _pwrite(number: int, data: Any, offset: int) -> int:
    call()
    opened(number).inode.write(bytes(data), offset)
    return len(data)


def _ftruncate(number: int, size: int) -> None:
    call()
    opened(number).inode.cut(size)


def nothing(*_: object, **__: object) -> None:
    """Of no consequence here."""


OPERATIONS = {
    "open": _of_files("open"),
    "stat": _of_files("stat"),
    "rename": _of_files("rename"),
    "link": _of_files("link"),
    "unlink": _of_files("unlink"),
    "fstat": lambda number: opened(number).inode.seen(),
    "pread": _pread,
    "pwrite": _pwrite,
    "ftruncate": _ftruncate,
    "fsync": _sync,
    "fdatasync": _sync,
    "fchmod": nothing,
    "fchown": nothing,
    "geteuid": lambda: 0,
    "pipe2": pipe2,
}
