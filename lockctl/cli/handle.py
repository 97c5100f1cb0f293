"""The handle of a lock that a detached keeper holds, and what that keeper leaves beside its socket.

A handle carries no credentials: it names a socket in a directory of this user alone, and the owner id of the
one grant that it is for. Beside the socket ``ID.sock`` stand ``ID.log``, what the keeper said, which its
processes keep locked while one of them lives; ``ID.end``, its ``--report``; and perhaps ``ID.handle``.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import time

from lockctl.cli.files import put
from lockctl.cli.holder import ENDS
from lockctl.errors import ConfigError, UsageError
from lockctl.names import printable
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LARGEST = 1 << 16  # bytes of a file or an answer that is read here
KEPT = 7 * 86400.0  # seconds that the remains of an ended keeper wait for a `release` that asks
PATIENCE = 10.0  # seconds for what a pipe is to give
POLL = 0.02  # seconds between two looks whether a keeper has ended
SUFFIXES = (".sock", ".end", ".handle", ".log")  # the log last: it is what says that there was a keeper
ID_LENGTH = 32
# not the backend and the ttl: in the variables of a shell these are what its owner wants, for later calls too
EXPORTED = ("name", "token", "token_domain", "owner", "fencing")


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
    pid: int  # of the keeper
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
    raise UsageError(f"{printable(place)} is not a handle: give what `lockctl acquire` wrote")


def _fits(name: str, content: object) -> bool:
    if isinstance(content, str):
        return (
            len(content) <= LONGEST
            and name not in KINDS
            and "\0" not in content
            and (name != "socket" or _is_place(content))
        )
    if not isinstance(content, KINDS.get(name, ())) or isinstance(content, bool):
        return False
    return 0 <= content <= HIGHEST[name]  # type: ignore[operator] # neither infinite nor "not a number"


def _is_place(path: str) -> bool:
    stem = os.path.basename(path).removesuffix(".sock")
    named = len(stem) == ID_LENGTH and set(stem) <= set("0123456789abcdef")
    return path.startswith("/") and path.endswith(".sock") and named


def shell(handle: Handle, path: str) -> str:
    """Assignments for a POSIX shell, each value quoted as a whole; *path* is where the handle is."""
    pairs = {"lock" if name == "name" else name: getattr(handle, name) for name in EXPORTED}
    pairs["handle"] = path
    return "".join(f"export LOCKCTL_{name.upper()}={_quoted(content)}\n" for name, content in pairs.items())


def _quoted(content: object) -> str:
    text = f"{content:g}" if isinstance(content, float) else str(content)
    return "'" + text.replace("'", "'\\''") + "'"


def write(path: str, text: str) -> None:
    """Put *text* at *path*, a new file for this user alone; raises ``ConfigError``."""
    try:
        put(path, (text + "\n").encode(), 0o600)
    except OSError as failure:
        raise ConfigError(f"cannot write the handle {printable(path)}: {failure.strerror}") from None


def read_bounded(path: str) -> str:
    """The text of a file, not more of it than any of ours has; raises ``OSError``, or ``ValueError`` if it has more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        until = time.monotonic() + PATIENCE
        data = b""
        while True:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):  # a pipe whose other end writes nothing
                raise ValueError(f"it did not end within {PATIENCE:g} s")
            piece = os.read(descriptor, LARGEST)
            data += piece
            if not piece:
                break
            if len(data) > LARGEST:
                raise ValueError("too long")
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace")


def directory(environ: Mapping[str, str]) -> str:
    """The private directory for what belongs to handles, made if need be; raises ``ConfigError``."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    state = environ.get("XDG_STATE_HOME", "")
    if runtime.startswith("/") and _is_mine(runtime):
        path = runtime + "/lockctl"
    elif os.geteuid() == 0:
        path = "/run/lockctl"
    elif state.startswith("/"):
        path = state + "/lockctl-handles"
    elif environ.get("HOME", "").startswith("/"):
        path = environ["HOME"] + "/.local/state/lockctl-handles"
    else:
        raise ConfigError("none of XDG_RUNTIME_DIR, XDG_STATE_HOME and HOME is set: no place for the keeper's socket")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        found = os.lstat(path)
    except OSError as failure:
        raise ConfigError(f"cannot make {printable(path)}, for the keeper's socket: {failure.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{printable(path)} must be a directory of this user alone (chmod 700): a keeper listens there"
        )
    return path


def _is_mine(runtime: str) -> bool:
    """Whether a directory is this user's and can be used: with su or sudo the variable may name another user's."""
    try:
        return os.stat(runtime).st_uid == os.geteuid() and os.access(runtime, os.W_OK | os.X_OK)
    except OSError:
        return False


def is_own(path: str, environ: Mapping[str, str]) -> bool:
    """Whether *path* is that of a handle which ``--export`` kept for itself; it goes when the lock is released."""
    stem, dot, suffix = os.path.basename(path).partition(".")
    if dot + suffix != ".handle" or len(stem) != ID_LENGTH:
        return False
    try:
        return os.path.dirname(path) == directory(environ)
    except ConfigError:
        return False


class Remains:
    """What is on the disk of one keeper, living or not."""

    def __init__(self, stem: str) -> None:
        """*stem*: the path of the socket without its suffix."""
        self.stem = stem

    def path(self, suffix: str) -> str:
        """One of the files."""
        return self.stem + suffix

    def known(self) -> bool:
        """Whether there was such a keeper, as far as the disk knows."""
        return os.path.exists(self.path(".log"))

    def alive(self) -> bool:
        """Whether a process of the keeper lives: it holds the lock on the log, whatever became of its number."""
        try:
            descriptor = os.open(self.path(".log"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def await_end(self, timeout: float) -> bool:
        """Wait until no process of the keeper is left; ``False`` after *timeout* seconds."""
        until = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() > until:
                return False
            time.sleep(POLL)
        return True

    def report(self) -> dict[str, Any] | None:
        """How the keeper ended; ``None`` if it could not say."""
        try:
            content = json.loads(read_bounded(self.path(".end")))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def remove(self) -> None:
        """Take it all away, if the directory is this user's alone."""
        try:
            if os.stat(os.path.dirname(self.stem)).st_uid != os.geteuid():
                return
        except OSError:
            return
        for suffix in SUFFIXES:
            try:
                os.unlink(self.path(suffix))
            except OSError:
                continue


def reason(report: Mapping[str, Any] | None) -> str:
    """Why a keeper ended, by its report; ``None``: it could not write one."""
    found = "its keeper was killed"
    if report is not None:
        outcome, detail = report.get("outcome"), report.get("detail")
        code = report.get("exit_code")
        found = {"lost": "its lease was lost", "revoked": "it was revoked"}.get(str(outcome), found)
        if outcome == "exited" and isinstance(code, int):
            found = ENDS.get(code, f"its holder ended with status {code}")
        elif outcome == "signaled":
            found = "its keeper was ended by a signal"
        if isinstance(detail, str) and detail:
            found += f" {detail}" if outcome == "revoked" else f": {detail}"
    return found


def sweep(place: str, now: float) -> None:
    """Take away what keepers that ended long before *now* (wall clock) left in a directory."""
    for entry in os.listdir(place):
        remains = Remains(f"{place}/{entry.removesuffix('.log')}")
        if not entry.endswith(".log") or remains.alive():
            continue
        times = [
            os.lstat(remains.path(suffix)).st_mtime for suffix in SUFFIXES if os.path.lexists(remains.path(suffix))
        ]
        if max(times, default=now) < now - KEPT:
            remains.remove()
