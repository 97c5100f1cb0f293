"""The processes of a job: all descendants, whatever process group or session they moved to.

They are read from /proc. The list of a process's children names also those that proc(5) hides from us (``hidepid``:
set-uid programs, and files that may be executed and not read); what is below a hidden one is found by the parent
that each process names, or becomes visible as an orphan when the hidden one has ended. So nothing here says that
nobody is left: only ``waitpid`` knows.
"""

from __future__ import annotations

import errno
import os
from _signal import SIGKILL

from lockctl.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ROUNDS = 200  # of SIGKILL in one call: about 20 ms
EMPTY_ROUNDS = 2  # in a row that found nobody new: one look can miss a process between its fork and its parent's end
UNENDED = 2.5  # seconds of SIGKILL, sent again and again by who is left alone with a job: longer hardly anybody lives
SWEEP_PAUSE = 0.05  # seconds between two rounds of it
MOST_NAMED = 3
READ_SIZE = 1 << 16  # bytes
NO_PROC = (
    "/proc is missing, or shows another pid namespace: lockctl needs it to watch over processes"
    " (mount -t proc proc /proc, or unshare --mount-proc)"
)
FOR_CHILDREN = "/proc/self/ns/pid_for_children"
ELSEWHERE = (
    "what is started here gets into another pid namespace than /proc shows (unshare --pid needs --fork --mount-proc)"
)


class _Proc:
    """Where /proc is: its path, until it is held by a descriptor."""

    prefix = "/proc/"
    descriptor: int | None = None


def hold_proc(*, starts: bool = False) -> None:
    """Keep /proc open, so that the job can neither unmount nor cover it. *starts*: for who starts processes.

    Raises ``ConfigError`` where it is missing or shows another pid namespace, whose numbers are not ours: what is
    started there could not be ended. Raises ``OSError`` when there are no more descriptors.
    """
    try:
        descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ours = os.readlink("self", dir_fd=descriptor) == str(os.getpid())
    except OSError as failure:
        if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        ours = False
    if not ours:
        raise ConfigError(NO_PROC)
    if starts and starts_elsewhere():
        raise ConfigError(ELSEWHERE)
    _Proc.prefix, _Proc.descriptor = "", descriptor


def starts_elsewhere() -> bool:
    """Whether children get into another pid namespace, as after ``unshare --pid`` without a fork."""
    try:
        return os.readlink(FOR_CHILDREN) != pid_namespace()
    except OSError:  # nobody is yet in that namespace, or the kernel has none
        return os.path.lexists(FOR_CHILDREN)


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Pids of all descendants of *root*, parents before children, without *spare* and what is below them.

    A process that forks while this looks can be missed: callers repeat until nothing is left, and know
    that nothing is left from ``waitpid``, not from here.
    """
    return list(_walk(root, spare))


def _walk(root: int, spare: frozenset[int]) -> Iterator[int]:
    seen = set(spare)
    queue = [root]
    while queue:
        for pid in children(queue.pop(0)):
            if pid not in seen:
                seen.add(pid)
                yield pid
                queue.append(pid)


def children(pid: int) -> list[int]:
    """Pids of the present children of a process; empty if it is gone, or if /proc cannot be read any more."""
    found: list[int] = []
    try:
        for thread in _list(f"{pid}/task"):
            found.extend(_children_of_thread(pid, thread))
    except ProcessLookupError:
        return found
    except OSError:
        return _children_by_scan(pid) if _exists(pid) else found
    return found


def _children_of_thread(pid: int, thread: str) -> list[int]:
    return [int(word) for word in _read(f"{pid}/task/{thread}/children").split()]


def _children_by_scan(pid: int) -> list[int]:
    """The same where the list is not to be had.

    A kernel without CONFIG_PROC_CHILDREN, a process that is hidden, or a thread that ended meanwhile.
    """
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> Iterator[tuple[int, int]]:
    try:
        entries = _list(".")
    except OSError:
        return
    for entry in entries:
        if entry.isdigit():
            parent = parent_of(int(entry))
            if parent is not None:
                yield int(entry), parent


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _open(path: str, flags: int) -> int:
    return os.open(_Proc.prefix + path, flags | os.O_CLOEXEC, dir_fd=_Proc.descriptor)


def _list(path: str) -> list[str]:
    descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    descriptor = _open(path, os.O_RDONLY)
    try:
        data = piece = os.read(descriptor, READ_SIZE)
        while piece:
            piece = os.read(descriptor, READ_SIZE)
            data += piece
        return data
    finally:
        os.close(descriptor)


def parent_of(pid: int) -> int | None:
    """The parent's pid, or ``None`` when the process is gone or hidden."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else None


def stat_fields(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/PID/stat`` from the third on (state, ppid, ...); ``None`` if it is gone or hidden."""
    try:
        return _read(f"{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def named(pids: list[int]) -> str:
    """The first of these processes for people, with their names."""
    words = []
    for pid in pids[:MOST_NAMED]:
        try:
            words.append(f"{_read(f'{pid}/comm').decode('utf-8', 'replace').strip()} (pid {pid})")
        except OSError:
            words.append(f"pid {pid}")
    return ", ".join(words) + (", ..." if len(pids) > MOST_NAMED else "")


def pid_namespace() -> str:
    """Which pid namespace this process is in; pids mean nothing in another one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, its identity."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def signal_all(root: int, signums: tuple[int, ...], spare: frozenset[int] = frozenset()) -> int:
    """Send the signals, in order, to all descendants of *root*; how many processes got them.

    SIGKILL is sent to each process as soon as it is seen, and repeated over fresh lists for as long as new
    processes appear: a tree that forks about as fast as it is read ends all the same. Who was reached is not
    looked at again, because the zombies of such a tree would make every list slower than the one before.
    """
    if signums != (int(SIGKILL),):
        found = descendants(root, spare)
        for pid in found:
            for signum in signums:
                send(pid, signum)
        return len(found)
    reached: set[int] = set()
    empty = 0
    for _ in range(MOST_ROUNDS):
        before = len(reached)
        for pid in _walk(root, spare.union(reached)):
            send(pid, SIGKILL)
            reached.add(pid)
        empty = empty + 1 if len(reached) == before else 0
        if empty == EMPTY_ROUNDS:
            break
    return len(reached)


def send(pid: int, signum: int) -> bool:
    """Send a signal; ``False`` if the process is gone or may not be signalled."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True
