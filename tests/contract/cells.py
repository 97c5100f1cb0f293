"""What the contract suite must be able to do to a backend over cells: the same for every store of them."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING

from lockctl.locks.cell import LOCK
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.locks.driver import Cells
    from lockctl.model import Grant

FOREIGN = b"web3:4711"


class CellHarness(Harness):
    """A store that is harmed through its own driver, with clients of its own."""

    @abstractmethod
    def cells(self) -> Cells:
        """A driver beside those of the clients."""

    def key(self, name: str) -> str:
        """The cell of a lock."""
        return LOCK + name

    def put(self, name: str, data: bytes | None) -> None:
        """Write the cell of a lock, or remove it, whatever is there."""
        cells = self.cells()
        while not cells.write(self.key(name), cells.read(self.key(name), Deadline(LIMIT)), data, Deadline(LIMIT)):
            pass

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl + 0.01)

    def usurp(self, name: str) -> None:
        self.put(name, None)

    def forget(self, name: str) -> None:
        self.put(name, None)

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        self.put(name, FOREIGN)
        yield
        if self.cells().read(self.key(name), Deadline(LIMIT)).data == FOREIGN:
            self.put(name, None)
