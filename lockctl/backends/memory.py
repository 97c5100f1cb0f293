"""The protocol of ``lockctl.backend`` in its plainest form: locks in the memory of one process.

The reference for tests and the model for a new backend; no URL leads here. Every client talks to one
:class:`MemoryServer`, which alone decides who holds what, by its own clock.
"""

from __future__ import annotations

import fnmatch
import os
import select
import threading
import time

from lockctl import documents, history
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from lockctl.model import SHARED, Capabilities, Grant, Holder, LockInfo, Waiter
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.model import Claim, Run

NEVER = float("inf")


class _Tenure:
    """One holder; a claim is missing if it is another program."""

    def __init__(self, holder: Holder, claim: Claim | None = None, expires: float = NEVER) -> None:
        self.holder = holder
        self.claim = claim
        self.expires = expires
        self.asked: tuple[str, str] | None = None  # who wants it back, and why


class _Lock:
    def __init__(self) -> None:
        self.token = 0
        self.used = 0.0  # seconds since the epoch
        self.success: float | None = None
        self.past: dict[bool, list[bytes]] = {True: [], False: []}  # whether they started -> runs, the newest first
        self.tenures: dict[str | None, _Tenure] = {}  # owner -> tenure
        self.queue: dict[str, tuple[Waiter, Claim, float]] = {}  # owner -> who, until when; in the order of arrival

    def clean(self, now: float) -> None:
        self.tenures = {owner: tenure for owner, tenure in self.tenures.items() if tenure.expires > now}
        self.queue = {owner: place for owner, place in self.queue.items() if place[2] > now}

    def running(self, owner: str) -> _Tenure | None:
        """The tenure of an owner whose job has not ended."""
        tenure = self.tenures.get(owner)
        return None if tenure is None or tenure.holder.ended_at is not None else tenure

    def is_open_to(self, claim: Claim) -> bool:
        """Whether nobody who holds it, or came before, keeps *claim* out."""
        ahead = []
        for owner, (_, waiting, _) in self.queue.items():
            if owner == claim.owner:
                break
            ahead.append(waiting)
        held = [tenure.claim for tenure in self.tenures.values()]
        if any(other is None or other.mode != claim.mode for other in (*held, *ahead)):
            return False
        return claim.mode == SHARED or len(held) + len(ahead) < claim.slots

    def next_change(self) -> float:
        ends = [tenure.expires for tenure in self.tenures.values()]
        return min([NEVER, *ends, *(until for _, _, until in self.queue.values())])


class MemoryServer:
    """What all clients share. *now* ends leases; *wall* is the floor of tokens and what people are shown."""

    def __init__(self, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """No locks yet."""
        self.now = now
        self.wall = wall
        self.mutex = threading.Lock()
        self.locks: dict[str, _Lock] = {}
        self.floor = 0  # the greatest token of a lock that was forgotten
        self.bells: set[int] = set()  # a descriptor for each wait that is under way

    def lock(self, name: str) -> _Lock:
        """The lock of this name as it is now; to be used under the mutex."""
        lock = self.locks.setdefault(name, _Lock())
        lock.clean(self.now())
        return lock

    def use(self, name: str) -> _Lock:
        """The lock of this name, which is used now; to be used under the mutex."""
        lock = self.lock(name)
        lock.used = self.wall()
        return lock

    def is_unused(self, lock: _Lock, older_than: float) -> bool:
        """Whether nobody has anything of a lock, and nobody used it for so long; to be used under the mutex."""
        lock.clean(self.now())
        ours = lock.token or lock.success is not None or any(lock.past.values())
        return bool(ours) and not lock.tenures and not lock.queue and self.wall() - lock.used >= older_than

    def ring(self) -> None:
        """Have every waiter look again; to be used under the mutex."""
        for bell in self.bells:
            os.eventfd_write(bell, 1)


class MemoryBackend:
    """One client. Without *reachable*, which tests change, no request gets an answer."""

    parameters: ClassVar[dict[str, str]] = {}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="memory",
        fencing="strict",
        many_hosts=False,
        kernel_held=False,
        leased=True,
        fair=True,
        lists_waiters=True,
        revocable=True,
        rate_error=0.002,
        heartbeat=5.0,
        freed_when="its lease has run out",
        token_from="a counter, never below the clock in microseconds",  # noqa: S106 - not a password
        survives="nothing",
        clocks="that of one process",
        period_clock="that of the process",
        slots=True,
        shared=True,
        hold_by="lease",
    )

    def __init__(self, server: MemoryServer) -> None:
        """Talk to *server*."""
        self.reachable = True
        self._server = server

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        with self._request().mutex:
            lock, wall = self._server.lock(claim.name), self._server.wall()
            tenure = lock.running(claim.owner)
            if tenure is None:
                for other in [each.claim for each in lock.tenures.values() if each.claim is not None]:
                    wrong = documents.disagreement(claim.name, other.slots, claim)
                    if wrong:
                        raise ConfigError(wrong)
                if not lock.is_open_to(claim):
                    return None
                lock.queue.pop(claim.owner, None)
                self._server.use(claim.name)
                lock.token = max(lock.token + 1, self._server.floor + 1, int(wall * 1_000_000))
                who = (claim.owner, claim.host, claim.pid, claim.user, claim.command)
                holder = Holder(*who, lock.token, claim.mode, wall, None, claim.ttl)
                tenure = lock.tenures[claim.owner] = _Tenure(holder, claim, self._server.now() + claim.ttl)
                self._server.ring()
            return Grant(claim, tenure.holder.token or 0, "memory", claim.name, claim.ttl, wall)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``."""
        with self._request().mutex:
            tenure = self._server.lock(grant.claim.name).running(grant.claim.owner)
            if tenure is None:
                raise LeaseLost("the lease ran out, or the lock was taken away")
            tenure.expires = self._server.now() + grant.ttl
            self._server.use(grant.claim.name)
            if tenure.asked is not None:
                raise LeaseRevoked(*tenure.asked)
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(grant.claim.name)
            tenure = lock.running(grant.claim.owner)
            if tenure is not None and hold:
                tenure.holder = replace(tenure.holder, ended_at=self._server.wall())
                tenure.expires = self._server.now() + hold
            elif tenure is not None:
                del lock.tenures[grant.claim.owner]
            if tenure is not None:
                self._server.use(grant.claim.name)
            self._server.ring()

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. Between two waits a place in the queue lasts as long as a lease."""
        give_up = time.monotonic() + timeout
        server = self._request()
        bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        poll = select.poll()
        for descriptor in (bell,) if interrupt is None else (bell, interrupt):
            poll.register(descriptor, select.POLLIN)
        with server.mutex:
            server.bells.add(bell)
            new = Waiter(claim.host, claim.pid, claim.user, server.wall())
            waiter, _, _ = server.lock(claim.name).queue.get(claim.owner, (new, claim, NEVER))
            server.lock(claim.name).queue[claim.owner] = (waiter, claim, NEVER)
        try:
            while True:
                with self._request().mutex:
                    lock = server.lock(claim.name)
                    left = min(give_up - time.monotonic(), lock.next_change() - server.now())
                    if lock.is_open_to(claim) or give_up <= time.monotonic():
                        return
                ready = {descriptor for descriptor, _ in poll.poll(None if left == NEVER else max(0, left) * 1000 + 1)}
                if interrupt in ready:
                    return
                if bell in ready:
                    os.eventfd_read(bell)
        finally:
            with server.mutex:
                server.bells.remove(bell)
                if claim.owner in server.lock(claim.name).queue:
                    server.lock(claim.name).queue[claim.owner] = (waiter, claim, server.now() + claim.ttl)
                    server.ring()
            os.close(bell)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(claim.name)
            lock.queue.pop(claim.owner, None)
            if lock.running(claim.owner) is not None:
                del lock.tenures[claim.owner]
            self._server.ring()

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        with self._request().mutex:
            now = self._server.now()
            lock = self._server.locks.get(name) or _Lock()
            lock.clean(now)
            holders = tuple(
                replace(tenure.holder, expires_in=None if tenure.expires == NEVER else tenure.expires - now)
                for tenure in lock.tenures.values()
            )
            claims = [tenure.claim for tenure in lock.tenures.values()]
            waiters = tuple(waiter for waiter, _, _ in lock.queue.values())
        state = "free" if not claims else "held" if all(claims) else "foreign"
        slots = claims[0].slots if claims and claims[0] else 1
        last_run = history.read(lock.past[True][0]) if lock.past[True] else None
        return LockInfo(name, "memory", name, state, "strict", slots, holders, waiters, last_run)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        with self._request().mutex:
            used = [name for name, lock in self._server.locks.items() if lock.token or lock.tenures]
            names = [name for name in used if fnmatch.fnmatchcase(name, pattern)]
        return (replace(self.inspect(name, timeout=timeout), last_run=None) for name in sorted(names))

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(name)
            tenure = lock.tenures.get(seen.owner)
            if tenure is None or tenure.holder.token != seen.token:
                return None
            if now:
                del lock.tenures[seen.owner]
                self._server.ring()
            elif tenure.claim is None or tenure.holder.ended_at is not None:
                who = "another program" if tenure.claim is None else "a hold"
                message = f"{name} is held by {who}, which cannot be told: end it, or use --now"
                raise LockctlError(message)
            else:
                tenure.asked = (by, reason)
            return lock.token + 1

    def last_success(self, name: str, *, timeout: float) -> float | None:
        """See ``Backend``."""
        with self._request().mutex:
            return self._server.lock(name).success

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(grant.claim.name)
            self._server.use(grant.claim.name)
            if documents.is_newer(grant.at, lock.success, self._server.wall()):
                lock.success = grant.at

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            past = self._server.use(name).past[run.started]
            past.insert(0, history.describe(run))
            del past[history.KEPT :]

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.locks.get(name) or _Lock()
            return history.in_order(filter(None, map(history.read, lock.past[True] + lock.past[False])))

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        """See ``Backend``."""
        server = self._request()
        with server.mutex:
            found = [
                (name, lock.used)
                for name, lock in server.locks.items()
                if fnmatch.fnmatchcase(name, pattern) and server.is_unused(lock, older_than)
            ]
        return iter(sorted(found))

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """See ``Backend``."""
        server = self._request()
        with server.mutex:
            lock = server.locks.get(name)
            if lock is None or not server.is_unused(lock, older_than):
                return False
            server.floor = max(server.floor, lock.token)
            del server.locks[name]
            return True

    def close(self) -> None:
        """See ``Backend``: a client keeps nothing open; what it held ends with its lease."""

    def _request(self) -> MemoryServer:
        if not self.reachable:
            raise BackendUnavailable("memory: cut off")
        return self._server
