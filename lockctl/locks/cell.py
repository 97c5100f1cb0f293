"""A whole backend over cells: places of a store that are read, and written only if nobody has written meanwhile.

Each lock is one cell with the document of :mod:`lockctl.locks.machine`, its history another one. A write whose answer
was lost, or that arrives late, does no harm: its condition is not met any more. The store's clock, as its answers tell
it, ends the leases; the caller counts its own deadline from before it asked, which is earlier.
"""

from __future__ import annotations

from lockctl import documents
from lockctl.clock import boottime
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError, RequestInterrupted
from lockctl.locks.driver import jittered, looks
from lockctl.locks.machine import MICROSECONDS, Lock
from lockctl.model import Grant
from lockctl.names import domain_name, printable, read_domain_name
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar, TypeVar

    from lockctl.locks.driver import Cells, Seen
    from lockctl.model import Capabilities, Claim, Holder, LockInfo, Run

    T = TypeVar("T")

LONGEST_STEP = 5.0  # seconds for one request of a wait, which may have no end itself
REFRESHES_PER_TTL = 3  # how often a waiter's position is prolonged: two may fail
LOCK, PAST, FLOOR = "lock:", "past:", "floor:"  # what keys begin with, before the prefix and the name
RESERVED = 100_000  # tokens: more than one lock needs until a clock of whole seconds has passed the first of them
DOMAIN = "domain:"  # the cell with the name of the store, which says where its tokens come from


class CellBackend:
    """See ``Backend``. Subclasses say what their store promises, and make the cells from a URL."""

    capabilities: ClassVar[Capabilities]
    parameters: ClassVar[dict[str, str]]

    def __init__(self, cells: Cells, prefix: str = "") -> None:
        """Locks with this *prefix* before their names; nothing is opened yet."""
        self._cells = cells
        self._prefix = prefix
        self._domain = ""
        self._doubted: set[str] = set()  # owners of which a write may still be on its way

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``.

        A cell that is not there is first made, without a holder: unlike a version, its absence comes back, when the
        name was used and forgotten meanwhile, and the floor of the tokens would be one of before.
        """
        deadline = Deadline(timeout, interrupt)
        key = self._prefix + claim.name
        grant, made = None, True

        def take(lock: Lock, seen: Seen) -> tuple[Grant | None, bool]:
            nonlocal made
            made = seen.data is None
            if made:
                lock.used = seen.at
                return None, True
            domain = self._domain or self._read_domain(deadline)
            holder = lock.take(claim, seen.at, 0 if lock.token else self._first_floor(seen.at, deadline))
            if holder is None:
                return None, False
            return Grant(claim, holder["token"], domain, key, claim.ttl, holder["acquired_at"]), True

        try:
            while made:
                grant = self._change(claim.name, take, deadline)
        except _Foreign as foreign:
            self._cells.observe(LOCK + key, foreign.seen, deadline)
            return None
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        return grant

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``."""
        try:
            asked = self._change(
                grant.claim.name,
                lambda lock, seen: (lock.renew(grant.claim.owner, grant.token, seen.at), True),
                Deadline(timeout),
            )
        except _Foreign:
            raise LeaseLost("another program has written over the lock") from None
        except ConfigError as refused:
            raise BackendUnavailable(str(refused)) from None  # not known: the job lives on until its deadline
        if asked is not None:
            raise LeaseRevoked(printable(asked[0]), printable(asked[1]))
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``."""
        self._leave(grant.claim, timeout, hold)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        self._leave(claim, timeout, 0.0)

    def _leave(self, claim: Claim, timeout: float, hold: float) -> None:
        """Leave nothing of a claim. While a write of it may be on its way, the cell is written: that one fails then.

        So it is if the lease is over by the store's clock, which may go back.
        """
        doubted = claim.owner in self._doubted

        def leave(lock: Lock, seen: Seen) -> tuple[None, bool]:
            left = lock.leave(claim.owner, seen.at, hold)
            return None, left or doubted or claim.owner.encode() in (seen.data or b"")

        try:
            self._change(claim.name, leave, Deadline(timeout))
        except _Foreign:
            pass  # nothing in there is ours
        except LockctlError:
            self._doubted.add(claim.owner)
            raise
        self._doubted.discard(claim.owner)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. A position in the queue lives as long as a lease, and is prolonged meanwhile."""
        if timeout <= 0:
            return
        whole, began, longest = Deadline(timeout, interrupt), boottime(), max(LONGEST_STEP, self._cells.longest_look)
        try:
            while whole.left() > 0:
                seen, until = self._line_up(claim, whole.sooner(LONGEST_STEP))
                if until <= 0:
                    return
                step = whole.sooner(min(until, jittered(longest)))
                try:
                    self._cells.watch(LOCK + self._prefix + claim.name, seen, step, began)
                except BackendUnavailable:
                    if step.left() > 0:
                        raise
        except RequestInterrupted:
            self._doubted.add(claim.owner)
        except LockctlError:
            self._doubted.add(claim.owner)
            if whole.left() > 0:
                raise

    def _line_up(self, claim: Claim, deadline: Deadline) -> tuple[Seen, float]:
        """What is there while *claim* is in the queue, and how many seconds nothing must be done; 0: it may enter."""
        refresh = claim.ttl / REFRESHES_PER_TTL

        def line_up(lock: Lock, seen: Seen) -> tuple[None, bool]:
            lock.line_up(claim, seen.at)
            return None, True

        while True:
            seen = self._cells.read(LOCK + self._prefix + claim.name, deadline)
            lock = self._lock(seen)
            if lock is None:
                self._cells.observe(LOCK + self._prefix + claim.name, seen, deadline)
                return seen, refresh
            place = lock.queue.get(claim.owner)
            left = 0.0 if place is None else place["until"] - seen.at - (claim.ttl - refresh)
            if lock.running(claim.owner) is not None or lock.is_open_to(claim):
                return seen, 0.0
            if left > 0:
                return seen, min(left, max(lock.next_change() - self._surely(seen.at), 0.001))
            self._change(claim.name, line_up, deadline)

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        deadline = Deadline(timeout)
        from lockctl.locks import records

        last = records.last_started(self._cells.read(PAST + self._prefix + name, deadline).data)
        seen = self._cells.read(LOCK + self._prefix + name, deadline)
        return self._info(name, seen, self._lock(seen), last)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        found = dict(self._matching(LOCK, pattern, Deadline(timeout)))
        for name in sorted(found):
            lock = self._lock(found[name])
            # else somebody waited once, and nobody was granted it
            if lock is None or lock.token > 0 or lock.queue:
                yield self._info(name, found[name], lock, None)

    def _info(self, name: str, seen: Seen, lock: Lock | None, last_run: Run | None) -> LockInfo:
        """A lock as an operator sees it; without one another program has its cell."""
        from lockctl.locks.inspect import lock_info

        holders = [documents.foreign_holder()]
        if lock is not None:
            holders = [
                documents.holder(each, token=each["token"], expires_in=max(each["until"] - seen.at, 0.0))
                for each in lock.holders.values()
            ]
        lock = lock or Lock()
        return lock_info(
            self.capabilities.scheme,
            self.capabilities.fencing,
            name,
            self._prefix + name,
            holders,
            map(documents.waiter, lock.queue.values()),
            slots=max([1, *map(documents.slots, lock.holders.values())]),
            last_run=last_run,
        )

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``. Of another program nothing is left with *now*: its data is replaced."""
        deadline = Deadline(timeout)
        while True:
            try:
                return self._change(
                    name, lambda lock, _: _changed(lock.revoke(name, seen, now=now, by=by, reason=reason)), deadline
                )
            except _Foreign as foreign:
                if seen.owner is not None:
                    return None
                if not now:
                    from lockctl.locks.revoke import another_program

                    raise another_program(name) from None
                lock = Lock()
                lock.token = lock.next_token(foreign.seen.at, self._first_floor(foreign.seen.at, deadline))
                lock.used = foreign.seen.at
                if self._cells.write(LOCK + self._prefix + name, foreign.seen, lock.written(), deadline):
                    return lock.token + 1

    def last_success(self, name: str, *, timeout: float) -> float | None:
        """See ``Backend``."""
        lock = self._lock(self._cells.read(LOCK + self._prefix + name, Deadline(timeout)))
        return None if lock is None else lock.success

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""

        def note(lock: Lock, seen: Seen) -> tuple[None, bool]:
            newer = documents.is_newer(grant.at, lock.success, seen.at)
            if newer:
                lock.success, lock.used = grant.at, seen.at
            return None, newer

        try:
            self._change(grant.claim.name, note, Deadline(timeout))
        except _Foreign:
            raise ConfigError(f"{self._cells.where}: the success cannot be noted in another program's data") from None

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        """See ``Backend``."""
        from lockctl.locks import records

        deadline = Deadline(timeout)
        for seen in looks(self._cells, PAST + self._prefix + name, deadline):
            if self._cells.write(PAST + self._prefix + name, seen, records.added(seen.data, run, seen.at), deadline):
                return

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        """See ``Backend``."""
        from lockctl.locks import records

        return records.runs(self._cells.read(PAST + self._prefix + name, Deadline(timeout)).data)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        """See ``Backend``."""
        deadline, found = Deadline(timeout), dict[str, float]()
        in_use = set()
        for kind in (LOCK, PAST):
            for name, seen in self._matching(kind, pattern, deadline):
                used = self._last_use(seen) if kind == LOCK else self._last_use(None, seen)
                if used is None or seen.at - used < older_than:
                    in_use.add(name)
                else:
                    found[name] = max(used, found.get(name, 0.0))
        return iter(sorted((name, used) for name, used in found.items() if name not in in_use))

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """See ``Backend``. The greatest token of all that was forgotten is kept in a cell of its own."""
        deadline = Deadline(timeout)
        lock_key, past_key = LOCK + self._prefix + name, PAST + self._prefix + name
        for seen in looks(self._cells, lock_key, deadline):
            past = self._cells.read(past_key, deadline)
            used = self._last_use(seen, past)
            if used is None or past.at - used < older_than:
                return False
            if seen.data is not None:
                self._raise_floor(self._read(name, seen).token, deadline)
                if not self._cells.write(lock_key, seen, None, deadline):
                    continue
            return past.data is None or self._cells.write(past_key, past, None, deadline)
        return False

    def close(self) -> None:
        """See ``Backend``: what was held ends with its lease."""
        self._cells.close()

    def _change(self, name: str, decide: Callable[[Lock, Seen], tuple[T, bool]], deadline: Deadline) -> T:
        """What *decide* gives for the lock as it is; where it says so, the lock is written as it left it.

        Raises ``_Foreign`` where the cell has something else.
        """
        key = LOCK + self._prefix + name
        for seen in looks(self._cells, key, deadline):
            lock = self._read(name, seen)
            given, changed = decide(lock, seen)
            if not changed or self._cells.write(key, seen, lock.written(), deadline):
                return given
        raise AssertionError("there is always another look, or an error")

    def _read(self, name: str, seen: Seen) -> Lock:
        """The lock in a cell. Raises ``_Foreign``."""
        lock = self._lock(seen)
        if lock is None:
            raise _Foreign(f"{self._cells.where}: {printable(self._prefix + name)} is not a lock of lockctl's", seen)
        return lock

    def _lock(self, seen: Seen) -> Lock | None:
        """The lock in a cell as it is at that time; ``None``: something else is there."""
        lock = Lock() if seen.data is None else Lock.read(seen.data)
        if lock is not None:
            lock.expire(self._surely(seen.at))
        return lock

    def _surely(self, at: float) -> float:
        """A time that no clock of the store was before when it was *at*."""
        return at - self._cells.clock_error

    def _matching(self, kind: str, pattern: str, deadline: Deadline) -> Iterator[tuple[str, Seen]]:
        """The cells of one kind, with the names of the locks."""
        from lockctl.locks.inspect import beginning, is_match

        start = kind + self._prefix
        for key, seen in self._cells.scan(start + beginning(pattern), deadline):
            name = key[len(start) :]
            if is_match(name, pattern):
                yield name, seen

    def _last_use(self, seen: Seen | None, past: Seen | None = None) -> float | None:
        """When a name was used last, if lockctl has something of it and nobody uses it now."""
        from lockctl.locks import records

        uses = []
        if seen is not None and seen.data is not None:
            lock = self._lock(seen)
            if lock is None or lock.is_in_use():
                return None
            uses.append(lock.used)
        if past is not None and past.data is not None:
            uses.append(records.last_use(past.data))
        return max(uses, default=None)

    def _read_domain(self, deadline: Deadline) -> str:
        """The name of the store, given once for all who use it: it goes with the data wherever these go."""
        for seen in looks(self._cells, DOMAIN, deadline):
            name = read_domain_name(seen.data or b"")
            if name is not None:
                self._domain = f"{self.capabilities.scheme}:{name}"
                break
            if seen.data is not None:
                raise ConfigError(f"{self._cells.where}: the cell {DOMAIN} has something that is not lockctl's")
            self._cells.write(DOMAIN, seen, domain_name(self._cells.where).encode(), deadline)
        return self._domain

    def _floor(self, deadline: Deadline) -> int:
        return _whole(self._cells.read(FLOOR + self._prefix, deadline).data)

    def _first_floor(self, at: float, deadline: Deadline) -> int:
        """What is below all tokens of a cell without one, and not below those of one that others have removed.

        The clock in microseconds sees to that, unless it stands still for a second: then each new cell gets a range of
        tokens of its own, ahead of the clock.
        """
        if not self._cells.clock_error:
            return self._floor(deadline)
        first = 0
        for seen in looks(self._cells, FLOOR + self._prefix, deadline):
            first = max(_whole(seen.data), int((at + self._cells.clock_error) * MICROSECONDS))
            if self._cells.write(FLOOR + self._prefix, seen, str(first + RESERVED).encode(), deadline):
                break
        return first

    def _raise_floor(self, token: int, deadline: Deadline) -> None:
        for seen in looks(self._cells, FLOOR + self._prefix, deadline):
            data = seen.data or b"0"
            if data.isdigit() and int(data) >= token:
                return
            if self._cells.write(FLOOR + self._prefix, seen, str(token).encode(), deadline):
                return


class _Foreign(ConfigError):
    """The cell of a lock has something that lockctl did not write."""

    def __init__(self, message: str, seen: Seen) -> None:
        super().__init__(message)
        self.seen = seen


def _whole(data: bytes | None) -> int:
    """The number in a cell; 0 for anything else."""
    return int(data) if data and data.isdigit() and len(data) < 20 else 0


def _changed(given: T | None) -> tuple[T | None, bool]:
    return given, given is not None
