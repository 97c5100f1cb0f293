"""What a backend promises about waiting for a lock."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from tests.contract.harness import LIMIT, Background, queue_up, refused, take, waiters
from tests.jobs import best_of_a_few, eventually, processor_time

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.contract.harness import Harness

NO_TIME = 0.055  # seconds of the processor for 1.5 s of waiting: five ticks of its clock, and a rest


def start_waiting(client: Backend, claim: Claim, observer: Backend, *, count: int = 1) -> Background:
    """Wait in the background, at most 20 s; when this returns, *count* are waiting, where the backend lists them."""
    waiting = Background(lambda: client.wait(claim, timeout=20.0, interrupt=None))
    await_waiters(observer, count)
    return waiting


def await_waiters(observer: Backend, count: int) -> None:
    """Return when *count* wait; where the backend does not list them, after a moment in which they may begin to."""
    if waiters(observer) is None:
        time.sleep(0.2)
    else:
        eventually(lambda: (waiters(observer) or 0) >= count)


class Waiting:
    """A wait ends when it should, costs nothing, and leaves nothing behind."""

    def test_waiting_for_a_free_lock_returns_at_once(self, harness: Harness, backend: Backend) -> None:
        claim = harness.claim()
        Background(lambda: backend.wait(claim, timeout=3 * LIMIT, interrupt=None)).result(LIMIT)
        take(backend, claim)

    def test_a_wait_ends_with_the_release(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim()
        waiting = start_waiting(other, claim, backend)
        assert waiting.running
        backend.release(grant, timeout=LIMIT)
        waiting.result(LIMIT)
        assert take(other, claim).token > grant.token

    def test_an_endless_wait_ends_when_the_holder_vanishes(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short())
        claim = harness.claim()
        waiting = Background(lambda: other.wait(claim, timeout=float("inf"), interrupt=None))
        harness.expire(grant)
        waiting.result()
        eventually(lambda: other.try_acquire(claim, timeout=LIMIT))

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
        before = time.monotonic()
        other.wait(claim, timeout=0.3, interrupt=None)
        assert time.monotonic() - before >= 0.29
        assert other.try_acquire(claim, timeout=LIMIT) is None
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

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
        if harness.capabilities.lists_waiters:
            queue_up(other, claim, backend)
        else:
            other.wait(claim, timeout=0.2, interrupt=None)
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
        gone = harness.short()
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
        assert time.monotonic() - before < LIMIT / 2

    def test_a_wait_that_fails_says_whether_the_store_gave_it_a_position(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim(ttl=30.0))
        claim = harness.claim(ttl=30.0)
        waiting = Background(lambda: other.wait(claim, timeout=2.0, interrupt=None))
        eventually(lambda: other.lined_up)
        waiting.result()
        with harness.cut_off(other):
            try:
                other.wait(claim, timeout=1.0, interrupt=None)
            except BackendUnavailable:
                pass
            assert other.lined_up == harness.capabilities.kernel_held

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
            await_waiters(backend, number + 1)
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

    @pytest.mark.slow
    @pytest.mark.usefixtures("servers_at_rest")
    @pytest.mark.parametrize("held", ["by a job", "after its job"])
    def test_a_wait_costs_no_measurable_time_of_the_processor(
        self, harness: Harness, backend: Backend, other: Backend, held: str
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        if held == "after its job":
            backend.release(grant, timeout=LIMIT, hold=30.0)
        claim = harness.claim(ttl=30.0)
        other.wait(claim, timeout=0.1, interrupt=None)  # what a first wait loads is not what a wait costs

        def attempt() -> float:
            return processor_time(lambda: other.wait(claim, timeout=1.5, interrupt=None))

        best_of_a_few(attempt, NO_TIME + harness.own_cost)
        assert refused(other, claim)
