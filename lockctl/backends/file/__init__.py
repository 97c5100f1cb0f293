"""Locks of one host: ``flock(2)`` on a file that is never unlinked.

The kernel frees the lock when the last process that has the descriptor is gone, whatever happened to
lockctl; the command inherits it on purpose. ``flock(1)`` on the same path excludes and is excluded.
The file keeps the token and says who holds it; only the kernel's lock decides whether it is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from lockctl import documents
from lockctl.backends.file import place
from lockctl.backends.file import record as records
from lockctl.backends.file.record import NotARecord, Record
from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from lockctl.model import Capabilities, Grant
from lockctl.names import ALLOWED, printable
from lockctl.url import take_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ClassVar

    from lockctl.model import Claim, Holder, LockInfo
    from lockctl.url import Url

NEVER_HELD = Record(0, 0, b"null")
REVOKED = ".revoked."  # a request to give a lock back is a file of this name; no lock's name begins so
TRIES = 100  # replacements of the file under our eyes before something is badly wrong


class FileBackend:
    """Lock files in one directory. Not for use by two threads at once, except :meth:`renew`."""

    parameters: ClassVar[dict[str, str]] = {"prefix": "", "any_filesystem": "no"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        scheme="file",
        fencing="strict",
        many_hosts=False,
        kernel_held=True,
        leased=False,
        fair=False,
        lists_waiters=True,
        revocable=True,
        rate_error=0.0,
        heartbeat=0.5,
        freed_when="the last process of the job has ended (the kernel frees it)",
        token_from="a counter in the lock file, never below the host's clock in microseconds",  # noqa: S106
        survives="nothing can fail: there is no server",
        clocks="none: the lock has no time limit",
    )

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
        self._granted: dict[str, int] = {}  # owner -> descriptor of the lock that it holds
        self._helper: int | None = None  # pid of the last helper that waited for us
        self._waited: dict[str, int] = {}  # owner -> descriptor that a wait may have got the lock on

    @classmethod
    def from_url(cls, url: Url) -> FileBackend:
        """``file:///DIRECTORY?prefix=P&any_filesystem=yes``; raises ``ConfigError``."""
        if url.hosts or url.user or url.password or not url.path.startswith("/"):
            message = f"file: a URL has three slashes and an absolute path, such as file:///var/lib/lockctl, not {url}"
            raise ConfigError(message)
        params = take_params(url, cls.parameters)
        if params["any_filesystem"] not in ("yes", "no"):
            raise ConfigError("file: any_filesystem is yes or no")
        prefix = params["prefix"]
        if not ALLOWED.issuperset(prefix) or prefix.startswith((".", "-")):
            allowed = "only letters, digits and ._:@+-, and not begin with . or -"
            message = f"file: prefix {printable(prefix)!r} may have {allowed}"
            raise ConfigError(message)
        directory = url.path.rstrip("/") or "/"
        return cls(directory, prefix=prefix, any_filesystem=params["any_filesystem"] == "yes")

    def _key(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{self._prefix}{name}"

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        """See ``Backend``."""
        key = self._key(claim.name)
        if claim.owner in self._granted:
            return self._again(claim, key)
        try:
            for _ in range(TRIES):
                descriptor = self._waited.pop(claim.owner, None)
                if descriptor is None:
                    descriptor = self._open(claim.name)
                grant, final = self._take(claim, key, descriptor)
                if final:
                    return grant
        except OSError as failure:
            place.refuse(key, failure)
        message = f"file: {printable(key)} is replaced again and again by another program"
        raise BackendUnavailable(message)

    def _take(self, claim: Claim, key: str, descriptor: int) -> tuple[Grant | None, bool]:
        """(grant or ``None``, whether that is the answer). The descriptor is closed unless granted."""
        granted = False
        try:
            if not _try_flock(descriptor):
                return None, place.same_file(key, descriptor)
            if not place.same_file(key, descriptor):
                return None, False
            before = self._read(key, descriptor)
            token = max(before.token + 1, self._wall_us())
            document = records.describe(claim, _identity(claim.pid, self._helper))
            records.write(descriptor, Record(before.sequence + 1, token, document), durable=True)
            if not place.same_file(key, descriptor):
                return None, False
            self._granted[claim.owner] = descriptor
            granted = True
            return self._grant(claim, key, token, descriptor), True
        finally:
            if not granted:
                os.close(descriptor)

    def _again(self, claim: Claim, key: str) -> Grant | None:
        descriptor = self._granted[claim.owner]
        record = records.read(descriptor)
        if record is None or not _try_flock(descriptor) or not place.same_file(key, descriptor):
            return None
        return self._grant(claim, key, record.token, descriptor)

    def _grant(self, claim: Claim, key: str, token: int, descriptor: int) -> Grant:
        return Grant(
            claim=claim,
            token=token,
            domain=f"file:{os.uname().nodename}:{self._path}",
            key=key,
            ttl=claim.ttl,
            descriptor=descriptor,
        )

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        """See ``Backend``: looks whether the path is still our file and nobody asked for it back."""
        descriptor = self._granted.get(grant.claim.owner)
        if descriptor is None:
            raise LeaseLost("it was released")
        try:
            if not place.same_file(grant.key, descriptor):
                message = f"{printable(grant.key)} was replaced or removed"
                raise LeaseLost(message)
            if not _try_flock(descriptor) or not records.owned_by(descriptor, grant.claim.owner, grant.token):
                raise LeaseLost("the lock was freed, and may be another's by now")
            asked = self._revocation(grant.claim)
        except OSError as failure:
            message = f"file: cannot look at {printable(grant.key)}: {failure.strerror}"
            raise BackendUnavailable(message) from failure
        if asked is not None:
            raise LeaseRevoked(*map(printable, asked))
        return grant

    def release(self, grant: Grant, *, timeout: float) -> None:
        """See ``Backend``."""
        descriptor = self._granted.pop(grant.claim.owner, None)
        if descriptor is None:
            return
        try:
            # if it was freed for us, the next holder has it and this is refused
            if _try_flock(descriptor) and records.owned_by(descriptor, grant.claim.owner, grant.token):
                before = records.read(descriptor) or NEVER_HELD
                records.write(descriptor, Record(before.sequence + 1, before.token, b"null"), durable=False)
                if self._revocation(grant.claim) is not None:
                    os.unlink(REVOKED + self._prefix + grant.claim.name, dir_fd=self._open_directory())
            # explicitly: processes that were left alone on purpose may still have the descriptor
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError as failure:
            message = f"file: cannot note the release in {printable(grant.key)}: {failure.strerror}"
            raise BackendUnavailable(message) from failure
        finally:
            os.close(descriptor)

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        """See ``Backend``. A helper process blocks in the kernel's queue for us; nobody polls for the lock."""
        self.withdraw(claim, timeout=timeout)
        key = self._key(claim.name)
        try:
            descriptor = self._open(claim.name)
        except OSError as failure:
            place.refuse(key, failure)
        self._waited[claim.owner] = descriptor
        from lockctl.backends.file import waiting

        try:
            self._helper = waiting.wait_for(descriptor, key, claim.ttl, timeout=timeout, interrupt=interrupt)
        except OSError as failure:
            message = f"file: no process to wait for {printable(key)} with: {failure.strerror}"
            raise BackendUnavailable(message) from failure

    def withdraw(self, claim: Claim, *, timeout: float) -> None:
        """See ``Backend``."""
        descriptor = self._waited.pop(claim.owner, None)
        if descriptor is not None:
            _give_up(descriptor)

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        """See ``Backend``."""
        from lockctl.backends.file import seen

        key = self._key(name)
        return seen.find(name, key, seen.kernel_locks()) or seen.free(name, key)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        """See ``Backend``."""
        from lockctl.backends.file import seen

        return seen.find_all(self._path, self._prefix, pattern)

    def revoke(self, name: str, seen: Holder, *, now: bool, by: str, reason: str, timeout: float) -> int | None:
        """See ``Backend``."""
        from lockctl.backends.file import revocation

        key = self._key(name)
        present = self.inspect(name, timeout=timeout)
        if present.state == "free" or (present.holders[0].owner, present.holders[0].token) != (seen.owner, seen.token):
            return None
        if not now and seen.owner is None:
            message = f"{name} is held by another program (pid {seen.pid}), which cannot be told: end it, or use --now"
            raise LockctlError(message)
        try:
            directory = self._open_directory()
            if now:
                floor = max((seen.token or 0) + 1, self._wall_us())
                return revocation.replace_file(directory, self._prefix + name, key, floor)
            revocation.ask(directory, REVOKED + self._prefix + name, str(seen.owner), by, reason)
        except OSError as failure:
            place.refuse(key, failure)
        return (seen.token or 0) + 1

    def close(self) -> None:
        """See ``Backend``."""
        for descriptor in self._granted.values():
            os.close(descriptor)
        for descriptor in self._waited.values():
            _give_up(descriptor)
        self._granted.clear()
        self._waited.clear()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _open_directory(self) -> int:
        if self._directory is None:
            self._directory = place.open_directory(self._path, any_filesystem=self._any_filesystem)
        return self._directory

    def _open(self, name: str) -> int:
        directory = self._open_directory()
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        file = self._prefix + name
        for _ in range(TRIES):
            try:
                descriptor = os.open(file, flags, dir_fd=directory)
                break
            except FileNotFoundError:
                pass
            try:
                descriptor = self._create(file, flags, directory)
                break
            except FileExistsError:
                continue
        else:
            raise OSError(errno.EIO, "it comes and goes")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.ENXIO, "not a regular file")
        return descriptor

    def _create(self, file: str, flags: int, directory: int) -> int:
        descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        try:
            os.fchmod(descriptor, place.mode_for_files(directory))
            os.fsync(directory)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _read(self, key: str, descriptor: int) -> Record:
        try:
            return records.read(descriptor) or NEVER_HELD
        except NotARecord:
            message = f"file: {printable(key)} has content that is not lockctl's: refusing to write over it"
            raise ConfigError(message) from None

    def _revocation(self, claim: Claim) -> tuple[str, str] | None:
        """Who wants the lock back from this claim, and why."""
        try:
            descriptor = os.open(
                REVOKED + self._prefix + claim.name,
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
                dir_fd=self._open_directory(),
            )
        except FileNotFoundError:
            return None
        try:
            return documents.read_revocation(os.read(descriptor, documents.LARGEST), claim.owner)
        finally:
            os.close(descriptor)


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _give_up(descriptor: int) -> None:
    """Close, and free what a wait may have been granted: a process forked meanwhile may have a copy."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _identity(pid: int, helper: int | None) -> dict[str, int | float | str | None]:
    from lockctl.supervise.tree import start_time

    return {
        "pid_started": start_time(pid),
        "pid_ns": records.pid_namespace(),
        "boot_id": records.boot_id(),
        "taken_by": os.getpid(),
        "helper": helper,
        "acquired_at": time.time(),
    }
