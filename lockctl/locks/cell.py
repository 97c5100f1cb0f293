"""A whole backend over cells: places of a store that are read, and written only if nobody has written meanwhile.

How locks are kept in cells is in :mod:`lockctl.locks.lock_cells`. A write whose answer was lost, or that arrives late,
does no harm: its condition is not met any more. The store's clock, as its answers tell it, ends the leases; the caller
counts its own deadline from before it asked, which is earlier.
"""

from __future__ import annotations

from lockctl import documents, errors
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError, RequestInterrupted
from lockctl.locks.driver import Cells, Seen, jittered
from lockctl.locks.lock_cells import Foreign, LockCells
from lockctl.locks.machine import Lock
from lockctl.model import Capabilities, Claim, Grant, Holder, LockInfo, Revocation, Run
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar, TypeVar

    from lockctl.url import Url

    T = TypeVar("T")

LONGEST_STEP = 5.0  # seconds for one request of a wait, which may have no end itself


class CellBackend:
    """See ``Backend``. Subclasses say what their store promises, and make the cells from a URL."""

    capabilities: ClassVar[Capabilities]
    parameters: ClassVar[dict[str, str]]

    def __init__(self, cells: Cells, prefix: str = "") -> None:
        """Locks with this *prefix* before their names; nothing is opened yet."""
        self._cells = cells
        self._locks = LockCells(cells, prefix, self.capabilities.scheme)
        self._doubted: set[str] = set()  # owners of which a write may still be on its way
        self.lined_up = False

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - not all stores take one for each URL
        return True

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``.

        A cell that is not there is first made, without a holder: unlike a version, its absence comes back, when the
        name was used and forgotten meanwhile, and the floor of the tokens would be one of before.
        """
        deadline = Deadline(timeout, interrupt)
        locks, key = self._locks, self._locks.full_name(claim.name)
        grant, made = None, True

        def take(lock: Lock, seen: Seen) -> tuple[Grant | None, bool]:
            nonlocal made
            made = seen.data is None
            if made:
                lock.used = seen.at
                return None, True
            domain = locks.domain(deadline)
            holder = lock.take(claim, seen.at, 0 if lock.token else locks.first_floor(seen.at, deadline))
            if holder is None:
                return None, False
            return Grant(claim, holder["token"], domain, key, claim.ttl, holder["acquired_at"]), True

        self._cells.attend(claim.owner)
        try:
            while made:
                grant = self._locks.change(claim.name, take, deadline)
        except Foreign as foreign:
            self._cells.observe(locks.key(claim.name), foreign.seen, deadline)
            return None
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        return grant

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        deadline, key = Deadline(timeout), self._locks.key(grant.claim.name)

        def renew(lock: Lock, seen: Seen) -> tuple[tuple[str, str] | None, bool]:
            try:
                return lock.renew(grant.claim.owner, grant.token, seen.at), True
            except LeaseLost:
                self._confirm(key, seen, deadline)
                raise

        try:
            asked = self._locks.change(grant.claim.name, renew, deadline)
        except Foreign:
            raise LeaseLost("another program has written over the lock") from None
        except ConfigError as refused:
            raise BackendUnavailable(str(refused)) from None  # not known: the job lives on until its deadline
        if asked is not None:
            raise LeaseRevoked(*asked)
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        self._leave(grant.claim, timeout, hold, is_held=True)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        self._leave(claim, timeout, 0.0)

    def _confirm(self, key: str, seen: Seen, deadline: Deadline) -> None:
        """Raise ``BackendUnavailable`` if what was *seen* of a lock was an old answer: it may still be ours."""
        if not self._cells.confirm(key, seen, deadline):
            raise BackendUnavailable(f"{self._cells.where}: an answer about the lock was an old one")

    def _leave(self, claim: Claim, timeout: float, hold: float, *, is_held: bool = False) -> None:
        """Leave nothing of a claim. While a write of it may be on its way, the cell is written: that one fails then.

        So it is if the lease is over by the store's clock, which may go back.
        """
        doubted = claim.owner in self._doubted
        deadline = Deadline(timeout)

        def leave(lock: Lock, seen: Seen) -> tuple[None, bool]:
            left = lock.leave(claim.owner, seen.at, hold)
            if is_held and not left:
                self._confirm(self._locks.key(claim.name), seen, deadline)
            return None, left or doubted or claim.owner.encode() in (seen.data or b"")

        try:
            self._locks.change(claim.name, leave, deadline)
        except Foreign:
            pass  # nothing in there is ours
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        self._doubted.discard(claim.owner)
        self._cells.depart(claim.owner, deadline)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. A position in the queue is prolonged meanwhile: see ``life_in_queue``."""
        if timeout <= 0:
            return
        self._cells.attend(claim.owner)
        whole, began, longest = Deadline(timeout, interrupt), boottime(), max(LONGEST_STEP, self._cells.longest_look)
        unseen: str | None = None  # who is before us, but not to be followed: it may have ended since the last look
        self.lined_up = False
        try:
            while whole.left() > 0:
                position = self._locks.line_up(claim, whole.sooner(LONGEST_STEP))
                self.lined_up = True
                if position.rest <= 0:
                    return
                step = whole.sooner(min(position.rest, jittered(longest)))
                try:
                    if self._cells.follows and position.before not in (None, unseen):
                        unseen = None if self._cells.follow(position.before, step) else position.before
                    else:
                        self._cells.watch(self._locks.key(claim.name), position.seen, step, began)
                        unseen = None
                except BackendUnavailable:
                    if step.left() > 0:
                        raise
        except RequestInterrupted:
            self._doubted.add(claim.owner)
        except LockctlError:
            self._doubted.add(claim.owner)
            if whole.left() > 0:
                raise

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        from lockctl.locks import inspect

        return inspect.one(self._locks, self.capabilities, name, Deadline(timeout))

    def look(self, name: str, *, timeout: float) -> LockInfo:
        from lockctl.locks import inspect

        return inspect.holders(self._locks, self.capabilities, name, Deadline(timeout))

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        from lockctl.locks import inspect

        yield from inspect.matching_locks(self._locks, self.capabilities, pattern, Deadline(timeout))

    def revoke(self, name: str, seen: Holder, wanted: Revocation, *, timeout: float) -> int | None:
        """See ``Backend``. Of another program nothing is left with ``now``: its data is replaced."""
        deadline = Deadline(timeout)
        while True:
            try:
                return self._locks.change(name, lambda lock, _: _changed(lock.revoke(name, seen, wanted)), deadline)
            except Foreign as foreign:
                if seen.identity != (None, None, self._cells.known_by(foreign.seen)):
                    return None
                if not wanted.now:
                    raise errors.another_program(name) from None
                lock = Lock()
                lock.token = lock.next_token(foreign.seen.at, self._locks.first_floor(foreign.seen.at, deadline))
                lock.used = foreign.seen.at
                if self._cells.write(self._locks.key(name), foreign.seen, lock.written(), deadline):
                    return lock.token + 1

    def last_success(self, name: str, *, timeout: float) -> float | None:
        lock = self._locks.lock(self._cells.read(self._locks.key(name), Deadline(timeout)))
        return None if lock is None else lock.success

    def note_success(self, grant: Grant, *, timeout: float) -> None:

        def note(lock: Lock, seen: Seen) -> tuple[None, bool]:
            newer = documents.is_newer(grant.at, lock.success, seen.at)
            if newer:
                lock.success, lock.used = grant.at, seen.at
            return None, newer

        try:
            self._locks.change(grant.claim.name, note, Deadline(timeout))
        except Foreign:
            raise ConfigError(f"{self._cells.where}: the success cannot be noted in another program's data") from None

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        from lockctl.locks import records

        records.remember(self._locks, name, run, Deadline(timeout))

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        from lockctl.locks import records

        return records.runs(self._cells.read(self._locks.past_key(name), Deadline(timeout)).data)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        from lockctl.locks import prune

        return prune.unused(self._locks, pattern, older_than, Deadline(timeout))

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        from lockctl.locks import prune

        return prune.forget(self._locks, name, older_than, Deadline(timeout))

    def close(self) -> None:
        """See ``Backend``: what was held ends with its lease."""
        self._cells.close()


def _changed(given: T | None) -> tuple[T | None, bool]:
    return given, given is not None
