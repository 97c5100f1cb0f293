"""What a backend promises about waiting for a lock."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from tests.contract.harness import LIMIT, Background, refused, take
from tests.jobs import best_of_a_few, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.contract.harness import Harness


def waiters(client: Backend, name: str = "nightly") -> int:
    """How many wait, where the backend can say it; else one, after a moment."""
    seen = client.inspect(name, timeout=LIMIT).waiters
    if seen is None:
        time.sleep(0.2)
        return 1
    return len(seen)


def start_waiting(client: Backend, claim: Claim, observer: Backend, *, count: int = 1) -> Background:
    """Wait in the background, at most 20 s; when this returns, *count* are waiting."""
    waiting = Background(lambda: client.wait(claim, timeout=20.0, interrupt=None))
    eventually(lambda: waiters(observer) >= count)
    return waiting


class Waiting:
    """A wait ends when it should, costs nothing, and leaves nothing behind."""

    @pytest.fixture
    def interrupt(self) -> Iterator[tuple[int, int]]:
        """A pipe: what is written to the second end interrupts a wait on the first."""
        ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        yield ends
        for end in ends:
            os.close(end)

    def test_waiting_for_a_free_lock_returns_at_once(self, harness: Harness, backend: Backend) -> None:
        before = time.monotonic()
        claim = harness.claim()
        backend.wait(claim, timeout=LIMIT, interrupt=None)
        assert time.monotonic() - before < 1.0
        take(backend, claim)

    def test_a_wait_ends_within_a_second_of_the_release(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        waiting = start_waiting(other, claim, backend)
        assert waiting.running
        backend.release(grant, timeout=LIMIT)
        released = time.monotonic()
        waiting.result()
        assert waiting.ended_at - released < 1.0
        assert take(other, claim).token > grant.token

    def test_an_endless_wait_ends_when_the_holder_vanishes(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        claim = harness.claim()
        waiting = Background(lambda: other.wait(claim, timeout=float("inf"), interrupt=None))
        harness.expire(grant)
        waiting.result()
        take(other, claim)

    def test_a_wait_ends_when_another_hand_takes_the_lock_away(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        waiting = start_waiting(other, claim, backend)
        harness.usurp("nightly")
        waiting.result(limit=5.0)
        take(other, claim)

    def test_a_wait_ends_at_its_timeout_and_the_lock_is_still_the_holders(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()

        def attempt() -> float:
            before = time.monotonic()
            other.wait(claim, timeout=0.3, interrupt=None)
            took = time.monotonic() - before
            assert took >= 0.29
            return took

        best_of_a_few(attempt, 0.8)
        assert other.try_acquire(claim, timeout=LIMIT) is None
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_wait_with_no_time_left_returns_at_once(self, harness: Harness, backend: Backend, other: Backend) -> None:
        take(backend, harness.claim())

        def attempt() -> float:
            before = time.monotonic()
            other.wait(harness.claim(), timeout=0.0, interrupt=None)
            return time.monotonic() - before

        best_of_a_few(attempt, 0.3)

    def test_a_wait_ends_within_a_fifth_of_a_second_of_its_interruption(
        self, harness: Harness, backend: Backend, other: Backend, interrupt: tuple[int, int]
    ) -> None:
        take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()

        def attempt() -> float:
            waiting = Background(lambda: other.wait(claim, timeout=20.0, interrupt=interrupt[0]))
            eventually(lambda: waiters(backend) == 1)
            os.write(interrupt[1], b".")
            asked = time.monotonic()
            waiting.result()
            assert os.read(interrupt[0], 8) == b".", "what interrupted is the caller's to read"
            return waiting.ended_at - asked

        best_of_a_few(attempt, 0.2)

    def test_a_wait_that_is_interrupted_beforehand_returns_at_once(
        self, harness: Harness, backend: Backend, other: Backend, interrupt: tuple[int, int]
    ) -> None:
        take(backend, harness.claim())
        os.write(interrupt[1], b".")

        def attempt() -> float:
            before = time.monotonic()
            other.wait(harness.claim(), timeout=20.0, interrupt=interrupt[0])
            return time.monotonic() - before

        best_of_a_few(attempt, 0.2)

    def test_waiting_costs_no_measurable_time_of_the_processor(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim(ttl=30.0))

        def attempt() -> float:
            before = os.times()
            other.wait(harness.claim(), timeout=1.5, interrupt=None)
            after = os.times()
            return sum(after[:4]) - sum(before[:4])

        best_of_a_few(attempt, 0.055)

    def test_many_short_waits_leave_no_descriptor_open(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        other.wait(claim, timeout=0.0, interrupt=None)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            other.wait(claim, timeout=0.0, interrupt=None)
        assert len(os.listdir("/proc/self/fd")) <= before

    def test_withdrawing_leaves_nothing_behind(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        other.wait(claim, timeout=0.1, interrupt=None)
        other.withdraw(claim, timeout=LIMIT)
        other.withdraw(claim, timeout=LIMIT)
        assert backend.inspect("nightly", timeout=LIMIT).waiters in {(), None}
        backend.release(grant, timeout=LIMIT)
        take(harness.client(), harness.claim())

    def test_withdrawing_gives_up_what_a_wait_was_granted(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        waiting = start_waiting(other, claim, backend)
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        other.withdraw(claim, timeout=LIMIT)
        take(backend, harness.claim())

    def test_withdrawing_a_claim_that_never_waited_does_nothing(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        other.withdraw(harness.claim(), timeout=LIMIT)
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_waiter_that_does_not_come_back_does_not_block_the_others(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        gone = harness.claim()
        waiting = start_waiting(other, gone, backend)
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        other.close()
        claim = harness.claim()
        until = time.monotonic() + gone.ttl + 5.0
        third = harness.client()
        while third.try_acquire(claim, timeout=LIMIT) is None:
            assert time.monotonic() < until
            third.wait(claim, timeout=1.0, interrupt=None)

    def test_a_waiter_out_of_reach_is_told_or_waits_no_longer_than_it_was_to(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim())
        before = time.monotonic()
        with harness.cut_off(other):
            try:
                other.wait(harness.claim(), timeout=1.0, interrupt=None)
            except BackendUnavailable:
                pass
        assert time.monotonic() - before < 2.0

    def test_waiters_are_served_in_the_order_they_came_if_the_backend_is_fair_and_all_are_served_in_any_case(
        self, harness: Harness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        served: list[int] = []

        def wait_for_turn(number: int) -> None:
            client, claim = harness.client(), harness.claim(ttl=30.0)
            while (mine := client.try_acquire(claim, timeout=LIMIT)) is None:
                client.wait(claim, timeout=LIMIT, interrupt=None)
            served.append(number)
            client.release(mine, timeout=LIMIT)

        turns = []
        for number in range(4):
            turns.append(Background(functools.partial(wait_for_turn, number)))
            queued = number if harness.capabilities.lists_waiters else 0
            eventually(lambda queued=queued: waiters(backend) > queued)  # type: ignore[misc]
        backend.release(grant, timeout=LIMIT)
        for turn in turns:
            turn.result()
        assert sorted(served) == [0, 1, 2, 3]
        if harness.capabilities.fair:
            assert served == [0, 1, 2, 3]

    def test_who_comes_later_does_not_overtake_where_the_backend_is_fair(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim(ttl=30.0)
        waiting = start_waiting(other, claim, backend)
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        newcomer = harness.client().try_acquire(harness.claim(), timeout=LIMIT)
        if harness.capabilities.fair:
            assert newcomer is None
            take(other, claim)
        else:
            assert (newcomer is None) != (other.try_acquire(claim, timeout=LIMIT) is None)

    def test_a_wait_for_one_lock_does_not_end_with_another(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim("one", ttl=30.0))
        grant = take(backend, harness.claim("two", ttl=30.0))
        claim = harness.claim("one")
        before = time.monotonic()
        waiting = Background(lambda: other.wait(claim, timeout=0.6, interrupt=None))
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        assert waiting.ended_at - before > 0.5
        assert refused(other, claim)
