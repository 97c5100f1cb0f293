"""The handle of a lock that a daemon holds: the JSON that `acquire` writes, and `renew` and `release` read.

It carries no credentials: it names a socket in a directory of this user alone, and the owner id of the one grant
that it is for.
"""

from __future__ import annotations

import json
import os
import sys

from lockctl.cli.daemon.remains import ID_LENGTH, LARGEST, Remains, is_own, read_bounded
from lockctl.cli.files import put
from lockctl.config import is_output
from lockctl.errors import ConfigError, LockctlError, UsageError
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ENDING = 5.0  # seconds in which a daemon that has released its lock has ended
NOT_HELD = "is not held by this handle any more: it was released, or this host was restarted"
EXPORTED = ("name", "token", "token_domain", "owner", "fencing")
# in the variables of a shell these are what its owner wants, for later calls too, unless an outer run told them
ALSO_SETTINGS = ("backend", "ttl")


class Handle(Value):
    """A lock that was acquired, for those who renew and release it. *expires_at* is RFC 3339."""

    name: str
    backend: str  # scheme only
    owner: str
    token: int
    token_domain: str
    fencing: str
    ttl: float  # seconds
    expires_at: str
    pid: int  # of the daemon
    socket: str


HIGHEST = {"token": (1 << 64) - 1, "pid": (1 << 31) - 1, "ttl": 1e9}
LONGEST = 4096  # characters of a field
KINDS: dict[str, tuple[type, ...]] = {"token": (int,), "pid": (int,), "ttl": (int, float)}  # all others are text


def document(handle: Handle) -> str:
    """The handle as JSON."""
    return json.dumps({name: getattr(handle, name) for name in _FIELDS}, indent=2)


_FIELDS = ("name", "backend", "owner", "token", "token_domain", "fencing", "ttl", "expires_at", "pid", "socket")


def parse(text: str, place: str) -> Handle:
    """The handle in a text from *place*; raises ``UsageError`` for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and all(_fits(name, content.get(name)) for name in _FIELDS):
        return Handle(**{name: content[name] for name in _FIELDS})
    raise UsageError(f"{printable(place)} is not a handle written by `lockctl acquire`")


def _fits(name: str, content: object) -> bool:
    if isinstance(content, str):
        return (
            len(content) <= LONGEST
            and name not in KINDS
            and "\0" not in content
            and _is_encodable(content)
            and (name != "socket" or _is_place(content))
        )
    if not isinstance(content, KINDS.get(name, ())) or isinstance(content, bool):
        return False
    return 0 <= content <= HIGHEST[name]  # type: ignore[operator] # neither infinite nor "not a number"


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # half of a character, which JSON may have
        return False
    return True


def _is_place(path: str) -> bool:
    stem = os.path.basename(path).removesuffix(".sock")
    named = len(stem) == ID_LENGTH and set(stem) <= set("0123456789abcdef")
    return path.startswith("/") and path.endswith(".sock") and named


def shell(handle: Handle, path: str, environ: Mapping[str, str]) -> str:
    """Assignments for a POSIX shell, each value quoted as a whole; *path* is where the handle is.

    Nothing is left of what a run around the shell, whose variables *environ* has, told it of its own locks.
    """
    pairs = {"lock" if name == "name" else name: getattr(handle, name) for name in EXPORTED}
    pairs |= {name: getattr(handle, name) for name in ALSO_SETTINGS if is_output(f"LOCKCTL_{name.upper()}", environ)}
    pairs["handle"] = path
    exports = [f"export LOCKCTL_{name.upper()}={_quoted(content)}\n" for name, content in pairs.items()]
    return "".join(["unset LOCKCTL_TOKENS\n", *exports])


def _quoted(content: object) -> str:
    text = f"{content:.15g}" if isinstance(content, float) else str(content)
    return "'" + text.replace("'", "'\\''") + "'"


def write(path: str, text: str, *, renewed: bool = False) -> None:
    """Put *text* at *path*, a new file for this user alone; raises ``ConfigError``.

    One that is *renewed* by root stays with its owner, who could not release the lock without it.
    """
    try:
        owner = os.stat(path).st_uid if renewed and os.geteuid() == 0 else -1
        put(path, (text + "\n").encode(), 0o600, owner)
    except OSError as failure:
        raise ConfigError(f"cannot write the handle {printable(path)}: {failure.strerror}") from None


def check_replaceable(path: str, name: str, *, acquired: bool) -> None:
    """Raise ``UsageError`` if *path* has the handle of a lock that is held, which nobody could release without it.

    That of the lock *name* may be, until this was *acquired* anew: then its daemon has released it and is about to end,
    unless it has another slot.
    """
    try:
        there = parse(read_bounded(path), path) if os.path.isfile(path) else None
    except (OSError, ValueError, UsageError):
        return
    if there is None or (there.name == name and not acquired):
        return
    remains = Remains(there.socket.removesuffix(".sock"))
    if not remains.await_end(ENDING if there.name == name else 0.0):
        raise UsageError(
            f"--handle: {printable(path)} is the handle of {printable(there.name)}, which is still held: release it"
            " first, or name another file"
        )


def read(word: str | None, environ: Mapping[str, str]) -> tuple[Handle, str]:
    """The handle that ``--handle`` or ``$LOCKCTL_HANDLE`` means, and its file (``-``: stdin)."""
    place = word or environ.get("LOCKCTL_HANDLE", "")
    if not place:
        raise UsageError("no handle: give --handle FILE, or set LOCKCTL_HANDLE")
    try:
        if place == "-" and sys.stdin is None:  # it was closed before lockctl started
            raise UsageError("there is no stdin to read the handle from")
        text = sys.stdin.read(LARGEST) if place == "-" else read_bounded(place)
    except (OSError, ValueError) as failure:
        if isinstance(failure, FileNotFoundError) and is_own(place, environ):
            name = printable(environ.get("LOCKCTL_LOCK", "")) or "the lock"
            Remains(place.removesuffix(".handle")).check_gone(name)
            raise LockctlError(f"{name} {NOT_HELD}") from None
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise UsageError(f"cannot read the handle {printable(place)}: {reason}") from None
    return parse(text, place), place
