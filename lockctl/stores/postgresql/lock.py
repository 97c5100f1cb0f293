"""Session advisory locks of PostgreSQL, each on a connection of its own.

The lock lives as long as its session, and the server ends a session that is silent for longer than the
lease. So a connection that may hold a lock is never given up for a late answer: the answer is waited for
at the next renewal. Only a connection that the server has ended is a lost lock, and then certainly.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError, RequestInterrupted
from lockctl.model import Capabilities, Grant
from lockctl.names import printable
from lockctl.stores.postgresql.address import PARAMETERS, from_url
from lockctl.stores.postgresql.claim import Tenure
from lockctl.stores.postgresql.observer import Observer
from lockctl.stores.postgresql.session import SessionGone, SqlError
from lockctl.stores.postgresql.tokens import Fence
from lockctl.value import replace
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.model import Claim, Holder, LockInfo, Run
    from lockctl.stores.postgresql.address import Address
    from lockctl.url import Url

OPENING_LIMIT = 10.0  # seconds for a connection, inside a wait that may be longer


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
        clocks="the server's must not run faster than ours by more than 0.2 %; set forward by the ttl, it ends jobs",
        period_clock="the server's",
        slots=True,
        shared=True,
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
        self._tenures: dict[str, Tenure] = {}
        self._doubtful: set[str] = set()  # owners whose old session may still hold or await a lock at the server

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

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``. Where the hold cannot be written down, the lock is freed and the reason is raised."""
        deadline = Deadline(timeout)
        refusal: LockctlError | None = None
        tenure = self._tenures.get(grant.claim.owner)
        if hold > 0 and tenure is not None:
            try:
                tenure.begin_rest(grant, hold, deadline.sooner(deadline.left() * 0.7))
            except SessionGone:
                pass  # the lock is not ours any more
            except (SqlError, ConfigError) as failure:
                refusal = failure
        self.withdraw(grant.claim, timeout=deadline.left())
        if refusal is not None:
            raise refusal

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. The lock is taken when this returns because of it."""
        deadline = Deadline(timeout, interrupt)
        try:
            if timeout <= 0:
                return
            tenure = self._tenures.get(claim.owner)
            if tenure is None:
                tenure = self._open(claim, deadline.sooner(OPENING_LIMIT))
            if not tenure.locked:
                tenure.wait(deadline)
        except RequestInterrupted:
            return
        except (BackendUnavailable, ConfigError) as failure:
            tenure = self._tenures.get(claim.owner)
            late = isinstance(failure, BackendUnavailable) and deadline.left() <= 0
            if late and tenure is not None and tenure.session.pending:
                return  # the answer is waited for at the next call
            self._give_up(claim.owner)
            raise

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``. What the claim's own session cannot free is ended from another one."""
        deadline = Deadline(timeout)
        tenure = self._tenures.pop(claim.owner, None)
        if tenure is not None:
            spare = None
            try:
                tenure.free(deadline.sooner(deadline.left() / 2))
                spare = tenure.spare()
            except SessionGone:
                pass  # and with it whatever it held
            except BackendUnavailable:
                self._doubtful.add(claim.owner)
            finally:
                tenure.close(spare)
            if spare is not None:
                self._observer.adopt(spare)
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
            ended = self._observer.end(name, seen, deadline)
        elif seen.owner is None:
            raise LockctlError(f"{name} is held by another program, which cannot be told: end it, or use --now")
        else:
            ended = self._observer.ask(name, seen, printable(by), printable(reason), deadline)
        if ended is None and seen.owner is not None:
            ended = self._observer.end_rest(name, seen, now=now, deadline=deadline)
        return ended

    def last_success(self, name: str, *, timeout: float) -> float | None:
        """See ``Backend``."""
        from lockctl.stores.postgresql import records

        deadline, key = Deadline(timeout), self._address.key_of(name)
        return self._observer.with_session(
            lambda session: records.last_success(self._fence, session, key, deadline), deadline
        )

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``. The session of the lock is left to its renewals."""
        from lockctl.stores.postgresql import records

        deadline, name = Deadline(timeout), grant.claim.name
        key, full_name = self._address.key_of(name), self._address.full_name(name)
        self._observer.with_session(
            lambda session: records.note_success(self._fence, session, key, full_name, grant, deadline), deadline
        )

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        """See ``Backend``."""
        from lockctl.stores.postgresql import records

        deadline = Deadline(timeout)
        key, full_name = self._address.key_of(name), self._address.full_name(name)
        self._observer.with_session(
            lambda session: records.remember(self._fence, session, key, full_name, run, deadline), deadline
        )

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        """See ``Backend``."""
        from lockctl.stores.postgresql import records

        deadline, key = Deadline(timeout), self._address.key_of(name)
        return self._observer.with_session(lambda session: records.runs(self._fence, session, key, deadline), deadline)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        """See ``Backend``."""
        from lockctl.stores.postgresql import retire

        deadline = Deadline(timeout)
        where = (self._address, self._fence)
        return iter(
            self._observer.with_session(
                lambda session: retire.unused(*where, session, pattern, older_than, deadline), deadline
            )
        )

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """See ``Backend``."""
        from lockctl.stores.postgresql import retire

        deadline = Deadline(timeout)
        where = (self._address, self._fence)
        return self._observer.with_session(
            lambda session: retire.forget(*where, session, name, older_than, deadline), deadline
        )

    def close(self) -> None:
        """See ``Backend``: the server frees what was held as soon as it sees the connections end."""
        while self._tenures:
            self._tenures.popitem()[1].close()
        self._observer.close()

    def _grant(self, claim: Claim, deadline: Deadline) -> Grant | None:
        tenure = self._tenures.get(claim.owner) or self._open(claim, deadline)
        if not tenure.take(deadline) or not tenure.draw(deadline):
            return None
        assert tenure.token is not None
        return Grant(
            claim=claim,
            token=tenure.token,
            domain=tenure.domain,
            key=tenure.key.text,
            ttl=claim.ttl,
            at=tenure.at,
            descriptor=tenure.session.fileno(),
        )

    def _open(self, claim: Claim, deadline: Deadline) -> Tenure:
        self._bury(claim, deadline)
        tenure = Tenure(self._address, self._fence, claim)
        tenure.open(deadline)
        self._tenures[claim.owner] = tenure
        return tenure

    def _give_up(self, owner: str) -> None:
        """Close the sessions of a claim; what they may hold is in doubt until it was looked for."""
        tenure = self._tenures.pop(owner, None)
        if tenure is not None:
            if tenure.is_in_doubt:
                self._doubtful.add(owner)
            tenure.close()

    def _bury(self, claim: Claim, deadline: Deadline) -> None:
        """End what an earlier session of this claim may have left at the server."""
        if claim.owner in self._doubtful:
            self._observer.bury(claim.owner, claim.name, deadline)
            self._doubtful.discard(claim.owner)
