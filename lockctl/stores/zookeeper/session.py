"""One session of an ensemble, with deadlines: every request ends with its time, whatever kazoo does.

A claim has sessions of its own, so that giving it back is one request that nothing can overtake: when
the server has ended the session, its nodes are gone, and a request that was delayed in the network is
refused. A holder's session counts as renewed when a *write* was answered. This is why half of its timeout
T is safe, counted from the sending of that write:

    The leader ends a session T after it last heard of it. A follower reports at least every half tick, and T is at
    least two ticks: a quarter of T. So a write that was answered shows that the leader has heard what the follower had
    heard a quarter of T before it was sent. That is older by the longest time between two requests that reached the
    follower: from the sending of one to the answer to the next. If that was more than a fifth of T, or if nothing was
    sent for a quarter of T, then the connection is made anew before the next write, which asks the leader itself
    (:meth:`Session.refresh`). Together less than half of T, and the request itself may take as long as the lease
    allows. A read or a ping proves nothing: a follower that was cut off from its leader answers them.
"""

from __future__ import annotations

import math
import os
import threading

from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.wire.deadline import READABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.protocol import Client
    from lockctl.wire.deadline import Deadline

    Call = Callable[[Client], Any]

FAREWELL = 0.2  # seconds for the end of a session that is not needed any more: a lease may be running already
LONGEST_SILENCE = 1 / 4  # of the session timeout: see above
PROBE = 4.0  # seconds, also on a busy server, for a new session that shows whether the servers only refuse an older one
LONGEST = (2**31 - 1) / 1000  # seconds: the protocol has an int32 of milliseconds


def client_class() -> type[Client]:
    """The client of kazoo as it is used here; raises ``ConfigError`` when there is no kazoo."""
    try:
        from lockctl.stores.zookeeper.protocol import Client
    except ImportError:
        from lockctl.extras import missing

        raise missing("the zookeeper backend", "zookeeper") from None
    return Client


class SessionLost(Exception):
    """The server has ended the session, and with it all its nodes."""


class Notifier:
    """Wakes whoever polls :attr:`descriptor`; may be used from any thread, also after it was closed."""

    def __init__(self) -> None:
        """A descriptor of its own."""
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._mutex = threading.Lock()

    def notify(self, *_: object) -> None:
        """Make it readable."""
        with self._mutex:  # or a late call would write to whatever has got the number meanwhile
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def wait(self, deadline: Deadline, where: str) -> None:
        """Return when it was notified; raises as ``Deadline.wait``."""
        deadline.wait(self.descriptor, READABLE, where)
        os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Free the descriptor."""
        with self._mutex:
            os.close(self.descriptor)
            self.descriptor = -1


class Session:
    """One session, from its first use to :meth:`end` or :meth:`abandon`."""

    def __init__(self, place: Place, timeout: float) -> None:
        """Ask for a session timeout of *timeout* seconds.

        Raises ``ConfigError`` (no kazoo, unusable TLS files), ``BackendUnavailable`` (no more threads).
        """
        self.place = place
        self._asked = min(math.ceil(timeout * 1000) / 1000, LONGEST)
        self._notifiers: set[Notifier] = set()
        self._mutex = threading.Lock()
        self._abandoned = False
        context: Callable[[], SSLContext] | None = None
        if place.tls is not None:
            from lockctl.wire import tls

            settings = place.tls
            tls.context(settings)  # now, so that what is wrong with the files is said at once

            def context() -> SSLContext:
                return tls.context(settings)

        self._client = client_class()(place, self._asked, self._tell, context=context)
        try:
            self._client.start_async()
        except RuntimeError:
            self._client.abandon()
            message = f"{place}: no threads for it: too many processes (ulimit -u)"
            raise BackendUnavailable(message) from None

    @property
    def timeout(self) -> float:
        """The session timeout in seconds, as the server granted it."""
        return self._client.link.session_timeout

    @property
    def last_zxid(self) -> int:
        """The last transaction of the ensemble that an answer has shown."""
        seen: int = self._client.last_zxid
        return seen

    def keep_alive(self, wanted: bool) -> None:  # noqa: FBT001 - a switch
        """Whether the session lives on while nothing is asked."""
        self._client.link.pinging = wanted

    def notifier(self) -> Notifier:
        """A notifier of every change of the connection; to be closed with :meth:`remove`."""
        notifier = Notifier()
        with self._mutex:
            self._notifiers.add(notifier)
        return notifier

    def remove(self, notifier: Notifier) -> None:
        """Close a notifier."""
        with self._mutex:
            self._notifiers.discard(notifier)
        notifier.close()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self._client.connected

    @property
    def expired(self) -> bool:
        """Whether the server said that it ended the session."""
        return self._client.expired

    def ask(self, deadline: Deadline, *calls: Call) -> list[Any]:
        """The answers to requests that are sent in this order on one connection; an answer may be an exception.

        Raises ``BackendUnavailable`` and ``RequestInterrupted``: whether the requests were carried out is not
        known; ``SessionLost``; ``ConfigError`` when the server, or all servers, refuse us for good.
        """
        notifier = self.notifier()
        try:
            self._await_connection(deadline, notifier)
            sent = boottime()
            results = [call(self._client) for call in calls]
            try:
                for result in reversed(results):  # they come in order: one that is waited for is enough
                    if not result.ready():
                        result.rawlink(notifier.notify)
                    while not result.ready():
                        notifier.wait(deadline, str(self.place))
            except BaseException:
                # a late answer must never be taken for one to a later request
                self._client.link.drop()
                raise
        finally:
            self.remove(notifier)
        answers = [self._answer(result) for result in results]
        self._client.link.note_answer(sent)
        return answers

    def _answer(self, result: Any) -> Any:
        """What became of one request: its answer, or the failure that is one; raises as :meth:`ask`."""
        from kazoo.exceptions import (
            AuthFailedError,
            ConnectionClosedError,
            ConnectionLoss,
            InvalidACLError,
            KazooException,
            NoAuthError,
            SessionExpiredError,
        )

        failure = result.exception
        if failure is None:
            return result.value
        if isinstance(failure, SessionExpiredError):
            raise SessionLost
        if isinstance(failure, AuthFailedError):
            raise self._not_accepted()
        if isinstance(failure, (NoAuthError, InvalidACLError)):
            raise self.forbidden()
        if isinstance(failure, (ConnectionLoss, ConnectionClosedError)) or not isinstance(failure, KazooException):
            message = f"{self.place}: the connection was lost"
            raise BackendUnavailable(message)
        return failure

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
            (answer,) = self.ask(deadline, lambda client: client.create_async(path, content))  # noqa: B023
            if isinstance(answer, Exception) and not isinstance(answer, (NodeExistsError, NoNodeError)):
                raise self.strange(answer, path)
            wanted += -1 if isinstance(answer, NoNodeError) else 1

    def strange(self, failure: Exception, path: str) -> BackendUnavailable:
        """The error that says how the server refused a request for a node, for no reason that has a remedy."""
        from lockctl.stores.zookeeper.errors import refusal

        return refusal(self.place, failure, path)

    def forbidden(self) -> ConfigError:
        """The error that says that the ACL of a node keeps us out."""
        from lockctl.stores.zookeeper.errors import forbidden

        return forbidden(self.place)

    def _not_accepted(self) -> ConfigError:
        from lockctl.stores.zookeeper.errors import not_accepted

        return not_accepted(self.place)

    def refresh(self, deadline: Deadline) -> None:
        """Make the connection anew if its silence was too long to count on it; raises as :meth:`ask`."""
        link = self._client.link
        silent = link.had_gap or boottime() - link.heard > self.timeout * LONGEST_SILENCE
        if self._client.connected and silent:
            notifier = self.notifier()
            try:
                link.drop(avoid=False)
                self._await_connection(deadline, notifier)
            finally:
                self.remove(notifier)

    def is_outlived(self, deadline: Deadline) -> bool:
        """Whether the servers refuse this session and take new ones: their data are older than what it has seen.

        Then it never gets a connection again. Raises ``RequestInterrupted``.
        """
        if self.connected or self.expired or not self.last_zxid:
            return False
        failures = self._all_failures()
        if failures is None:
            return False
        from lockctl.stores.zookeeper.errors import say_nothing

        if not say_nothing(failures.values()):
            return False
        probe = Session(self.place, self._asked)
        try:
            probe.ask(deadline.sooner(PROBE), lambda client: client.exists_async("/"))
        except (BackendUnavailable, ConfigError, SessionLost):
            return False
        finally:
            probe.leave(deadline.sooner(PROBE))
        return not self.connected

    def end(self, deadline: Deadline) -> None:
        """Have the server end the session with all its nodes; idempotent. Raises as :meth:`ask`: not known."""
        if self._abandoned:
            return
        while self.timeout:  # else there never was one
            try:
                self.ask(deadline, lambda client: client.close_session_async())
                break
            except SessionLost:
                break
            except BackendUnavailable:
                if deadline.left() <= 0:
                    raise
        self.abandon()

    def leave(self, deadline: Deadline) -> None:
        """End the session, which is not needed any more; without an answer within a moment it ends by itself."""
        try:
            self.end(deadline.sooner(FAREWELL))
        except (BackendUnavailable, ConfigError):
            pass
        finally:
            self.abandon()

    def dismiss(self) -> None:
        """Have the server end the session, which is not needed any more, without waiting for that. Idempotent."""
        with self._mutex:
            if self._abandoned:
                return
            self._abandoned = True
        self._client.dismiss()

    def abandon(self) -> None:
        """Tell nobody: the server ends the session when its time is over. Idempotent."""
        with self._mutex:
            if self._abandoned:
                return
            self._abandoned = True
        self._client.abandon()

    def _tell(self) -> None:
        with self._mutex:
            notifiers = list(self._notifiers)
        for notifier in notifiers:
            notifier.notify()

    def _await_connection(self, deadline: Deadline, notifier: Notifier) -> None:
        while True:
            if self._client.expired:
                raise SessionLost
            if self._client.refused:
                raise self._not_accepted()
            if self._abandoned:
                message = f"{self.place}: the session was given up"
                raise BackendUnavailable(message)
            if self.connected:
                deadline.check(str(self.place))
                return
            self._check_failures()
            try:
                notifier.wait(deadline, str(self.place))
            except BackendUnavailable as late:
                failures = dict(self._client.link.failures)
                raise BackendUnavailable(f"{late}: {self._in_words(failures)}" if failures else str(late)) from None

    def _check_failures(self) -> None:
        """Raise if all servers refuse us for good, or if there never was a connection and no server is there."""
        failures = self._all_failures()
        if failures is None:
            return
        from lockctl.stores.zookeeper.errors import are_final, find_nobody

        if are_final(failures.values()):
            raise ConfigError(f"{self.place}: {self._in_words(failures)}")
        if not self.timeout and self._client.link.rounds > 1 and find_nobody(failures.values()):
            message = f"{self.place}: {self._in_words(failures)}"
            raise BackendUnavailable(message)

    def _all_failures(self) -> dict[str, BaseException] | None:
        """The last failure of each server; ``None``: with some, no attempt to connect has failed."""
        failures = dict(self._client.link.failures)
        return failures if len(failures) == len(self.place.hosts) else None

    def _in_words(self, failures: dict[str, BaseException]) -> str:
        from lockctl.stores.zookeeper.errors import in_words

        return in_words(failures, known=self.last_zxid > 0)
