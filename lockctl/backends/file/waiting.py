"""Waiting for a lock file: a helper process blocks in the kernel's queue for us, and nobody polls."""

from __future__ import annotations

import _signal
import fcntl
import os
import select
import time

from lockctl import kernel
from lockctl.backends.file import place

RECHECK = 1.0  # seconds between two looks whether the path still is the file that is waited for


def wait_for(descriptor: int, path: str, ttl: float, *, timeout: float, interrupt: int | None) -> int:
    """Wait until the open file *descriptor* has the lock, or *path* is another file; the pid of the helper.

    Returns as well after *timeout* seconds and when *interrupt* is readable. Raises ``OSError`` when there
    is no process to wait with.
    """
    helper, readable = _block(descriptor, ttl)
    poll = select.poll()
    poll.register(readable, select.POLLIN | select.POLLHUP)
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    give_up = time.monotonic() + timeout
    try:
        while True:
            left = min(give_up - time.monotonic(), RECHECK)
            if left <= 0 or poll.poll(left * 1000) or not place.same_file(path, descriptor):
                return helper
    finally:
        os.kill(helper, _signal.SIGKILL)
        os.waitpid(helper, 0)
        os.close(readable)


def _block(descriptor: int, ttl: float) -> tuple[int, int]:
    """(pid of a process that waits in flock(2) for us, descriptor that is readable when it has the lock).

    The lock belongs to the open file that both share. A helper whose lockctl does not take the lock over
    within a lease (it was stopped) gives it up again, and one whose lockctl died is killed by the kernel.
    """
    readable, writable = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writable)
        return pid, readable
    try:
        kernel.set_death_signal(_signal.SIGKILL)
        if os.getppid() == parent:
            kernel.set_process_name("lockctl-wait")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(writable, b".")
            time.sleep(ttl)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os._exit(0)
