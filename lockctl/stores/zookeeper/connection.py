"""A connection to one server: requests go out in one piece, and their answers come in the same order."""

from __future__ import annotations

from collections import deque

from kazoo.exceptions import AuthFailedError

from lockctl.clock import boottime
from lockctl.stores.zookeeper import protocol
from lockctl.stores.zookeeper.errors import NotAccepted
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.wire.deadline import Deadline

LENGTH = 4  # bytes before a message that say how long it is


class Connection:
    """One connection. After any error of a request it is of no more use: an answer may come late."""

    def __init__(self, stream: Stream, place: Place, last_zxid: int, told: set[tuple[str, bool]]) -> None:
        """*last_zxid* is what the session has seen by now; see ``Link`` for *told*."""
        self._stream = stream
        self._place = place
        self._told = told
        self._watched: set[str] = set()  # paths
        self._come = b""
        self._welcome: tuple[int, int, bytes] | None = None
        self._number = 0
        self._asked: deque[tuple[int, Any]] = deque()  # requests, by number, whose answers are to come
        self._answers: list[Any] = []
        self.last_zxid = last_zxid
        self.pinged = 0.0  # when the ping was sent whose answer is to come; CLOCK_BOOTTIME
        self.ponged = 0.0  # when the last ping was sent that was answered

    def fileno(self) -> int:
        """The descriptor, for a poll of several."""
        return self._stream.fileno()

    def greet(self, hello: Any, login: Any, deadline: Deadline) -> None:
        """Ask for a session to begin or to continue; raises as :meth:`ask`."""
        greeting = protocol.framed(bytes(hello.serialize()))
        if login is not None:
            greeting += protocol.numbered(protocol.LOGIN, login)
        self._stream.send(greeting, deadline)

    def welcome(self, deadline: Deadline) -> tuple[int, int, bytes]:
        """The answer to that: see :func:`protocol.welcome`. Raises as :meth:`ask`."""
        while self._welcome is None:
            self.receive(deadline)
        return self._welcome

    def ask(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Their answers. Raises ``Closed``, ``BackendUnavailable``, ``RequestInterrupted``, ``NotAccepted``."""
        sent = []
        for request in requests:
            self._number += 1
            self._asked.append((self._number, request))
            sent.append(protocol.numbered(self._number, request))
            if getattr(request, "watcher", None):
                self._watched.add(request.path)
        self._stream.send(b"".join(sent), deadline)
        return self._await_answers(deadline)

    def ping(self, deadline: Deadline) -> None:
        """Keep the session alive; raises as :meth:`ask`."""
        self.pinged = boottime()
        self._stream.send(protocol.ping(), deadline)

    def receive(self, deadline: Deadline) -> None:
        """Take what comes next; raises as :meth:`ask`."""
        come, start = self._come + self._stream.receive(deadline), 0
        while len(come) >= (begin := start + LENGTH):
            end = begin + int.from_bytes(come[start:begin], "big", signed=True)
            if not 0 <= end - begin <= LARGEST_ANSWER:
                raise self._rubbish()
            if len(come) < end:
                break
            try:
                self._take(come[begin:end])
            except NotAccepted:
                raise  # at once: the server closes the connection now
            except Exception:  # noqa: BLE001 - whatever it makes of rubbish
                raise self._rubbish() from None
            start = end
        self._come = come[start:]

    def close(self) -> None:
        """Close; idempotent."""
        self._stream.close()

    def _await_answers(self, deadline: Deadline) -> list[Any]:
        while self._asked:
            self.receive(deadline)
        answers, self._answers = self._answers, []
        return answers

    def _take(self, message: bytes) -> None:
        if self._welcome is None:
            self._welcome = protocol.welcome(message)
            return
        number, zxid, error, start = protocol.header(message)
        self.last_zxid = max(self.last_zxid, zxid)
        if number == protocol.TOLD:
            kind, path = protocol.event(message, start)
            if path in self._watched:  # else it is nobody's
                self._told.add((path, kind == protocol.DELETED))
        elif number == protocol.PING:
            self.ponged, self.pinged = self.pinged, 0.0
        elif number == protocol.LOGIN:
            if error:
                raise NotAccepted(self._place)
        else:
            asked, request = self._asked.popleft()
            if asked != number:
                raise ValueError
            answer = protocol.answer(request, error, message, start)
            if isinstance(answer, AuthFailedError):
                raise NotAccepted(self._place)
            self._answers.append(answer)

    def _rubbish(self) -> Closed:
        return Closed(f"{self._stream.where}: not an answer of ZooKeeper")
