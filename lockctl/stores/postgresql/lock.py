"""Session advisory locks of PostgreSQL, each on a connection of its own.

The lock lives as long as its session, and the server ends a session that is silent for longer than the
lease. So a connection that may hold a lock is never given up for a late answer: the answer is waited for
at the next renewal. Only a connection that the server has ended is a lost lock, and then certainly.
"""

from __future__ import annotations

from lockctl.errors import STRANGE, BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, RequestInterrupted
from lockctl.locks.native import NativeBackend
from lockctl.model import Capabilities, Claim, Grant
from lockctl.stores.postgresql.address import PARAMETERS, Address, from_url
from lockctl.stores.postgresql.claim import Attempt
from lockctl.stores.postgresql.connection import Observer
from lockctl.stores.postgresql.session import SessionGone, misled
from lockctl.stores.postgresql.tokens import Fence
from lockctl.value import replace
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, TypeVar

    from lockctl.locks.native_files import Files
    from lockctl.stores.postgresql import inspect, prune, records, revoke
    from lockctl.url import Url

    T = TypeVar("T")
    FILES: Files[Observer] = (inspect, revoke, records, prune)

OPENING_LIMIT = 10.0  # seconds for a connection, inside a wait that may be longer


class PostgresqlBackend(NativeBackend):
    """Locks in one database."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="postgresql",
        rate_error=0.002,
        heartbeat=0.9,
        freed_when="its connection ends: at once with lockctl's last process, after the ttl when it is silent"
        " (before PostgreSQL 14 only when the network gives it up)",
        token_from="a row that counts, never below the server's clock in microseconds; breaks if commits are"  # noqa: S106
        " lost (fsync=off, failover to a replica that lags) while that clock goes back",
        survives="a server that stands still for less than the ttl; a restart or failover ends locks and jobs",
        clocks="the server's must not run faster than ours by more than 0.2 %; set forward by the ttl, it ends jobs",
        period_clock="the server's",
        hold_by="record",
        connection_held=True,
    )

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        if address.key is not None:
            self.capabilities = replace(self.capabilities, one_lock=True)  # type: ignore[misc]
        self._address = address
        self._fence = Fence(address.schema)
        self._observer = Observer(address, self._fence)
        self._attempts: dict[str, Attempt] = {}
        self._doubtful: set[str] = set()  # owners whose old session may still hold or await a lock at the server

    @classmethod
    def from_url(cls, url: Url) -> PostgresqlBackend:
        """For a ``postgresql`` URL; raises ``ConfigError``."""
        return cls(from_url(url))

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        try:
            if claim.owner in self._attempts:
                try:
                    return self._grant(claim, deadline)
                except SessionGone:
                    self._give_up(claim.owner)  # it ended between two calls, and held nothing then: like any claim
            return self._grant(claim, deadline)
        except STRANGE:
            self._give_up(claim.owner)
            raise misled("postgresql") from None
        except (BackendUnavailable, RequestInterrupted, ConfigError):
            self._give_up(claim.owner)
            raise

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``. An answer that did not come in time is waited for at the next call."""
        owner = grant.claim.owner
        attempt = self._attempts.get(owner)
        if attempt is None:
            raise LeaseLost("the session that held the lock was closed")
        try:
            asked = attempt.renew(Deadline(timeout))
        except SessionGone as gone:
            self._give_up(owner)
            raise LeaseLost(f"the session that held the lock has ended: {gone}") from None
        if asked is not None:
            raise LeaseRevoked(*asked)
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``. Where the hold cannot begin, the lock is still held, so that another call can begin it."""
        deadline = Deadline(timeout)
        attempt = self._attempts.get(grant.claim.owner)
        if hold > 0 and attempt is not None:
            self._begin_hold(attempt, grant, hold, deadline.sooner(deadline.left() * 0.7))
        self.withdraw(grant.claim, timeout=deadline.left())

    def _begin_hold(self, attempt: Attempt, grant: Grant, hold: float, deadline: Deadline) -> None:
        """From another session if that of the lock has ended: it changes nothing if somebody has had the lock since."""
        try:
            attempt.begin_hold(grant, hold, deadline)
        except SessionGone:
            from lockctl.stores.postgresql.hold import begin

            address, fence = self._address, self._fence
            key, name = address.key_of(grant.claim.name), address.full_name(grant.claim.name)
            self._observer.with_session(
                lambda session: begin(fence, session, key, name, grant, hold, deadline), deadline
            )

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        """The lock is taken when this returns because of it."""
        try:
            attempt = self._attempts.get(claim.owner)
            if attempt is None:
                attempt = self._open(claim, deadline.sooner(OPENING_LIMIT))
            if not attempt.locked:
                attempt.wait(self._has_lined_up, deadline)
        except STRANGE:
            self._give_up(claim.owner)
            raise misled("postgresql") from None
        except (BackendUnavailable, ConfigError) as failure:
            attempt = self._attempts.get(claim.owner)
            late = isinstance(failure, BackendUnavailable) and deadline.left() <= 0
            if late and attempt is not None and attempt.session.pending:
                return  # the answer is waited for at the next call
            self._give_up(claim.owner)
            raise

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``. What the claim's own session cannot free is ended from another one."""
        deadline = Deadline(timeout)
        attempt = self._attempts.pop(claim.owner, None)
        if attempt is not None:
            spare = None
            try:
                attempt.free(deadline.sooner(deadline.left() / 2))
                spare = attempt.spare()
            except SessionGone:
                pass  # and with it whatever it held
            except BackendUnavailable:
                self._doubtful.add(claim.owner)
            finally:
                attempt.connections.close(spare)
            if spare is not None:
                self._observer.adopt(spare)
        self._end_doubtful(claim, deadline)

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        return operation(self._observer, *arguments, Deadline(timeout))

    def close(self) -> None:
        """See ``Backend``: the server frees what was held as soon as it sees the connections end."""
        while self._attempts:
            self._attempts.popitem()[1].connections.close()
        self._observer.close()

    def _grant(self, claim: Claim, deadline: Deadline) -> Grant | None:
        attempt = self._attempts.get(claim.owner) or self._open(claim, deadline)
        if not attempt.take(deadline) or not attempt.draw(deadline):
            return None
        assert attempt.token is not None
        return Grant(
            claim=claim,
            token=attempt.token,
            domain=attempt.connections.domain,
            key=attempt.key.text,
            ttl=claim.ttl,
            at=attempt.at,
            descriptor=attempt.session.fileno(),
        )

    def _open(self, claim: Claim, deadline: Deadline) -> Attempt:
        self._end_doubtful(claim, deadline)
        self._observer.rest()
        attempt = Attempt(self._address, self._fence, claim)
        attempt.connections.open(deadline)
        self._attempts[claim.owner] = attempt
        return attempt

    def _give_up(self, owner: str) -> None:
        """Close the sessions of a claim; what they may hold is in doubt until it was looked for."""
        attempt = self._attempts.pop(owner, None)
        if attempt is not None:
            if attempt.is_in_doubt:
                self._doubtful.add(owner)
            attempt.connections.close()

    def _end_doubtful(self, claim: Claim, deadline: Deadline) -> None:
        """End what an earlier session of this claim may have left at the server."""
        if claim.owner in self._doubtful:
            from lockctl.stores.postgresql.revoke import end_sessions

            end_sessions(self._observer, claim.owner, claim.name, deadline)
            self._doubtful.discard(claim.owner)
