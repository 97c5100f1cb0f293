"""What a backend promises about several holders at once: readers beside each other, and slots."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError, LeaseRevoked
from lockctl.model import EXCLUSIVE, SHARED, SLOT, Revocation
from tests.contract.harness import LIMIT, Background, queue_up, refused, take, wait_for_turn
from tests.contract.waiting import await_waiters, start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Claim, Grant
    from tests.contract.harness import Harness


def reader(harness: Harness, ttl: float = 30.0) -> Claim:
    """A claim that others of its kind may hold beside it."""
    return harness.claim(ttl=ttl, mode=SHARED)


def one_of(harness: Harness, slots: int, ttl: float = 30.0) -> Claim:
    """A claim that so many, less one, may hold beside it."""
    return harness.claim(ttl=ttl, mode=SLOT, slots=slots)


def cannot(harness: Harness, claim: Claim) -> bool:
    """Whether the backend does not have the mode of this claim; then it says so, and nothing is held."""
    if harness.capabilities.shared if claim.mode == SHARED else harness.capabilities.slots:
        return False
    client = harness.client()
    lacking = "--shared" if claim.mode == SHARED else "--slots"
    with pytest.raises(ConfigError, match=f"backend does not have {lacking}: lockctl backends shows which ones do$"):
        client.try_acquire(claim, timeout=LIMIT)
    client.release(take(client, harness.claim()), timeout=LIMIT)
    return True


def take_turns(
    harness: Harness, claims: list[Claim], inside: list[Claim], most: list[int], granted: list[Grant], at_once: int = 1
) -> None:
    """Hold the lock for each of *claims* in turn, and note who is inside at that time, and in which order they came.

    They stay until so many were inside *at_once*.
    """
    client, lock = harness.client(), threading.Lock()
    for claim in claims:
        grant = wait_for_turn(client, claim)
        with lock:
            inside.append(claim)
            granted.append(grant)
            beside = list(inside)
        modes = {each.mode for each in beside}
        assert modes in ({SHARED}, {SLOT}) or len(beside) == 1, f"{modes} at once"
        most.append(len(beside))
        time.sleep(0.02)
        eventually(lambda: max(most) >= at_once)
        inside.remove(claim)
        client.release(grant, timeout=LIMIT)


class Sharing:
    """Readers and writers, semaphores; who cannot carry them says so."""

    def test_readers_hold_the_lock_beside_each_other_with_tokens_that_rise(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        first = take(backend, reader(harness))
        second = take(other, reader(harness))
        third = take(harness.client(), reader(harness))
        assert first.token < second.token < third.token
        assert backend.renew(first, timeout=LIMIT).token == first.token
        assert other.renew(second, timeout=LIMIT).token == second.token

    def test_a_writer_is_refused_until_the_last_reader_has_left(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        first, second = take(backend, reader(harness)), take(other, reader(harness))
        third = harness.client()
        assert refused(third, harness.claim())
        backend.release(first, timeout=LIMIT)
        assert refused(third, harness.claim())
        other.release(second, timeout=LIMIT)
        assert take(third, harness.claim()).token > second.token

    def test_readers_are_refused_while_a_writer_is_inside(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        grant = take(backend, harness.claim(ttl=30.0))
        assert refused(other, reader(harness))
        backend.release(grant, timeout=LIMIT)
        assert take(other, reader(harness)).token > grant.token

    def test_another_program_keeps_readers_and_slots_out(self, harness: Harness, backend: Backend) -> None:
        claims = [each for each in (reader(harness), one_of(harness, 3)) if not cannot(harness, each)]
        with harness.foreign_hold("nightly"):
            assert all(refused(backend, claim) for claim in claims)

    def test_a_reader_does_not_overtake_a_waiting_writer(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        grant = take(backend, reader(harness))
        writer = harness.claim(ttl=30.0)
        waiting = start_waiting(other, writer, backend)
        late = harness.client()
        eventually(lambda: refused(late, reader(harness)))
        assert waiting.running
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        granted = take(other, writer)
        other.release(granted, timeout=LIMIT)
        assert take(late, reader(harness)).token > granted.token

    def test_readers_that_wait_for_a_writer_get_in_together(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        grant = take(backend, harness.claim(ttl=30.0))
        inside = threading.Barrier(3, timeout=LIMIT)
        tokens: list[int] = []

        def read(client: Backend) -> None:
            claim = reader(harness)
            mine = wait_for_turn(client, claim)
            tokens.append(mine.token)
            inside.wait()
            client.release(mine, timeout=LIMIT)

        readers = [Background(lambda client=client: read(client)) for client in [harness.client() for _ in range(3)]]  # type: ignore[misc]
        await_waiters(other, 3)
        backend.release(grant, timeout=LIMIT)
        for each in readers:
            each.result()
        assert len({grant.token, *tokens}) == 4, "each has a token of its own"
        assert take(other, harness.claim()).token > max(tokens) >= min(tokens) > grant.token

    def test_a_reader_that_was_stopped_in_the_queue_does_not_keep_the_next_one_out(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)) or not (harness.capabilities.fair and harness.capabilities.lists_waiters):
            return
        observer = harness.client()
        grant = take(observer, harness.claim(ttl=30.0))
        stopped, second = reader(harness), reader(harness)
        queue_up(backend, stopped, observer)
        queue_up(other, second, observer)
        observer.release(grant, timeout=LIMIT)
        inside = eventually(lambda: other.try_acquire(second, timeout=LIMIT))
        # what was answered while it was stopped counts first
        assert eventually(lambda: backend.try_acquire(stopped, timeout=LIMIT)).token > inside.token

    def test_a_writer_is_never_inside_with_anybody(self, harness: Harness) -> None:
        if cannot(harness, reader(harness)):
            return
        inside: list[Claim] = []
        most: list[int] = []
        granted: list[Grant] = []
        turns, readers = harness.crowd // 2, harness.crowd // 2
        plans = [[reader(harness) for _ in range(turns)] for _ in range(readers)]
        plans.append([harness.claim(ttl=30.0) for _ in range(turns)])
        for each in [Background(lambda plan=plan: take_turns(harness, plan, inside, most, granted)) for plan in plans]:  # type: ignore[misc]
            each.result(60.0)
        assert len(most) == turns * (readers + 1)
        tokens = [grant.token for grant in granted]
        for number, grant in enumerate(granted):
            if grant.claim.mode == EXCLUSIVE:
                assert all(earlier < grant.token for earlier in tokens[:number])
                assert all(grant.token < later for later in tokens[number + 1 :])

    def test_a_reader_that_vanished_does_not_keep_a_writer_out(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, reader(harness)):
            return
        grant = take(backend, reader(harness, harness.ttl))
        harness.expire(grant)
        assert other.inspect("nightly", timeout=LIMIT).state == "free"
        assert take(other, harness.claim()).token > grant.token

    def test_so_many_get_in_as_there_are_slots_and_their_tokens_rise(self, harness: Harness) -> None:
        if cannot(harness, one_of(harness, 3)):
            return
        clients = [harness.client() for _ in range(4)]
        grants = [take(client, one_of(harness, 3)) for client in clients[:3]]
        assert refused(clients[3], one_of(harness, 3))
        assert all(earlier.token < later.token for earlier, later in itertools.pairwise(grants))
        clients[1].release(grants[1], timeout=LIMIT)
        grants.append(take(clients[3], one_of(harness, 3)))
        assert grants[3].token > grants[2].token
        assert refused(clients[1], one_of(harness, 3))
        for client, grant in zip((clients[0], clients[2], clients[3]), (grants[0], grants[2], grants[3]), strict=True):
            assert client.renew(grant, timeout=LIMIT).token == grant.token

    def test_who_says_another_number_of_slots_than_the_holders_is_told_so(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, one_of(harness, 3)):
            return
        grant = take(backend, one_of(harness, 3))
        for claim in (one_of(harness, 2), harness.claim()):
            with pytest.raises(ConfigError, match=r"slots.*not"):
                other.try_acquire(claim, timeout=LIMIT)
        assert backend.renew(grant, timeout=LIMIT).token == grant.token
        take(other, one_of(harness, 3))

    def test_slots_are_refused_where_a_single_holder_is_inside(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, one_of(harness, 3)):
            return
        grant = take(backend, harness.claim(ttl=30.0))
        with pytest.raises(ConfigError):
            other.try_acquire(one_of(harness, 3), timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        take(other, one_of(harness, 3))

    def test_another_number_of_slots_is_as_good_when_nobody_is_inside(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, one_of(harness, 3)):
            return
        first = take(backend, one_of(harness, 3))
        backend.release(first, timeout=LIMIT)
        second = take(other, one_of(harness, 2))
        other.release(second, timeout=LIMIT)
        third = take(backend, harness.claim())
        assert first.token < second.token < third.token

    def test_who_waits_for_a_slot_gets_the_next_that_is_given_back(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, one_of(harness, 2)):
            return
        grants = [take(backend, one_of(harness, 2)) for _ in range(2)]
        claim = one_of(harness, 2)
        waiting = start_waiting(other, claim, backend)
        assert waiting.running
        backend.release(grants[1], timeout=LIMIT)
        waiting.result()
        assert take(other, claim).token > grants[1].token
        assert backend.renew(grants[0], timeout=LIMIT).token == grants[0].token

    def test_the_slot_of_a_holder_that_vanished_is_given_to_another(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if cannot(harness, one_of(harness, 2)):
            return
        grants = [take(backend, one_of(harness, 2, harness.ttl)) for _ in range(2)]
        assert refused(other, one_of(harness, 2))
        harness.expire(grants[0])
        assert take(other, one_of(harness, 2)).token > grants[1].token

    def test_slots_are_never_overbooked_and_never_idle(self, harness: Harness) -> None:
        if cannot(harness, one_of(harness, 3)):
            return
        inside: list[Claim] = []
        most: list[int] = []
        turns, holders = harness.crowd // 2, 6
        plans = [[one_of(harness, 3) for _ in range(turns)] for _ in range(holders)]
        for each in [Background(lambda plan=plan: take_turns(harness, plan, inside, most, [], 3)) for plan in plans]:  # type: ignore[misc]
            each.result(60.0)
        assert len(most) == turns * holders
        assert max(most) == 3

    def test_all_holders_are_shown_with_their_mode(self, harness: Harness, backend: Backend, other: Backend) -> None:
        for claims in ([reader(harness), reader(harness)], [one_of(harness, 3), one_of(harness, 3)]):
            if cannot(harness, claims[0]):
                continue
            grants = [take(client, claim) for client, claim in zip((backend, other), claims, strict=True)]
            lock = harness.client().inspect("nightly", timeout=LIMIT)
            assert (lock.state, lock.slots) == ("held", claims[0].slots)
            shown = sorted((holder.token or 0, holder.owner, holder.mode, holder.user) for holder in lock.holders)
            assert shown == [(grant.token, grant.claim.owner, grant.claim.mode, "ops") for grant in grants]
            (listed,) = harness.client().list("*", timeout=LIMIT)
            assert len(listed.holders) == 2
            for client, grant in zip((backend, other), grants, strict=True):
                client.release(grant, timeout=LIMIT)

    def test_one_of_several_holders_can_be_asked_and_the_others_are_left_alone(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        for claims in ([reader(harness), reader(harness)], [one_of(harness, 2), one_of(harness, 2)]):
            if cannot(harness, claims[0]):
                continue
            grants = [take(client, claim) for client, claim in zip((backend, other), claims, strict=True)]
            seen = {holder.owner: holder for holder in backend.inspect("nightly", timeout=LIMIT).holders}
            asked = seen[grants[1].claim.owner]
            floor = backend.revoke("nightly", asked, Revocation(now=False, by="ops@web3", reason=""), timeout=LIMIT)
            assert floor is not None
            with pytest.raises(LeaseRevoked):
                other.renew(grants[1], timeout=LIMIT)
            assert backend.renew(grants[0], timeout=LIMIT).token == grants[0].token
            other.release(grants[1], timeout=LIMIT)
            assert backend.renew(grants[0], timeout=LIMIT).token == grants[0].token
            backend.release(grants[0], timeout=LIMIT)

    def test_the_same_claim_finds_its_own_grant_among_several(self, harness: Harness, backend: Backend) -> None:
        for claim in (reader(harness), one_of(harness, 2)):
            if cannot(harness, claim):
                continue
            take(harness.client(), harness.claim(mode=claim.mode, slots=claim.slots, ttl=30.0))
            grant: Grant = take(backend, claim)
            assert take(backend, claim).token == grant.token
            for holder in backend.inspect("nightly", timeout=LIMIT).holders:
                backend.revoke("nightly", holder, Revocation(now=True, by="ops@web3", reason=""), timeout=LIMIT)
            assert backend.inspect("nightly", timeout=LIMIT).state == "free"
