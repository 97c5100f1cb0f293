"""What holds for marks in servers that write on condition: a read, and a write if nobody has written since."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.fence import Stale
from lockctl.fence.stores.cells import CellMarks
from tests.fence.contract import Client, mark
from tests.fence.lock_servers import LockServerContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.locks.driver import Seen
    from lockctl.wire.deadline import Deadline


class ConditionalContract(LockServerContract):
    """For servers whose step is a read and a write on condition: what happens between the two."""

    @contextlib.contextmanager
    def between(self, client: Client, act: Callable[[], Any], *, times: int) -> Iterator[list[int]]:
        """In the block, *act* is done after each of the first *times* reads of *client*, before what it then does."""
        store = client.store
        assert isinstance(store, CellMarks)
        cells, read, done = store.cells, store.cells.read, [0]

        def read_then_act(key: str, deadline: Deadline) -> Seen:
            seen = read(key, deadline)
            if done[0] < times:
                done[0] += 1
                act()
            return seen

        cells.read = read_then_act  # type: ignore[method-assign]
        try:
            yield done
        finally:
            cells.read = read  # type: ignore[method-assign]

    @pytest.mark.parametrize("first", [None, 33])
    def test_a_newer_token_that_comes_between_read_and_write_refuses(
        self, client: Client, other: Client, first: int | None
    ) -> None:
        if first is not None:
            client.advance(mark(first))
        with self.between(client, lambda: other.advance(mark(35)), times=1) as done, pytest.raises(Stale, match="35"):
            client.advance(mark(34))
        assert done == [1]
        assert other.current() == mark(35)

    def test_a_newer_token_that_comes_while_the_same_one_is_checked(self, client: Client, other: Client) -> None:
        """The check may count as done before it, or after it."""
        client.advance(mark(34))
        with self.between(client, lambda: other.advance(mark(35)), times=1):
            client.accepts(mark(34))
        assert other.current() == mark(35)
        assert not client.accepts(mark(34))

    def test_a_mark_that_was_removed_and_set_again_is_another(self, client: Client, other: Client) -> None:
        """What was decided about the old one must not be written over the new one, which may look the same."""

        def again() -> None:
            other.reset(None)
            other.advance(mark(36))

        client.advance(mark(33))
        with self.between(client, again, times=1), pytest.raises(Stale, match="36"):
            client.advance(mark(34))
        assert other.current() == mark(36)

    def test_a_reset_says_what_it_replaced(self, client: Client, other: Client) -> None:
        client.advance(mark(33))
        with self.between(client, lambda: other.advance(mark(35)), times=1):
            assert client.reset(mark(1)) == mark(35)
        assert client.current() == mark(1)

    def test_a_removal_does_not_take_a_mark_that_it_has_not_seen(self, client: Client, other: Client) -> None:
        client.advance(mark(33))
        with self.between(client, lambda: other.advance(mark(35)), times=1):
            assert client.reset(None) == mark(35)
        assert client.current() is None

    @pytest.mark.parametrize("to", [None, 1, 34])
    def test_a_request_that_was_sent_twice_counts_once(self, client: Client, to: int | None) -> None:
        """As it is when the first answer was lost: the second one says that there is something else by now."""
        store = client.store
        assert isinstance(store, CellMarks)
        write, answers = store.cells.write, []

        def write_twice(key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
            answers.extend([write(key, seen, data, deadline), write(key, seen, data, deadline)])
            return answers[-1]

        client.advance(mark(33))
        store.cells.write = write_twice  # type: ignore[method-assign]
        if to == 34:
            assert client.advance(mark(34)) == mark(34)
        else:
            assert client.reset(None if to is None else mark(to)) == mark(33)
        assert answers[0] is True
        assert client.current() == (None if to is None else mark(to))

    def test_it_gives_up_in_time_when_another_writes_all_the_time(self, client: Client, other: Client) -> None:
        client.advance(mark(33))
        tokens = iter(range(1, 10**9))
        before = time.monotonic()
        with (
            self.between(client, lambda: other.reset(mark(next(tokens))), times=10**9) as done,
            pytest.raises(BackendUnavailable),
        ):
            client.advance(mark(10**10), timeout=0.7)
        assert time.monotonic() - before < 5.0
        assert done[0] > 1
        assert client.current() == mark(done[0])
