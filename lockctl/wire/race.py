"""Calls that run beside each other, each in a thread of its own, and the one who waits for what they come to."""

from __future__ import annotations

import _thread
import os

from lockctl.errors import BackendUnavailable
from lockctl.wire.deadline import READABLE, Deadline, NoThread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Outcome = tuple[int, Any, Exception | None]  # the number of a call, its result, and what it raised


class Race:
    """Calls by number. After :meth:`end` nobody hears of those that still run."""

    def __init__(self, call: Callable[[int], Any], where: str) -> None:
        """*where* is for messages. Raises ``BackendUnavailable`` (no more descriptors)."""
        self._call = call
        self._where = where
        self._outcomes: list[Outcome] = []
        self._mutex = _thread.allocate_lock()
        self._over = False
        try:
            self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as failure:
            raise BackendUnavailable(f"{where}: no pipe: {failure.strerror}") from None

    def start(self, number: int, where: str) -> None:
        """Begin the call of this number; raises ``NoThread``."""
        try:
            _thread.start_new_thread(self._run, (number,))
        except RuntimeError:
            raise NoThread(where) from None

    def wait(self, deadline: Deadline, most: int) -> list[Outcome]:
        """What calls have come to since the last time, as soon as one has; raises as ``Deadline.wait``.

        *most* calls were begun. The list may be empty: then what woke us was told already.
        """
        deadline.wait(self._reading, READABLE, self._where)
        return self.take(most)

    def fileno(self) -> int:
        """The descriptor that is readable when a call has come to something, for a wait for several."""
        return self._reading

    def take(self, most: int) -> list[Outcome]:
        """As :meth:`wait`, when the descriptor is readable."""
        os.read(self._reading, most)
        with self._mutex:
            return self._told()

    def end(self) -> list[Outcome]:
        """Close the pipe; what calls have come to since the last :meth:`wait`."""
        with self._mutex:
            self._over = True
            os.close(self._reading)
            os.close(self._writing)
            return self._told()

    def _told(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _run(self, number: int) -> None:
        result = error = None
        try:
            result = self._call(number)
        except Exception as failure:  # noqa: BLE001 - whoever waits is told; a thread that dies silently tells nobody
            error = failure
        with self._mutex:
            if not self._over:
                self._outcomes.append((number, result, error))
                os.write(self._writing, b".")
