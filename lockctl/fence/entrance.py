"""The first step of a tenure: ``run --fence`` shows the token before the command starts, and a signal can end it."""

from __future__ import annotations

import _thread
import os
import select

from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, TokenRefused
from lockctl.fence.mark import Mark
from lockctl.fence.places import open_place
from lockctl.wire.deadline import NAP, READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

PATIENCE = 1.0  # seconds that a store may take longer than it was told to


class Entrance:
    """Shows a token to one resource; call it for that."""

    def __init__(self, words: str, interrupt: int, ending_signal: Callable[[], int | None]) -> None:
        """The resource that *words* mean; nothing is connected yet. Raises ``ConfigError``, ``UsageError``.

        *interrupt* is readable when a signal came; *ending_signal* then says which one ends the step.
        """
        self._words = words
        self._place = open_place(words)
        self._interrupt = interrupt
        self._ending_signal = ending_signal

    def __call__(self, domain: str, token: int, timeout: float) -> tuple[str, str] | None:
        """Advance the mark; why not ("stale", "unavailable", "config") and one line about it, if it was refused.

        Raises ``Interrupted``: then it is not known whether the mark was recorded.
        """
        place = self._place

        def show() -> None:
            try:
                place.store.advance(place.resource, Mark(domain, token), timeout=timeout)
            finally:
                place.store.close()

        try:
            interruptible(show, timeout, self._interrupt, self._ending_signal)
        except TokenRefused as stale:
            return "stale", str(stale)
        except BackendUnavailable as unknown:
            return "unavailable", str(unknown)
        except ConfigError as wrong:
            return "config", str(wrong)
        return None

    def variables(self, domain: str, token: int, pgoptions: str) -> list[str]:
        """What the command gets, so that a database can check its writes: ``NAME=content``, or nothing.

        *pgoptions* is what was in ``PGOPTIONS`` before.
        """
        if not self._words.lower().startswith("postgresql:"):
            return []
        from lockctl.fence import sql

        return ["PGOPTIONS=" + sql.pgoptions(Mark(domain, token), pgoptions)]


def interruptible(call: Callable[[], T], timeout: float, interrupt: int, ending_signal: Callable[[], int | None]) -> T:
    """The result of *call*, which should not take longer than *timeout* seconds; its error is raised here.

    It runs in a thread of its own, which is left to its fate when a signal ends the wait (``Interrupted``), or
    when it takes longer all the same (``BackendUnavailable``), as the system calls of a dead file system do.
    """
    try:
        reading, writing = os.pipe2(os.O_CLOEXEC)
    except OSError as failure:
        raise BackendUnavailable(f"the mark: {failure.strerror}") from None
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where somebody waits for it
            errors.append(error)
        os.close(writing)  # the other end becomes readable

    deadline = Deadline(timeout + PATIENCE)
    poll = select.poll()
    poll.register(reading, READABLE)
    poll.register(interrupt, READABLE)
    _thread.start_new_thread(run, ())
    try:
        while True:
            left = deadline.left()
            ready = {number for number, _ in poll.poll(min(left, NAP) * 1000 + 1)}
            if reading in ready:
                break
            signum = ending_signal() if interrupt in ready else None
            if signum is not None:
                raise Interrupted(signum)
            if left <= 0:
                raise deadline.passed("the mark")
    finally:
        os.close(reading)
    if errors:
        raise errors[0]
    return results[0]
