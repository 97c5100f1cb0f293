"""``--log``: the messages of stderr in syslog, in the journal of systemd, or at the end of a file.

Nothing here waits: a datagram that is not taken at once is dropped, and a file is written to as stderr is.
"""

from __future__ import annotations

import _socket
import errno
import os
import stat
import time
from abc import ABC, abstractmethod

from lockctl.cli.writing import write_at_once
from lockctl.clock import utc, wall
from lockctl.names import printable
from lockctl.umask import open_to_owner
from lockctl.url import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.cli.messages import Talk

FACILITY = 3 << 3  # daemon
PRIORITIES = {"trace": 7, "debug": 7, "info": 6, "warning": 4, "error": 3}
LONGEST = 4000  # characters of one message: what syslog takes is limited


def begin(place: str, talk: Talk) -> None:
    """Have what *talk* says written to a *place* as of ``--log``. Raises ``ValueError`` for a file that cannot be."""
    if place not in DAEMONS:
        talk.log = File(place)
        return
    daemon = DAEMONS[place]
    try:
        os.stat(daemon.path)
    except OSError as failure:
        talk("warning", f"--log {place}: {daemon.path}: {failure.strerror}: messages go to stderr alone")
    else:
        talk.log = daemon()


def check_place(place: str) -> None:
    """Find out whether :func:`begin` can use a *place*, without making a file. Raises ``ValueError``."""
    if place in DAEMONS:
        return
    path = absolute(place)
    if os.path.lexists(path):
        os.close(_open(path))
    elif not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {printable(place)}: no such directory, or no permission")


class File:
    """Adds lines to a file. Raises ``ValueError`` when it cannot be had."""

    def __init__(self, path: str) -> None:
        """Open it."""
        self._descriptor = _open(path)

    def __call__(self, level: str, event: str | None, text: str, as_json: str) -> None:
        """Add one."""
        line = as_json or f"{utc(wall())} lockctl[{os.getpid()}]: {text}"
        try:
            write_at_once(self._descriptor, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return  # the disk is full: stderr has it


class Daemon(ABC):
    """Sends datagrams to a daemon. Each goes by the path of its socket, because the daemon may be restarted."""

    path: str

    def __init__(self) -> None:
        """Nothing is sent yet."""
        kind = _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
        self.end = _socket.socket(_socket.AF_UNIX, kind)

    def __call__(self, level: str, event: str | None, text: str, as_json: str) -> None:
        """Send one."""
        try:
            data = self.encoded(level, event, text[:LONGEST]).encode("utf-8", "replace")
            self.end.sendto(data, _socket.MSG_NOSIGNAL, self.path)
        except OSError:
            return  # it is stuck or gone: stderr has it

    @abstractmethod
    def encoded(self, level: str, event: str | None, text: str) -> str:
        """A message as the daemon wants it."""


class Syslog(Daemon):
    """syslog(3)."""

    path = "/dev/log"

    def encoded(self, level: str, event: str | None, text: str) -> str:
        """See ``Daemon``."""
        moment = time.strftime("%b %e %H:%M:%S")
        return f"<{FACILITY | PRIORITIES[level]}>{moment} lockctl[{os.getpid()}]: {text}"


class Journal(Daemon):
    """The journal of systemd."""

    path = "/run/systemd/journal/socket"

    def encoded(self, level: str, event: str | None, text: str) -> str:
        """See ``Daemon``."""
        fields = {
            "MESSAGE": text,
            "PRIORITY": PRIORITIES[level],
            "SYSLOG_IDENTIFIER": "lockctl",
            "SYSLOG_PID": os.getpid(),
            "LOCKCTL_EVENT": event or "",
        }
        return "".join(f"{name}={content}\n" for name, content in fields.items())


DAEMONS = {"syslog": Syslog, "journald": Journal}


NO_FILE = {
    errno.ELOOP: "it is a symbolic link, or there is a loop of them",
    errno.ENXIO: "it is a FIFO or a socket, not a file",
}


def _open(path: str) -> int:
    """A file to add to: nobody else may lead us to another one by a link, or hold us up by a FIFO."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    why = "not a file of this user, or one with several links"
    try:
        path = absolute(path)
        try:
            descriptor = os.open(path, flags | os.O_EXCL, 0o640)
        except FileExistsError:
            descriptor = os.open(path, flags, 0o640)  # made again if it was moved away meanwhile
        else:
            open_to_owner(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
    except OSError as failure:
        why = NO_FILE.get(failure.errno or 0, str(failure.strerror))
    raise ValueError(f"cannot write to {printable(path)}: {why}")
