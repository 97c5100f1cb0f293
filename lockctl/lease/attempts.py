"""The attempts to take one lock, each with an owner of its own."""

from __future__ import annotations

import os

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError, RequestInterrupted
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Claim, Grant

GIVE_BACK_TIMEOUT = 1.0  # seconds for leaving no trace: what is left behind ends with a lease at the server
LONGEST_PAUSE = 2.0  # seconds between two requests to a backend that fails, or may still have an earlier attempt
MINIMUM = 0.1  # seconds: an attempt with less could not succeed
MOST_UNANSWERED = 16  # claims whose give-back is repeated: what older ones may still have ends with their leases


class Attempts:
    """The attempts to take one lock. An owner that was given back is never used again.

    A give-back that was not answered may still arrive, and would then free what a later attempt of the same owner
    was granted. So the attempt after it has a new owner. What the old one may still have would keep the new one
    out: its give-back is repeated before each attempt until it is answered.
    """

    def __init__(self, backend: Backend, claim: Claim) -> None:
        """*claim* is the first attempt; those after it differ in their owner alone."""
        self.backend = backend
        self.claim = claim
        self._unanswered: list[Claim] = []  # given back, and no answer came

    def take(self, timeout: float, interrupt: int | None) -> Grant | None:
        """See ``Backend.try_acquire``. Whoever keeps a place in a queue keeps its owner."""
        if self._unanswered:
            until = clock.monotonic() + timeout
            self._repeat(min(timeout / 2, GIVE_BACK_TIMEOUT))
            timeout = max(until - clock.monotonic(), MINIMUM)
        promised = self.backend.capabilities
        try:
            grant = self.backend.try_acquire(self.claim, timeout=timeout, interrupt=interrupt)
        except (BackendUnavailable, RequestInterrupted) as failure:
            self._disconnected()
            if not promised.keeps_place and isinstance(failure, BackendUnavailable):
                self._begin_anew()
            raise
        if grant is None and not promised.keeps_place:
            self._begin_anew()
        return grant

    def wait(self, timeout: float, interrupt: int | None) -> None:
        """See ``Backend.wait``; returns soon when it may be an earlier attempt of ours that keeps us out."""
        if self._unanswered:
            timeout = min(timeout, LONGEST_PAUSE)
        try:
            self.backend.wait(self.claim, timeout=timeout, interrupt=interrupt)
        except BackendUnavailable:
            self._disconnected()
            raise

    def give_back(self, grant: Grant | None, timeout: float, hold: float = 0.0) -> LockctlError | None:
        """Leave nothing at the server: neither *grant* nor a place in a queue. The failure, if it is not known."""
        until = clock.monotonic() + timeout
        given = self.claim if grant is None else grant.claim
        failure = self._leave(grant, timeout, hold)
        if failure is None:
            self._unanswered = [claim for claim in self._unanswered if claim.owner != given.owner]
        elif not hold:  # a hold that did begin is not to be ended
            self._unanswered.append(given)
        self._begin_anew()
        if failure is None:
            self._repeat(until - clock.monotonic())
        return failure

    def _disconnected(self) -> None:
        """Where the lock is the connection's, a failure has cost us the place, and what is left is ended by another."""
        if self.backend.capabilities.connection_held:
            self._unanswered.append(self.claim)
            self._begin_anew()

    def _leave(self, grant: Grant | None, timeout: float, hold: float) -> LockctlError | None:
        try:
            if grant is not None:
                self.backend.release(grant, timeout=timeout, hold=hold)
            else:
                self.backend.withdraw(self.claim, timeout=timeout)
        except (BackendUnavailable, ConfigError) as failure:
            return failure
        return None

    def _begin_anew(self) -> None:
        del self._unanswered[:-MOST_UNANSWERED]
        self.claim = replace(self.claim, owner=os.urandom(16).hex())

    def _repeat(self, timeout: float) -> None:
        """Give back once more what was given back without an answer."""
        until = clock.monotonic() + timeout
        for claim in tuple(self._unanswered):
            left = until - clock.monotonic()
            if left <= 0:
                return
            try:
                self.backend.withdraw(claim, timeout=left)
            except BackendUnavailable:
                return
            except ConfigError:
                pass  # refused for good: it ends with its lease
            self._unanswered.remove(claim)
