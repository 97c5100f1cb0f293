"""A run inside the job of another run, which holds the very lock that it waits for: neither would ever end."""

from __future__ import annotations

import os

from lockctl.errors import BackendUnavailable, ConfigError, UsageError
from lockctl.model import SHARED, SLOT, Holder
from lockctl.supervise import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockctl.backend import Backend
    from lockctl.request import Request

LOOK_TIMEOUT = 2.0  # seconds
LARGEST = 1 << 22  # bytes of an environment
MOST_ANCESTORS = 100


def refuse(backend: Backend, request: Request, environ: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if the lock cannot become free before we end."""
    outer = _Outer(environ, request.host)
    for name in request.locks:
        if name in outer.tokens and outer.keeps(backend, name, request.mode):
            raise UsageError(
                f"{name} is held by the job, or the lockctl acquire, that this command is a part of: it would wait for"
                " itself; remove this inner lock, or give it another name"
            )


class _Outer:
    """The runs whose jobs we are a part of, as they told their commands in the environment."""

    def __init__(self, environ: Mapping[str, str], host: str) -> None:
        self.owners: set[str] = set()
        self.tokens: dict[str, set[str]] = {}  # of each lock
        self._host = host
        self._ancestors: set[int] = set()
        self._add(environ)
        pid = os.getpid()
        while pid > 1 and len(self._ancestors) < MOST_ANCESTORS:
            fields = tree.stat_fields(pid)
            if fields is None:
                break
            pid = int(fields[1])
            self._ancestors.add(pid)
            self._add(_environment(pid))  # of a run around the nearest one these alone tell

    def _add(self, environ: Mapping[str, str]) -> None:
        if "LOCKCTL_OWNER" in environ:
            self.owners.add(environ["LOCKCTL_OWNER"])
            # also where there are several: they may be those of a run around the shell that has acquired this one
            one = f"{environ.get('LOCKCTL_LOCK')}={environ.get('LOCKCTL_TOKEN')}"
            for pair in (one, *environ.get("LOCKCTL_TOKENS", "").split()):
                name, _, token = pair.rpartition("=")
                self.tokens.setdefault(name, set()).add(token)

    def keeps(self, backend: Backend, name: str, mode: str) -> bool:
        """Whether one of them holds the lock and so keeps out a claim of this *mode*."""
        try:
            holders = backend.inspect(name, timeout=LOOK_TIMEOUT).holders
        except (BackendUnavailable, ConfigError):
            return False
        ours = [self._is(name, holder) and not mode == holder.mode == SHARED for holder in holders]
        return bool(ours) and (all(ours) if mode == SLOT else any(ours))

    def _is(self, name: str, holder: Holder) -> bool:
        # of several locks that are held as one, each has an owner of its own, and one is told
        return holder.owner in self.owners or (
            str(holder.token) in self.tokens[name] and holder.host == self._host and holder.pid in self._ancestors
        )


def _environment(pid: int) -> dict[str, str]:
    """What a process was started with; empty for another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            pairs = os.fsdecode(file.read(LARGEST)).split("\0")
    except OSError:
        return {}
    return {name: content for name, _, content in (pair.partition("=") for pair in pairs)}
