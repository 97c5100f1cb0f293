"""lockctl.lease.together: several locks as one."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable, LeaseLost, LeaseRevoked
from lockctl.lease.attempts import StillHeld
from lockctl.lease.together import Together
from lockctl.model import Claim, Revocation
from lockctl.stores.memory.cell import MemoryBackend, MemoryServer
from lockctl.value import replace
from tests.jobs import without_threads

if TYPE_CHECKING:
    from lockctl.model import Grant

LIMIT = 5.0
NAMES = ("tape", "disk", "belt")


class Store:
    """A server whose clock stands still until it is put forward, and its clients."""

    def __init__(self) -> None:
        self.now = 0.0
        self.server = MemoryServer(lambda: self.now)
        self.clients: list[MemoryBackend] = []

    def client(self) -> MemoryBackend:
        self.clients.append(MemoryBackend(self.server))
        return self.clients[-1]

    def together(self, *names: str) -> Together:
        return Together(names or NAMES, self.client, 0.05)

    def holders(self) -> list[str]:
        return [lock.name for lock in self.client().list("*", timeout=LIMIT) if lock.holders]


@pytest.fixture
def store() -> Store:
    return Store()


def claim(name: str = NAMES[0], ttl: float = 10.0) -> Claim:
    return Claim(name, os.urandom(16).hex(), ttl, "web3", 1, "ops", ("x",))


def take(together: Together, wanted: Claim | None = None) -> Grant:
    grant = together.try_acquire(wanted or claim(), timeout=LIMIT)
    assert grant is not None
    return grant


def test_the_grant_is_that_of_the_first_lock_with_all_as_its_parts(store: Store) -> None:
    grant = take(store.together())
    assert sorted(part.claim.name for part in grant.parts) == sorted(NAMES)
    (first,) = (part for part in grant.parts if part.claim.name == "tape")
    assert (grant.token, grant.key, grant.claim) == (first.token, first.key, first.claim)
    assert len({part.claim.owner for part in grant.parts}) == 3
    assert store.holders() == sorted(NAMES)


def test_the_lease_of_all_is_as_old_as_the_oldest_of_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ages, try_acquire = {"tape": 1.0, "disk": 3.0, "belt": 2.0}, MemoryBackend.try_acquire

    def asked_before(self: MemoryBackend, wanted: Claim, **more: Any) -> Grant | None:
        grant = try_acquire(self, wanted, **more)
        return grant and replace(grant, age=ages[wanted.name])

    monkeypatch.setattr(MemoryBackend, "try_acquire", asked_before)
    together = store.together()
    grant = take(together)
    assert grant.age == 3.0
    assert together.renew(grant, timeout=LIMIT).ttl == grant.ttl


def test_they_are_taken_in_the_order_of_their_names_and_kept_until_they_are_withdrawn(store: Store) -> None:
    assert store.client().try_acquire(claim("disk"), timeout=LIMIT)
    together, wanted = store.together(), claim()
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    assert together.refused == "disk"
    assert store.holders() == ["belt", "disk"]
    together.withdraw(wanted, timeout=LIMIT)
    assert store.holders() == ["disk"]


def test_a_wait_goes_on_from_the_lock_that_was_refused(store: Store) -> None:
    other = store.client()
    held = other.try_acquire(claim("disk"), timeout=LIMIT)
    assert held is not None
    together, wanted = store.together(), claim()
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    together.wait(wanted, timeout=0.1, interrupt=None)
    assert [len(store.client().inspect(name, timeout=LIMIT).waiters or ()) for name in NAMES] == [0, 1, 0]
    other.release(held, timeout=LIMIT)
    assert len(take(together, wanted).parts) == 3


def test_an_attempt_renews_what_it_already_has(store: Store) -> None:
    other = store.client()
    held = other.try_acquire(claim("tape", ttl=100.0), timeout=LIMIT)
    assert held is not None
    together, wanted = store.together(), claim()
    for _ in range(3):
        assert together.try_acquire(wanted, timeout=LIMIT) is None
        store.now += 7.0
    other.release(held, timeout=LIMIT)
    take(together, wanted)
    store.now += 9.0
    assert store.holders() == sorted(NAMES)


@pytest.mark.parametrize("revoked", [False, True])
def test_when_an_earlier_one_is_lost_or_asked_for_all_are_given_back_and_taken_anew(
    store: Store, *, revoked: bool
) -> None:
    other = store.client()
    held = other.try_acquire(claim("tape", ttl=100.0), timeout=LIMIT)
    assert held is not None
    together, wanted = store.together(), claim()
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    (seen,) = other.inspect("belt", timeout=LIMIT).holders
    assert other.revoke("belt", seen, Revocation(now=not revoked, by="ops@web3", reason=""), timeout=LIMIT)
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    assert store.holders() == ["tape"]
    other.release(held, timeout=LIMIT)
    grant = take(together, wanted)
    assert {part.token for part in grant.parts if part.claim.name == "belt"} != {seen.token}


@pytest.mark.parametrize("revoked", [False, True])
def test_when_all_were_given_back_the_first_one_is_waited_for_and_not_the_one_that_was_lost(
    store: Store, *, revoked: bool
) -> None:
    other = store.client()
    assert other.try_acquire(claim("tape", ttl=100.0), timeout=LIMIT)
    together, wanted = store.together(), claim()
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    (seen,) = other.inspect("disk", timeout=LIMIT).holders
    assert other.revoke("disk", seen, Revocation(now=not revoked, by="ops@web3", reason=""), timeout=LIMIT)
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    assert other.try_acquire(claim("disk"), timeout=LIMIT)
    together.wait(wanted, timeout=0.1, interrupt=None)
    assert [len(store.client().inspect(name, timeout=LIMIT).waiters or ()) for name in NAMES] == [0, 0, 0]


def test_losing_one_is_losing_all_and_a_request_for_one_is_for_all(store: Store) -> None:
    together = store.together()
    grant = take(together)
    other = store.client()
    (seen,) = other.inspect("disk", timeout=LIMIT).holders
    other.revoke("disk", seen, Revocation(now=False, by="ops@web3", reason="maintenance"), timeout=LIMIT)
    with pytest.raises(LeaseRevoked, match="maintenance"):
        together.renew(grant, timeout=LIMIT)
    other.revoke("disk", seen, Revocation(now=True, by="ops@web3", reason=""), timeout=LIMIT)
    with pytest.raises(LeaseLost, match="disk"):
        together.renew(grant, timeout=LIMIT)


def test_a_renewal_is_not_known_when_that_of_one_is_not_known_and_the_others_are_renewed(store: Store) -> None:
    together = store.together()
    grant = take(together)
    store.clients[1].cells.reachable = False  # the lock in the middle
    store.now += 6.0
    with pytest.raises(BackendUnavailable):
        together.renew(grant, timeout=LIMIT)
    store.now += 3.0
    store.clients[1].cells.reachable = True
    assert len(together.renew(grant, timeout=LIMIT).parts) == 3


class Gathering(MemoryBackend):
    """Answers a renewal, or a release, when as many as it takes are under way, or when it is told to."""

    def __init__(self, server: MemoryServer, gathering: threading.Barrier | threading.Event) -> None:
        super().__init__(server)
        self.gathering = gathering
        self.is_asked = threading.Event()  # for a renewal

    def renew(self, grant: Grant, *, timeout: float) -> Grant:
        self.is_asked.set()
        self._gather(timeout)
        return super().renew(grant, timeout=timeout)

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        self._gather(timeout)
        super().release(grant, timeout=timeout, hold=hold)

    def _gather(self, timeout: float) -> None:
        try:
            self.gathering.wait(timeout)
        except threading.BrokenBarrierError:
            raise BackendUnavailable("no answer") from None


def test_all_are_renewed_at_the_same_time(store: Store) -> None:
    gathering = threading.Barrier(3)
    together = Together(NAMES, lambda: Gathering(store.server, gathering), 0.05)
    grant = take(together)
    assert len(together.renew(grant, timeout=LIMIT).parts) == 3


@pytest.mark.parametrize("begun", [False, True])
def test_all_are_given_back_at_the_same_time(store: Store, *, begun: bool) -> None:
    gathering = threading.Barrier(3)
    together = Together(NAMES, lambda: Gathering(store.server, gathering), 0.05)
    grant = take(together)
    if begun:
        together.release(grant, timeout=LIMIT)
    else:
        together.withdraw(grant.claim, timeout=LIMIT)
    assert store.holders() == []


class Leisurely(MemoryBackend):
    """Tells how many seconds each release may take, and takes most of them, or all if the server hangs."""

    asked: ClassVar[list[float]] = []
    hangs = False

    def release(self, grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        self.asked.append(timeout)
        time.sleep(timeout * (1.0 if self.hangs else 0.7))
        if self.hangs:
            raise BackendUnavailable("no answer")
        super().release(grant, timeout=timeout, hold=hold)


@pytest.mark.parametrize("hangs", [False, True])
def test_without_threads_each_is_given_back_in_the_whole_time_unless_the_server_hangs(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    monkeypatch.setattr(Leisurely, "asked", [])
    monkeypatch.setattr(Leisurely, "hangs", hangs)
    together = Together(NAMES, lambda: Leisurely(store.server), 0.05)
    grant = take(together)
    with without_threads():
        if hangs:
            with pytest.raises(StillHeld, match=r"^belt, disk, tape: no answer$"):
                together.withdraw(grant.claim, timeout=0.3)
        else:
            together.withdraw(grant.claim, timeout=0.3)
    assert [limit > 0.2 for limit in Leisurely.asked] == [True, not hangs, not hangs]
    assert store.holders() == (sorted(NAMES) if hangs else [])


def test_locks_that_could_not_be_given_back_are_named_and_a_place_in_a_queue_is_not(store: Store) -> None:
    assert store.client().try_acquire(claim("tape"), timeout=LIMIT)
    together, wanted = store.together(), claim()
    assert together.try_acquire(wanted, timeout=LIMIT) is None
    for client in store.clients[1:]:
        client.cells.reachable = False
    with pytest.raises(StillHeld, match=r"^belt, disk: "):
        together.withdraw(wanted, timeout=LIMIT)
    for client in store.clients[1:3]:
        client.cells.reachable = True
    with pytest.raises(BackendUnavailable) as failure:
        together.withdraw(wanted, timeout=LIMIT)
    assert not isinstance(failure.value, StillHeld)


def test_a_loss_of_one_does_not_wait_for_the_answer_about_another_and_its_release_does(store: Store) -> None:
    answer = threading.Event()
    slow = Gathering(store.server, answer)
    clients = iter([MemoryBackend(store.server), slow])
    together = Together(("belt", "disk"), lambda: next(clients), 0.05)
    grant = take(together, claim("belt"))
    (seen,) = store.client().inspect("belt", timeout=LIMIT).holders
    store.client().revoke("belt", seen, Revocation(now=True, by="ops@web3", reason=""), timeout=LIMIT)
    with pytest.raises(LeaseLost, match="belt"):
        together.renew(grant, timeout=60.0)
    assert slow.is_asked.wait(LIMIT)
    with pytest.raises(BackendUnavailable, match="a renewal is stuck"):
        together.release(grant, timeout=0.2)
    answer.set()
    together.release(grant, timeout=LIMIT)
    assert store.holders() == []


def test_a_release_frees_what_it_can_and_says_what_it_could_not(store: Store) -> None:
    together = store.together()
    grant = take(together)
    store.clients[1].cells.reachable = False
    with pytest.raises(BackendUnavailable):
        together.release(grant, timeout=LIMIT)
    assert store.holders() == ["disk"]
    store.clients[1].cells.reachable = True
    together.release(grant, timeout=LIMIT)
    assert store.holders() == []


def test_a_hold_and_a_success_are_for_each(store: Store) -> None:
    together = store.together()
    grant = take(together)
    together.note_success(grant, timeout=LIMIT)
    together.release(grant, timeout=LIMIT, hold=5.0)
    assert store.holders() == sorted(NAMES)
    assert all(together.last_success(name, timeout=LIMIT) is not None for name in NAMES)
    store.now += 6.0
    assert store.holders() == []


def test_a_name_that_is_said_twice_is_one_lock(store: Store) -> None:
    assert len(take(store.together("tape", "disk", "tape")).parts) == 2


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=40))
def test_in_any_order_of_steps_only_one_of_two_has_the_locks_and_one_of_them_can_go_on(
    steps: list[tuple[int, bool]],
) -> None:
    """Each step is an attempt of one side, which keeps what it got of it, or its release."""
    store = Store()
    sides = [store.together("a", "b", "c"), store.together("c", "a", "b")]
    claims = [claim("a", ttl=1000.0), claim("c", ttl=1000.0)]
    grants: list[Grant | None] = [None, None]
    for side, leave in steps:
        held = grants[side]
        if held is None:
            grants[side] = sides[side].try_acquire(claims[side], timeout=LIMIT)
        elif leave:
            sides[side].release(held, timeout=LIMIT)
            grants[side] = None
            claims[side] = claim(claims[side].name, ttl=1000.0)
        assert None in grants
    for side in (0, 1):
        if grants == [None, None]:
            grants[side] = sides[side].try_acquire(claims[side], timeout=LIMIT)
    assert grants != [None, None], "each waits for the other"
    for side, held in enumerate(grants):
        if held is not None:
            sides[side].release(held, timeout=LIMIT)
    for side in (0, 1):
        sides[side].withdraw(claims[side], timeout=LIMIT)
    assert store.holders() == []
