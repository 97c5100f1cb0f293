"""What is said while lockctl waits for a lock: who holds it, for how long, and our position in the queue.

On a terminal it is one line, which is written again and again; with ``-v`` a line once in a while. The backend is
asked through a connection of its own, in a thread: the wait itself is neither delayed nor ended by it.
"""

from __future__ import annotations

import _thread
import os

from lockctl import registry
from lockctl.cli.output import NO_SCREEN, holder_document, holding
from lockctl.clock import monotonic
from lockctl.durations import format_age

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from lockctl.cli.messages import Talk
    from lockctl.model import LockInfo
    from lockctl.request import Request

FIRST = 0.3  # seconds: of a shorter wait nothing is said
ON_SCREEN = 2.0  # seconds between two looks, for a person who watches
IN_A_LOG = 60.0
LOOK_TIMEOUT = 5.0
NARROW, WIDTH = 20, 80  # columns: less is no width, and this one is taken

columns_of_reader = 0  # of the terminal to which another process passes on what this one writes; 0: there is none


def begin(request: Request, backend: Backend, talk: Talk) -> Callable[[], None]:
    """Begin to say it, if anybody wants to know; call what is returned when the wait is over."""
    columns = screen_columns() if talk.may_rewrite else 0
    if not columns and not talk.tells("info"):
        return lambda: None
    teller = _Teller(request, backend, talk, on_screen=columns > 0)
    try:
        _thread.start_new_thread(teller.run, ())
    except RuntimeError:  # no more processes
        return lambda: None
    return teller.end


def screen_columns() -> int:
    """The width of the terminal that stderr is; 0: it is none, cannot rewrite a line, or we are in the background."""
    if columns_of_reader or os.environ.get("TERM", "") in NO_SCREEN:
        return columns_of_reader
    try:
        columns = os.get_terminal_size(2).columns
    except OSError:
        return 0
    try:
        in_front = os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # not our controlling terminal
        in_front = True
    return 0 if not in_front else columns if columns >= NARROW else WIDTH


def position(seen: LockInfo, host: str, pid: int) -> str:
    """Where in the queue this process is, as the backend sees it; empty if that is not known."""
    waiters = seen.waiters or ()
    for number, waiter in enumerate(waiters, 1):
        if (waiter.host, waiter.pid) == (host, pid):
            return f", {number} of {len(waiters)}"
    return ""


class _Teller:
    def __init__(self, request: Request, backend: Backend, talk: Talk, *, on_screen: bool) -> None:
        self._request = request
        self._backend = backend
        self._talk = talk
        self._on_screen = on_screen
        self._since = monotonic()
        self._ended = False
        self._speaking = _thread.allocate_lock()
        self._over = _thread.allocate_lock()  # free when the wait is over
        self._over.acquire()

    def end(self) -> None:
        """Nothing is said after this, and the line is gone."""
        with self._speaking:
            self._ended = True
            if self._on_screen:
                self._talk.rewrite("", screen_columns())
        self._over.release()

    def run(self) -> None:
        """Look and tell until it is over."""
        looker: Backend | None = None
        pause = FIRST
        while not self._over.acquire(timeout=pause):
            try:
                looker = looker or registry.open_backend(self._request.url)
                # of several locks it is another one at each time
                name = getattr(self._backend, "refused", self._request.name)
                self._tell(looker.inspect(name, timeout=LOOK_TIMEOUT))
            except Exception as unknown:  # noqa: BLE001 - such as that no file can be opened: it only tells
                self._say(f"the backend does not say who holds the lock: {unknown}", "", None)
            pause = ON_SCREEN if self._on_screen else IN_A_LOG
        if looker is not None:
            looker.close()

    def _tell(self, seen: LockInfo) -> None:
        which = f"{seen.name} is " if seen.name != self._request.name else ""
        place = position(seen, self._request.host, os.getpid())
        holder = holder_document(seen.holders[0]) if seen.holders else None
        words = " in the queue" if place and not self._on_screen else ""  # a terminal has no room for them
        self._say(which + holding(seen, brief=self._on_screen), place + words, holder)

    def _say(self, text: str, place: str, holder: dict[str, object] | None) -> None:
        seconds = monotonic() - self._since
        line = f"waiting for {format_age(seconds)}{place}: {text}"
        with self._speaking:
            if self._ended:
                return
            if not self._on_screen:
                self._talk("info", line, "waiting", holder=holder, seconds=seconds)
            elif columns := screen_columns():
                self._talk.rewrite(line, columns)
