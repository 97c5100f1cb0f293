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
LONGEST_GIVE_BACK = 2.0  # seconds of it with a server that is far away: one that hangs must not delay an end for longer
GIVE_BACK_ANSWERS = 2.0  # times an attempt: it may need a new connection, as that did, and has to leave a queue, too
BROKEN_OFF = 0.5  # seconds that count of an attempt that was broken off: one that takes longer may hang
LONGEST_PAUSE = 2.0  # seconds between two requests to a backend that fails, or may still have an earlier attempt
MINIMUM = 0.1  # seconds: an attempt with less could not succeed
MOST_UNANSWERED = 16  # claims whose give-back is repeated: what older ones may still have ends with their leases


class StillHeld(BackendUnavailable):
    """A lock that was granted could not be given back: it becomes free when its lease ends."""


def give_back_limit(least: float, took: float) -> float:
    """Seconds for a give-back, of *least* or more, at a server where an attempt *took* so many seconds."""
    return max(least, min(GIVE_BACK_ANSWERS * took, LONGEST_GIVE_BACK))


def unreleased(failure: str) -> str:
    """What is said of a lock that could not be given back."""
    return f"could not release the lock; it becomes free when its lease ends: {failure}"


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
        self.longest_answer = 0.0  # seconds of the longest request of an attempt that was answered
        self._unanswered: list[Claim] = []  # given back, and no answer came

    def take(self, timeout: float, interrupt: int | None) -> Grant | None:
        """See ``Backend.try_acquire``. Whoever keeps a place in a queue keeps its owner."""
        if self._unanswered:
            until = clock.monotonic() + timeout
            self._repeat(min(timeout / 2, self.give_back_limit(GIVE_BACK_TIMEOUT)))
            timeout = max(until - clock.monotonic(), MINIMUM)
        promised, sent = self.backend.capabilities, clock.monotonic()
        try:
            grant = self.backend.try_acquire(self.claim, timeout=timeout, interrupt=interrupt)
        except RequestInterrupted:
            self.answered(min(clock.monotonic() - sent, BROKEN_OFF))
            self._disconnected()
            raise
        except BackendUnavailable:
            self._disconnected()
            if not promised.keeps_place:
                self._begin_anew()
            raise
        self.answered(clock.monotonic() - sent)
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

    def answered(self, took: float) -> None:
        """A request of an attempt was answered after so many seconds."""
        self.longest_answer = max(self.longest_answer, took)

    def give_back_limit(self, least: float) -> float:
        """See :func:`give_back_limit`; of several locks it is that of the one with the slowest answers."""
        return give_back_limit(least, getattr(self.backend, "longest_answer", self.longest_answer))

    def give_back(self, grant: Grant | None, timeout: float, hold: float = 0.0) -> LockctlError | None:
        """Leave nothing at the server: neither *grant* nor a place in a queue. The failure, if it is not known.

        It is ``StillHeld`` if something was granted.
        """
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
            return failure if grant is None else StillHeld(str(failure))
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
