"""Passwords that are not in a URL: read from a file, or printed by a command."""

from __future__ import annotations

import os
import select

from lockctl import clock
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.url import SECRETS
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url

LONGEST = 65536  # bytes: longer is no password, but the wrong file
COMMAND_LIMIT = 10.0  # seconds
SIGKILL = 9


def resolve(url: Url) -> Url:
    """*url* with its password; raises ``ConfigError``, which names the place and never what was there."""
    named = [(name, content) for name, content in url.params if name in SECRETS]
    if not named:
        return url
    if len(named) > 1:
        message = f"{url.scheme}: a password can come from one place: {' or '.join(name for name, _ in named)}"
        raise ConfigError(message)
    ((name, content),) = named
    data = _printed_by(content, name) if name.endswith("_command") else _read(content, name)
    try:
        password = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or "\0" in password:
        message = f"{name} {printable(content)}: must give one line of UTF-8 text, the password"
        raise ConfigError(message)
    return replace(url, password=password, params=tuple(pair for pair in url.params if pair[0] not in SECRETS))


def _read(path: str, name: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(LONGEST)
    except OSError as failure:
        message = f"{name} {printable(path)}: {failure.strerror}"
        raise ConfigError(message) from None


def _printed_by(line: str, name: str) -> bytes:
    """What ``/bin/sh -c line`` prints; what it says on stderr goes where ours goes."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", line],
            os.environb,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writing, 1)],
            setsigmask=(),
            setpgroup=0,
        )
    finally:
        os.close(writing)
        os.close(null)
    try:
        data = _collect(reading, pid, name)
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    if status:
        message = f"{name}: the command failed with status {os.waitstatus_to_exitcode(status)}"
        raise ConfigError(message)
    return data


def _collect(reading: int, pid: int, name: str) -> bytes:
    until = clock.boottime() + COMMAND_LIMIT
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = b""
    while True:
        left = until - clock.boottime()
        if left <= 0 or len(data) > LONGEST:
            os.killpg(pid, SIGKILL)
            message = f"{name}: the command did not end within {COMMAND_LIMIT:g} s, or printed too much"
            raise ConfigError(message)
        if poll.poll(left * 1000 + 1):
            piece = os.read(reading, LONGEST)
            if not piece:
                return data
            data += piece
