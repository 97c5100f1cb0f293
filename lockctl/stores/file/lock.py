"""Locks of one host: ``flock(2)`` on a file that is unlinked by ``lockctl prune`` alone.

The kernel frees the lock when the last process that has the descriptor is gone, whatever happened to
lockctl; the command inherits it on purpose. ``flock(1)`` on the same path excludes and is excluded.
The file keeps the token and says who holds it; only the kernel's lock decides whether it is held.
Readers and slots are in ``share``, what is kept of a lock that nobody holds is in ``hold`` and ``records``, and
how it is forgotten in ``prune``.
"""

from __future__ import annotations

import fcntl
import os
import time

from lockctl import documents
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import EXCLUSIVE, Capabilities, Claim, Grant, Holder, LockInfo, Revocation, Run
from lockctl.names import printable, token_domain
from lockctl.stores.file import address, layout
from lockctl.stores.file.layout import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.stores.file.share import Slot
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline


class FileBackend:
    """A ``Backend``: lock files in one directory. Not for use by two threads at once, except :meth:`renew`."""

    parameters: ClassVar[dict[str, str]] = {"prefix": "", "any_filesystem": "no"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="file",
        many_hosts=False,
        kernel_held=True,
        leased=False,
        fair=False,
        rate_error=0.0,
        heartbeat=0.5,
        freed_when="the last process of the job has ended (the kernel frees it)",
        token_from="a counter in the lock file, never below the host's clock in microseconds",  # noqa: S106
        survives="nothing can fail: there is no server",
        clocks="none: the lock has no time limit",
        period_clock="the host's",
        hold_by="record",
    )
    lined_up = True

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - none does
        return False

    def __init__(
        self,
        directory: str,
        *,
        prefix: str = "",
        any_filesystem: bool = False,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Nothing is opened before it is needed. *wall_us* is the floor of tokens."""
        self._path = directory
        self._prefix = prefix
        self._any_filesystem = any_filesystem
        self._wall_us = wall_us
        self._directory: int | None = None
        self._granted: dict[str, Grant] = {}  # owner -> what it holds
        self._helper: int | None = None  # pid of the last helper that waited for us
        self._waited: dict[str, int] = {}  # owner -> descriptor that a wait may have got the lock on
        self._identity: tuple[int, layout.Identity] | None = None  # pid of the last claim, and what is written of it
        self._slots: dict[str, Slot] = {}  # owner -> what it was granted beside others, perhaps by a wait

    @classmethod
    def from_url(cls, url: Url) -> FileBackend:
        """``file:///DIRECTORY?prefix=P&any_filesystem=yes``; raises ``ConfigError``."""
        directory, prefix, any_filesystem = address.read_url(url, cls.parameters)
        return cls(directory, prefix=prefix, any_filesystem=any_filesystem)

    def _key(self, name: str) -> str:
        """The path of a lock; raises ``ConfigError`` for one that leaves no room for the names beside it."""
        file = self._prefix + name
        if len(file) > address.LONGEST:
            message = f"file: prefix and name of a lock have {len(file)} characters together: at most {address.LONGEST}"
            raise ConfigError(message)
        return f"{self._path.rstrip('/')}/{file}"

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        key = self._key(claim.name)
        if claim.owner in self._granted:
            mine = self._granted[claim.owner]
            return mine if address.same_file(key, _descriptor(mine)) and self._still_held(mine) else None
        try:
            for _ in range(address.TRIES):
                descriptor = self._waited.pop(claim.owner, None)
                if descriptor is None:
                    descriptor = self._open_file(claim.name)
                grant, final = self._take(claim, key, descriptor, timeout, interrupt)
                if final:
                    return grant
        except OSError as failure:
            address.refuse(key, failure)
        raise BackendUnavailable(f"file: {printable(key)} is replaced again and again by another program")

    def _take(
        self, claim: Claim, key: str, descriptor: int, timeout: float, interrupt: int | None
    ) -> tuple[Grant | None, bool]:
        """(grant or ``None``, whether that is the answer). The descriptor is closed unless granted."""
        granted = None
        try:
            if claim.mode == EXCLUSIVE:
                granted = self._take_alone(claim, key, descriptor)
            else:
                granted = self._take_beside(claim, key, descriptor, timeout, interrupt)
            if granted is not None:
                self._await_decision(key, descriptor, timeout, interrupt)
            same = address.same_file(key, descriptor)
            if not same:
                granted = None
            if granted is not None:
                self._granted[claim.owner] = granted
            return granted, same
        finally:
            if claim.owner not in self._granted:
                self._give_up(claim, descriptor)

    def _await_decision(self, key: str, descriptor: int, timeout: float, interrupt: int | None) -> None:
        """See ``revoke.await_decision``; nearly always nobody takes a lock away, and nothing is loaded."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, address.REVOKING)
        except OSError:
            from lockctl.stores.file import revoke

            deadline = _deadline(timeout, interrupt)
            revoke.await_decision(self._path, self._open_directory(), key, descriptor, deadline)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, address.REVOKING)

    def _take_alone(self, claim: Claim, key: str, descriptor: int) -> Grant | None:
        if not address.try_flock(descriptor):
            if os.pread(descriptor, layout.SIZE, 0).find(layout.SHARING) >= 0:
                from lockctl.stores.file import inspect

                inspect.object_to(claim.name, key, descriptor, claim)
            return None
        if not address.same_file(key, descriptor):
            return None
        before = layout.read_ours(descriptor, key)
        if layout.ENDED in before.document:
            from lockctl.stores.file import hold

            if hold.left(before) > 0:
                return None
        now = self._wall_us()
        token = layout.first_after(before, key, now)
        document = layout.describe(claim, self._identity_of(claim) | layout.taken(self._helper, now / 1e6))
        layout.grant(descriptor, before, token, document, now=None if self._any_filesystem else now)
        return self._grant(claim, key, token, now / 1e6, descriptor)

    def _identity_of(self, claim: Claim) -> layout.Identity:
        """Who waits has it ready when the lock is free."""
        if self._identity is None or self._identity[0] != claim.pid:
            self._identity = claim.pid, layout.identity(claim.pid)
        return self._identity[1]

    def _take_beside(
        self, claim: Claim, key: str, descriptor: int, timeout: float, interrupt: int | None
    ) -> Grant | None:
        from lockctl.stores.file import ranges, share

        ranges.check_ranges(self._path, self._open_directory(), key)
        given = self._slots.get(claim.owner)
        if given is not None and not share.still_held(descriptor, given, claim.owner):
            return None  # who waited was stopped for so long that its helper gave the slot up
        if given is None and not share.turned_away(descriptor):
            given = share.enter(descriptor, key, claim, self._wall_us, self._helper, _deadline(timeout, interrupt))
        if given is None:
            from lockctl.stores.file import inspect

            inspect.object_to(claim.name, key, descriptor, claim)
            return None
        self._slots[claim.owner] = given
        return self._grant(claim, key, given.token, given.at / 1e6, descriptor)

    def _grant(self, claim: Claim, key: str, token: int, at: float, descriptor: int) -> Grant:
        return Grant(
            claim=claim,
            token=token,
            domain=token_domain(f"file:{os.uname().nodename}:{self._path}"),
            key=key,
            ttl=claim.ttl,
            at=at,
            descriptor=descriptor,
        )

    def _own_record(self, grant: Grant) -> Record | None:
        """The record of a lock that this exclusive grant still holds: nobody else has had it since."""
        descriptor = _descriptor(grant)
        if not address.try_flock(descriptor):
            return None
        return layout.owned_by(descriptor, grant.claim.owner, grant.token)

    def _still_held(self, grant: Grant) -> bool:
        """Whether nobody else has had the lock since the grant, which is the case if it was not freed for us."""
        if grant.claim.mode == EXCLUSIVE:
            return self._own_record(grant) is not None
        from lockctl.stores.file import share

        owner = grant.claim.owner
        return share.still_held(_descriptor(grant), self._slots[owner], owner)

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``: looks whether the path is still our file and nobody asked for it back."""
        granted = self._granted.get(grant.claim.owner)
        if granted is None:
            raise LeaseLost("it was released")
        try:
            if not address.same_file(grant.key, _descriptor(granted)):
                raise LeaseLost(f"{printable(grant.key)} was replaced or removed")
            if not self._still_held(granted):
                raise LeaseLost("the lock was freed, and may be another's by now")
            asked = self._revocation(grant.claim)
        except OSError as failure:
            raise BackendUnavailable(f"file: cannot look at {printable(grant.key)}: {failure.strerror}") from failure
        if asked is not None:
            raise LeaseRevoked(*asked)
        return grant

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        """See ``Backend``. Where a hold cannot be written, the lock is still held: another call may begin it."""
        granted = self._granted.pop(grant.claim.owner, None)
        if granted is None:
            return
        descriptor, is_kept = _descriptor(granted), False
        try:
            self._note_release(granted, descriptor, hold)
        except OSError as failure:
            is_kept = hold > 0
            message = f"file: cannot note the release in {printable(grant.key)}: {failure.strerror}"
            raise BackendUnavailable(message) from failure
        finally:
            if is_kept:
                self._granted[grant.claim.owner] = granted
            else:
                # explicitly: processes that were left alone on purpose may still have the descriptor
                self._give_up(granted.claim, descriptor)
                self._collect_helper()

    def _note_release(self, granted: Grant, descriptor: int, hold: float) -> None:
        """Write that the lock is free, or on hold, and forget that it was asked for; raises ``OSError``."""
        # the guard, or somebody else, may have freed it: if the next holder has it, this is refused, and nothing of
        # the next holder's is touched
        before = self._own_record(granted) if granted.claim.mode == EXCLUSIVE else None
        if before is not None:
            document = b"null"
            if hold > 0:
                from lockctl.stores.file.hold import describe

                document = describe(granted, hold)
            record = Record(before.sequence + 1, before.token, document, before.reserved)
            layout.write(descriptor, record, durable=hold > 0)
        still_ours = before is not None or granted.claim.mode != EXCLUSIVE
        if still_ours and self._revocation(granted.claim) is not None:
            self._forget_request(granted.claim)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. A helper process waits in the kernel's queues for us; nobody polls for the lock."""
        self.withdraw(claim, timeout=timeout)
        self._collect_helper()
        key = self._key(claim.name)
        try:
            descriptor = self._open_file(claim.name)
        except OSError as failure:
            address.refuse(key, failure)
        self._waited[claim.owner] = descriptor
        self._identity_of(claim)
        try:
            from lockctl.stores.file import ranges, wait

            queued = ranges.has_ranges(self._path, self._open_directory())
            self._helper, given = wait.wait_for(
                descriptor, key, claim, self._wall_us, queued=queued, timeout=timeout, interrupt=interrupt
            )
        except OSError as failure:
            message = f"file: no process to wait for {printable(key)} with: {failure.strerror}"
            raise BackendUnavailable(message) from failure
        if given is not None:
            self._slots[claim.owner] = given
        elif claim.mode != EXCLUSIVE:
            self.withdraw(claim, timeout=timeout)

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        descriptor = self._waited.pop(claim.owner, None)
        if descriptor is not None:
            self._give_up(claim, descriptor)

    def _give_up(self, claim: Claim, descriptor: int) -> None:
        """Free what the open file has locked, and close it: a process that was forked meanwhile may have a copy."""
        try:
            if claim.mode == EXCLUSIVE:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                return
            given = self._slots.pop(claim.owner, None)
            from lockctl.stores.file import share

            share.leave(descriptor, given, claim.owner)
        finally:
            os.close(descriptor)

    def _collect_helper(self) -> None:
        if self._helper is not None:
            from lockctl.stores.file import wait

            wait.collect(self._helper)
            self._helper = None

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        from lockctl.stores.file import inspect, queue, records

        key = self._key(name)
        lock = inspect.find(name, key, queue.KernelLocks()) or inspect.free(name, key)
        return records.with_last_run(lock, self._path, self._prefix + name)

    def look(self, name: str, *, timeout: float) -> LockInfo:
        from lockctl.stores.file import holder

        return holder.look(name, self._key(name)) or self.inspect(name, timeout=timeout)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        from lockctl.stores.file import inspect

        return inspect.find_all(self._path, self._prefix, pattern)

    def revoke(self, name: str, seen: Holder, wanted: Revocation, *, timeout: float) -> int | None:
        """See ``Backend``. With ``now``, all who hold the lock beside the one that was seen lose it, too."""
        from lockctl.stores.file import revoke

        key, file = self._key(name), self._prefix + name
        present = self.inspect(name, timeout=timeout)
        if seen.identity not in [holder.identity for holder in present.holders]:
            return None
        try:
            directory = self._open_directory()
            if not wanted.now:
                revoke.ask(directory, file, key, name, seen, wanted)
                return (seen.token or 0) + 1
            deadline = _deadline(timeout)
            if present.holders[0].ended_at is not None:
                revoke.admit(directory, key, present)
                return revoke.end_hold(directory, file, key, seen, self._wall_us(), deadline)

            def look() -> LockInfo:
                found = self.inspect(name, timeout=timeout)
                revoke.admit(directory, key, found)
                return found

            return revoke.replace_file(directory, file, key, seen, look, self._wall_us(), deadline)
        except PermissionError:
            raise revoke.no_permission(name, key) from None
        except OSError as failure:
            address.refuse(key, failure)

    def last_success(self, name: str, *, timeout: float) -> float | None:
        from lockctl.stores.file import records

        return records.last_success(self._path, self._prefix + name)

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        from lockctl.stores.file import records

        file = self._prefix + grant.claim.name
        records.note_success(self._open_directory(), self._path, file, grant, timeout)

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        from lockctl.stores.file import records

        records.remember(self._open_directory(), self._path, self._prefix + name, run, timeout)

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        from lockctl.stores.file import records

        return records.history_of(self._path, self._prefix + name)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        from lockctl.stores.file import prune

        return prune.find(self._path, self._prefix, pattern, older_than)

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        """See ``Backend``. Only where the kernel can tell that nobody else has the lock file open: see ``prune``."""
        from lockctl.stores.file import prune

        self._key(name)
        return prune.forget(self._open_directory(), self._path, self._prefix + name, older_than, timeout)

    def close(self) -> None:
        self._collect_helper()
        for grant in self._granted.values():
            os.close(_descriptor(grant))
        for owner, descriptor in self._waited.items():
            # a process that was forked meanwhile may have a copy
            if owner in self._slots:
                from lockctl.kernel import unlock

                unlock(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
        self._granted.clear()
        self._waited.clear()
        self._slots.clear()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _open_file(self, name: str) -> int:
        """A descriptor of the lock file, in the directory that is at its path now. Raises ``OSError``."""
        if self._directory is not None and not address.same_file(self._path, self._directory):
            os.close(self._directory)  # it was removed, or renamed, while we waited
            self._directory = None
        return address.open_file(self._open_directory(), self._prefix + name)

    def _open_directory(self) -> int:
        if self._directory is None:
            self._directory = address.open_directory(self._path, any_filesystem=self._any_filesystem)
        return self._directory

    def _revocation(self, claim: Claim) -> tuple[str, str] | None:
        """Who wants the lock back from this claim, and why."""
        directory, request = self._open_directory(), self._request_file(claim)
        if not address.exists(directory, request):
            return None
        from lockctl.stores.file import revoke

        return documents.read_revocation(revoke.read_request(directory, request), claim.owner)

    def _forget_request(self, claim: Claim) -> None:
        try:
            os.unlink(self._request_file(claim), dir_fd=self._open_directory())
        except OSError:
            return  # another user's, in a sticky directory: it is for an owner that nobody will have again

    def _request_file(self, claim: Claim) -> str:
        given = self._slots.get(claim.owner)
        return address.request_file(self._prefix + claim.name, None if given is None else given.number)


def _descriptor(grant: Grant) -> int:
    """Of a lock that was granted here; every one has its own."""
    return -1 if grant.descriptor is None else grant.descriptor


def _deadline(timeout: float, interrupt: int | None = None) -> Deadline:
    from lockctl.wire.deadline import Deadline

    return Deadline(timeout, interrupt)
