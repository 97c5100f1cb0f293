"""What a backend promises about taking a lock."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import EXCLUSIVE, SHARED, SLOT
from lockctl.names import ALLOWED, LONGEST
from tests.contract.harness import LIMIT, Background, refused, take, wait_for_turn
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import LockInfo
    from tests.contract.harness import Harness


PATIENCE = 0.25  # seconds for an attempt in which a request is late
LATE = 0.5  # seconds that it is on its way
MOST_REQUESTS = 40  # more than any attempt has
AHEAD = 600.0  # seconds: of a clock that is wrong by more, requests to S3 are refused
NAMES = ["A", "x" * LONGEST, "_" + "".join(sorted(ALLOWED)), "a..b", "+", "@:@"]
FACE = "\N{FACE WITH TEARS OF JOY}"
HOSTILE = ["\x1b[2J\x07", "a\"b\\c'd`$(e)", "line\nbreak\r\t", f"\N{RIGHT-TO-LEFT OVERRIDE}{FACE}", ""]
STRANGE: list[dict[str, Any]] = [
    {"command": ("undecodable \udcff",)},
    {"command": ("long", *["x" * 50] * 2000)},
    {"command": ("y" * 100_000,)},
    {"command": (FACE * 1000,)},
    {"user": "z" * 10_000},
    {"user": FACE * 1000, "host": FACE * 1000},
]


def is_unused(seen: LockInfo) -> bool:
    """Whether nobody holds a lock or waits for it, as far as the backend can say."""
    return seen.state == "free" and not seen.waiters


class Taking:
    """Exclusion, tokens, and what a refusal or a failure leaves behind."""

    def test_a_free_lock_is_granted_with_what_the_claim_asked_for(self, harness: Harness, backend: Backend) -> None:
        claim = harness.short()
        grant = take(backend, claim)
        assert grant.claim == claim
        assert grant.ttl >= claim.ttl
        assert grant.token > 0
        assert grant.key
        assert grant.domain

    def test_a_held_lock_is_refused_with_none_and_without_waiting(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim(ttl=30.0))
        attempt = Background(lambda: other.try_acquire(harness.claim(), timeout=3 * LIMIT))
        assert attempt.result(LIMIT) is None

    def test_two_claims_of_one_client_exclude_each_other(self, harness: Harness, backend: Backend) -> None:
        take(backend, harness.claim())
        assert refused(backend, harness.claim())

    def test_locks_of_two_names_have_nothing_to_do_with_each_other(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        take(backend, harness.claim("one"))
        take(other, harness.claim("one.two"))

    def test_a_released_lock_is_granted_to_the_next_whose_token_is_higher_over_many_tenures(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        tokens, counters = [], set()
        for client in itertools.islice(itertools.cycle((backend, other)), 6 * harness.crowd):
            grant = take(client, harness.claim())
            tokens.append(grant.token)
            counters.add((grant.domain, grant.key))
            client.release(grant, timeout=LIMIT)
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))
        assert len(counters) == 1

    def test_those_who_contend_are_never_inside_together_and_their_tokens_rise(self, harness: Harness) -> None:
        inside = threading.Lock()
        tokens: list[int] = []

        def contend() -> None:
            client = harness.client()
            for _ in range(3):
                claim = harness.claim(ttl=30.0)
                grant = wait_for_turn(client, claim)
                assert inside.acquire(blocking=False), "two holders at once"
                tokens.append(grant.token)
                inside.release()
                client.release(grant, timeout=LIMIT)

        for contender in [Background(contend) for _ in range(harness.crowd)]:
            contender.result()
        assert len(tokens) == 3 * harness.crowd
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))

    def test_the_token_rises_although_the_store_loses_its_record(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        """Also within one second, and whether it was used once or more."""
        tokens = []
        for client, tenures in ((backend, 1), (other, 3), (backend, 1), (other, 2)):
            for _ in range(tenures):
                grant = take(client, harness.claim())
                tokens.append(grant.token)
                client.release(grant, timeout=LIMIT)
            harness.forget("nightly")
        assert tokens == sorted(set(tokens))

    def test_tokens_rise_among_hosts_whose_clocks_differ(
        self, harness: Harness, backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        promised = harness.capabilities
        modes = [EXCLUSIVE] + [SHARED] * promised.shared + [SLOT] * promised.slots
        seconds, nanoseconds, tokens = time.time, time.time_ns, list[int]()
        for mode, ahead, client in itertools.product(modes, (AHEAD, 0.0, AHEAD, 0.0), (backend, other)):
            monkeypatch.setattr("lockctl.clock.time.time", lambda ahead=ahead: seconds() + ahead)
            monkeypatch.setattr("lockctl.clock.time.time_ns", lambda ahead=ahead: nanoseconds() + int(ahead * 1e9))
            grant = take(client, harness.claim(mode=mode))
            tokens.append(grant.token)
            client.release(grant, timeout=LIMIT)
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))

    def test_the_same_claim_finds_its_own_grant_again(self, harness: Harness, backend: Backend, other: Backend) -> None:
        claim = harness.claim()
        grant = take(backend, claim)
        assert take(backend, claim).token == grant.token
        assert refused(other, harness.claim())
        backend.release(grant, timeout=LIMIT)
        take(other, harness.claim())

    def test_a_claim_whose_lock_went_to_another_is_refused_like_anybody(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        claim = harness.claim()
        take(backend, claim)
        harness.usurp(claim.name)
        later = take(other, harness.claim())
        assert backend.try_acquire(claim, timeout=LIMIT) is None
        assert other.renew(later, timeout=LIMIT).token == later.token

    def test_a_backend_out_of_reach_says_so_and_nothing_is_held(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.try_acquire(harness.claim(), timeout=1.0)
        take(other, harness.claim())

    def test_a_request_that_arrives_after_its_claim_was_withdrawn_leaves_nothing(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        """Whichever of the requests of an attempt it is: before it one more is on time in each round."""
        promised, proxies = harness.capabilities, harness.proxies(backend)
        for mode in [EXCLUSIVE] + [SHARED] * promised.shared + [SLOT] * promised.slots:
            backend.release(take(backend, harness.claim(mode=mode)), timeout=LIMIT)  # it is connected
            for on_time in range(MOST_REQUESTS):
                claim, grant = harness.claim(mode=mode), None
                for proxy in proxies:
                    proxy.on_time, proxy.mode = on_time, f"late={LATE}"
                try:
                    grant = backend.try_acquire(claim, timeout=PATIENCE)
                except BackendUnavailable:
                    pass
                for proxy in proxies:
                    proxy.mode = "pass"
                if grant is not None:
                    backend.release(grant, timeout=LIMIT)
                backend.withdraw(claim, timeout=LIMIT)
                eventually(lambda: all(proxy.is_idle for proxy in proxies))
                eventually(lambda: is_unused(other.inspect("nightly", timeout=LIMIT)))
                if all(proxy.on_time for proxy in proxies):
                    break  # there are no more requests
            else:
                pytest.fail("an attempt has no end")

    def test_only_a_lock_that_lives_in_a_file_or_a_connection_has_a_descriptor(
        self, harness: Harness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        promised = harness.capabilities
        assert (grant.descriptor is not None) is (promised.kernel_held or promised.connection_held)
        if grant.descriptor is not None:
            os.fstat(grant.descriptor)

    def test_the_lock_of_another_program_excludes_us(self, harness: Harness, backend: Backend) -> None:
        with harness.foreign_hold("nightly"):
            assert refused(backend, harness.claim())
        take(backend, harness.claim())

    def test_every_name_that_is_allowed_can_be_locked(self, harness: Harness, backend: Backend, other: Backend) -> None:
        for name in NAMES:
            grant = take(backend, harness.claim(name))
            assert refused(other, harness.claim(name))
            assert [lock.name for lock in other.list("*", timeout=LIMIT) if lock.state == "held"] == [name]
            backend.release(grant, timeout=LIMIT)

    def test_hostile_text_of_a_holder_is_given_back_as_it_was(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        for number, text in enumerate(HOSTILE):
            claim = harness.claim(f"lock{number}", host=text, user=text, command=(text, text))
            grant = take(backend, claim)
            (holder,) = other.inspect(claim.name, timeout=LIMIT).holders
            assert (holder.owner, holder.token) == (claim.owner, grant.token)
            assert (holder.host, holder.user, holder.command) == (text, text, (text, text))

    def test_no_text_of_a_holder_is_too_strange_or_too_long_to_hold_a_lock(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        for changes in STRANGE:
            grant = take(backend, harness.claim(**changes))
            (holder,) = other.inspect("nightly", timeout=LIMIT).holders
            assert holder.token == grant.token
            assert holder.command is not None
            assert backend.renew(grant, timeout=LIMIT).token == grant.token
            backend.release(grant, timeout=LIMIT)
            later = take(other, harness.claim())
            assert later.token > grant.token
            other.release(later, timeout=LIMIT)
