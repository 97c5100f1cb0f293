"""The protocol of a backend. These docstrings are the contract; ``tests/contract`` holds every backend to it.

A backend never sleeps outside :meth:`Backend.wait`, never prints, and keeps every request within the
time it is given. Being refused is an answer (``None``), not an error. Renewal has three answers: yes,
no (:class:`~lockctl.errors.LeaseLost`), not known (:class:`~lockctl.errors.BackendUnavailable`); only
the clock of the caller turns "not known" into "lost".
"""

from __future__ import annotations

from lockctl.value import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from lockctl.model import Capabilities, Claim, Grant, Holder, LockInfo, Revocation, Run
    from lockctl.url import Url


class Backend(Protocol):
    """Where locks live. All times are in seconds; *timeout* bounds the whole call."""

    capabilities: ClassVar[Capabilities]
    parameters: ClassVar[dict[str, str]]  # what its URLs may have after the "?", with the defaults

    @classmethod
    def takes_password(cls, url: Url) -> bool:
        """Whether one of its URLs without a password may be given one: who we are there is not said in another way."""

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """Take the lock if it is free. Never waits for a holder; ``None``: held by another.

        Idempotent for one claim: when the reply was lost, the same claim finds its own grant again. A claim that was
        given back is not tried again: the next attempt has a new owner (see ``lease.acquire.Attempts``).
        The token of a grant is greater than that of every grant before it, and durable before this
        returns. A ``shared`` claim is granted beside other shared ones, a ``slot`` beside up to *slots* - 1
        others; where waiters have an order, nobody overtakes one that could not be granted beside the newcomer, and a
        newcomer may be refused while one who waits has not yet taken what is free.

        Raises ``ConfigError`` (nothing is held): also for a mode that the backend does not have, and when
        those who hold the lock say another number of slots. Raises ``BackendUnavailable``, or ``RequestInterrupted``
        when the descriptor *interrupt* became readable before the answer came: whether the lock was
        taken is then not known, and :meth:`withdraw` gives it back.
        """

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """Prolong the lease from the moment of the call, and look whether it is still ours.

        Raises ``LeaseLost`` only when it certainly is not ours, ``LeaseRevoked`` when it is ours, was
        prolonged, and somebody asked for it back (again at every call until released), and
        ``BackendUnavailable`` when that is not known. Never takes a lock again that was lost in between.
        """

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """Free the lock if it is still that grant's; idempotent; never touches a successor's lock.

        With *hold*, only of an exclusive grant: nobody is granted the lock for that many more seconds, counted
        from now on the store's clock, although no process and no connection stays behind. It is shown as held
        by the same holder, with ``ended_at``; a wait goes on; only a revocation *now* ends it earlier.
        """

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """Return when :meth:`try_acquire` may now succeed, after *timeout*, or when *interrupt* is readable.

        Raises ``BackendUnavailable``. *timeout* may be infinite.
        *interrupt* is a descriptor, or ``None``. A position in a queue is kept
        between calls until :meth:`withdraw` or a grant.
        """

    @property
    def lined_up(self) -> bool:
        """Whether the store said in the last :meth:`wait` that the claim has a position: it went well until it failed.

        It does not count what was said in earlier calls. Always, where there is no server to fail.
        """

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """Give up a position in the queue and whatever a wait or a lost answer may have been granted; idempotent.

        A request of this owner that is still on its way and arrives after this takes nothing: nobody would give back
        the lock.
        """

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """One lock as it is now; a lock that nobody ever took is ``free``. Reads only."""

    def look(self, name: str, *, timeout: float) -> LockInfo:
        """Who holds a lock, for one that was refused: as :meth:`inspect`, or less where that costs less.

        Without the last run, and if there are holders, perhaps without waiters, and without how long leases still run.
        """

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """All locks whose name matches a glob, in the order of their names, without their last runs. Reads only."""

    def revoke(self, name: str, seen: Holder, wanted: Revocation, *, timeout: float) -> int | None:
        """Ask the holder that was *seen* to give the lock back; if it is *wanted* now, free it at once.

        ``None``: somebody else holds it by now, or nobody: the holder that was seen has gone, by itself or, where the
        answer got lost and the request was sent again, by this very call. Otherwise the smallest
        token that a later grant can get: with *now*, resources must be advanced to it. Raises
        ``LockctlError`` when *now* was not given and the holder cannot be told: another program, or a job that
        has ended, whose hold is all that is left.
        """

    def last_success(self, name: str, *, timeout: float) -> float | None:
        """When, by ``Grant.at``, the newest run began that :meth:`note_success` noted; ``None``: never."""

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """Note that a run under this lock succeeded, durably before this returns; called while it is still held.

        What is noted never gets older, compared in the store itself: a note that arrives late changes nothing. Only one
        that lies more than a day ahead of now gives way to any other: the clock was wrong that it came from.
        Raises ``BackendUnavailable`` or ``ConfigError`` when it could not be written.
        """

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        """Add a run to the history of a lock, held or not.

        Of runs that started the last ``history.KEPT`` are kept, and as many of those that did not: the one kind
        does not push out the other. Runs that are remembered at the same time are all kept. ``BackendUnavailable`` or
        ``ConfigError`` when it could not be written; nothing depends on it.

        A backend that can do this without another round trip has a ``release_with_run``, too, of a grant, a run and
        *timeout*: it raises as :meth:`release` does, and says whether the run was added.
        """

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        """What :meth:`remember` kept of a lock, the newest first. Reads only."""

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        """All names that match a glob and that nobody used for *older_than* seconds by the store's clock.

        Each with the time of its last use (seconds since the epoch), in the order of names. Nobody holds, keeps or
        waits for them, and lockctl has something of them: a counter, a success, runs. What only another
        program has is never among them. A use is a grant, a success, or a run that is remembered; some stores
        count renewals and releases, too. Reads only.
        """

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """Remove all that is kept of a name that :meth:`unused` would still show: counter, success, history.

        The store itself compares, in the same step: ``False``, and no lock is touched, when the name was used, is held,
        kept or waited for meanwhile, or when nothing of it is ours to remove. The token of a later grant is still
        greater than that of every grant before.
        """

    def close(self) -> None:
        """Free what this object holds open. Locks that it was granted and did not release are abandoned."""
