"""What a store of objects does for the marks in it: read, and write on a condition."""

from __future__ import annotations

from lockctl.value import Protocol, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.fence.mark import Mark
    from lockctl.wire.deadline import Deadline


class Seen(Value):
    """An object as it was read."""

    data: bytes
    etag: str


class Head(Value):
    """An object without its content."""

    etag: str
    kept: dict[str, Any]  # what else is known of it and has to stay when the content is replaced


class Space(Protocol):
    """Where the objects are. All calls raise ``BackendUnavailable`` and ``ConfigError``, and obey the deadline."""

    root: str  # the path in the URL: what names without a leading slash lie below
    sizes: (
        int  # how many sizes the object of a mark can have: more than 1 where an ETag tells no more than size and time
    )

    def shown(self, key: str) -> str:
        """An object as messages name it."""

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        """The content, cut after *limit* bytes, with the ETag of the same answer; ``None``: there is no such object."""

    def head(self, key: str, deadline: Deadline) -> Head | None:
        """The same without the content."""

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        """Replace an object if it has *etag*, or make it if there is none (``None``); whether that was so.

        *mark* goes with the data, for who reads them; *like* is what was there.
        """

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        """Remove an object; ``False``: it has another ETag (``*`` is every one).

        Some servers cannot compare here, and remove it.
        """

    def close(self) -> None:
        """Close connections."""
