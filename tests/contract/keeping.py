"""What a backend promises about keeping a lock, losing it, giving it back and being asked for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, LeaseLost, LeaseRevoked, LockctlError
from lockctl.model import Revocation
from tests.contract.harness import LIMIT, departed, refused, take
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Claim, Holder
    from tests.contract.harness import Harness


def holder_of(client: Backend, name: str = "nightly") -> Holder:
    """The one holder of a lock, as an operator sees it."""
    (holder,) = client.inspect(name, timeout=LIMIT).holders
    return holder


def renewable(harness: Harness) -> Claim:
    """A claim whose lease is surely renewed in time, also on a busy machine: most stores have a real clock."""
    return harness.claim(ttl=max(harness.ttl, 3.0))


def revoke(client: Backend, seen: Holder, *, now: bool = False, reason: str = "maintenance") -> int | None:
    """What an operator does."""
    return client.revoke("nightly", seen, Revocation(now=now, by="ops@web3", reason=reason), timeout=LIMIT)


def unless_in_reach(harness: Harness) -> contextlib.AbstractContextManager[object]:
    """What a request to a store that cannot be reached must end with; for files there is none that could not."""
    return contextlib.nullcontext() if harness.always_in_reach else pytest.raises(BackendUnavailable)


class Keeping:
    """Renewals with their three answers, releases that touch nobody else's lock, revocations."""

    def test_a_renewal_leaves_the_token_as_it_was(self, harness: Harness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        for _ in range(3):
            assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_renewed_lease_outlives_its_first_ttl(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, renewable(harness))
        for _ in range(2):
            harness.pass_time(0.6 * grant.ttl)
            grant = backend.renew(grant, timeout=LIMIT)
        assert refused(other, harness.claim())

    def test_without_renewal_a_lock_ends_after_its_ttl_if_it_is_leased_and_only_then(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short())
        harness.pass_time(harness.freed_after * grant.ttl)
        if harness.capabilities.leased:
            assert take(other, harness.claim()).token > grant.token
        else:
            assert refused(other, harness.claim())
            assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_the_lock_of_a_holder_that_vanished_becomes_free(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short(pid=departed()))
        harness.expire(grant)
        assert other.inspect("nightly", timeout=LIMIT).state == "free"
        assert take(other, harness.claim()).token > grant.token

    def test_a_renewal_does_not_take_a_lock_again_that_was_lost(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short())
        harness.expire(grant)
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        take(other, harness.claim())

    def test_a_renewal_says_lost_when_the_lock_was_taken_away(self, harness: Harness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        harness.usurp("nightly")
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)

    def test_a_renewal_says_lost_when_another_has_the_lock(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        harness.usurp("nightly")
        later = take(other, harness.claim())
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token

    def test_a_renewal_that_gets_no_answer_is_not_known_and_may_succeed_later(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        with harness.cut_off(backend), unless_in_reach(harness):
            backend.renew(grant, timeout=0.5)
        assert backend.renew(grant, timeout=LIMIT).token == grant.token
        assert refused(other, harness.claim())

    def test_a_released_lease_is_not_renewed(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT)
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        take(other, harness.claim())

    def test_releasing_again_does_nothing_and_leaves_the_next_holder_alone(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        for _ in range(2):
            backend.release(grant, timeout=LIMIT)
        later = take(other, harness.claim())
        backend.release(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token
        assert refused(backend, harness.claim())

    def test_an_old_grant_of_the_same_client_does_not_release_its_new_one(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        old = take(backend, harness.claim())
        backend.release(old, timeout=LIMIT)
        new = take(backend, harness.claim())
        backend.release(old, timeout=LIMIT)
        assert backend.renew(new, timeout=LIMIT).token == new.token
        assert refused(other, harness.claim())

    def test_releasing_a_lost_lock_leaves_its_new_holder_alone(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        harness.usurp("nightly")
        later = take(other, harness.claim())
        backend.release(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token
        assert holder_of(backend).token == later.token

    def test_a_release_that_gets_no_answer_says_so_and_can_be_repeated(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        with harness.cut_off(backend), unless_in_reach(harness):
            backend.release(grant, timeout=0.5)
        backend.release(grant, timeout=LIMIT)
        take(other, harness.claim())

    def test_closing_abandons_the_lock_as_a_crash_would(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short())
        backend.close()
        backend.close()
        if harness.capabilities.connection_held:
            eventually(lambda: not refused(other, harness.claim()), limit=grant.ttl / 2)
        elif harness.capabilities.leased:
            assert refused(other, harness.claim())
            harness.pass_time(harness.freed_after * grant.ttl)
        take(other, harness.claim())

    def test_a_revoked_holder_is_told_at_every_renewal_and_keeps_the_lock_until_it_gives_it_back(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        if not harness.capabilities.revocable:
            with pytest.raises(LockctlError):
                revoke(other, holder_of(other))
            return
        floor = revoke(other, holder_of(other))
        for _ in range(2):
            with pytest.raises(LeaseRevoked) as told:
                backend.renew(grant, timeout=LIMIT)
            assert (told.value.by, told.value.reason) == ("ops@web3", "maintenance")
            assert refused(other, harness.claim())
        backend.release(grant, timeout=LIMIT)
        later = take(other, harness.claim())
        assert floor is not None
        assert grant.token < floor <= later.token
        assert other.renew(later, timeout=LIMIT).token == later.token, "the request was for the holder before"

    def test_a_renewal_that_is_answered_with_a_revocation_prolongs_the_lease_all_the_same(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        if not harness.capabilities.revocable:
            return  # asserted above
        grant = take(backend, renewable(harness))
        revoke(other, holder_of(other))
        for _ in range(2):
            harness.pass_time(0.6 * grant.ttl)
            with pytest.raises(LeaseRevoked):
                backend.renew(grant, timeout=LIMIT)
        assert refused(other, harness.claim())

    def test_a_revocation_of_somebody_who_has_left_does_nothing(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        first = take(backend, harness.claim())
        seen = holder_of(other)
        backend.release(first, timeout=LIMIT)
        assert revoke(other, seen) is None
        assert revoke(other, seen, now=True) is None
        later = take(backend, harness.claim())
        assert revoke(other, seen) is None
        assert revoke(other, seen, now=True) is None
        assert backend.renew(later, timeout=LIMIT).token == later.token
        assert refused(other, harness.claim())

    def test_a_revocation_at_once_frees_the_lock_and_its_holder_learns_that_it_lost(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        floor = revoke(other, holder_of(other), now=True)
        later = take(other, harness.claim())
        assert floor is not None
        assert grant.token < floor <= later.token
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token

    def test_hostile_words_of_an_operator_reach_the_holder_on_one_line(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        if not harness.capabilities.revocable:
            with pytest.raises(LockctlError):
                revoke(other, holder_of(other))
            return
        revoke(other, holder_of(other), reason='"}\\ $(reboot) \N{SNOWMAN} ' + "x" * 500)
        with pytest.raises(LeaseRevoked) as told:
            backend.renew(grant, timeout=LIMIT)
        assert told.value.reason.startswith('"}\\ $(reboot) \N{SNOWMAN} xxx')

    def test_a_long_reason_in_any_writing_is_cut_and_not_lost(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        revoke(other, holder_of(other), reason="\N{SNOWMAN}" * 5000)
        with pytest.raises(LeaseRevoked) as told:
            backend.renew(grant, timeout=LIMIT)
        assert told.value.reason.startswith("\N{SNOWMAN}" * 500)

    def test_another_program_cannot_be_asked_for_its_lock(self, harness: Harness, backend: Backend) -> None:
        with harness.foreign_hold("nightly"):
            with pytest.raises(LockctlError):
                revoke(backend, holder_of(backend))
            assert refused(backend, harness.claim())

    def test_a_program_that_came_later_does_not_lose_its_lock_in_the_place_of_the_one_that_was_seen(
        self, harness: Harness, backend: Backend
    ) -> None:
        with harness.foreign_hold("nightly"):
            earlier = holder_of(backend)
        with harness.foreign_hold("nightly"):
            assert revoke(backend, earlier, now=True) is None
            assert refused(backend, harness.claim())
            (listed,) = backend.list("nightly", timeout=LIMIT)
            (later,) = listed.holders
            assert revoke(backend, later, now=True) is not None, "it is the same one in a list"
            take(backend, harness.claim())

    def test_the_lock_of_another_program_can_be_taken_away_at_once(self, harness: Harness, backend: Backend) -> None:
        with harness.foreign_hold("nightly"):
            floor = revoke(backend, holder_of(backend), now=True)
            assert floor is not None
            assert take(backend, harness.claim()).token >= floor
