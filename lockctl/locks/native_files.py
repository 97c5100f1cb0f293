"""What the files of a store with locks of its own have: for type checkers alone, no run loads this.

The first argument of each function is what the store works with (see ``NativeBackend._do``), the last one the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant, Holder, LockInfo, Revocation, Run
    from lockctl.wire.deadline import Deadline

C_contra = TypeVar("C_contra", contravariant=True)


class Inspect(Protocol[C_contra]):
    """What ``inspect.py`` has."""

    def inspect(self, client: C_contra, name: str, deadline: Deadline, /) -> LockInfo:
        """See ``Backend.inspect``."""

    def look(self, client: C_contra, name: str, deadline: Deadline, /) -> LockInfo:
        """See ``Backend.look``."""

    def list_locks(self, client: C_contra, pattern: str, deadline: Deadline, /) -> Iterator[LockInfo]:
        """See ``Backend.list``."""


class Revoke(Protocol[C_contra]):
    """What ``revoke.py`` has."""

    def revoke(
        self, client: C_contra, name: str, seen: Holder, wanted: Revocation, deadline: Deadline, /
    ) -> int | None:
        """See ``Backend.revoke``."""


class Records(Protocol[C_contra]):
    """What ``records.py`` has."""

    def last_success(self, client: C_contra, name: str, deadline: Deadline, /) -> float | None:
        """See ``Backend.last_success``."""

    def note_success(self, client: C_contra, grant: Grant, deadline: Deadline, /) -> None:
        """See ``Backend.note_success``."""

    def remember(self, client: C_contra, name: str, run: Run, deadline: Deadline, /) -> None:
        """See ``Backend.remember``."""

    def read_history(self, client: C_contra, name: str, deadline: Deadline, /) -> tuple[Run, ...]:
        """See ``Backend.history``."""


class Prune(Protocol[C_contra]):
    """What ``prune.py`` has."""

    def unused(
        self, client: C_contra, pattern: str, older_than: float, deadline: Deadline, /
    ) -> Iterator[tuple[str, float]]:
        """See ``Backend.unused``."""

    def forget(self, client: C_contra, name: str, older_than: float, deadline: Deadline, /) -> bool:
        """See ``Backend.forget``."""


# each ``lock.py`` has its own files checked against this
Files = tuple[Inspect[C_contra], Revoke[C_contra], Records[C_contra], Prune[C_contra]]
