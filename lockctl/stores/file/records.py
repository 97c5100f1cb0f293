"""What is kept of a lock beside its file: when a run last succeeded, and the history of its runs.

The names of these files begin with a dot, as no lock's does. The success is a file of the same form as a lock
file, the history one JSON document a line, appended, and cut when it has become long. Nothing is renamed: in a
sticky directory, another user's file can be written but not replaced.
"""

from __future__ import annotations

import fcntl
import os
import stat
from errno import ENXIO

from lockctl import clock, documents, history
from lockctl.errors import ConfigError
from lockctl.stores.file import address, layout
from lockctl.stores.file.layout import Record, write_at
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Grant, LockInfo, Run
SUCCESS, HISTORY = ".success.", ".history."  # before the name of the file of the lock
LONGEST = 1 << 19  # bytes of a history before it is cut
ENOUGH = LONGEST // 4  # bytes of one kind of runs that are kept then, which is more than they should have
NOT_STARTED = b'"started_at":null'
LOOKS = 5  # at a file that changes while it is read


def note_success(directory: int, path: str, file: str, grant: Grant, timeout: float) -> None:
    """Note that a run under this grant succeeded; it has reached the disk when this returns."""
    key = _key(path, SUCCESS, file)
    document = b'{"owner":%s,"at":%s}' % (documents.plain(grant.claim.owner).encode(), repr(grant.at).encode())

    def write(descriptor: int) -> None:
        before = layout.read_ours(descriptor, key)
        if not documents.is_newer(grant.at, _time_in(before), clock.wall()):
            return
        layout.write(descriptor, Record(before.sequence + 1, 0, document), durable=True)

    change(directory, SUCCESS + file, key, timeout, write)


def last_success(path: str, file: str) -> float | None:
    """When the run began that was noted last. Raises ``ConfigError`` for a file that is not ours."""
    key = _key(path, SUCCESS, file)
    try:
        descriptor = _open_for_reading(key)
        if descriptor is None:
            return None
        try:
            return _time_in(layout.read_ours(descriptor, key))
        finally:
            os.close(descriptor)
    except OSError as failure:
        address.refuse(key, failure)


def _time_in(record: Record) -> float | None:
    return documents.seconds((record.holder or {}).get("at"))


def remember(directory: int, path: str, file: str, run: Run, timeout: float) -> None:
    """Add a run to the history of a lock file; if there is no room for it, the history is as it was."""
    # a line that was torn before is ended; it is no document then, and skipped
    data = b"\n" + history.describe(run) + b"\n"

    def append(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if size > LONGEST:
            size = _cut(descriptor, size)
        try:
            write_at(descriptor, data, size)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    change(directory, HISTORY + file, _key(path, HISTORY, file), timeout, append)


def history_of(path: str, file: str) -> tuple[Run, ...]:
    """All runs of a lock file that are kept, the newest first."""
    key = _key(path, HISTORY, file)
    try:
        return history.in_order(run for _, run in _newest(_read_lines(key)))
    except OSError as failure:
        address.refuse(key, failure)


def with_last_run(lock: LockInfo, path: str, file: str) -> LockInfo:
    """*lock* with the newest run that started, if this user may know it."""
    key = _key(path, HISTORY, file)
    try:
        try:
            lines = _read_lines(key)
        except OSError as failure:
            address.refuse(key, failure)
    except ConfigError:
        return lock  # said to who asks for the history
    for line in reversed(lines):
        run = None if NOT_STARTED in line else history.read(line)
        if run is not None and run.started:
            return replace(lock, last_run=run)
    return lock


def _key(path: str, kind: str, file: str) -> str:
    return f"{path.rstrip('/')}/{kind}{file}"


def change(directory: int, file: str, key: str, timeout: float, write: Callable[[int], None]) -> None:
    """Have a file beside the locks changed by one at a time; errors are ``BackendUnavailable`` or ``ConfigError``."""
    try:
        for _ in range(address.TRIES):
            descriptor = address.open_file(directory, file)
            try:
                if not address.try_flock(descriptor):
                    from lockctl.stores.file import ranges
                    from lockctl.wire.deadline import Deadline

                    ranges.tried_until(lambda: address.try_flock(descriptor), key, Deadline(timeout))  # noqa: B023
                if address.same_file(file, descriptor, directory):  # else it was forgotten meanwhile
                    write(descriptor)
                    return
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile may have a copy
                os.close(descriptor)
    except OSError as failure:
        address.refuse(key, failure)


def _cut(descriptor: int, size: int) -> int:
    """Leave only what is to be kept; the new size.

    In place: a crash in between leaves the old end behind the new one, lines that are there twice.
    """
    kept = [line for line, _ in _newest(_tail(descriptor, size))]
    data = b"".join(b"\n" + line + b"\n" for line in reversed(kept))
    write_at(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))
    return len(data)


def _newest(lines: list[bytes]) -> Iterator[tuple[bytes, Run]]:
    """Of each kind of runs as many as are kept, the newest first, none of them twice."""
    seen: set[bytes] = set()
    counts, sizes = {True: 0, False: 0}, {True: 0, False: 0}
    for line in reversed(lines):
        run = None if line in seen else history.read(line)
        if run is None:
            continue
        seen.add(line)
        counts[run.started] += 1
        sizes[run.started] += len(line)
        if counts[run.started] <= history.KEPT and sizes[run.started] <= ENOUGH:
            yield line, run


def _read_lines(path: str) -> list[bytes]:
    descriptor = _open_for_reading(path)
    if descriptor is None:
        return []
    try:
        before, lines = os.fstat(descriptor), list[bytes]()
        for _ in range(LOOKS):
            lines = _tail(descriptor, before.st_size)
            after = os.fstat(descriptor)
            if (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
                break
            before = after
        return lines
    finally:
        os.close(descriptor)


def _tail(descriptor: int, size: int) -> list[bytes]:
    """The last lines of a file, of which another program may have made something huge."""
    return os.pread(descriptor, 2 * LONGEST, max(0, size - 2 * LONGEST)).split(b"\n")


def _open_for_reading(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        address.refuse(path, OSError(ENXIO, "not a regular file"))
    return descriptor
