"""Several locks as one: taken in one fixed order, all or none, under one deadline.

All programs that take several locks take them in the order of their names, so that none waits for one that
waits for it (the ordered-resources rule; Havender 1968). While a later lock is waited for, the earlier ones
are kept and renewed; when one of them is lost or asked for, all are given back and the taking begins anew.
"""

from __future__ import annotations

import _thread
import os
import time

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from lockctl.lease.attempts import Attempts, StillHeld
from lockctl.lease.side_by_side import side_by_side
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lockctl.backend import Backend
    from lockctl.model import Capabilities, Claim, Grant, Holder, LockInfo, Revocation, Run

LEAST = 0.05  # seconds that a request gets at least: with less it could not succeed


class Together:
    """A ``Backend`` whose locks are several of another backend; a claim's own name only says which is the first.

    A grant is that of the first lock, with the least ttl of all, and has all of them as its ``parts``.
    """

    def __init__(self, names: tuple[str, ...], open_backend: Callable[[], Backend], interval: float) -> None:
        """*open_backend* is called for each lock; *interval*: seconds between two renewals while waiting.

        Raises ``ConfigError`` if these names are one lock, and what *open_backend* raises.
        """
        self._names = tuple(sorted(set(names)))
        self._clients = {name: open_backend() for name in self._names}
        self._attempts: dict[str, Attempts] = {}
        self._interval = interval
        self._grants: dict[str, Grant] = {}
        self._busy = {name: _thread.allocate_lock() for name in self._names}  # who has it may use that client
        first = self._clients[self._names[0]]
        # what a failure leaves of one lock is that lock's own affair: the others are kept
        self.capabilities: Capabilities = replace(first.capabilities, keeps_place=True, connection_held=False)
        if first.capabilities.one_lock and len(self._names) > 1:
            message = "all names are the same lock with this URL: give --lock once, or remove key= from the URL"
            raise ConfigError(f"{first.capabilities.scheme}: {message}")
        self.parameters = first.parameters
        self.refused = self._names[0]  # the lock that was held when an attempt was refused

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``. Refused, it keeps what it has, for a wait to go on from there, until :meth:`withdraw`.

        All locks that were taken before are renewed in the same call, side by side, so that one deadline, counted
        from the time of this call, holds for all of them.
        """
        give_up = time.monotonic() + timeout
        failures = self._renew_all([name for name in self._names if name in self._grants], timeout, interrupt)
        if any(isinstance(failure, (LeaseLost, LeaseRevoked)) for failure in failures.values()):
            self._give_all_back(self._all_asked_for(), _left(give_up))
            self.refused = self._names[0]  # not the one that was lost: whoever waits for it has all before it
            return None
        for failure in failures.values():
            raise failure
        for name in self._names:
            if name in self._grants:
                continue
            grant = self._attempts_at(claim, name).take(_left(give_up), interrupt)
            if grant is None:
                self.refused = name
                return None
            self._grants[name] = grant
        return self._whole(claim)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``: lost as soon as one of them is lost, not known as soon as that is not known of one."""
        failures = self._renew_all(list(self._names), timeout)
        for name, failure in failures.items():
            if isinstance(failure, LeaseLost):
                raise LeaseLost(f"{name}: {failure}")
        for failure in failures.values():
            if not isinstance(failure, LeaseRevoked):
                raise failure
        for name, failure in failures.items():
            if isinstance(failure, LeaseRevoked):
                raise LeaseRevoked(f"{failure.by}, who asked for {name}", failure.reason)
        return self._whole(grant.claim)

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``: all are tried, and a failure is raised when all have ended."""
        parts = {part.claim.name: part for part in grant.parts}
        for name in parts:
            self._attempts_at(grant.claim, name)
        failure = self._give_all_back(parts, timeout, hold)
        if failure is not None:
            raise failure

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``: waits for the lock that was refused, and keeps those that are already taken."""
        wanted = self.refused
        pause = min(timeout, self._interval) if self._grants else timeout
        self._attempts_at(claim, wanted).wait(pause, interrupt)

    @property
    def lined_up(self) -> bool:
        return self._clients[self.refused].lined_up

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``: gives back every place in a queue and every lock that was taken."""
        failure = self._give_all_back(self._all_asked_for(), timeout)
        if failure is not None:
            raise failure

    @property
    def longest_answer(self) -> float:
        """Seconds of the longest request of an attempt at one of them that was answered."""
        return max([each.longest_answer for each in self._attempts.values()], default=0.0)

    def _all_asked_for(self) -> dict[str, Grant | None]:
        """Each lock that there were attempts at, with what was granted."""
        return {name: self._grants.get(name) for name in self._attempts}

    def _give_all_back(
        self, parts: Mapping[str, Grant | None], timeout: float, hold: float = 0.0
    ) -> LockctlError | None:
        """Leave nothing of these locks, side by side, in *timeout* seconds for each. What failed, in one error."""
        give_up = time.monotonic() + timeout
        failures: dict[str, LockctlError] = {}

        def give_back(name: str) -> None:
            # one after the other, each has the whole time, until one finds that the server does not answer
            limit = LEAST if failures and time.monotonic() >= give_up else timeout
            failure = self._give_back(name, parts[name], limit, hold)
            if failure is not None:
                failures[name] = failure

        for unexpected in side_by_side(list(parts), give_back).values():
            raise unexpected
        held = sorted(name for name, failure in failures.items() if isinstance(failure, StillHeld))
        if held:
            return StillHeld(f"{', '.join(held)}: {failures[held[0]]}")
        return next(iter(failures.values()), None)

    def _give_back(self, name: str, part: Grant | None, timeout: float, hold: float) -> LockctlError | None:
        give_up = time.monotonic() + timeout
        if not self._busy[name].acquire(timeout=timeout):
            failure = "a renewal is stuck"
            return BackendUnavailable(failure) if part is None else StillHeld(failure)
        try:
            self._grants.pop(name, None)
            return self._attempts[name].give_back(part, _left(give_up), hold)
        finally:
            self._busy[name].release()

    def _renew_all(self, names: list[str], timeout: float, interrupt: int | None = None) -> dict[str, Exception]:
        """Renew these locks. What failed, by name.

        As soon as one is lost this returns, and the others are left to their time limit. So they are when it is
        interrupted (``RequestInterrupted``).
        """
        give_up = time.monotonic() + timeout

        def renew(name: str) -> None:
            if not self._busy[name].acquire(timeout=_left(give_up)):
                raise BackendUnavailable("an earlier renewal is stuck")
            sent = time.monotonic()
            try:
                self._grants[name] = self._clients[name].renew(self._grants[name], timeout=_left(give_up))
                self._attempts[name].answered(time.monotonic() - sent)
            finally:
                self._busy[name].release()

        return side_by_side(names, renew, interrupt)

    def _attempts_at(self, claim: Claim, name: str) -> Attempts:
        if name not in self._attempts:
            first = replace(claim, name=name, owner=os.urandom(16).hex())
            self._attempts[name] = Attempts(self._clients[name], first)
        return self._attempts[name]

    def _whole(self, claim: Claim) -> Grant:
        parts = tuple(self._grants.values())
        first = self._grants[claim.name]
        ttl, age = min(part.ttl for part in parts), max(part.age for part in parts)
        return replace(first, ttl=ttl, at=max(part.at for part in parts), parts=parts, age=age)

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``; of any of the locks."""
        return self._clients[name].inspect(name, timeout=timeout)

    def look(self, name: str, *, timeout: float) -> LockInfo:
        return self._clients[name].look(name, timeout=timeout)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        return self._any.list(pattern, timeout=timeout)

    def revoke(self, name: str, seen: Holder, wanted: Revocation, *, timeout: float) -> int | None:
        return self._any.revoke(name, seen, wanted, timeout=timeout)

    def last_success(self, name: str, *, timeout: float) -> float | None:
        return self._clients[name].last_success(name, timeout=timeout)

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``: of each of the locks, and all of the period in which the run began with the last of them."""
        give_up = time.monotonic() + timeout
        for part in grant.parts:
            self._clients[part.claim.name].note_success(replace(part, at=grant.at), timeout=_left(give_up))

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        self._clients[name].remember(name, run, timeout=timeout)

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        return self._clients[name].history(name, timeout=timeout)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        return self._any.unused(pattern, older_than=older_than, timeout=timeout)

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        return self._any.forget(name, older_than=older_than, timeout=timeout)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def closed_by(self) -> str:
        """What keeps the lock that was refused closed if nobody holds it; empty: not known."""
        return getattr(self._clients[self.refused], "closed_by", "")

    @property
    def _any(self) -> Backend:
        return self._clients[self._names[0]]


def _left(give_up: float) -> float:
    return max(give_up - time.monotonic(), LEAST)
