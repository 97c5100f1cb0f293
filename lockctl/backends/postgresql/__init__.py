"""Session advisory locks of PostgreSQL, each on a connection of its own.

The lock lives as long as its session, and the server ends a session that is silent for longer than the
lease. So a connection that may hold a lock is never given up for a late answer: the answer is waited for
at the next renewal. Only a connection that the server has ended is a lost lock, and then certainly.
"""

from __future__ import annotations

from lockctl.backends.postgresql.address import PARAMETERS, from_url
from lockctl.backends.postgresql.fence import Fence
from lockctl.backends.postgresql.observer import Observer
from lockctl.backends.postgresql.session import SessionGone
from lockctl.backends.postgresql.tenure import Tenure
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError, RequestInterrupted
from lockctl.model import Capabilities, Grant
from lockctl.names import printable
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.backends.postgresql.address import Address
    from lockctl.model import Claim, Holder, LockInfo
    from lockctl.url import Url

OPENING_LIMIT = 10.0  # seconds for a connection, inside a wait that may be longer
WATCH = 15.0  # seconds of silent waiting, after which a second connection looks whether the first is still queued
LATE_ANSWER = 1.0  # seconds in which the answer must come that the lock was granted


class PostgresqlBackend:
    """Locks in one database."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="postgresql",
        fencing="strict",
        many_hosts=True,
        kernel_held=False,
        leased=True,
        fair=True,
        lists_waiters=True,
        revocable=True,
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its connection ends: at once with lockctl's last process, after the ttl when it is silent"
        " (before PostgreSQL 14 only when the network gives it up)",
        token_from="a row that counts, never below the server's clock in microseconds; breaks if commits are"  # noqa: S106
        " lost (fsync=off, failover to a replica that lags) while that clock goes back",
        survives="a server that stands still for less than the ttl; a restart or failover ends locks and jobs",
        clocks="no clock's time of day counts; the server's must not run faster than ours by more than 0.2 %",
        connection_held=True,
    )

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        self._address = address
        self._fence = Fence(address.schema)
        self._observer = Observer(address, self._fence)
        self._tenures: dict[str, Tenure] = {}
        # owners whose old session may still hold or await a lock at the server, and which of its processes
        self._doubtful: dict[str, int | None] = {}

    @classmethod
    def from_url(cls, url: Url) -> PostgresqlBackend:
        """For a ``postgresql`` URL; raises ``ConfigError``."""
        return cls(from_url(url))

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        deadline = Deadline(timeout, interrupt)
        try:
            if claim.owner in self._tenures:
                try:
                    return self._grant(claim, deadline)
                except SessionGone:
                    self._give_up(claim.owner)  # it ended between two calls, and held nothing then: like any claim
            return self._grant(claim, deadline)
        except (BackendUnavailable, RequestInterrupted, ConfigError):
            self._give_up(claim.owner)
            raise

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. An answer that did not come in time is waited for at the next call."""
        owner = grant.claim.owner
        tenure = self._tenures.get(owner)
        if tenure is None:
            raise LeaseLost("the session that held the lock was closed")
        try:
            asked = tenure.renew(Deadline(timeout))
        except SessionGone as gone:
            self._give_up(owner)
            raise LeaseLost(f"the session that held the lock has ended: {gone}") from None
        if asked is not None:
            raise LeaseRevoked(printable(asked[0]), printable(asked[1]))
        return grant

    def release(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        self.withdraw(grant.claim, timeout=timeout)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. The server queues waiters in their order, and the lock is taken when this returns."""
        deadline = Deadline(timeout, interrupt)
        try:
            tenure = self._tenures.get(claim.owner)
            if tenure is None:
                if timeout <= 0:
                    return
                tenure = self._open(claim, deadline.sooner(OPENING_LIMIT))
            if not tenure.locked:
                self._await(tenure, deadline)
        except RequestInterrupted:
            return
        except (BackendUnavailable, ConfigError):
            self._give_up(claim.owner)
            raise

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``. What the claim's own session cannot free is ended from another one."""
        deadline = Deadline(timeout)
        tenure = self._tenures.pop(claim.owner, None)
        if tenure is not None:
            try:
                tenure.free(deadline.sooner(deadline.left() / 2))
            except SessionGone:
                pass  # and with it whatever it held
            except BackendUnavailable:
                self._doubtful[claim.owner] = tenure.pid
            finally:
                tenure.close()
        self._bury(claim, deadline)

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        return self._observer.inspect(name, Deadline(timeout))

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``. A lock that lockctl never took is not known by name, and not listed."""
        return iter(self._observer.matching(pattern, Deadline(timeout)))

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``. With *now* the server ends the holder's session."""
        deadline = Deadline(timeout)
        if now:
            return self._observer.end(name, seen, deadline)
        if seen.owner is None:
            raise LockctlError(f"{name} is held by another program, which cannot be told: end it, or use --now")
        return self._observer.ask(name, seen, printable(by), printable(reason), deadline)

    def close(self) -> None:
        """See ``Backend``: the server frees what was held as soon as it sees the connections end."""
        while self._tenures:
            self._tenures.popitem()[1].close()
        self._observer.close()

    def _grant(self, claim: Claim, deadline: Deadline) -> Grant | None:
        tenure = self._tenures.get(claim.owner) or self._open(claim, deadline)
        if not tenure.take(deadline):
            return None
        return Grant(
            claim, tenure.draw(deadline), tenure.domain, tenure.key.text, claim.ttl, descriptor=tenure.session.fileno()
        )

    def _open(self, claim: Claim, deadline: Deadline) -> Tenure:
        self._bury(claim, deadline)
        tenure = Tenure(self._address, self._fence, claim)
        tenure.open(deadline)
        self._tenures[claim.owner] = tenure
        return tenure

    def _await(self, tenure: Tenure, deadline: Deadline) -> None:
        while True:
            try:
                tenure.queue(deadline.sooner(WATCH))
            except BackendUnavailable:
                if not tenure.session.pending:
                    raise
            else:
                return
            if deadline.left() <= 0:
                return
            self._check_place(tenure, deadline)

    def _check_place(self, tenure: Tenure, deadline: Deadline) -> None:
        """Raise ``BackendUnavailable`` if the answer that the lock was granted can never come."""
        where = tenure.session.where
        granted = self._observer.place(tenure.key, tenure.session.pid, deadline.sooner(OPENING_LIMIT))
        if granted is None:
            raise BackendUnavailable(f"{where}: the place in the queue is lost")
        if granted:
            try:
                tenure.session.drive(deadline.sooner(LATE_ANSWER))
            except BackendUnavailable:
                raise BackendUnavailable(f"{where}: the lock was granted, and the answer got lost") from None

    def _give_up(self, owner: str) -> None:
        """Close the sessions of a claim; what they may hold is in doubt until it was looked for."""
        tenure = self._tenures.pop(owner, None)
        if tenure is not None:
            if tenure.is_in_doubt:
                self._doubtful[owner] = tenure.pid
            tenure.close()

    def _bury(self, claim: Claim, deadline: Deadline) -> None:
        """End what an earlier session of this claim may have left at the server."""
        if claim.owner in self._doubtful:
            key = self._address.key_of(claim.name)
            self._observer.bury(claim.owner, key, self._doubtful[claim.owner], deadline)
            del self._doubtful[claim.owner]
