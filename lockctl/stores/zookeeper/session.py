"""One session of an ensemble, with deadlines. It has no thread: what comes is read by who asks or listens.

A claim has sessions of its own, so that giving it back is one request that nothing can overtake: when the session has
ended, its nodes are gone, and a delayed request is refused. A holder's session counts as renewed when a *write* was
answered. This is why half of its timeout T is safe, counted from the sending of that write:

    The leader ends a session T after it last heard of it. A follower reports at least every half tick, and T is at
    least two ticks: a quarter of T. So a write that was answered shows that the leader has heard what the follower had
    heard a quarter of T before it was sent. That is older by the longest time between two requests that reached the
    follower: from the sending of one to the answer to the next. If that was more than a fifth of T, or if nothing was
    sent for a quarter of T, then the connection is made anew before the next write, which asks the leader itself
    (:meth:`Session.refresh`). Together less than half of T, and the request itself may take as long as the lease
    allows. A read or a ping proves nothing: a follower that was cut off from its leader answers them.

Only a waiter's session is kept alive while nothing is asked (see :mod:`lockctl.stores.zookeeper.wait`): a holder's
lives by its renewals, or a lease would not end with them.
"""

from __future__ import annotations

import _thread

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.zookeeper.errors import SessionLost, check_rights, usable
from lockctl.stores.zookeeper.link import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.protocol import Requests
    from lockctl.wire.deadline import Deadline

    Call = Callable[[Requests], Any]

FAREWELL = 0.2  # seconds for the end of a session that is not needed any more: a lease may be running already
PROBE = 4.0  # seconds, also on a busy server, for a new session that shows whether the servers only refuse an older one
OPENING = 1.0  # seconds for the number of a session that is to be ended before it was used
LONGEST_TURN = 60.0  # seconds; a wait for a mutex cannot be infinite


def library() -> None:
    """Load what is needed of kazoo; raises ``ConfigError`` when there is none."""
    from lockctl.extras import Needed

    with Needed("the zookeeper backend", "zookeeper"):
        import kazoo.exceptions  # noqa: F401

        from lockctl.stores.zookeeper import connection  # noqa: F401


class Session:
    """One session, from its first use to :meth:`end` or :meth:`abandon`."""

    def __init__(self, place: Place, timeout: float, beside: Session | None = None) -> None:
        """Ask for a session timeout of *timeout* seconds, first at the server that *beside* is connected to.

        Nothing is sent yet. Raises ``ConfigError`` (no kazoo, unusable TLS files).
        """
        library()
        self.place = place
        self.link: Link = Link(place, timeout, None if beside is None else beside.link.servers.last)
        self._mutex = _thread.allocate_lock()  # renewals come from a thread of their own
        self._abandoned = False
        if place.tls is not None:
            from lockctl.wire import tls

            tls.context(place.tls)  # now, so that what is wrong with the files is said at once

    @property
    def timeout(self) -> float:
        """The session timeout in seconds, as the server granted it; 0: there is no session yet."""
        return self.link.timeout

    @property
    def last_zxid(self) -> int:
        """The last transaction of the ensemble that an answer has shown."""
        return self.link.last_zxid

    @property
    def told(self) -> set[tuple[str, bool]]:
        """What watches have told: the path of a node, and whether it has gone."""
        return self.link.told

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self.link.connected

    @property
    def expired(self) -> bool:
        """Whether the server said that it ended the session."""
        return self.link.expired

    def ask(self, deadline: Deadline, *calls: Call) -> list[Any]:
        """The answers to requests that are sent in this order on one connection; an answer may be an exception.

        Raises ``BackendUnavailable`` and ``RequestInterrupted``: whether the requests were carried out is not
        known; ``SessionLost``; ``ConfigError`` when the server, or all servers, refuse us for good.
        """
        with LinkTurn(self, deadline):
            self._connect(deadline)
            answers = self.link.ask([call(self.link.requests) for call in calls], deadline)
            return [self._answer(answer) for answer in answers]

    def _answer(self, answer: Any) -> Any:
        """An answer, or the failure that is one; raises as :meth:`ask`."""
        if not isinstance(answer, Exception):
            return answer
        from kazoo.exceptions import SessionExpiredError

        if isinstance(answer, SessionExpiredError):
            raise self.link.lost()
        check_rights(self.place, [answer])
        return answer

    def make(self, node: str, deadline: Deadline, data: bytes = b"") -> None:
        """Make a node with these *data*, and what is missing above it: only that, for there we may not be allowed to.

        The node above all locks gets data of its own. Raises as :meth:`ask`, and ``BackendUnavailable`` when the server
        refuses for another reason.
        """
        from kazoo.exceptions import NodeExistsError, NoNodeError

        parts = node[1:].split("/")
        missing = ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
        wanted = len(missing) - 1
        while 0 <= wanted < len(missing):
            path = missing[wanted]
            content = self.place.root_data if path == self.place.root else data if path == node else b""
            (answer,) = self.ask(deadline, lambda client: client.create(path, content))  # noqa: B023
            if not isinstance(answer, (NodeExistsError, NoNodeError)):
                usable(self.place, answer, path)
            wanted += -1 if isinstance(answer, NoNodeError) else 1

    def refresh(self, deadline: Deadline) -> None:
        """Make the connection anew if its silence was too long to count on it; raises as :meth:`ask`."""
        if self.connected and self.link.is_silent():
            with LinkTurn(self, deadline):
                self.link.drop()
                self._connect(deadline)

    def connect(self, deadline: Deadline) -> None:
        """Have a connection, after one attempt at each server; raises as :meth:`ask`."""
        with LinkTurn(self, deadline):
            self._connect(deadline, once=True)

    def _connect(self, deadline: Deadline, *, once: bool = False) -> None:
        """Have a connection, and some time left."""
        if self._abandoned:
            raise BackendUnavailable(f"{self.place}: the session was given up")
        self.link.connect(deadline, once=once)
        deadline.check(str(self.place))

    def is_outlived(self, deadline: Deadline) -> bool:
        """Whether the servers refuse this session and take new ones: their data are older than what it has seen.

        Then it never gets a connection again. Raises ``RequestInterrupted``.
        """
        if self.connected or self.expired or not self.last_zxid or not self.link.servers.say_nothing():
            return False
        probe = Session(self.place, self.link.asked)
        try:
            probe.ask(deadline.sooner(PROBE), lambda client: client.exists("/"))
        except (BackendUnavailable, ConfigError, SessionLost):
            return False
        finally:
            probe.leave(deadline.sooner(PROBE))
        try:
            self.connect(deadline.sooner(PROBE))  # servers that were just starting have said nothing either
        except (BackendUnavailable, ConfigError, SessionLost):
            pass
        return not self.connected and not self.expired and self.link.servers.say_nothing()

    def end(self, deadline: Deadline) -> None:
        """Have the server end the session with all its nodes; idempotent. Raises as :meth:`ask`: not known."""
        if not self.timeout and self.link.opening:
            self._await_welcome(deadline.sooner(OPENING))
        while self.timeout and not self._abandoned:  # else there never was one
            try:
                self.ask(deadline, lambda client: client.close())
                break
            except SessionLost:
                break
            except BackendUnavailable:
                if deadline.left() <= 0:
                    raise
        self.abandon()

    def _await_welcome(self, deadline: Deadline) -> None:
        """Learn which session is to be ended: if nothing is heard of it, it was never used, and ends by itself."""
        try:
            with LinkTurn(self, deadline):
                self.link.await_welcome(deadline)
        except (BackendUnavailable, ConfigError, SessionLost):
            pass

    def leave(self, deadline: Deadline) -> None:
        """End the session, which is not needed any more; without an answer within a moment it ends by itself."""
        try:
            self.end(deadline.sooner(FAREWELL))
        except (BackendUnavailable, ConfigError):
            pass
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Tell nobody: the server ends the session when its time is over. Idempotent."""
        self._abandoned = True
        if self._mutex.acquire(blocking=False):  # else whoever uses the connection closes it
            self.give_back()

    def take_turn(self, deadline: Deadline) -> None:
        """Use the link for a while; raises ``BackendUnavailable``."""
        if not self._mutex.acquire(timeout=min(deadline.left(), LONGEST_TURN)):
            raise deadline.passed(str(self.place))

    def give_back(self) -> None:
        """The end of a turn."""
        if self._abandoned:
            self.link.drop()
        self._mutex.release()


class LinkTurn:
    """A block in which nobody else uses the link of a session."""

    def __init__(self, session: Session, deadline: Deadline) -> None:
        """Nothing is waited for before the block."""
        self._session = session
        self._deadline = deadline

    def __enter__(self) -> None:
        self._session.take_turn(self._deadline)

    def __exit__(self, *_: object) -> None:
        self._session.give_back()
