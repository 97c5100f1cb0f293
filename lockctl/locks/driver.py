"""What the driver of a store brings: cells that are read, and written only if nobody has written meanwhile.

Locks (:mod:`lockctl.locks.cell`) and the high-water marks of ``fence`` are kept in them. A write whose answer was lost,
or that arrives late, does no harm: its condition is not met any more.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from lockctl import clock
from lockctl.errors import BackendUnavailable, RequestInterrupted
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Iterator

    from lockctl.wire.deadline import Deadline

FIRST_PAUSE = 0.005  # seconds, at most, after a write that another one came before; then twice as long each time
LONGEST_PAUSE = 0.2
FIRST_LOOK = 0.02  # seconds between two looks of one who has just come; they grow with the time that it waits
GROWTH = 0.07  # seconds for each second of waiting
JITTER = 0.25  # the part by which a pause is shorter at random: waiters that came together do not ask together for ever
LAST_PLAIN = "\ud7ff"  # what comes later ZooKeeper refuses in a path, or not everywhere
LONGEST_MUTEX_WAIT = 60.0  # seconds; a wait for a mutex cannot be infinite


class Seen(Value):
    """What is in a cell: no *data* where nothing is. *version* is never the same again after a change.

    A restart of a server that counts anew changes nothing in that. Of a cell that is not there it may be the same: who
    must know that nothing was there meanwhile makes the cell first.
    """

    data: bytes | None
    version: object
    at: float  # when the store answered, by its own clock: seconds since the epoch


class Cells(ABC):
    """The driver of a store. All raise ``BackendUnavailable``, ``RequestInterrupted`` and ``ConfigError``.

    Safe for two threads at once: renewals come from a thread of their own.
    """

    where: str  # the store, for messages
    longest_look: float = 0.0  # seconds: how long :meth:`watch` may take to see a change; 0: the store tells of it
    follows: bool = False  # whether :meth:`follow` is of use
    # seconds by which the time of an answer may be wrong: 1 for a clock of whole seconds, and how far the clocks of the
    # servers behind one address may differ
    clock_error: float = 0.0

    @abstractmethod
    def read(self, key: str, deadline: Deadline) -> Seen:
        """What is in a cell, not older than this call."""

    @abstractmethod
    def write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        """Write, durably, or remove with ``None``, if the cell is still as it was *seen*; whether it was."""

    @abstractmethod
    def scan(self, prefix: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """All cells that are there whose key begins so, in no order."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; the next request opens it again."""

    def observe(self, key: str, seen: Seen, deadline: Deadline) -> None:  # noqa: B027 - most have nothing to note
        """Called when somebody asks for a lock that another program has, with its cell as it was *seen*.

        For programs whose leases have ended when their record stood still for long enough: it is noted in the store.
        """

    def known_by(self, seen: Seen) -> object:
        """What tells another program that has a cell, as it was *seen*, from one that has it later.

        The version, unless it changes while the program has it, as where leases are renewed.
        """
        return seen.version

    def confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        """Whether a cell is still as it was *seen*; for stores whose reads may be old in spite of what they say."""
        return True

    def refuse_forgetting(self) -> None:  # noqa: B027 - most stores are never set up so, or do not tell
        """Raise ``ConfigError`` if the store may remove cells by itself, as the last answer to :meth:`read` tells.

        Called between a look and the write of what must not be forgotten. It asks nothing.
        """

    def shown(self, key: str) -> str:
        """The name that a cell has in the store, for messages."""
        return key

    def attend(self, owner: str) -> None:  # noqa: B027 - most stores have nothing that ends with a connection
        """Called before *owner* takes or waits: while it does, :meth:`follow` can wait for its end."""

    def depart(self, owner: str, deadline: Deadline) -> None:  # noqa: B027 - as above
        """Called when nothing is left of *owner*: who follows it goes on."""

    def follow(self, before: str, deadline: Deadline) -> bool:
        """Return when the owner *before* may be gone, or at the deadline; ``False``, at once: it is not there.

        A hint: who returns looks at the cell. Raises as :meth:`watch`.
        """
        raise NotImplementedError

    def watch(self, key: str, seen: Seen, deadline: Deadline, since: float | None = None) -> None:
        """Return when the cell may not be any more as it was *seen*, or at the deadline.

        *since*: when the wait began of which this is a part, by ``clock.boottime``.
        """
        began = clock.boottime() if since is None else since
        while deadline.left() > 0:
            pause = jittered(min(max(FIRST_LOOK, GROWTH * (clock.boottime() - began)), self.longest_look))
            left = deadline.left()
            # the caller looks again at the deadline: none shortly before
            sleep(left if pause > left * (1 - JITTER) else pause, deadline.interrupt, self.where)
            try:
                if deadline.left() > 0 and self.read(key, deadline).version != seen.version:
                    return
            except BackendUnavailable:
                if deadline.left() > 0:
                    raise


class TimedMutex:
    """A block for one thread at a time, such as those that share a connection. Raises ``BackendUnavailable``."""

    def __init__(self, mutex: LockType, deadline: Deadline, where: str) -> None:
        """Nothing is waited for before the block."""
        self._mutex = mutex
        self._deadline = deadline
        self._where = where

    def __enter__(self) -> None:
        if not self._mutex.acquire(timeout=min(self._deadline.left(), LONGEST_MUTEX_WAIT)):
            raise self._deadline.passed(self._where)

    def __exit__(self, *_: object) -> None:
        self._mutex.release()


def looks(cells: Cells, key: str, deadline: Deadline) -> Iterator[Seen]:
    """What is in a cell, again and again until the time is over: then it raises ``BackendUnavailable``."""
    pause = FIRST_PAUSE
    while True:
        yield cells.read(key, deadline)
        sleep(min(pause * os.urandom(1)[0] / 256, deadline.left()), deadline.interrupt, cells.where)
        pause = min(pause * 2, LONGEST_PAUSE)
        if deadline.left() <= 0:
            raise BackendUnavailable(
                f"{cells.where}: no write of {printable(cells.shown(key))} within {deadline.timeout:.3g} s:"
                " it changes all the time, or the server refuses"
            )


def jittered(pause: float) -> float:
    """*pause*, or a little less."""
    return pause * (1 - JITTER * os.urandom(1)[0] / 256)


def sleep(pause: float, interrupt: int | None, where: str) -> None:
    """Wait so long; raises ``RequestInterrupted`` when the descriptor *interrupt* becomes readable."""
    if clock.pause(pause, interrupt):
        raise RequestInterrupted(f"{where}: interrupted")


def escaped(text: str) -> str:
    """*text* as one part of a path: no slash, not ``.`` or ``..``; two texts never give the same.

    A slash, a percent sign and what is not in every server's alphabet become ``%XX`` for each byte.
    """
    if text in (".", ".."):
        return text.replace(".", "%2E")
    if text.isascii() and "/" not in text and "%" not in text:
        return text
    return "".join(_percent(char) if char in "/%" or char > LAST_PLAIN else char for char in text)


def _percent(char: str) -> str:
    return "".join([f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape")])
