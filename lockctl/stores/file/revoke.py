"""Asking a holder for its lock, and taking it away.

Who may replace files of the directory may take its locks back: in a sticky directory root, the owner of the
directory and the user whose job it is, elsewhere everybody who may write to it. Who takes a lock away at once looks
at who holds it: the kernel lets the user replace its file who made it, which may have been long ago. A holder sees
to it when it finds a request.
"""

from __future__ import annotations

import fcntl
import os
import stat
from errno import EISDIR, EPERM

from lockctl import documents
from lockctl.errors import ConfigError, LockctlError, another_program, only_a_hold
from lockctl.names import printable
from lockctl.stores.file import address, layout, ranges
from lockctl.stores.file.layout import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.model import Holder, LockInfo, Revocation
    from lockctl.wire.deadline import Deadline

NOBODY = b"null"
TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY  # a file of somebody else


def ask(directory: int, file: str, key: str, name: str, holder: Holder, wanted: Revocation) -> None:
    """Leave a request beside the lock, whole or not at all; its holder looks for it at every heartbeat.

    Raises ``LockctlError`` for a holder that nobody, or not this user, can ask for anything, and ``OSError``.
    """
    if holder.owner is None:
        os.close(os.open(key, TO_READ))  # what cannot be read may well be ours
        raise another_program(name, f" (pid {holder.pid})" if holder.pid else " (its process is not known)")
    if holder.ended_at is not None:
        raise only_a_hold(name)
    number, user = _admitted(directory, key, name, holder)
    document = documents.describe_revocation(holder.owner, wanted.by, wanted.reason)
    _put(directory, address.request_file(file, number), document, user)


def read_request(directory: int, request: str) -> bytes | None:
    """What is asked of us, by somebody who may; ``None`` if nothing is.

    What cannot be read is nothing: another user can put whatever it likes there, and the lock is ours all the same.
    """
    try:
        descriptor = os.open(request, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _obeys(directory, os.geteuid(), found.st_uid):
            return None
        return os.read(descriptor, documents.LARGEST)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def no_permission(name: str, key: str) -> ConfigError:
    """The error for a lock of another user, which this one may neither read nor replace."""
    return ConfigError(f"{name}: no permission to use {printable(key)}: run this as root, or as the user who holds it")


def _obeys(directory: int, user: int, asking: int) -> bool:
    """Whether a holder that runs as *user* gives its lock back when the user *asking* wants it."""
    found = os.fstat(directory)
    return asking in (0, user, found.st_uid) or not found.st_mode & stat.S_ISVTX


def admit(directory: int, key: str, seen: LockInfo) -> None:
    """Raise ``LockctlError`` if one of those who hold the lock would not obey us, as far as they are known."""
    for holder in seen.holders:
        if holder.owner is not None:
            _admitted(directory, key, seen.name, holder)


def _admitted(directory: int, key: str, name: str, holder: Holder) -> tuple[int | None, int | None]:
    """Slot and user of a holder, as far as they are known. Raises ``LockctlError`` if it does not obey us."""
    number, written = _written(key, holder)
    user = documents.whole(written.get("uid"))
    if user is not None and not _obeys(directory, user, os.geteuid()):
        raise LockctlError(
            f"{name} is held by user {user}: in a sticky directory only that user, root and the owner of the"
            " directory may take it back"
        )
    return number, user


def _written(key: str, holder: Holder) -> tuple[int | None, dict[str, Any]]:
    """In which slot of a lock file this holder is, if it is not alone, and what it wrote there about itself."""
    from lockctl.stores.file import share

    descriptor = os.open(key, TO_READ)
    try:
        number = share.find(descriptor, holder.owner, holder.token)
        try:
            record = layout.read(descriptor) if number is None else layout.read_page(descriptor, number)
        except layout.NotARecord:
            record = None
        document = (record.holder if record else None) or {}
        return number, document if document.get("owner") == holder.owner else {}
    finally:
        os.close(descriptor)


def end_hold(directory: int, file: str, key: str, holder: Holder, floor: int, deadline: Deadline) -> int | None:
    """Free a lock that nobody has any more; the smallest token to come, ``None`` if it is no more that hold.

    The file stays: another program, which does not see holds, may have it by now, and does not lose it.
    """
    descriptor = address.open_file(directory, file)
    try:
        ranges.tried_until(lambda: address.try_flock(descriptor), key, deadline)
        before = layout.read_ours(descriptor, key)
        present = before.holder or {}
        if (present.get("owner"), before.written) != (holder.owner, holder.token) or "ended_at" not in present:
            return None
        floor = max(floor, before.token + 1)
        layout.write(descriptor, Record(before.sequence + 1, floor, NOBODY), durable=True)
        return floor + 1
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def replace_file(
    directory: int, file: str, key: str, holder: Holder, look: Callable[[], LockInfo], floor: int, deadline: Deadline
) -> int | None:
    """Put a new lock file in the place of the held one; the smallest token to come.

    ``None``: by *look*, which shows the lock as it is now, the holder is not there any more, and nothing was done.
    No call of the kernel takes a flock away. Who comes now locks the new file; the old holder sees at
    its next heartbeat that the path is not its file any more. Between the look and the replacement nobody is granted
    the lock: see :func:`await_decision`. Raises ``BackendUnavailable``, ``OSError``.
    """
    descriptor = address.open_file(directory, file)
    try:
        if ranges.has_ranges(key, directory):  # else nobody can be kept out for this moment, and it is only a short one
            ranges.tried_until(lambda: ranges.take(descriptor, address.REVOKING), key, deadline)
        present = look().holders if address.same_file(key, descriptor) else ()
        if holder.identity not in [each.identity for each in present]:
            return None
        floor = max(floor, _given(descriptor) + 1, *[(each.token or 0) + 1 for each in present])

        def write(new: int) -> None:
            layout.write(new, Record(1, floor, NOBODY), durable=True)

        _replace(directory, file, write)
        return floor + 1
    finally:
        os.close(descriptor)


def _given(descriptor: int) -> int:
    """The greatest token that may have been given, as far as the file says."""
    try:
        return (layout.read(descriptor) or layout.NEVER_HELD).token
    except layout.NotARecord:
        return 0


def await_decision(path: str, directory: int, key: str, descriptor: int, deadline: Deadline) -> None:
    """Return when nobody is about to take the lock of this open file away from who had it before.

    Who was granted the lock wrote who it is and then asks this; who takes a lock away first keeps everybody here, and
    then looks at what is written. So one of the two sees the other.
    Raises ``BackendUnavailable``, ``RequestInterrupted``, ``OSError``.
    """
    if ranges.has_ranges(path, directory):
        ranges.tried_until(
            lambda: not ranges.is_taken(descriptor, address.REVOKING, address.REVOKING + 1), key, deadline
        )


def _put(directory: int, file: str, content: bytes, user: int | None) -> None:
    """Put a request there that its holder, who runs as *user* if that is known, can read and remove."""

    def write(descriptor: int) -> None:
        layout.write_at(descriptor, content, 0)
        os.fchmod(descriptor, 0o644)
        if user is not None and os.geteuid() == 0:
            os.fchown(descriptor, user, -1)  # so that it can remove it in a sticky directory
        os.fsync(descriptor)

    try:
        _replace(directory, file, write)
    except OSError as failure:
        if failure.errno not in (EISDIR, EPERM) or not address.exists(directory, file):
            raise
        message = f"file: {printable(file)} is in the way beside the lock, and is another user's: remove it"
        raise ConfigError(message) from failure


def _replace(directory: int, file: str, write: Callable[[int], None]) -> None:
    """Put a new file, filled by *write*, in the place of *file*, whole or not at all. Raises ``OSError``."""
    # not by our pid: in a container the next process often has the pid of one that was killed here
    temporary = f".new.{os.urandom(8).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        address.open_to_writers(descriptor, directory)
        write(descriptor)
        os.rename(temporary, file, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
    os.fsync(directory)
