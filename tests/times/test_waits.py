"""How soon a refusal, a wait and its end are there, by the calls of a backend."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import LIMIT, Background, take
from tests.contract.waiting import start_waiting
from tests.faults.backends import on_backends
from tests.jobs import best_of_a_few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.contract.harness import Harness

AT_ONCE = 0.2  # seconds

pytestmark = [
    pytest.mark.parametrize("backend_name", [*on_backends(), "memory"]),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture
def interrupt() -> Iterator[tuple[int, int]]:
    """A pipe: what is written to the second end interrupts a wait on the first."""
    ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    yield ends
    for end in ends:
        os.close(end)


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    before = time.monotonic()
    call()
    return time.monotonic() - before


def test_a_held_lock_is_refused_without_waiting(harness: Harness, backend: Backend, other: Backend) -> None:
    take(backend, harness.claim(ttl=30.0))
    best_of_a_few(lambda: seconds(lambda: other.try_acquire(harness.claim(), timeout=LIMIT)), 0.5)


def test_a_wait_ends_at_its_timeout(harness: Harness, backend: Backend, other: Backend) -> None:
    take(backend, harness.claim(ttl=30.0))
    claim = harness.claim()

    def attempt() -> float:
        took = seconds(lambda: other.wait(claim, timeout=0.3, interrupt=None))
        assert took >= 0.29
        return took

    best_of_a_few(attempt, 0.8)


def test_a_wait_with_no_time_left_returns_at_once(harness: Harness, backend: Backend, other: Backend) -> None:
    take(backend, harness.claim(ttl=30.0))
    best_of_a_few(lambda: seconds(lambda: other.wait(harness.claim(), timeout=0.0, interrupt=None)), AT_ONCE)


def test_a_wait_ends_within_a_second_of_the_release(harness: Harness, backend: Backend, other: Backend) -> None:
    def attempt() -> float:
        grant, claim = take(backend, harness.claim(ttl=30.0)), harness.claim(ttl=30.0)
        waiting = start_waiting(other, claim, backend)
        backend.release(grant, timeout=LIMIT)
        released = time.monotonic()
        waiting.result()
        other.release(take(other, claim), timeout=LIMIT)
        return waiting.ended_at - released

    best_of_a_few(attempt, 1.0)


def test_a_wait_ends_at_once_when_it_is_interrupted(
    harness: Harness, backend: Backend, other: Backend, interrupt: tuple[int, int]
) -> None:
    take(backend, harness.claim(ttl=30.0))

    def attempt() -> float:
        claim = harness.claim()
        waiting = Background(lambda: other.wait(claim, timeout=20.0, interrupt=interrupt[0]))
        time.sleep(0.2)  # whether it has begun to wait or not: it ends at once
        os.write(interrupt[1], b".")
        asked = time.monotonic()
        waiting.result()
        assert os.read(interrupt[0], 8) == b".", "what interrupted is the caller's to read"
        other.withdraw(claim, timeout=LIMIT)
        return waiting.ended_at - asked

    best_of_a_few(attempt, AT_ONCE)


def test_a_wait_that_is_interrupted_beforehand_returns_at_once(
    harness: Harness, backend: Backend, other: Backend, interrupt: tuple[int, int]
) -> None:
    take(backend, harness.claim(ttl=30.0))
    os.write(interrupt[1], b".")
    best_of_a_few(lambda: seconds(lambda: other.wait(harness.claim(), timeout=20.0, interrupt=interrupt[0])), AT_ONCE)
