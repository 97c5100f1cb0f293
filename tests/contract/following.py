"""What a backend promises whose store tells a waiter of the end of the one before it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.contract.harness import LIMIT, Background, take
from tests.contract.waiting import await_waiters, start_waiting

if TYPE_CHECKING:
    import pytest

    from lockctl.backend import Backend
    from tests.contract.cells import CellHarness


class Following:
    """Nobody has to look for itself, unless the one before it is not to be seen."""

    def test_each_waiter_is_told_of_the_end_of_the_one_before_it(
        self, harness: CellHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[object] = []
        monkeypatch.setattr(type(harness.cells()), "watch", lambda *given: looked.append(given))
        grant = take(backend, harness.claim())
        first, gone = harness.client(), harness.claim()
        interrupt, writing = os.pipe()
        giving_up = Background(lambda: first.wait(gone, timeout=20.0, interrupt=interrupt))
        await_waiters(backend, 1)
        second, claim = harness.client(), harness.claim()
        waiting = start_waiting(second, claim, backend, count=2)
        third, last = harness.client(), harness.claim()
        at_last = start_waiting(third, last, backend, count=3)
        os.write(writing, b"x")
        giving_up.result()
        first.withdraw(gone, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        grant = take(second, claim)
        assert at_last.running
        second.release(grant, timeout=LIMIT)
        at_last.result()
        take(third, last)
        assert looked == []
        os.close(interrupt)
        os.close(writing)

    def test_who_is_behind_one_that_is_not_seen_looks_for_itself(
        self, harness: CellHarness, backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cells = type(harness.cells())
        monkeypatch.setattr(cells, "attend", lambda *_: None)
        grant = take(backend, harness.claim())
        monkeypatch.undo()
        claim = harness.claim()
        waiting = start_waiting(other, claim, backend)
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        take(other, claim)
