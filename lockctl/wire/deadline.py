"""One absolute deadline for a whole request, and the waits that obey it.

The time limits of client libraries are per system call: a server that sends one byte at a time, or a
dead name server, stretches them without end. Here every wait of a request ends at the same moment, on a
clock that also counts suspend.
"""

from __future__ import annotations

import _thread
import os
import select

from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, RequestInterrupted
from lockctl.url import Named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeVar

    T = TypeVar("T")
    Wanted = tuple[int, int] | None  # a descriptor and the events it is waited for
    Steps = Generator[Wanted, None, T]  # see Deadline.drive

NAP = 1.0  # seconds: the kernel's waits do not count suspend, so none is longer than this
READABLE = select.POLLIN
WRITABLE = select.POLLOUT


class Deadline:
    """When a request must have ended. With *interrupt*, a descriptor, it also ends when that is readable."""

    __slots__ = ("_late", "interrupt", "timeout", "until")

    def __init__(self, timeout: float, interrupt: int | None = None) -> None:
        """*timeout* seconds from now; it may be infinite."""
        self.timeout = timeout
        self.until = boottime() + timeout
        self.interrupt = interrupt
        self._late: list[bool] = []  # not empty: a wait has returned after the end; one for all steps of a request

    def left(self) -> float:
        """Seconds until then, never below zero."""
        left: float = self.until - boottime()
        return left if left > 0 else 0.0

    def sooner(self, timeout: float) -> Deadline:
        """A deadline for one step of the request: after *timeout* seconds, but not later than this one."""
        step = Deadline(min(timeout, self.left()), self.interrupt)
        step.until = min(step.until, self.until)
        step._late = self._late
        return step

    def shares(self, count: int) -> Iterator[Deadline]:
        """A deadline for the attempt at each of *count* addresses, one after the other.

        One that swallows packets leaves time for the next, and the last of several for another round.
        """
        if count == 1:
            yield self
            return
        for left in range(count + 1, 1, -1):
            yield self.sooner(self.left() / left)

    def check(self, where: str) -> None:
        """Raise ``BackendUnavailable`` if the time is over, ``RequestInterrupted`` if the caller wants to stop."""
        if self.interrupt is not None:
            poll = select.poll()
            poll.register(self.interrupt, READABLE)
            if poll.poll(0):
                raise RequestInterrupted(f"{where}: interrupted")
        if self.left() <= 0:
            raise self.passed(where)

    def passed(self, where: str) -> BackendUnavailable:
        """The error that says that the time is over."""
        return BackendUnavailable(f"{where}: no answer within {self.timeout:.3g} s")

    def wait(self, descriptor: int, events: int, where: str) -> None:
        """Return when *descriptor* is ready; raises as :meth:`check` does."""
        self.wait_for({descriptor: events}, where)

    def wait_for(self, wanted: dict[int, int], where: str) -> list[int]:
        """Which of some descriptors are ready, as soon as one is; *wanted* has their events. Raises as :meth:`check`.

        What is ready when the time is over counts once, for an answer that came while this process was stopped or had
        no processor. Not again: a server that always has data would stretch the request without end.
        """
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        if self.interrupt is not None:
            poll.register(self.interrupt, READABLE)
        while True:
            left = self.left()
            ready = poll.poll(min(left, NAP) * 1000 + (left > 0))
            for number, _ in ready:
                if number == self.interrupt:
                    raise RequestInterrupted(f"{where}: interrupted")
            if ready and (left > 0 or not self._late):
                if left <= 0:
                    self._late.append(True)
                return [number for number, _ in ready]
            if left <= 0:
                raise self.passed(where)

    def drive(self, steps: Steps[T], where: str, wanted: Wanted = None) -> T:
        """The result of a request in *steps*, which waits for *wanted* first; raises as the request does.

        Such a request is a generator, so that one thread can make several at the same time: it yields each descriptor
        that it waits for, with the events, and ``None`` before a step that may block, as here everything may.
        """
        failure: BaseException | None = None
        while True:
            try:
                if wanted is not None:
                    self.wait(*wanted, where)
            except BaseException as error:  # noqa: BLE001 - the request is told, and closes what it has opened
                failure = error
            try:
                wanted = next(steps) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            failure = None


class NoThread(BackendUnavailable):
    """The system gives no more threads."""

    def __init__(self, where: str) -> None:
        """*where*: what is not asked therefore."""
        super().__init__(f"{where}: no thread for it: too many processes (ulimit -u), or too little memory (ulimit -v)")


def bounded(
    call: Callable[[], T],
    deadline: Deadline,
    where: str,
    *,
    interrupted: Callable[[], None] | None = None,
    self_limited: bool = False,
) -> T:
    """The result of a call that obeys no deadline, such as name resolution; its error is raised here.

    Raises ``BackendUnavailable``, also when there are no more descriptors (or ``NoThread``), ``RequestInterrupted``.

    It runs in a thread of its own, which is left to its fate when the deadline has passed. *interrupted* is called
    when the deadline's interrupt is readable: it raises, or the wait goes on. Without it, that ends the wait.
    *self_limited*: each part of the call ends soon after the deadline, so without a thread it is made in this one.
    """
    try:
        reading, writing = os.pipe2(os.O_CLOEXEC)
    except OSError as failure:
        raise BackendUnavailable(f"{where}: {failure.strerror}") from None
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where somebody waits for it
            errors.append(error)
        os.close(writing)  # the other end becomes readable

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:
        os.close(reading)
        os.close(writing)
        if self_limited:
            return call()
        raise NoThread(where) from None
    try:
        _wait_through(reading, deadline, where, interrupted)
    finally:
        os.close(reading)
    if errors:
        raise errors[0]
    return results[0]


def _wait_through(reading: int, deadline: Deadline, where: str, interrupted: Callable[[], None] | None) -> None:
    while True:
        try:
            return deadline.wait(reading, READABLE, where)
        except RequestInterrupted:
            if interrupted is None:
                raise
            interrupted()


def password_now(password: str | None, deadline: Deadline) -> str | None:
    """The password for a connection that is made now: it may have been changed since the last one.

    Raises ``BackendUnavailable`` when there is none in time, ``RequestInterrupted``.
    """
    if not isinstance(password, Named):
        return password
    return bounded(lambda: password.again(deadline.left()), deadline, password.name)
