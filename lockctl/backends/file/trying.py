"""Locks that are held for a moment only: tried until they are ours or the time is over.

Never waited for in the kernel: who is stopped while it has one would stop everybody else without end.
"""

from __future__ import annotations

import select

from lockctl.errors import BackendUnavailable, RequestInterrupted
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.wire.deadline import Deadline

PAUSE = 2  # milliseconds: who has such a lock writes a page or two to the disk


def until(attempt: Callable[[], bool], key: str, deadline: Deadline) -> None:
    """Return when *attempt* succeeded; raises ``BackendUnavailable``, ``RequestInterrupted``, ``OSError``."""
    poll = select.poll()
    if deadline.interrupt is not None:
        poll.register(deadline.interrupt, select.POLLIN)
    while not attempt():
        if deadline.left() <= 0:
            message = f"file: another process did not free {printable(key)} within {deadline.timeout:.3g} s"
            raise BackendUnavailable(message)
        if poll.poll(PAUSE):
            message = f"file: {printable(key)}: interrupted"
            raise RequestInterrupted(message)
