"""Marks in cells: read the mark, decide, write if nobody has written since, or begin again."""

from __future__ import annotations

from lockctl.fence.mark import Mark, accept
from lockctl.fence.stores import text
from lockctl.locks.driver import Cells, escaped, looks
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import ClassVar

PREFIX = "lockctl-fence/"  # of marks, where a URL names no other


class CellMarks:
    """See ``Store``. Subclasses make the cells from a URL."""

    lockable: ClassVar[bool] = False
    parameters: ClassVar[dict[str, str]]

    def __init__(self, cells: Cells, prefix: str = "") -> None:
        """Marks with this *prefix* before their names; nothing is opened yet."""
        self.cells = cells
        self._prefix = prefix

    def close(self) -> None:
        self.cells.close()

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: these servers write to disk before they answer, or cannot be asked."""
        del timeout

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        key, deadline = self._key(resource), Deadline(timeout)
        for seen in looks(self.cells, key, deadline):
            self.cells.refuse_forgetting()
            if accept(resource, self._mark(key, seen.data), mark):
                done = self.cells.write(key, seen, text.written(mark), deadline)
            else:
                done = self.cells.confirm(key, seen, deadline)
            if done:
                break
        return mark

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        key = self._key(resource)
        return self._mark(key, self.cells.read(key, Deadline(timeout)).data)

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """See ``Store``; of something that was no mark nothing is given back."""
        key, deadline = self._key(resource), Deadline(timeout)
        wanted = None if mark is None else text.written(mark)
        before: Mark | None = None
        tried = False
        for seen in looks(self.cells, key, deadline):
            if tried and seen.data == wanted:
                break  # by ourselves, and the answer was lost
            if wanted is not None:
                self.cells.refuse_forgetting()
            before, tried = text.understood(seen.data), True
            if (seen.data is None and wanted is None) or self.cells.write(key, seen, wanted, deadline):
                break
        return before

    def holding(self, resource: str, mark: Mark, *, timeout: float) -> AbstractContextManager[None]:
        """See ``Store``: not possible here."""
        raise text.cannot_hold(self.cells.where)

    def _key(self, resource: str) -> str:
        """Without a slash behind the prefix: all keys of locks have one there."""
        return self._prefix + escaped(resource)

    def _mark(self, key: str, data: bytes | None) -> Mark | None:
        return None if data is None else text.read(data, self.cells.where, self.cells.shown(key))
