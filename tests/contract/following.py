"""What a backend promises whose store tells a waiter of the end of the one before it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lockctl.locks import cell
from tests.contract.harness import LIMIT, Background, take
from tests.contract.waiting import await_waiters, start_waiting

if TYPE_CHECKING:
    import pytest

    from lockctl.backend import Backend
    from tests.contract.cells import CellHarness


LASTING = 1800.0  # seconds of a lease: no place in a queue is prolonged meanwhile


class Following:
    """Nobody has to look for itself, unless the one before it is not to be seen."""

    def test_each_waiter_is_told_of_the_end_of_the_one_before_it(
        self, harness: CellHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[object] = []
        cells = type(harness.cells())
        monkeypatch.setattr(cells, "watch", lambda *given: looked.append(given))
        # nor now and then: nobody is told by that within the time for which a result is waited for
        monkeypatch.setattr(sys.modules[cells.__module__], "FOLLOWED", 600)
        monkeypatch.setattr(cell, "LONGEST_STEP", 600.0)
        grant = take(backend, harness.claim(ttl=LASTING))
        first, gone = harness.client(), harness.claim(ttl=LASTING)
        interrupt, writing = os.pipe()
        giving_up = Background(lambda: first.wait(gone, timeout=20.0, interrupt=interrupt))
        await_waiters(backend, 1)
        second, claim = harness.client(), harness.claim(ttl=LASTING)
        waiting = start_waiting(second, claim, backend, count=2)
        third, last = harness.client(), harness.claim(ttl=LASTING)
        at_last = start_waiting(third, last, backend, count=3)
        os.write(writing, b"x")
        giving_up.result()
        first.withdraw(gone, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        waiting.result(LIMIT)
        grant = take(second, claim)
        assert at_last.running
        second.release(grant, timeout=LIMIT)
        at_last.result(LIMIT)
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
