"""Passwords that are not in a URL: read from a file, or printed by a command.

They are read once when the program starts, for all its locks, and again when a connection is made later: a job may
outlive its password. What cannot be read again (a pipe, a command that fails) leaves the one that was read last.
"""

from __future__ import annotations

import _thread
import os
import select
from _signal import SIGKILL, SIGPIPE, SIGXFSZ

from lockctl import clock, kernel
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import KIND, REGULAR, SECRETS, Password, Url, absolute
from lockctl.value import replace

LONGEST = 65536  # bytes: longer is no password, but the wrong file
LIMIT = 10.0  # seconds for a command to end, or for what a pipe or a terminal is to give
END_LIMIT = 1.0  # seconds for a command to be gone after SIGKILL
FRESH = 5.0  # seconds for which what a command printed counts for further connections
# the status is printed, too: in the keeper of a job the child may be reaped by another thread
IN_DIRECTORY = 'cd -- "$1" 2>/dev/null; /bin/sh -c "$2"; printf "\\n%d" "$?"'
IGNORED_BY_PYTHON = (SIGPIPE, SIGXFSZ)  # a command would inherit that


def resolve(url: Url) -> Url:
    """*url* with its password; raises ``ConfigError``, which names the place and never what was there."""
    named = [(name, content) for name, content in url.params if name in SECRETS]
    if not named:
        return url
    places = [*(["the URL or profile itself"] if url.password is not None else []), *(name for name, _ in named)]
    if len(places) > 1:
        raise ConfigError(f"{url.scheme}: a password must be given only once: {' or '.join(places)}")
    ((name, content),) = named
    password = _source(name, content).first()
    return replace(url, password=password, params=tuple(pair for pair in url.params if pair[0] not in SECRETS))


def from_file(path: str, name: str) -> Password:
    """The password in a file, which may be a pipe; *name* is the setting that says so. Raises ``ConfigError``."""
    return _source(name, path).first()


_sources: dict[tuple[str, str], Source] = {}


def _source(name: str, content: str) -> Source:
    return _sources.setdefault((name, content), Source(name, content))


class Source:
    """Where a password comes from: the file or command of one setting, for all that use it."""

    def __init__(self, name: str, content: str) -> None:
        """Nothing is read yet. Relative to where the command was started."""
        self._name = name
        self._content = content
        self._is_command = name.endswith("_command")
        self._path = absolute("." if self._is_command else content)
        self._busy = _thread.allocate_lock()
        self._password: Password | None = None
        self._read_at = 0.0

    def first(self) -> Password:
        """The password; read now if it was not before. Raises ``ConfigError``."""
        if self._password is None:
            self._read()
        assert self._password is not None
        return self._password

    def again(self, limit: float) -> str:
        """The password for a new connection; if it cannot be read, then as it was. Raises ``BackendUnavailable``.

        *limit*, in seconds, is for waiting until another thread has read it; who calls this bounds the rest.
        """
        if not self._may_have_changed():
            return self.first()
        if not self._busy.acquire(timeout=min(limit, LIMIT)):
            raise BackendUnavailable(f"{self._name}: no password in time")
        try:
            if self._may_have_changed():
                self._read()
        except ConfigError:
            self._read_at = clock.boottime()
        finally:
            self._busy.release()
        return self.first()

    def _may_have_changed(self) -> bool:
        if self._is_command:
            return clock.boottime() - self._read_at > FRESH
        try:
            return os.stat(self._path).st_mode & KIND == REGULAR  # a pipe gives what it has only once
        except OSError:
            return False

    def _read(self) -> None:
        if self._is_command:
            text = _one_line(printed_by(self._content, self._name, self._path), self._name)
        else:
            text = _in_file(self._path, self._name)
        password = Password(text)
        password.again, password.name = self.again, self._name
        self._password, self._read_at = password, clock.boottime()


def _in_file(path: str, name: str) -> str:
    place = f"{name} {printable(path)}"
    try:
        # a FIFO that nobody writes to must not hold us up: signals wait to be read, and would not end it
        reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            data = _collect(reading, clock.boottime() + LIMIT)
        finally:
            os.close(reading)
    except OSError as failure:
        raise ConfigError(f"{place}: {failure.strerror}") from None
    if data is None:
        raise ConfigError(f"{place}: no password within {LIMIT:g} s, or it is too large")
    return _one_line(data, place)


def _one_line(data: bytes, place: str) -> str:
    try:
        password = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or "\0" in password:
        raise ConfigError(f"{place}: the password must be one line of UTF-8 text")
    return password


def printed_by(line: str, name: str, directory: str, variables: dict[str, str] | None = None) -> bytes:
    """What ``/bin/sh -c line`` prints in a directory; what it says on stderr goes where ours goes.

    *variables* are added to its environment. *name* is for messages. Raises ``ConfigError``.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", IN_DIRECTORY, "sh", directory, line],
            {**os.environb, **{os.fsencode(name): os.fsencode(text) for name, text in (variables or {}).items()}},
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, writing, 1)],
            setsigmask=(),
            setsigdef=IGNORED_BY_PYTHON,
            setpgroup=0,
        )
    except OSError as failure:
        os.close(reading)
        raise ConfigError(f"{name}: cannot start /bin/sh with {os.devnull}: {failure.strerror}") from None
    finally:
        os.close(writing)
    try:
        data = _collect(reading, clock.boottime() + LIMIT)
    finally:
        os.close(reading)
    if data is None:
        try:
            os.killpg(pid, SIGKILL)
        except (PermissionError, ProcessLookupError):
            pass  # it has become another user's (sudo), and is left behind
    _reap(pid)
    if data is None:
        raise ConfigError(f"{name}: the command did not end within {LIMIT:g} s, or printed too much")
    printed, _, status = data.rpartition(b"\n")
    if status != b"0":
        message = f"{name}: the command failed with status {printable(status[:9].decode('utf-8', 'replace')) or '?'}"
        raise ConfigError(message)
    return printed


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
