"""What a daemon leaves on the disk, in a directory of its user alone.

Beside the socket ``ID.sock`` stand ``ID.log``, what the daemon said, which its processes keep locked while one of
them lives; ``ID.end``, its ``--report``; and perhaps ``ID.handle``.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import time

from lockctl.cli.daemon.command import ENDS, RELEASED
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.umask import make_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LARGEST = 1 << 16  # bytes of a file or an answer that is read here
KEPT = 7 * 86400.0  # seconds that the remains of an ended daemon wait for a `release` that asks
PATIENCE = 10.0  # seconds for what a pipe is to give
POLL = 0.02  # seconds between two looks whether a daemon has ended
# in the order in which they are removed: who finds the log and no report afterwards knows that there never was one
SUFFIXES = (".sock", ".handle", ".log", ".end")
ID_LENGTH = 32


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
        raise ConfigError(
            "none of XDG_RUNTIME_DIR, XDG_STATE_HOME and HOME is set: no directory for the daemon's socket"
        )
    try:
        make_directory(os.path.dirname(path), 0o700)
        make_directory(path, 0o700)
        found = os.lstat(path)
    except OSError as failure:
        raise ConfigError(f"cannot make {printable(path)}, for the daemon's socket: {failure.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
        raise ConfigError(
            f"{printable(path)} must be a directory of this user alone (chmod 700): a daemon listens there"
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
    """What is on the disk of one daemon, living or not."""

    def __init__(self, stem: str) -> None:
        """*stem*: the path of the socket without its suffix."""
        self.stem = stem

    def path(self, suffix: str) -> str:
        """One of the files."""
        return self.stem + suffix

    def known(self) -> bool:
        """Whether there was such a daemon, as far as the disk knows."""
        return os.path.exists(self.path(".log"))

    def alive(self) -> bool:
        """Whether a process of the daemon lives: it holds the lock on the log, whatever became of its number."""
        try:
            descriptor = os.open(self.path(".log"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
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
        """Wait until no process of the daemon is left; ``False`` after *timeout* seconds."""
        until = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() > until:
                return False
            time.sleep(POLL)
        return True

    def report(self) -> dict[str, Any] | None:
        """How the daemon ended; ``None`` if it could not say."""
        try:
            content = json.loads(read_bounded(self.path(".end")))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def check_gone(self, name: str) -> None:
        """Raise ``BackendUnavailable`` if its daemon lives and its files were removed, as when its user has logged out.

        The command of a daemon has the path of its socket among its words.
        """
        word = b"\0" + os.fsencode(self.stem) + b"\0"
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    found = word in file.read(LARGEST)
            except OSError:
                continue
            if found:
                place = printable(os.path.dirname(self.stem))
                raise BackendUnavailable(
                    f"{name}: it is still held, but its socket in {place} was removed: kill {pid} releases it"
                )

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
    """Why a daemon ended, by its report; ``None``: it could not write one."""
    found = "its daemon was killed"
    if report is None:
        found += ", or could not write how it ended"
    if report is not None:
        outcome, detail = report.get("outcome"), report.get("detail")
        code = report.get("exit_code")
        found = {"lost": "its lease was lost", "revoked": "it was revoked"}.get(str(outcome), found)
        if outcome == "exited" and code == RELEASED and isinstance(detail, str) and detail:
            return detail  # it ended as planned
        if outcome == "exited" and isinstance(code, int):  # so older versions say that it ended as planned
            found = ENDS.get(code, f"its daemon ended with status {code}")
        elif outcome == "signaled":
            found = "its daemon was terminated by a signal"
        if isinstance(detail, str) and detail:
            found += f" {detail}" if outcome == "revoked" else f": {detail}"
    return found


def sweep(place: str, now: float) -> None:
    """Take away what daemons that ended long before *now* (wall clock) left in a directory."""
    for entry in os.listdir(place):
        stem, kind = os.path.splitext(entry)
        remains = Remains(f"{place}/{stem}")
        if kind == ".tmp":
            _sweep_report(f"{place}/{entry}", now)
        if kind not in (".log", ".end") or remains.alive():
            continue
        times = []
        for suffix in SUFFIXES:
            try:
                times.append(os.lstat(remains.path(suffix)).st_mtime)
            except FileNotFoundError:  # there was none, or a `release` takes them away just now
                continue
        if max(times, default=now) < now - KEPT:
            remains.remove()


def _sweep_report(path: str, now: float) -> None:
    """Take away a report whose daemon was killed while it wrote it, long before *now*."""
    try:
        if os.lstat(path).st_mtime < now - KEPT:
            os.unlink(path)
    except FileNotFoundError:
        pass  # it is complete just now


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
                raise ValueError(f"no end of file within {PATIENCE:g} s")
            piece = os.read(descriptor, LARGEST)
            data += piece
            if not piece:
                break
            if len(data) > LARGEST:
                raise ValueError("too long")
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace")
