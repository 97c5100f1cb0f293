"""What a line for ``/bin/sh`` prints, with a limit for its time; it ends with this process, however that ends."""

from __future__ import annotations

import os
import select
from _signal import SIGPIPE, SIGXFSZ

from lockctl import kernel
from lockctl.errors import BackendUnavailable, ConfigError, Interrupted, RequestInterrupted
from lockctl.names import printable
from lockctl.wire.deadline import READABLE, Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LONGEST = 65536  # bytes that are read: longer is no password, but the wrong file
LIMIT = 10.0  # seconds for a command to end, or for what a pipe or a terminal is to give
END_LIMIT = 1.0  # seconds for a command to be gone after SIGKILL
# the status is printed, too: in the keeper of a job the child may be reaped by another thread
IN_DIRECTORY = 'cd -- "$1" 2>/dev/null; /bin/sh -c "$2"; printf "\\n%d" "$?"'
# The first of the command's process group, which kills that unless it is told that all was printed: also when this
# process ends, in which alone the other end of its stdin is open. posix_spawn(3) sets no death signal, and a fork
# beside other threads may hang.
WATCH = "read -r _ || kill -s KILL 0"
IGNORED_BY_PYTHON = (SIGPIPE, SIGXFSZ)  # a command would inherit that


def printed_by(
    line: str,
    name: str,
    directory: str,
    deadline: Deadline,
    *,
    variables: dict[str, str] | None = None,
    ending_signal: Callable[[], int | None] | None = None,
) -> bytes:
    """What ``/bin/sh -c line`` prints in a directory; what it says on stderr goes where ours goes.

    *variables* are added to its environment. *name* is for messages. It is ended after ``LIMIT``, at the *deadline* and
    by its interrupt, with what it has started. Raises ``ConfigError``, ``BackendUnavailable`` if the *deadline* was
    first, and when that is interrupted ``RequestInterrupted``, or with an *ending_signal* ``Interrupted``.
    """
    environment = {**os.environb, **{os.fsencode(name): os.fsencode(text) for name, text in (variables or {}).items()}}
    words = [IN_DIRECTORY, "sh", directory, line]
    data = _output(words, environment, deadline.sooner(LIMIT), name, ending_signal)
    if data is None:
        if deadline.left() <= 0:
            raise deadline.passed(name)
        raise ConfigError(f"{name}: the command did not end within {LIMIT:g} s, or printed too much")
    printed, _, status = data.rpartition(b"\n")
    if status != b"0":
        message = f"{name}: the command failed with status {printable(status[:9].decode('utf-8', 'replace')) or '?'}"
        raise ConfigError(message)
    return printed


def _output(
    words: list[str],
    environment: dict[bytes, bytes],
    deadline: Deadline,
    name: str,
    ending_signal: Callable[[], int | None] | None,
) -> bytes | None:
    """All that a shell prints, ``None`` as :func:`collect` says: it is ended then, with all in its process group."""
    pids: list[int] = []
    ends: list[int] = []
    try:
        ends += os.pipe2(os.O_CLOEXEC)
        ends += os.pipe2(os.O_CLOEXEC)
        reading, writing, listening, telling = ends
        try:
            pids.append(_spawn(0, [WATCH], {}, [(os.POSIX_SPAWN_DUP2, listening, 0), *map(_nothing, (1, 2))]))
            pids.append(_spawn(pids[0], words, environment, [_nothing(0), (os.POSIX_SPAWN_DUP2, writing, 1)]))
        except OSError as failure:
            raise ConfigError(f"{name}: cannot start /bin/sh with {os.devnull}: {failure.strerror}") from None
        finally:
            ends.remove(writing)
            os.close(writing)
        data = collect(reading, deadline, name, ending_signal)
        if data is not None:
            os.write(telling, b"\n")
    finally:
        for descriptor in ends:
            os.close(descriptor)
        for pid in pids:
            _reap(pid)
    return data


def _spawn(group: int, words: list[str], environment: dict[bytes, bytes], actions: list[tuple[Any, ...]]) -> int:
    """The pid of a shell in that process group, 0: its own. Raises ``OSError``."""
    return os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", *words],
        environment,
        file_actions=actions,
        setsigmask=(),
        setsigdef=IGNORED_BY_PYTHON,
        setpgroup=group,
    )


def _nothing(number: int) -> tuple[Any, ...]:
    return os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0


def collect(
    reading: int, deadline: Deadline, where: str, ending_signal: Callable[[], int | None] | None
) -> bytes | None:
    """All that comes, up to its end, or of a terminal one line; ``None``: it is too late, or too much.

    Raises ``RequestInterrupted``, or with an *ending_signal* ``Interrupted``.
    """
    data = b""
    while len(data) <= LONGEST:
        try:
            deadline.wait(reading, READABLE, where)
        except BackendUnavailable:
            return None
        except RequestInterrupted:
            if ending_signal is None:
                raise
            signum = ending_signal()
            if signum is None:
                continue
            raise Interrupted(signum) from None
        piece = os.read(reading, LONGEST + 1)
        data += piece
        if not piece or os.isatty(reading):
            return data
    return None


def _reap(pid: int) -> None:
    """Leave no zombie of a child that ends within a moment."""
    try:
        end = kernel.process_descriptor(pid)
    except OSError:
        return  # it was reaped already
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll(END_LIMIT * 1000)
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
    finally:
        os.close(end)
