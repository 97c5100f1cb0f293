"""What stands before a handler of HTTP: one request of a resource after the other, each with the mark held."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.fence.http import HEADER, MissingToken, NotHeld, Refusal, mark_of, refusal
from lockctl.fence.location import Location, check_name, locate
from lockctl.fence.mark import Mark, Stale
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from lockctl.fence.store import Store

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # methods that change nothing (RFC 9110, 9.2.1)
MOST_IDLE = 16  # stores that stay connected for the next request


def mark_of_request(resource: str, method: str, contents: Sequence[str], optional: Collection[str]) -> Mark | None:
    """The mark of a request that has the header with these *contents*; ``None``: it has none and needs none.

    *optional*: methods that may come without. Raises the refusal, a ``LockctlError``.
    """
    check_name(resource)
    mark = mark_of(contents)
    if mark is None and method not in optional:
        raise MissingToken(f"{method} needs {HEADER}: DOMAIN;TOKEN")
    return mark


def refuse(error: LockctlError, resource: str) -> Refusal:
    """The answer in the place of that of the application; the operator is told what only an operator can mend."""
    if isinstance(error, (BackendUnavailable, ConfigError)):
        report("a request was refused", error)
    return refusal(error, resource)


class Turns:
    """A queue for each name, first come, first served; a name that nobody uses takes no memory."""

    def __init__(self) -> None:
        """Nobody is there."""
        self._guard = threading.Lock()
        self._queues: dict[str, deque[Future[None]]] = {}

    def __len__(self) -> int:
        """How many names are in use."""
        return len(self._queues)

    def join(self, name: str) -> Turn:
        """Stand at the end of the queue. :meth:`Turn.leave` must follow, whatever happens."""
        mine: Future[None] = Future()
        with self._guard:
            queue = self._queues.setdefault(name, deque())
            queue.append(mine)
            first = len(queue) == 1
        if first:
            mine.set_result(None)
        return Turn(self, name, mine)

    def leave(self, name: str, mine: Future[None]) -> None:
        """Go, in turn or before; the next one's turn may come. Does nothing the second time."""
        with self._guard:
            queue = self._queues.get(name, deque())
            if mine not in queue:
                return
            following = queue[1] if queue[0] is mine and len(queue) > 1 else None
            queue.remove(mine)
            if not queue:
                del self._queues[name]
        if following is not None:
            with suppress(InvalidStateError):  # it was given up, and leaves the queue in this moment
                following.set_result(None)


class Turn:
    """A place in the queue of a name."""

    def __init__(self, turns: Turns, name: str, ours: Future[None]) -> None:
        """*ours* is done when the turn has come."""
        self.ours = ours
        self._turns = turns
        self._name = name

    def leave(self) -> None:
        """Let the next one in."""
        self._turns.leave(self._name, self.ours)


class Passage:
    """What a handler has while it runs: its turn, the mark that is held if the store can, and the store."""

    def __init__(self, gate: Gate, turn: Turn, location: Location, block: AbstractContextManager[None] | None) -> None:
        """*block* has been entered; ``None``: the mark was recorded and is not held."""
        self.lockable = location.store.lockable
        self._gate = gate
        self._turn = turn
        self._location = location
        self._block = block
        self._left = False

    def leave(self) -> None:
        """Give all back; does nothing the second time. Raises ``NotHeld``, which is logged: the handler has ended."""
        if self._left:
            return
        self._left = True
        try:
            if self._block is not None:
                self._block.__exit__(None, None, None)
        except LockctlError as error:
            close(self._location.store)
            shown = printable(self._location.resource)
            report(f"the mark of {shown} may have been free before its request ended", error)
            # the client knows the resource by another name
            raise NotHeld("the mark may have been free before this request ended: see what it has done") from None
        except BaseException:
            close(self._location.store)
            raise
        else:
            self._gate.keep(self._location.store)
        finally:
            self._turn.leave()


class Gate:
    """Where the marks are, and the queues of this process. Safe for many threads at once."""

    def __init__(self, marks: str | Callable[[str], Location], timeout: float) -> None:
        """*marks*: the URL of a store, or what gives the location of a resource anew each time it is called."""
        self.timeout = timeout  # seconds from when a request is there, with its body, until its handler begins
        self.turns = Turns()
        self._marks = marks
        self._idle: list[Store] = []
        self._closed = False

    def enter(self, turn: Turn, name: str, mark: Mark, *, held: bool, until: float) -> Passage:
        """Record *mark*, and hold it if *held* and the store can. The *turn* has come; it is left when this fails.

        Blocks at most until *until*, a moment of ``time.monotonic``. Raises what the store raises.
        """
        try:
            return self._enter(turn, name, mark, held=held, until=until)
        except BaseException:
            turn.leave()
            raise

    def _enter(self, turn: Turn, name: str, mark: Mark, *, held: bool, until: float) -> Passage:
        location = self._open(name)
        try:
            return Passage(self, turn, location, _record(location, mark, held=held, until=until))
        except Stale:
            self.keep(location.store)
            raise
        except BaseException:
            close(location.store)
            raise

    def _open(self, name: str) -> Location:
        """The location of a resource, with a store that nobody else uses meanwhile."""
        if not isinstance(self._marks, str):
            return self._marks(name)
        with suppress(IndexError):
            return Location(self._idle.pop(), check_name(name))
        return locate(name, self._marks)

    def keep(self, store: Store) -> None:
        """Keep a store for the next request, if it can be of use to another resource."""
        if isinstance(self._marks, str) and len(self._idle) < MOST_IDLE and not self._closed:
            self._idle.append(store)
        else:
            close(store)

    def close(self) -> None:
        """Free what is idle; what is in use is closed when its request ends."""
        self._closed = True
        while self._idle:
            close(self._idle.pop())


def _record(location: Location, mark: Mark, *, held: bool, until: float) -> AbstractContextManager[None] | None:
    """What ends the hold, if there is one."""
    left = until - time.monotonic()
    if left <= 0:
        raise too_late(location.resource)
    if not (held and location.store.lockable):
        location.store.advance(location.resource, mark, timeout=left)
        return None
    block = location.store.holding(location.resource, mark, timeout=left)
    block.__enter__()
    return block


def too_late(name: str) -> BackendUnavailable:
    """What is raised when others had their turn for so long that no time is left."""
    return BackendUnavailable(f"{printable(name)}: other requests of the resource took too long")


def close(store: Store) -> None:
    """Close a store that may be out of order."""
    with suppress(LockctlError, OSError):
        store.close()


def report(what: str, error: LockctlError) -> None:
    """Tell the operator of the server, whom ``logging`` serves here, in one line."""
    import logging

    logging.getLogger("lockctl.fence").warning("%s: %s", what, error)
