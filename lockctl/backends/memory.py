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

from lockctl.errors import BackendUnavailable, LeaseLost, LeaseRevoked, LockctlError
from lockctl.model import Capabilities, Grant, Holder, LockInfo, Waiter
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.model import Claim

NEVER = float("inf")


class _Lock:
    def __init__(self) -> None:
        self.token = 0
        self.holder: Holder | None = None  # without an owner: another program
        self.expires = NEVER
        self.asked: tuple[str, str] | None = None  # who wants it back, and why
        self.queue: dict[str, tuple[Waiter, float]] = {}  # owner -> who, until when; in the order of arrival

    def clean(self, now: float) -> None:
        if self.expires <= now:
            self.free()
        self.queue = {owner: place for owner, place in self.queue.items() if place[1] > now}

    def free(self) -> None:
        self.holder, self.expires, self.asked = None, NEVER, None

    def is_held_by(self, owner: str) -> bool:
        return self.holder is not None and self.holder.owner == owner

    def is_open_to(self, owner: str) -> bool:
        return self.holder is None and next(iter(self.queue), owner) == owner

    def next_change(self) -> float:
        return min([self.expires, *(until for _, until in self.queue.values())])


class MemoryServer:
    """What all clients share. *now* ends leases; *wall* is the floor of tokens and what people are shown."""

    def __init__(self, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """No locks yet."""
        self.now = now
        self.wall = wall
        self.mutex = threading.Lock()
        self.locks: dict[str, _Lock] = {}
        self.bells: set[int] = set()  # a descriptor for each wait that is under way

    def lock(self, name: str) -> _Lock:
        """The lock of this name as it is now; to be used under the mutex."""
        lock = self.locks.setdefault(name, _Lock())
        lock.clean(self.now())
        return lock

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
    )

    def __init__(self, server: MemoryServer) -> None:
        """Talk to *server*."""
        self.reachable = True
        self._server = server

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        with self._request().mutex:
            lock, wall = self._server.lock(claim.name), self._server.wall()
            if not lock.is_held_by(claim.owner):
                if not lock.is_open_to(claim.owner):
                    return None
                lock.queue.pop(claim.owner, None)
                lock.token = max(lock.token + 1, int(wall * 1_000_000))
                who = (claim.owner, claim.host, claim.pid, claim.user, claim.command)
                lock.holder = Holder(*who, lock.token, claim.mode, wall, None, claim.ttl)
                lock.expires = self._server.now() + claim.ttl
                self._server.ring()
            return Grant(claim, lock.token, "memory", claim.name, claim.ttl)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(grant.claim.name)
            if not lock.is_held_by(grant.claim.owner):
                raise LeaseLost("the lease ran out, or the lock was taken away")
            lock.expires = self._server.now() + grant.ttl
            if lock.asked is not None:
                raise LeaseRevoked(*lock.asked)
        return grant

    def release(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(grant.claim.name)
            if lock.is_held_by(grant.claim.owner):
                lock.free()
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
            waiter, _ = server.lock(claim.name).queue.get(claim.owner, (new, NEVER))
            server.lock(claim.name).queue[claim.owner] = (waiter, NEVER)
        try:
            while True:
                with self._request().mutex:
                    lock = server.lock(claim.name)
                    left = min(give_up - time.monotonic(), lock.next_change() - server.now())
                    if lock.is_open_to(claim.owner) or give_up <= time.monotonic():
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
                    server.lock(claim.name).queue[claim.owner] = (waiter, server.now() + claim.ttl)
                    server.ring()
            os.close(bell)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(claim.name)
            lock.queue.pop(claim.owner, None)
            if lock.is_held_by(claim.owner):
                lock.free()
            self._server.ring()

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        with self._request().mutex:
            now = self._server.now()
            lock = self._server.locks.get(name) or _Lock()
            lock.clean(now)
            left = None if lock.expires == NEVER else lock.expires - now
            holders = () if lock.holder is None else (replace(lock.holder, expires_in=left),)
            state = "free" if not holders else "held" if holders[0].owner else "foreign"
            waiters = tuple(waiter for waiter, _ in lock.queue.values())
        return LockInfo(name, "memory", name, state, "strict", 1, holders, waiters, None)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        with self._request().mutex:
            names = [name for name in self._server.locks if fnmatch.fnmatchcase(name, pattern)]
        return (self.inspect(name, timeout=timeout) for name in sorted(names))

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``."""
        with self._request().mutex:
            lock = self._server.lock(name)
            if lock.holder is None or (lock.holder.owner, lock.holder.token) != (seen.owner, seen.token):
                return None
            if now:
                lock.free()
                self._server.ring()
            elif lock.holder.owner is None:
                message = f"{name} is held by another program, which cannot be told: end it, or use --now"
                raise LockctlError(message)
            else:
                lock.asked = (by, reason)
            return lock.token + 1

    def close(self) -> None:
        """See ``Backend``: a client keeps nothing open; what it held ends with its lease."""

    def _request(self) -> MemoryServer:
        if not self.reachable:
            raise BackendUnavailable("memory: cut off")
        return self._server
