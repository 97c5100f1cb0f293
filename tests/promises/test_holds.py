"""A lock that is kept after its job: who is refused meanwhile, and what does not end, prolong or begin a hold.

That it ends in time, and for those who wait, is in the contract of a backend.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked, LockctlError
from tests.contract.harness import LIMIT, Background, one_of, reader, refused, take, wait_for_turn
from tests.contract.keeping import holder_of, revoke
from tests.faults.backends import on_backends
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Grant, Holder
    from tests.contract.harness import Harness

HOLD = 60.0  # seconds: longer than a lease, and than a test
ANSWERS = 6  # of a release, in which one may be lost
AFTER = 2.0  # seconds after which a release is repeated: more than the whole seconds of some clocks

pytestmark = [
    pytest.mark.parametrize("backend_name", [*on_backends(), "memory"]),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def assert_kept(harness: Harness, client: Backend) -> None:
    """The hold is there, and as long as it was."""
    kept = holder_of(client)
    assert kept.ended_at is not None
    assert kept.expires_in is None or HOLD - 10 < kept.expires_in <= HOLD + harness.hold_slack


def left(client: Backend, name: str) -> float:
    """Seconds of a hold."""
    seconds = holder_of(client, name).expires_in
    assert seconds is not None
    return seconds


def test_a_hold_refuses_claims_of_every_mode_which_leave_nothing(
    harness: Harness, backend: Backend, other: Backend
) -> None:
    backend.release(take(backend, harness.claim()), timeout=LIMIT, hold=HOLD)
    claims = [harness.claim()]
    if harness.capabilities.shared:
        claims.append(reader())
    if harness.capabilities.slots:
        claims += [one_of(1), one_of(3)]
    for claim in claims:
        with contextlib.suppress(ConfigError):  # that is how some refuse another number of slots
            assert other.try_acquire(claim, timeout=LIMIT) is None
            other.wait(claim, timeout=0.1, interrupt=None)
            assert other.try_acquire(claim, timeout=LIMIT) is None
        other.withdraw(claim, timeout=LIMIT)
    assert other.inspect("nightly", timeout=LIMIT).waiters in {(), None}
    assert_kept(harness, other)


def test_nothing_that_comes_late_from_its_holder_ends_or_prolongs_a_hold(
    harness: Harness, backend: Backend, other: Backend, backend_name: str
) -> None:
    grant = take(backend, harness.claim())
    backend.release(grant, timeout=LIMIT, hold=HOLD)
    backend.release(grant, timeout=LIMIT, hold=3600.0)
    backend.release(grant, timeout=LIMIT)
    backend.withdraw(grant.claim, timeout=LIMIT)
    assert backend.try_acquire(grant.claim, timeout=LIMIT) is None
    # etcd still has the key, and another lease there: it says that it does not know
    with pytest.raises(BackendUnavailable if backend_name == "etcd" else LeaseLost):
        backend.renew(grant, timeout=LIMIT)
    assert refused(other, harness.claim())
    assert_kept(harness, other)


def test_a_hold_of_a_lock_that_was_lost_leaves_the_successor_alone(
    harness: Harness, backend: Backend, other: Backend
) -> None:
    lost = take(backend, harness.claim())
    harness.usurp("nightly")
    successor = take(other, harness.claim())
    asked = harness.capabilities.revocable and revoke(backend, holder_of(backend))
    backend.release(lost, timeout=LIMIT, hold=HOLD)
    with pytest.raises(LeaseRevoked) if asked else contextlib.nullcontext():
        other.renew(successor, timeout=LIMIT)
    assert (holder_of(backend).owner, holder_of(backend).ended_at) == (successor.claim.owner, None)
    other.release(successor, timeout=LIMIT)
    backend.release(lost, timeout=LIMIT, hold=HOLD)
    take(other, harness.claim())


def test_a_release_that_is_repeated_since_an_answer_was_lost_does_not_prolong_the_hold_that_it_began(
    harness: Harness, backend: Backend, other: Backend
) -> None:
    begun: list[tuple[Grant, Holder]] = []
    for answered in range(ANSWERS if harness.proxies(backend) else 1):
        grant = take(backend, harness.claim(f"nightly-{answered}"))
        _lose_after(harness, backend, answered)
        with contextlib.suppress(BackendUnavailable):
            backend.release(grant, timeout=0.5, hold=HOLD)
        for proxy in harness.proxies(backend):
            proxy.mode = "reset"
            proxy.mode = "pass"
        begun.append((grant, holder_of(other, grant.claim.name)))
    assert any(seen.ended_at is not None for _, seen in begun)
    for grant, seen in begun:
        if seen.ended_at is not None and seen.expires_in is not None:
            later = seen.expires_in - AFTER
            eventually(partial(_is_shorter, other, grant.claim.name, later))
            backend.release(grant, timeout=LIMIT, hold=HOLD)
            assert left(other, grant.claim.name) < later


def _is_shorter(client: Backend, name: str, than: float) -> bool:
    return left(client, name) < than


def _lose_after(harness: Harness, client: Backend, answered: int) -> None:
    """Have all answers lost but for the next few."""
    for proxy in harness.proxies(client):
        proxy.answered = answered
        proxy.mode = "drop_replies"


def test_a_wait_ends_when_an_operator_ends_the_hold(
    harness: Harness, backend: Backend, other: Backend, backend_name: str
) -> None:
    grant, mine = take(backend, harness.claim()), harness.claim()
    backend.release(grant, timeout=LIMIT, hold=HOLD)
    seen = holder_of(backend)
    waiting = Background(lambda: wait_for_turn(other, mine))
    time.sleep(0.3)  # whether it has begun to wait or not: it does not end before the hold
    with pytest.raises(LockctlError, match="--now"):
        revoke(backend, seen)
    assert waiting.running
    floor = revoke(backend, seen, now=True)
    later = waiting.result(limit=LIMIT if backend_name == "consul" else LIMIT / 2)  # Consul asks seldom
    assert floor is not None
    assert later.token >= floor > grant.token
    assert revoke(backend, seen, now=True) is None
