"""Requests for several locks at the same time: one after the other they would share the time for one."""

from __future__ import annotations

import _thread
import select

from lockctl.errors import LeaseLost, RequestInterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK = 0.05  # seconds between two looks whether to go on waiting for requests that take long


def side_by_side(
    names: list[str], request: Callable[[str], None], interrupt: int | None = None
) -> dict[str, Exception]:
    """Make a request for each lock. What failed, by name, when all have ended, or as soon as one lock is lost.

    Raises ``RequestInterrupted`` when *interrupt* is readable first: then the requests are left to their time limits.
    """
    failures: dict[str, Exception] = {}
    mutex, done = _thread.allocate_lock(), _thread.allocate_lock()
    left = len(names)

    def make(name: str) -> None:
        nonlocal left
        failure = None
        try:
            request(name)
        except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits for it
            failure = error
        with mutex:
            left -= 1
            if failure is not None:
                failures[name] = failure
            if done.locked() and (not left or isinstance(failure, LeaseLost)):
                done.release()

    if not names:
        return failures
    done.acquire()
    for name in names:
        try:
            _thread.start_new_thread(make, (name,))
        except RuntimeError:  # too many processes (ulimit -u): then one after the other
            make(name)
    poll = select.poll()
    if interrupt is not None:
        poll.register(interrupt, select.POLLIN)
    while not done.acquire(timeout=-1 if interrupt is None else LOOK):
        if poll.poll(0):
            raise RequestInterrupted("interrupted while several locks were renewed")
    with mutex:
        return dict(failures)
