"""The cells that locks are in: how a lock is read and changed there, and what its tokens are above.

Each lock is one cell with the document of :mod:`lockctl.locks.machine`, its history another one.
"""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.locks.driver import Cells, Seen, looks
from lockctl.locks.machine import Lock, life_in_queue
from lockctl.model import MICROSECONDS, Claim
from lockctl.names import domain_name, printable, read_domain_name
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from lockctl.wire.deadline import Deadline

    T = TypeVar("T")

LOCK, PAST, FLOOR = "lock:", "past:", "floor:"  # what keys begin with, before the prefix and the name
REFRESHES_PER_LIFE = 3  # how often a waiter's position is prolonged: two may fail
# tokens: more than one lock needs until a clock of whole seconds has passed the first of them, and fewer than
# microseconds pass until a server has made the next lock: so many new ones do not lead further ahead of the clock
RESERVED = 3_000
DOMAIN = "domain:"  # the cell with the name of the store, which says where its tokens come from


class Foreign(ConfigError):
    """The cell of a lock has something that lockctl did not write."""

    def __init__(self, message: str, seen: Seen) -> None:
        """*seen* is what is there."""
        super().__init__(message)
        self.seen = seen


class Position(Value):
    """A position in the queue of a lock, as it was *seen*."""

    seen: Seen
    rest: float  # seconds in which nothing must be done; 0: who has the position may enter
    before: str | None = None  # the owner whose end is waited for, if it is one


class LockCells:
    """The locks of one prefix. Everything raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""

    def __init__(self, cells: Cells, prefix: str, scheme: str) -> None:
        """*prefix* stands before the names of locks, *scheme* in the domain of their tokens. Nothing is opened yet."""
        self.cells = cells
        self._prefix = prefix
        self._scheme = scheme
        self._domain = ""

    def full_name(self, name: str) -> str:
        """A lock as it is named in the store."""
        return self._prefix + name

    def key(self, name: str) -> str:
        """The key of the cell of a lock."""
        return LOCK + self._prefix + name

    def past_key(self, name: str) -> str:
        """The key of the cell of its history."""
        return PAST + self._prefix + name

    def change(self, name: str, decide: Callable[[Lock, Seen], tuple[T, bool]], deadline: Deadline) -> T:
        """What *decide* gives for the lock as it is; where it says so, the lock is written as it left it.

        Raises ``Foreign`` where the cell has something else.
        """
        key = self.key(name)
        for seen in looks(self.cells, key, deadline):
            lock = self.known(name, seen)
            given, changed = decide(lock, seen)
            if not changed or self.cells.write(key, seen, lock.written(), deadline):
                return given
        raise AssertionError("there is always another look, or an error")

    def known(self, name: str, seen: Seen) -> Lock:
        """The lock in a cell. Raises ``Foreign``."""
        lock = self.lock(seen)
        if lock is None:
            raise Foreign(f"{self.cells.where}: {printable(self._prefix + name)} is not a lock of lockctl's", seen)
        return lock

    def line_up(self, claim: Claim, deadline: Deadline) -> Position:
        """Take or keep a position at the end of the queue, unless *claim* may enter."""
        key, life = self.key(claim.name), life_in_queue(claim)
        refresh = life / REFRESHES_PER_LIFE

        def line_up(lock: Lock, seen: Seen) -> tuple[None, bool]:
            lock.line_up(claim, seen.at)
            return None, True

        while True:
            seen = self.cells.read(key, deadline)
            lock = self.lock(seen)
            if lock is None:
                self.cells.observe(key, seen, deadline)
                return Position(seen, refresh)
            waiter = lock.queue.get(claim.owner)
            left = 0.0 if waiter is None else waiter["until"] - seen.at - (life - refresh)
            if lock.running(claim.owner) is not None or lock.is_open_to(claim):
                return Position(seen, 0.0)
            if left > 0:
                left = min(left, max(lock.next_change() - self.surely(seen.at), 0.001))
                return Position(seen, left, lock.before(claim))
            self.change(claim.name, line_up, deadline)

    def lock(self, seen: Seen) -> Lock | None:
        """The lock in a cell as it is at that time; ``None``: something else is there."""
        lock = Lock() if seen.data is None else Lock.read(seen.data)
        if lock is not None:
            lock.expire(self.surely(seen.at))
        return lock

    def surely(self, at: float) -> float:
        """A time that no clock of the store was before when it was *at*."""
        return at - self.cells.clock_error

    def domain(self, deadline: Deadline) -> str:
        """The name of the store, given once for all who use it: it goes with the data wherever these go."""
        if self._domain:
            return self._domain
        for seen in looks(self.cells, DOMAIN, deadline):
            name = read_domain_name(seen.data or b"")
            if name is not None:
                self._domain = f"{self._scheme}:{name}"
                break
            if seen.data is not None:
                raise ConfigError(f"{self.cells.where}: the cell {DOMAIN} has something that is not lockctl's")
            self.cells.write(DOMAIN, seen, domain_name(self.cells.where).encode(), deadline)
        return self._domain

    def first_floor(self, at: float, deadline: Deadline) -> int:
        """What is below all tokens of a cell without one, and not below those of one that others have removed.

        The clock in microseconds sees to that, unless it stands still for a second: then each new cell gets a range of
        tokens of its own, ahead of the clock.
        """
        if not self.cells.clock_error:
            return _whole(self.cells.read(FLOOR + self._prefix, deadline).data)
        first = 0
        for seen in looks(self.cells, FLOOR + self._prefix, deadline):
            first = max(_whole(seen.data), int((at + self.cells.clock_error) * MICROSECONDS))
            if self.cells.write(FLOOR + self._prefix, seen, str(first + RESERVED).encode(), deadline):
                break
        return first

    def raise_floor(self, token: int, deadline: Deadline) -> None:
        """Have the tokens of new cells be above *token*."""
        for seen in looks(self.cells, FLOOR + self._prefix, deadline):
            if _whole(seen.data) >= token:
                return
            if self.cells.write(FLOOR + self._prefix, seen, str(token).encode(), deadline):
                return


def _whole(data: bytes | None) -> int:
    """The number in a cell; 0 for anything else."""
    return int(data) if data and data.isdigit() and len(data) < 20 else 0
