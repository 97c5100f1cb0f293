"""Marks in a server that writes on condition: read the mark, decide, write if nobody has written since, or begin again.

A write whose answer was lost, or that arrives late, does no harm: its condition is not met any more.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod

from lockctl.errors import BackendUnavailable
from lockctl.fence.mark import accept
from lockctl.fence.stores import text
from lockctl.names import printable
from lockctl.value import Value
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import ClassVar

    from lockctl.fence.mark import Mark

FIRST_PAUSE = 0.005  # seconds, at most, after a write that another one came before; then twice as long each time
LONGEST_PAUSE = 0.2


class Seen(Value):
    """What is in the place of a mark: ``None`` for no mark. *version* is never the same again after a change."""

    data: bytes | None
    version: int


class ConditionalStore(ABC):
    """See ``Store``; subclasses say how their server reads and writes."""

    lockable: ClassVar[bool] = False
    where: str  # the server, for messages

    @abstractmethod
    def _key(self, resource: str) -> str:
        """Where the mark of a resource is."""

    @abstractmethod
    def _read(self, key: str, deadline: Deadline) -> Seen:
        """What is there, not older than this call."""

    @abstractmethod
    def _write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """Write *data*, or remove what is there, if that is still what was *seen*; whether it was."""

    @abstractmethod
    def close(self) -> None:
        """See ``Store``."""

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: these servers write to disk before they answer, or cannot be asked."""
        del timeout

    def _confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        """Whether that is still there as it was *seen*; for servers whose reads may be old."""
        return True

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        """See ``Store``."""
        key, deadline = self._key(resource), Deadline(timeout)
        for seen in self._looks(key, deadline):
            current = None if seen.data is None else text.read(seen.data, self.where, key)
            if accept(resource, current, mark):
                done = self._write(key, seen, text.written(mark), deadline)
            else:
                done = self._confirm(key, seen, deadline)
            if done:
                break
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        """See ``Store``."""
        key = self._key(resource)
        seen = self._read(key, Deadline(timeout))
        return None if seen.data is None else text.read(seen.data, self.where, key)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``; of something that was no mark nothing is given back."""
        key, deadline = self._key(resource), Deadline(timeout)
        wanted = None if mark is None else text.written(mark)
        before: Mark | None = None
        tried = False
        for seen in self._looks(key, deadline):
            if tried and seen.data == wanted:
                break  # by ourselves, and the answer was lost
            before, tried = text.understood(seen.data), True
            if (seen.data is None and wanted is None) or self._write(key, seen, wanted, deadline):
                break
        return before

    def holding(self, resource: str, mark: Mark, *, timeout: float) -> AbstractContextManager[None]:
        """See ``Store``: not possible here."""
        raise text.cannot_hold(self.where)

    def _looks(self, key: str, deadline: Deadline) -> Iterator[Seen]:
        """What is there, again and again until the time is over: then it raises ``BackendUnavailable``."""
        pause = FIRST_PAUSE
        while True:
            yield self._read(key, deadline)
            time.sleep(min(pause * os.urandom(1)[0] / 256, deadline.left()))
            pause = min(pause * 2, LONGEST_PAUSE)
            if deadline.left() <= 0:
                raise BackendUnavailable(
                    f"{self.where}: no write of {printable(key)} within {deadline.timeout:.3g} s:"
                    " it changes all the time, or the server refuses"
                )
