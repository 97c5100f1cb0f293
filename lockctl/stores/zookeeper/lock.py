"""Locks in a ZooKeeper ensemble: a queue of ephemeral nodes, in the layout of kazoo's or Curator's lock.

The token is the ``czxid`` of the holder's node, the number of the transaction that made it: the whole
ensemble counts them, so it rises even when the lock's node was deleted and made again.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, RequestInterrupted
from lockctl.model import Capabilities
from lockctl.stores.zookeeper.address import USUAL, Place, read_url
from lockctl.stores.zookeeper.claim import Candidate
from lockctl.stores.zookeeper.session import Session, SessionLost, client_class
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar, TypeVar

    from lockctl.model import Claim, Grant, Holder, LockInfo, Run
    from lockctl.url import Url

    T = TypeVar("T")

LOOK_TIMEOUT = 6.0  # seconds: of the session of one look, should it not be ended


class ZooKeeperBackend:
    """See ``Backend``. Every claim has a session of its own, and so has every look."""

    parameters: ClassVar[dict[str, str]] = USUAL
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="zookeeper",
        fencing="strict",
        many_hosts=True,
        kernel_held=False,
        leased=True,
        fair=True,
        lists_waiters=True,
        revocable=True,
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its session has ended: twice its lease after the last sign of life",
        token_from=(  # noqa: S106 - not a password
            "the czxid of its node, the ensemble's count of transactions; broken by a data directory that was wiped"
            " or restored from an old snapshot"
        ),
        survives="the failure of a minority of the servers",
        clocks=(
            "servers and hosts must not run faster than each other by more than 0.2 %; wall clocks may be wrong, but"
            " those of servers that lead in turn are compared by --min-hold and --once-per"
        ),
        period_clock="the leader's",
        slots=True,
        shared=True,
        hold_by="record",
    )

    def __init__(self, place: Place) -> None:
        """Locks below *place*; nothing is sent yet."""
        self._place = place
        self._candidates: dict[str, Candidate] = {}

    @classmethod
    def from_url(cls, url: Url) -> ZooKeeperBackend:
        """``zookeeper://H1:2181,H2:2181/ROOT?layout=kazoo|curator|curator-rw``; raises ``ConfigError``."""
        place = read_url(url)
        client_class()  # now: loading it takes a part of a short lease that would else be counted
        return cls(place)

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        return self._candidate(claim).take(Deadline(timeout, interrupt))

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``."""
        candidate = self._candidates.get(grant.claim.owner)
        if candidate is None:
            raise LeaseLost("the lock was given back")
        try:
            return candidate.renew(grant, Deadline(timeout))
        except ConfigError as refusal:
            raise BackendUnavailable(str(refusal)) from None  # not a word about whose the lock is

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``."""
        candidate = self._candidates.get(grant.claim.owner)
        if candidate is not None and candidate.token == grant.token:
            deadline = Deadline(timeout)
            if hold:
                candidate.hold(grant, hold, deadline)
            candidate.end(deadline)
            del self._candidates[grant.claim.owner]

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``."""
        deadline = Deadline(timeout, interrupt)
        try:
            deadline.check(str(self._place))
            from lockctl.stores.zookeeper.wait import wait

            wait(self._candidate(claim), deadline)
        except RequestInterrupted:
            return
        except BackendUnavailable:
            if deadline.left() > 0:
                raise

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        candidate = self._candidates.get(claim.owner)
        if candidate is not None:
            candidate.end(Deadline(timeout))  # unknown: then it is kept, to be ended at the next call
            del self._candidates[claim.owner]

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import inspect

        def ask(session: Session, deadline: Deadline) -> LockInfo:
            return inspect.look_closely(session, self._place, name, self.capabilities, deadline)

        return self._look(ask, timeout)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        from fnmatch import fnmatchcase

        from lockctl.stores.zookeeper import inspect

        def ask(session: Session, deadline: Deadline) -> list[LockInfo]:
            names = inspect.names_below(session, self._place, deadline)
            wanted = [name for name in names if fnmatchcase(name, pattern)]
            return inspect.look(session, self._place, wanted, self.capabilities, deadline)

        return iter(self._look(ask, timeout))

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import inspect

        def ask(session: Session, deadline: Deadline) -> int | None:
            return inspect.take_away(session, self._place, name, seen, deadline, now=now, by=by, reason=reason)

        return self._look(ask, timeout)

    def last_success(self, name: str, *, timeout: float) -> float | None:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import records

        return self._beside(name, lambda session, deadline: records.last_success(session, name, deadline), timeout)

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import records

        self._beside(
            grant.claim.name, lambda session, deadline: records.note_success(session, grant, deadline), timeout
        )

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import records

        self._beside(name, lambda session, deadline: records.remember(session, name, run, deadline), timeout)

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import records

        return self._look(lambda session, deadline: records.runs_of(session, name, deadline), timeout)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        """See ``Backend``. A lock of which no run was remembered counts as used when its node was made."""
        from lockctl.stores.zookeeper import retire

        def ask(session: Session, deadline: Deadline) -> list[tuple[str, float]]:
            return retire.unused(session, self._place, pattern, older_than, deadline)

        return iter(self._look(ask, timeout))

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """See ``Backend``."""
        from lockctl.stores.zookeeper import retire

        def ask(session: Session, deadline: Deadline) -> bool:
            return retire.forget(session, self._place, name, older_than, deadline)

        return self._look(ask, timeout)

    def close(self) -> None:
        """See ``Backend``."""
        while self._candidates:
            self._candidates.popitem()[1].abandon()

    def _candidate(self, claim: Claim) -> Candidate:
        return self._candidates.setdefault(claim.owner, Candidate(self._place, claim))

    def _beside(self, name: str, ask: Callable[[Session, Deadline], T], timeout: float) -> T:
        """The answer of *ask* in the session that holds this lock, which saves another one; else as :meth:`_look`."""
        for candidate in tuple(self._candidates.values()):
            if candidate.claim.name == name and candidate.held_in is not None:
                deadline = Deadline(timeout)
                try:
                    candidate.held_in.refresh(deadline)
                    return ask(candidate.held_in, deadline)
                except SessionLost:
                    raise self._ended() from None
        return self._look(ask, timeout)

    def _ended(self) -> BackendUnavailable:
        return BackendUnavailable(f"{self._place}: the server ended the session")

    def _look(self, ask: Callable[[Session, Deadline], T], timeout: float) -> T:
        """The answer of *ask* in a session that is ended afterwards, so that looking leaves nothing."""
        deadline = Deadline(timeout)
        session = Session(self._place, LOOK_TIMEOUT)
        try:
            return ask(session, deadline)
        except SessionLost:
            raise self._ended() from None
        finally:
            if session.connected:
                session.leave(Deadline(timeout))
            session.abandon()
