"""Passwords that are not in a URL: read from a file, or printed by a command.

They are read once when the program starts, for all its locks, and again when a connection is made later: a job may
outlive its password. What cannot be read again (a pipe, a command that fails) leaves the one that was read last.
"""

from __future__ import annotations

import _thread
import os

from lockctl import clock, shell
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import KIND, REGULAR, SECRETS, Named, Url, absolute
from lockctl.value import replace
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Ending = Callable[[], int | None]

UNLIMITED = float("inf")  # seconds for all together: each has ``shell.LIMIT``
FRESH = 5.0  # seconds for which what a command printed counts for further connections
ALSO_NAMED = "_password_file"  # the end of the names of settings for passwords of other servers, which a store knows


def resolve(url: Url, interrupt: int | None = None, ending_signal: Ending | None = None) -> Url:
    """*url* with its password; raises ``ConfigError``, which names the place and never what was there.

    *interrupt* is readable when a signal came, and *ending_signal* then says which one ends the reading, if one does:
    that raises ``Interrupted``. All that a URL names is read here, also what its store asks for afterwards.
    """
    for name, content in url.params:
        if name.endswith(ALSO_NAMED):
            _source(name, content).first(interrupt, ending_signal)
    named = [(name, content) for name, content in url.params if name in SECRETS]
    if not named:
        return url
    places = [*(["the URL or profile itself"] if url.password is not None else []), *(name for name, _ in named)]
    if len(places) > 1:
        raise ConfigError(f"{url.scheme}: a password must be given only once: {' or '.join(places)}")
    ((name, content),) = named
    password = _source(name, content).first(interrupt, ending_signal)
    return replace(url, password=password, params=tuple(pair for pair in url.params if pair[0] not in SECRETS))


def from_file(path: str, name: str) -> Named:
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
        self._password: Named | None = None
        self._read_at = 0.0

    def first(self, interrupt: int | None = None, ending_signal: Ending | None = None) -> Named:
        """The password; read now if it was not before. Raises as :func:`resolve` does."""
        if self._password is None:
            self._read(Deadline(UNLIMITED, interrupt), ending_signal)
        assert self._password is not None
        return self._password

    def again(self, limit: float) -> str:
        """The password for a new connection; if it cannot be read, then as it was. Raises ``BackendUnavailable``.

        *limit*, in seconds, is for waiting until another thread has read it; who calls this bounds the rest.
        """
        if not self._may_have_changed():
            return self.first()
        if not self._busy.acquire(timeout=min(limit, shell.LIMIT)):
            raise BackendUnavailable(f"{self._name}: no password in time")
        try:
            if self._may_have_changed():
                self._read(Deadline(UNLIMITED))
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

    def _read(self, deadline: Deadline, ending_signal: Ending | None = None) -> None:
        if self._is_command:
            printed = shell.printed_by(self._content, self._name, self._path, deadline, ending_signal=ending_signal)
            text = _one_line(printed, self._name)
        else:
            text = _in_file(self._path, self._name, deadline, ending_signal)
        password = Named(text)
        password.again, password.name = self.again, self._name
        self._password, self._read_at = password, clock.boottime()


def _in_file(path: str, name: str, deadline: Deadline, ending_signal: Ending | None) -> str:
    place = f"{name} {printable(path)}"
    try:
        # a FIFO that nobody writes to must not hold us up: signals wait to be read, and would not end it
        reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            data = shell.collect(reading, deadline.sooner(shell.LIMIT), place, ending_signal)
        finally:
            os.close(reading)
    except OSError as failure:
        raise ConfigError(f"{place}: {failure.strerror}") from None
    if data is None:
        raise ConfigError(f"{place}: no password within {shell.LIMIT:g} s, or it is too large")
    return _one_line(data, place)


def _one_line(data: bytes, place: str) -> str:
    try:
        password = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or "\0" in password:
        raise ConfigError(f"{place}: the password must be one line of UTF-8 text")
    return password
