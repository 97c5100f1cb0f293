"""Locks in a ZooKeeper ensemble: a queue of ephemeral nodes, in the layout of kazoo's or Curator's lock.

The token is a counter beside the lock, never below the clock of the host: the transaction that makes the holder's node
raises it, so it rises even when the lock's node was deleted and made again.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost
from lockctl.locks.native import NativeBackend
from lockctl.model import Capabilities, Claim, Grant, Run
from lockctl.stores.zookeeper.address import USUAL, Place, read_url
from lockctl.stores.zookeeper.claim import Attempt
from lockctl.stores.zookeeper.errors import SessionLost
from lockctl.stores.zookeeper.session import Session, library
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, TypeVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.zookeeper import inspect, prune, records, revoke
    from lockctl.url import Url

    T = TypeVar("T")
    FILES: Files[Session] = (inspect, revoke, records, prune)

INSPECT_TIMEOUT = 6.0  # seconds: of a session for one operation, should it not be ended
WHILE_HELD = ("last_success", "note_success", "remember")  # operations of a run that has the lock


class ZooKeeperBackend(NativeBackend):
    """See ``Backend``. Every claim has a session of its own, and so has every operation without one."""

    parameters: ClassVar[dict[str, str]] = USUAL
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="zookeeper",
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its session has ended: twice its lease after the last sign of life",
        token_from=(  # noqa: S106 - not a password
            "a counter beside the lock, never below the host's clock in microseconds; broken when data is lost, or put"
            " back to an earlier state, while clocks go back"
        ),
        survives="the failure of a minority of the servers",
        clocks=(
            "servers and hosts must not run faster than each other by more than 0.2 %; wall clocks may be wrong, but"
            " those of servers that lead in turn are compared by --min-hold and --once-per"
        ),
        period_clock="the leader's",
        hold_by="record",
        usual_latency=(0.010, 0.020),
    )

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        return url.user is not None

    def __init__(self, place: Place) -> None:
        """Locks below *place*; nothing is sent yet."""
        self._place = place
        self._attempts: dict[str, Attempt] = {}
        self._added: set[str] = set()  # owners whose run was added to the history when they gave the lock back

    @classmethod
    def from_url(cls, url: Url) -> ZooKeeperBackend:
        """``zookeeper://H1:2181,H2:2181/ROOT?layout=kazoo|curator|curator-rw``; raises ``ConfigError``."""
        place = read_url(url)
        library()  # now: loading it takes a part of a short lease that would else be counted
        return cls(place)

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        return self._attempt(claim).take(deadline)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        attempt = self._attempts.get(grant.claim.owner)
        if attempt is None:
            raise LeaseLost("the lock was given back")
        try:
            return attempt.renew(grant, Deadline(timeout))
        except ConfigError as refusal:
            raise BackendUnavailable(str(refusal)) from None  # not a word about whose the lock is

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        attempt = self._attempts.get(grant.claim.owner)
        if attempt is not None and attempt.node.token == grant.token:
            deadline = Deadline(timeout)
            if hold:
                attempt.hold(grant, hold, deadline)
            attempt.end(deadline)
            del self._attempts[grant.claim.owner]

    def release_with_run(self, grant: Grant, run: Run, *, timeout: float) -> bool:
        attempt = self._attempts.get(grant.claim.owner)
        if attempt is not None and attempt.node.token == grant.token:
            if attempt.end_with_run(run, Deadline(timeout)):
                self._added.add(grant.claim.owner)
            del self._attempts[grant.claim.owner]
        return grant.claim.owner in self._added

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        deadline.check(str(self._place))
        from lockctl.stores.zookeeper.wait import wait

        wait(self._attempt(claim), self._has_lined_up, deadline)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        attempt = self._attempts.get(claim.owner)
        if attempt is not None:
            attempt.end(Deadline(timeout))  # unknown: then it is kept, to be ended at the next call
            del self._attempts[claim.owner]

    def close(self) -> None:
        while self._attempts:
            self._attempts.popitem()[1].abandon()

    def _attempt(self, claim: Claim) -> Attempt:
        return self._attempts.setdefault(claim.owner, Attempt(self._place, claim))

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        """In the session that holds the lock, where that saves another one; else in one that is ended afterwards."""
        session = None
        if operation.__name__ in WHILE_HELD:
            subject = arguments[0]
            session = self._holding(subject.claim.name if isinstance(subject, Grant) else subject)
        deadline = Deadline(timeout)
        try:
            if session is not None:
                session.refresh(deadline)
                return operation(session, *arguments, deadline)
            return self._do_alone(operation, timeout, *arguments)
        except SessionLost:
            raise BackendUnavailable(f"{self._place}: the server ended the session") from None

    def _holding(self, name: object) -> Session | None:
        """The session that holds the lock of this name."""
        found = (each.held_in for each in tuple(self._attempts.values()) if each.claim.name == name)
        return next(filter(None, found), None)

    def _do_alone(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        """In a session that is ended afterwards, so that nothing is left. Raises ``SessionLost``."""
        session = Session(self._place, INSPECT_TIMEOUT)
        try:
            return operation(session, *arguments, Deadline(timeout))
        finally:
            if session.connected:
                session.leave(Deadline(timeout))
            session.abandon()
