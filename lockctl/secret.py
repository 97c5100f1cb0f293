"""Passwords that are not in a URL: read from a file, or printed by a command."""

from __future__ import annotations

import os
import select

from lockctl import clock, kernel
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.url import SECRETS
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url

LONGEST = 65536  # bytes: longer is no password, but the wrong file
LIMIT = 10.0  # seconds for a command to end, or for what a pipe or a terminal is to give
END_LIMIT = 1.0  # seconds for a command to be gone after SIGKILL
SIGPIPE, SIGXFSZ = 13, 25  # Python ignores them, and a command would inherit that
SIGKILL = 9


def resolve(url: Url) -> Url:
    """*url* with its password; raises ``ConfigError``, which names the place and never what was there."""
    named = [(name, content) for name, content in url.params if name in SECRETS]
    if not named:
        return url
    places = [*(["the URL or profile itself"] if url.password is not None else []), *(name for name, _ in named)]
    if len(places) > 1:
        message = f"{url.scheme}: a password can come from one place: {' or '.join(places)}"
        raise ConfigError(message)
    ((name, content),) = named
    password = _one_line(_printed_by(content, name), name) if name.endswith("_command") else from_file(content, name)
    return replace(url, password=password, params=tuple(pair for pair in url.params if pair[0] not in SECRETS))


def from_file(path: str, name: str) -> str:
    """The password in a file, which may be a pipe; *name* is the setting that says so. Raises ``ConfigError``."""
    place = f"{name} {printable(path)}"
    try:
        # a FIFO that nobody writes to must not hold us up: signals wait to be read, and would not end it
        reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            data = _collect(reading, clock.boottime() + LIMIT)
        finally:
            os.close(reading)
    except OSError as failure:
        message = f"{place}: {failure.strerror}"
        raise ConfigError(message) from None
    if data is None:
        message = f"{place}: gave no password within {LIMIT:g} s, or is too large for one"
        raise ConfigError(message)
    return _one_line(data, place)


def _one_line(data: bytes, place: str) -> str:
    try:
        password = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or "\0" in password:
        message = f"{place}: must give one line of UTF-8 text, the password"
        raise ConfigError(message)
    return password


def _printed_by(line: str, name: str) -> bytes:
    """What ``/bin/sh -c line`` prints; what it says on stderr goes where ours goes."""
    until = clock.boottime() + LIMIT
    reading, writing = os.pipe2(os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", line],
            os.environb,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writing, 1)],
            setsigmask=(),
            setsigdef=(SIGPIPE, SIGXFSZ),
            setpgroup=0,
        )
    except OSError as failure:
        os.close(reading)
        raise ConfigError(f"{name}: cannot start /bin/sh: {failure.strerror}") from None
    finally:
        os.close(writing)
        os.close(null)
    try:
        data = _collect(reading, until)
    finally:
        os.close(reading)
    # a command may close its stdout long before it ends
    status = None if data is None else _status(pid, until)
    if data is None or status is None:
        try:
            os.killpg(pid, SIGKILL)
        except PermissionError:
            pass  # it has become another user's (sudo), and is left behind
        _status(pid, clock.boottime() + END_LIMIT)
        message = f"{name}: the command did not end within {LIMIT:g} s, or printed too much"
        raise ConfigError(message)
    if status:
        message = f"{name}: the command failed with status {os.waitstatus_to_exitcode(status)}"
        raise ConfigError(message)
    return data


def _collect(reading: int, until: float) -> bytes | None:
    """All that comes, up to its end, or of a terminal one line; ``None`` when it is too late or too much."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = b""
    while len(data) <= LONGEST:
        left = until - clock.boottime()
        if left <= 0:
            return None
        if poll.poll(left * 1000 + 1):
            piece = os.read(reading, LONGEST + 1)
            data += piece
            if not piece or os.isatty(reading):
                return data
    return None


def _status(pid: int, until: float) -> int | None:
    """How a child of ours ended, as ``waitpid`` has it; ``None``: it has not, at *until* on the clock of boots."""
    end = kernel.process_descriptor(pid)
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll(max(until - clock.boottime(), 0.0) * 1000 + 1)
        ended, status = os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(end)
    return status if ended else None
