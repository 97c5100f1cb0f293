"""Waiting for a lock file: a helper process blocks in the kernel's queues for us, and nobody polls.

Who waits passes the turnstile, one after the other. Who waits to be alone closes the gate, lets the next one to the
turnstile and blocks in flock(2), in one queue with ``flock(1)``. Who waits to get in beside others stays at the
turnstile until the gate is open (all that came before have been alone) and there is room. Newcomers that would get in
beside others turn away while somebody is at either, so that neither kind keeps the other out for ever. For the end
of a single slot the kernel has no queue: the first in line, and nobody else, looks for it often.

Who is stopped or frozen in this line holds up those behind it for a few looks: each looks for itself, once a second,
whether the lock is free and nobody in front takes it.
"""

from __future__ import annotations

import _signal
import fcntl
import os
import select
import time

from lockctl import kernel
from lockctl.model import EXCLUSIVE, Claim
from lockctl.stores.file import address, hold, layout, ranges
from lockctl.stores.file.layout import NotARecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.file.share import Slot

RECHECK = 1.0  # seconds between two looks at the path, at a hold, and whether those in front make use of their turn
ENTER = 5.0  # seconds to take the place of somebody in front who does not
LOOK = 0.025  # seconds between two looks for a free slot
LOOK_EACH = 0.0002  # seconds more for each slot: then even a thousand of them cost little


def wait_for(
    descriptor: int,
    path: str,
    claim: Claim,
    wall_us: Callable[[], int],
    *,
    queued: bool,
    timeout: float,
    interrupt: int | None,
) -> tuple[int, Slot | None]:
    """Wait until the open file *descriptor* has the lock, or *path* is another file.

    *queued*: byte ranges can be locked; without them only the queue of flock(2) is there, to be alone.
    Returns as well after *timeout* seconds and when *interrupt* is readable. The pid of the helper, and the slot
    that was taken for a claim that is not alone. Raises ``OSError`` when there is no process to wait with, and what
    ``share.enter`` raises.
    """
    from lockctl.stores.file import share  # before the fork: another thread may be importing
    from lockctl.wire.deadline import Deadline

    alone = claim.mode == EXCLUSIVE
    helper, readable = _block(descriptor, path, claim, wall_us, queued=queued)
    poll = select.poll()
    poll.register(readable, select.POLLIN | select.POLLHUP)
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    give_up = time.monotonic() + timeout
    ours = False
    idle: int | None = None
    try:
        while not ours:
            left = min(give_up - time.monotonic(), RECHECK)
            if left <= 0 or poll.poll(left * 1000) or not address.same_file(path, descriptor):
                break
            before, idle = idle, share.idle(descriptor)
            if idle is not None and idle == before:
                ours = address.try_flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            ours = ours or (not alone and share.passed_by(descriptor, claim, helper))
    finally:
        told = _end(helper, readable, claim.ttl)
    if len(told) == 3:
        return helper, share.Slot(*told)
    if ours and not alone:
        kernel.unlock(descriptor)  # what the helper may have taken half
        deadline = Deadline(min(ENTER, timeout), interrupt)
        return helper, share.enter(descriptor, path, claim, wall_us, helper, deadline)
    return helper, None


def _end(helper: int, readable: int, ttl: float) -> list[int]:
    """End a helper; what it has told beside the time at which it had the lock.

    If that was just now, it sleeps and can do nothing any more: then its end is not waited for, which takes as long as
    to take the lock, and :func:`collect` does that later.
    """
    told = _read(readable)
    if told:
        _step_back(helper)
    os.kill(helper, _signal.SIGKILL)
    if not told or time.monotonic_ns() - told[0] > ttl / 2 * 1e9:
        os.waitpid(helper, 0)
        told = told or _read(readable)
    os.close(readable)
    return told[1:]


def _read(readable: int) -> list[int]:
    try:
        return list(map(int, os.read(readable, 100).split()))
    except BlockingIOError:  # another thread's helper has a copy of the other end
        return []


def collect(helper: int) -> None:
    """Have nothing left of a helper that was ended, unless this was done: by who collects all children."""
    try:
        os.waitpid(helper, os.WNOHANG)
    except ChildProcessError:
        return


def _block(descriptor: int, path: str, claim: Claim, wall_us: Callable[[], int], *, queued: bool) -> tuple[int, int]:
    """(pid of a process that waits for us, descriptor that is readable when it has the lock).

    The lock belongs to the open file that both share. A helper whose lockctl does not take the lock over
    within a lease (it was stopped) gives it up again, and one whose lockctl died is killed by the kernel.
    """
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    parent = os.getpid()

    def help_us() -> None:
        kernel.set_death_signal(_signal.SIGKILL)
        if os.getppid() != parent:
            return
        kernel.set_process_name("lockctl-wait")
        if queued:
            fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, ranges.WAITERS)
        _sleep_through_hold(descriptor)
        told = b""
        if claim.mode != EXCLUSIVE:
            told = _wait_beside(descriptor, path, claim, wall_us)
        elif queued:
            _wait_alone(descriptor)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if queued:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, ranges.MUTEX - ranges.WAITERS, ranges.WAITERS)
        os.write(writable, b"%d " % time.monotonic_ns() + told)
        time.sleep(claim.ttl)
        if queued:
            kernel.unlock(descriptor)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    pid = _forked(help_us)
    os.close(writable)
    return pid, readable


def _forked(body: Callable[[], None]) -> int:
    """The pid of a new process that does this and ends. Raises ``OSError``."""
    pid = os.fork()
    if pid:
        return pid
    try:
        body()
    finally:
        os._exit(0)


def _step_back(helper: int) -> None:
    """Its end must not take the processor from who has the lock now.

    Not before: a helper that has the lock for a lockctl that was stopped gives it up in time, also where all
    processors are in use.
    """
    try:
        os.sched_setscheduler(helper, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        return  # not permitted here: the lock is passed on a little later


def _wait_alone(descriptor: int) -> None:
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, ranges.TURN)
    fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, ranges.GATE)
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, ranges.TURN)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _wait_beside(descriptor: int, path: str, claim: Claim, wall_us: Callable[[], int]) -> bytes:
    from lockctl.stores.file import share
    from lockctl.wire.deadline import Deadline

    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, ranges.TURN)
    while True:
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, ranges.GATE)
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, ranges.GATE)
        if share.looks_open(descriptor, claim):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            deadline = Deadline(float("inf"))
            taken = share.enter(descriptor, path, claim, wall_us, None, deadline)
            if taken is not None:
                return b"%d %d %d" % (taken.number, taken.token, taken.at)
            _sleep_through_hold(descriptor)
        time.sleep(LOOK + LOOK_EACH * claim.slots)


def _sleep_through_hold(descriptor: int) -> None:
    """Return when no hold keeps the lock any more. A hold that is ended early has its record changed, or its file."""
    try:
        while (left := hold.left(layout.read(descriptor))) > 0:
            time.sleep(min(left, RECHECK))
    except NotARecord:
        return  # said when the lock is taken
