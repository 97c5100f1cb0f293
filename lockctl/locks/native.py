"""The base of backends with locks of their own, and where their operations are.

Taking, renewing and releasing are in the ``lock.py`` of a store. Every other operation is a function in one file of the
store, which is loaded when it is needed: ``forget`` of etcd is ``forget`` in ``stores/etcd/prune.py``. What each file
has is in :mod:`lockctl.locks.native_files`.
"""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, RequestInterrupted
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, TypeVar

    from lockctl.locks.native_files import Inspect, Prune, Records, Revoke
    from lockctl.model import Capabilities, Claim, Grant, Holder, LockInfo, Revocation, Run
    from lockctl.url import Url

    T = TypeVar("T")

SHARE = 0.005  # of the time that a job took: as long a run whose lock is free lets whoever waits for it go first, up to
LONGEST_PAUSE = 0.005  # seconds: a turn is taken by then
SHORTEST_PAUSE = 0.001  # seconds: a job that took less than 0.2 s is not held up


def pause_for_next(run: Run) -> float:
    """Seconds between the end of the lock of a *run* and its history, where a write waits for the one before it."""
    pause = min((run.duration or 0.0) * SHARE, LONGEST_PAUSE)
    return pause if pause >= SHORTEST_PAUSE else 0.0


class NativeBackend:
    """See ``Backend``. A subclass has ``_take``, ``_wait``, and what is not here."""

    capabilities: ClassVar[Capabilities]
    lined_up = False

    @classmethod
    def takes_password(cls, url: Url) -> bool:  # noqa: ARG003 - not all stores take one for each URL
        return True

    def try_acquire(self, claim: Claim, *, timeout: float, interrupt: int | None = None) -> Grant | None:
        refusal = self.capabilities.refusal(claim.mode)
        if refusal is not None:
            raise ConfigError(refusal)
        return self._take(claim, Deadline(timeout, interrupt))

    def _take(self, claim: Claim, deadline: Deadline) -> Grant | None:
        """See ``Backend.try_acquire``, of a claim with a mode that the backend has."""
        raise NotImplementedError

    def wait(self, claim: Claim, *, timeout: float, interrupt: int | None) -> None:
        if timeout <= 0:
            return
        deadline = Deadline(timeout, interrupt)
        self.lined_up = False
        try:
            self._wait(claim, deadline)
        except RequestInterrupted:
            return
        except BackendUnavailable:
            if deadline.left() > 0:
                raise

    def _wait(self, claim: Claim, deadline: Deadline) -> None:
        """Return when ``try_acquire`` may succeed; else raise as requests do when the deadline is over.

        Calls ``_has_lined_up`` when the store has said that the claim has its position.
        """
        raise NotImplementedError

    def _has_lined_up(self) -> None:
        self.lined_up = True

    def inspect(self, name: str, *, timeout: float) -> LockInfo:
        file: Inspect[Any] = self._file("inspect")
        return self._do(file.inspect, timeout, name)

    def look(self, name: str, *, timeout: float) -> LockInfo:
        file: Inspect[Any] = self._file("inspect")
        return self._do(file.look, timeout, name)

    def list(self, pattern: str, *, timeout: float) -> Iterator[LockInfo]:
        file: Inspect[Any] = self._file("inspect")
        return self._do(file.list_locks, timeout, pattern)

    def revoke(self, name: str, seen: Holder, wanted: Revocation, *, timeout: float) -> int | None:
        file: Revoke[Any] = self._file("revoke")
        return self._do(file.revoke, timeout, name, seen, wanted)

    def last_success(self, name: str, *, timeout: float) -> float | None:
        file: Records[Any] = self._file("records")
        return self._do(file.last_success, timeout, name)

    def note_success(self, grant: Grant, *, timeout: float) -> None:
        file: Records[Any] = self._file("records")
        self._do(file.note_success, timeout, grant)

    def remember(self, name: str, run: Run, *, timeout: float) -> None:
        file: Records[Any] = self._file("records")
        self._do(file.remember, timeout, name, run)

    def history(self, name: str, *, timeout: float) -> tuple[Run, ...]:
        file: Records[Any] = self._file("records")
        return self._do(file.read_history, timeout, name)

    def unused(self, pattern: str, *, older_than: float, timeout: float) -> Iterator[tuple[str, float]]:
        file: Prune[Any] = self._file("prune")
        return self._do(file.unused, timeout, pattern, older_than)

    def forget(self, name: str, *, older_than: float, timeout: float) -> bool:
        file: Prune[Any] = self._file("prune")
        return self._do(file.forget, timeout, name, older_than)

    def _do(self, operation: Callable[..., T], timeout: float, *arguments: object) -> T:
        """What an operation of the store gives; here with the backend itself to work with."""
        return operation(self, *arguments, Deadline(timeout))

    def _file(self, name: str) -> Any:
        """The module of that name in the package of the store."""
        # __import__ instead of importlib, which is not loaded yet and slow to load
        return __import__(f"{type(self).__module__.rpartition('.')[0]}.{name}", fromlist=[name])
