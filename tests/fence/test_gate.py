"""The queues before handlers: one at a time, first come first served, and nothing is left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from lockctl.fence.gate import Turns

if TYPE_CHECKING:
    from lockctl.fence.gate import Turn


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8) | st.none()), max_size=60))
def test_the_first_of_each_queue_has_its_turn_and_nobody_else(steps: list[tuple[str, int | None]]) -> None:
    turns = Turns()
    queues: dict[str, list[Turn]] = {"a": [], "b": []}
    for name, position in steps:
        queue = queues[name]
        if position is None:
            queue.append(turns.join(name))
        elif position < len(queue):
            gone = queue.pop(position)
            gone.leave()
            gone.leave()
        for waiting in queues.values():
            assert [turn.ours.done() for turn in waiting] == [number == 0 for number in range(len(waiting))]
    assert len(turns) == sum(bool(queue) for queue in queues.values())
    for queue in queues.values():
        for turn in reversed(queue):
            turn.leave()
    assert len(turns) == 0


def test_threads_that_give_up_and_threads_that_stay_are_never_two_at_once() -> None:
    turns = Turns()
    inside: list[int] = []
    most: list[int] = []
    finished: list[int] = []

    def visit(number: int) -> None:
        for visits in range(60):
            turn = turns.join("a")
            if (number + visits) % 3:
                turn.ours.result(30)
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
            turn.leave()
        finished.append(number)

    threads = [threading.Thread(target=visit, args=(number,), daemon=True) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(finished) == 12
    assert set(most) == {1}
    assert len(turns) == 0
