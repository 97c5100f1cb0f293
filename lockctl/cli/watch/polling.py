"""What ``lockctl watch`` waits for: signals, the end of its reader, and answers of the backend, in one place.

A thread asks the backend, so that the screen goes on and a signal ends it while an answer is outstanding.
Everything that happens comes through one pipe.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING

from lockctl.cli.options import REQUEST_TIMEOUT
from lockctl.cli.output import discard_output
from lockctl.cli.places import Place, ask_each
from lockctl.cli.watch.keys import LONGEST
from lockctl.clock import monotonic, utc, wall
from lockctl.durations import format_age
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.names import printable
from lockctl.value import Value

if TYPE_CHECKING:
    from types import FrameType

    from lockctl.model import LockInfo

PATIENCE = 3.0  # seconds without an answer before it is said
LONG = 60.0  # seconds: what is waited for wakes
GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Events:
    """What may happen, in one place to wait for it."""

    def __init__(self) -> None:
        """Let signals be events from here on. Those that were ignored (nohup, a job of a script) stay so."""
        self.ended = False
        self.suspended = False
        self.typed = b""  # what was read from the keyboard and not yet taken
        self._keyboard = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._end)
        signal.signal(signal.SIGWINCH, self._resized)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ended = True

    def _resized(self, number: int, frame: FrameType | None) -> None:
        """Nothing to note: it wakes, and the next picture fits."""

    def let_suspend(self) -> None:
        """Make Ctrl-Z an event, so that the terminal is given back first."""
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, self._suspend)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self.suspended = True

    def stop_here(self) -> None:
        """Stop like any program at Ctrl-Z; returns after ``fg``."""
        self.suspended = self._keyboard = False
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)

    def listen(self) -> None:
        """From here on what is typed is an event."""
        self._keyboard = True

    def happened(self) -> None:
        """Wake who waits; from any thread."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # it is awake already

    def _read_keyboard(self) -> None:
        try:
            data = os.read(0, LONGEST)
        except OSError:  # the terminal is gone: stdout says so, too
            data = b""
        self._keyboard = bool(data)
        self.typed += data

    def wait(self, seconds: float, *, writable: bool = False) -> None:
        """Until something happens, stdout takes more (if asked), or the time is over.

        A reader that has gone away is the end, also when there is nothing to tell it.
        """
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        poller.register(1, select.POLLOUT if writable else 0)
        if self._keyboard:
            poller.register(0, select.POLLIN)
        for descriptor, found in poller.poll(max(0.0, seconds) * 1000):
            if descriptor == 1 and found & GONE:
                discard_output()
                self.ended = True
            if descriptor == 0:
                self._read_keyboard()
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return


class Answer(Value):
    """What one look has shown."""

    found: list[tuple[Place, LockInfo]]
    failed: list[tuple[Place, LockctlError]]  # of several backends
    lock: tuple[Place, LockInfo] | None = None  # in full, with its last run


class Polling:
    """The locks as they were last seen. Never more than one question is outstanding, and half of the time none is."""

    def __init__(self, places: list[Place], pattern: str, interval: float, events: Events) -> None:
        """Ask for the first time."""
        self.answer: Answer | None = None
        self.seen_at = monotonic()  # when the question was asked that the locks are the answer to
        self.error: LockctlError | None = None
        self.failing_since: tuple[float, float] | None = None  # the same moment on both clocks
        self.interval = interval
        self.places = places
        self._focus: tuple[Place, str] | None = None
        self._backend = places[0].open() if len(places) == 1 else None
        self._pattern = pattern
        self._events = events
        self._wanted = threading.Semaphore(1)
        self._came: Answer | BaseException | None = None
        self._asked_at: float | None = monotonic()
        self._due = 0.0
        self._answered = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def found(self) -> list[tuple[Place, LockInfo]]:
        """The locks, each with its place."""
        return [] if self.answer is None else self.answer.found

    def focus(self, wanted: tuple[str, str]) -> None:
        """From now on ask for all of one lock, too, and soon; it is named as in a view."""
        found = ((place, lock.name) for place, lock in self.found if (place.label, lock.name) == wanted)
        self._focus = next(found, self._focus)
        self._due = 0.0

    def _serve(self) -> None:
        while self._wanted.acquire():
            try:
                self._came = self._look()
            except BaseException as failure:  # noqa: BLE001 - raised again in the main thread
                self._came = failure
            self._events.happened()

    def _look(self) -> Answer:
        found, failed = ask_each(self.places, self._list)
        focus = self._focus
        lock = None
        if focus is not None:
            place, name = focus
            lock = (place, (self._backend or place.open()).inspect(name, timeout=REQUEST_TIMEOUT))
        return Answer([(place, each) for place, locks in found for each in locks], failed, lock)

    def _list(self, place: Place) -> list[LockInfo]:
        if self._backend is not None:
            return list(self._backend.list(self._pattern, timeout=REQUEST_TIMEOUT))
        backend = place.open()  # each thread its own: some may not be used by another
        try:
            return list(backend.list(self._pattern, timeout=REQUEST_TIMEOUT))
        finally:
            backend.close()

    def advance(self) -> bool:
        """Take an answer that has come, ask again when it is time; whether there are new locks to show.

        Raises what is wrong for good at the first answer, and a bug at any.
        """
        now = monotonic()
        answer, self._came = self._came, None
        if answer is None:
            if self._asked_at is None and now >= self._due:
                self._asked_at = now
                self._wanted.release()
            return False
        asked_at = now if self._asked_at is None else self._asked_at
        self._asked_at = None
        self._due = max(asked_at + self.interval, now + (now - asked_at))
        self._answered += 1
        if isinstance(answer, LockctlError):
            if self._answered == 1 and not isinstance(answer, BackendUnavailable):
                raise answer
            self.error = answer
            self.failing_since = self.failing_since or (wall(), now)
            return False
        if isinstance(answer, Answer):
            self.answer, self.seen_at, self.error, self.failing_since = answer, asked_at, None, None
            return True
        raise RuntimeError("reading the locks failed") from answer  # no OSError: those are of the screen

    def until_due(self) -> float:
        """Seconds until the next question; long while one is outstanding."""
        return LONG if self._asked_at is not None else self._due - monotonic()

    def is_stale(self) -> bool:
        """Whether the locks may be others by now: there is no answer, or it takes too long."""
        return self.error is not None or (self._asked_at is not None and monotonic() - self._asked_at > PATIENCE)

    def trouble(self) -> str:
        """Why there is nothing newer, one line; empty if all is well."""
        now = monotonic()
        if self.error is not None and self.failing_since is not None:
            began, since = self.failing_since
            return printable(f"no answer since {utc(began)} ({format_age(now - since)}): {self.error}")
        if self._asked_at is not None and now - self._asked_at > PATIENCE:
            return f"no answer for {format_age(now - self._asked_at)}"
        if self.answer is not None and self.answer.failed:
            place, failure = self.answer.failed[0]
            return printable(f"{place.label}: {failure}")
        return ""

    def close(self) -> None:
        """Close the backend, unless it is just being asked: then the end of the process does it."""
        if self._asked_at is None and self._backend is not None:
            self._backend.close()
