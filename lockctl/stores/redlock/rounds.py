"""A round: all nodes are asked at the same time, and nobody waits for those that are slow.

One thread asks them all. A node has a thread of its own while a request to it may block (a name, TLS, the request
before it), and when the round goes on without it: its answer still says what is there.
"""

from __future__ import annotations

from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.wire.deadline import READABLE
from lockctl.wire.race import Race

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TypeVar

    from lockctl.wire.deadline import Deadline, Steps
    from lockctl.wire.race import Outcome

    class Asked(Protocol):
        """A node."""

        where: str

        def enter(self, timeout: float) -> bool:
            """Whether it serves nobody else now, until :meth:`leave`; waits for that for *timeout* seconds."""

        def leave(self) -> None:
            """It may serve another."""

    N = TypeVar("N", bound=Asked)
    T = TypeVar("T")
    Ask = Callable[[N, Deadline], Steps[T]]

PATIENCE = 0.2  # seconds from the start of a round, after which a majority does not wait for the others
PATIENCE_PER_TTL = 1 / 20  # what a round may take of a lease, when the servers are so far away that they need longer


class Patience:
    """How long a majority waits for the others: as long again as it took itself, if the lease allows that."""

    def __init__(self, ttl: float) -> None:
        """The round begins now; *ttl* of the lease in seconds."""
        self._started = boottime()
        self._longest = ttl * PATIENCE_PER_TTL
        self._until: float | None = None

    def until(self, *, settled: bool) -> float | None:
        """Seconds since the start of the round, for ``ask_all``, once it is *settled*; ``None`` before."""
        if settled and self._until is None:
            self._until = min(max(PATIENCE, 2 * (boottime() - self._started)), self._longest)
        return self._until if settled else None


class Round:
    """What each of some nodes is asked, and what they have answered so far."""

    def __init__(self, nodes: Sequence[Asked], ask: Ask[Any, Any], deadline: Deadline) -> None:
        """Nobody is asked yet. Raises ``BackendUnavailable`` (no more descriptors)."""
        self.answers: list[Any] = [None] * len(nodes)
        self.left = len(nodes)  # that have not answered
        self._nodes, self._ask, self._deadline = nodes, ask, deadline
        self._steps: dict[int, Steps[Any]] = {}  # of nodes by number
        self._waiting: dict[int, tuple[int, int]] = {}  # the same -> descriptor and events
        self._threads = Race(self._finish, "redlock")

    def begin(self) -> None:
        """Ask each node."""
        for number, node in enumerate(self._nodes):
            if node.enter(0.0):
                self._steps[number] = self._request(node)
                self._go_on(number)
            else:
                self._go_on_in_a_thread(number)

    def wait(self, step: Deadline) -> None:
        """Return when something has happened; raises as ``Deadline.wait``."""
        threads = self._threads.fileno()
        ready = step.wait_for({threads: READABLE, **dict(self._waiting.values())}, "redlock")
        for number in [number for number, (descriptor, _) in self._waiting.items() if descriptor in ready]:
            del self._waiting[number]
            self._go_on(number)
        if threads in ready:
            self._note(self._threads.take(len(self._nodes)))

    def end(self) -> None:
        """Nobody waits any more for those that have not answered."""
        for number in tuple(self._waiting):
            try:
                self._deadline.check(self._nodes[number].where)
            except LockctlError as failure:
                self._go_on(number, failure)
            else:
                self._go_on_in_a_thread(number)
        self._note(self._threads.end())

    def _request(self, node: Asked) -> Steps[Any]:
        return (yield from self._ask(node, self._deadline)) if self._deadline.left() else None

    def _go_on(self, number: int, failure: LockctlError | None = None) -> None:
        """Do what can be done without waiting, or have the request end with a *failure*."""
        steps, answer, error = self._steps[number], None, None
        try:
            wanted = next(steps) if failure is None else steps.throw(failure)
        except StopIteration as end:
            answer = end.value
        except Exception as problem:  # noqa: BLE001 - see _note
            error = problem
        else:
            if wanted is None:
                self._go_on_in_a_thread(number)
            else:
                self._waiting[number] = wanted
            return
        self._nodes[number].leave()
        self._note([(number, answer, error)])

    def _go_on_in_a_thread(self, number: int) -> None:
        try:
            self._threads.start(number, self._nodes[number].where)
        except BackendUnavailable as failure:
            if number in self._steps:
                self._go_on(number, failure)
            else:
                self._note([(number, None, failure)])

    def _finish(self, number: int) -> Any:
        """In a thread: wait where the round does not, at last for the turn of a node that was not asked yet."""
        node, steps = self._nodes[number], self._steps.get(number)
        if steps is None:
            if not node.enter(self._deadline.left()):
                return None
            steps = self._request(node)
        try:
            return self._deadline.drive(steps, node.where, self._waiting.get(number))
        finally:
            node.leave()

    def _note(self, outcomes: Sequence[Outcome]) -> None:
        """A node for which something unforeseen was raised is one that is away."""
        for number, answer, error in outcomes:
            self.left -= 1
            if error is None or isinstance(error, LockctlError):
                self.answers[number] = answer if error is None else error
            else:
                away = f"{self._nodes[number].where}: {type(error).__name__}: {error}"
                self.answers[number] = BackendUnavailable(away)


def ask_all(
    nodes: Sequence[N], ask: Ask[N, T], deadline: Deadline, enough: Callable[[list[Any]], float | None]
) -> list[T | LockctlError | None]:
    """What each node answers, its error, or ``None`` if it was silent when the round ended.

    After each answer *enough* is told all answers so far: it gives the time in seconds since the start at
    which to go on without the silent ones, ``None`` to wait until the deadline. Raises ``RequestInterrupted``.
    """
    started, step = boottime(), deadline
    asked = Round(nodes, ask, deadline)
    try:
        asked.begin()
        while asked.left:
            until = enough([each for each in asked.answers if each is not None and not isinstance(each, LockctlError)])
            if until is not None:
                step = deadline.sooner(max(0.0, started + until - boottime()))
            asked.wait(step)
    except BackendUnavailable:
        pass  # the time is over
    finally:
        asked.end()
    return asked.answers


def blocking(ask: Callable[[N, Deadline], T]) -> Ask[N, T]:
    """For :func:`ask_all`: a request that waits by itself."""

    def steps(node: N, deadline: Deadline) -> Steps[T]:
        yield None
        return ask(node, deadline)

    return steps
