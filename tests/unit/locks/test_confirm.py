"""A store whose reads may be old: that a lock is not ours any more is said only after a write has shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, LeaseLost
from lockctl.locks.cell import CellBackend
from lockctl.locks.driver import Seen
from lockctl.stores.memory.cell import MemoryBackend, MemoryCells, MemoryServer
from tests.contract.harness import LIMIT, claim, take

if TYPE_CHECKING:
    from lockctl.wire.deadline import Deadline


class Deposed(MemoryCells):
    """Reads of a leader that has been replaced and has heard of nothing; *writes* says whether it is one again."""

    old = 0  # reads that are to be old
    writes = True

    def read(self, key: str, deadline: Deadline) -> Seen:
        if self.old:
            self.old -= 1
            return Seen(None, 0, self._server.now())
        return super().read(key, deadline)

    def confirm(self, key: str, seen: Seen, deadline: Deadline) -> bool:
        if not self.writes:
            raise BackendUnavailable("no leader")
        return self.read(key, deadline).version == seen.version


class Backend(CellBackend):
    """Locks there."""

    capabilities = MemoryBackend.capabilities

    def __init__(self) -> None:
        self.cells = Deposed(MemoryServer())
        super().__init__(self.cells)


@pytest.fixture
def backend() -> Backend:
    return Backend()


def test_what_an_old_leader_does_not_know_is_in_doubt(backend: Backend) -> None:
    grant = take(backend, claim())
    backend.cells.writes = False
    for ask in (backend.renew, backend.release):
        backend.cells.old = 1
        with pytest.raises(BackendUnavailable, match="no leader"):
            ask(grant, timeout=LIMIT)


def test_an_old_answer_is_told_and_the_next_one_counts(backend: Backend) -> None:
    grant = take(backend, claim())
    for ask in (backend.renew, backend.release):
        backend.cells.old = 1
        with pytest.raises(BackendUnavailable, match="an old one"):
            ask(grant, timeout=LIMIT)
        ask(grant, timeout=LIMIT)
    assert backend.inspect(grant.claim.name, timeout=LIMIT).state == "free"
    with pytest.raises(LeaseLost):
        backend.renew(grant, timeout=LIMIT)
