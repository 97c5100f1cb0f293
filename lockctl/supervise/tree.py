"""The processes of a job: all descendants, whatever process group or session they moved to."""

from __future__ import annotations

import os
from _signal import SIGKILL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ROUNDS = 200  # of SIGKILL in one call: about 20 ms
EMPTY_ROUNDS = 2  # in a row that found nobody new: one look can miss a process between its fork and its parent's end


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
    """Pids of the present children of a process; empty if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.extend(_children_of_thread(pid, thread))
    except FileNotFoundError:
        return _children_by_scan(pid) if os.path.exists(f"/proc/{pid}") else found
    except ProcessLookupError:
        return found
    return found


def _children_of_thread(pid: int, thread: str) -> list[int]:
    with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
        return [int(word) for word in file.read().split()]


def _children_by_scan(pid: int) -> list[int]:
    """The same, for kernels without CONFIG_PROC_CHILDREN, or when a thread ended under our eyes."""
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(int(entry))
            if parent is not None:
                yield int(entry), parent


def parent_of(pid: int) -> int | None:
    """The parent's pid, or ``None`` when the process is gone."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else None


def stat_fields(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/PID/stat`` from the third on (state, ppid, ...); ``None`` if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


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
