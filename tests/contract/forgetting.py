"""What a backend promises about names that nobody uses any more."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from tests.contract.harness import LIMIT, Background, refused, take
from tests.contract.remembering import a_run
from tests.contract.waiting import start_waiting

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.contract.harness import Harness

DAY = 86400.0  # seconds
BEHIND = 600.0  # seconds: of a clock that is wrong by more, requests to S3 are refused


def unused(client: Backend, pattern: str = "*", older_than: float = 0.0) -> list[str]:
    """The names that could be forgotten."""
    return [name for name, _ in client.unused(pattern, older_than=older_than, timeout=LIMIT)]


def forget(client: Backend, name: str = "nightly", older_than: float = 0.0) -> bool:
    """What an operator does."""
    return client.forget(name, older_than=older_than, timeout=LIMIT)


def use(harness: Harness, client: Backend, name: str = "nightly") -> Grant:
    """One whole run under a lock, with a success, as it is remembered."""
    grant = take(client, harness.claim(name))
    client.note_success(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    client.remember(name, a_run(), timeout=LIMIT)
    return grant


class Forgetting:
    """What was not used for long can be removed, tokens rise all the same, and nobody loses a lock by it."""

    def test_a_name_that_nobody_ever_used_is_not_there_to_be_forgotten(
        self, harness: Harness, backend: Backend
    ) -> None:
        assert unused(backend) == []
        assert not forget(backend)
        take(backend, harness.claim())

    def test_a_used_name_is_shown_with_its_last_use_and_nothing_of_it_is_left_when_it_is_forgotten(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        use(harness, backend)
        ((name, at),) = other.unused("*", older_than=0.0, timeout=LIMIT)
        assert name == "nightly"
        assert abs(at - time.time()) < 20
        assert other.history("nightly", timeout=LIMIT) == (a_run(),), "to look changes nothing"
        assert forget(other)
        assert list(backend.list("*", timeout=LIMIT)) == []
        assert backend.history("nightly", timeout=LIMIT) == ()
        assert backend.last_success("nightly", timeout=LIMIT) is None
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.holders, lock.last_run) == ("free", (), None)
        assert unused(backend) == []
        assert not forget(backend)

    def test_a_token_is_greater_than_all_before_although_the_name_was_forgotten(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        greatest = 0
        for _ in range(3):
            for name in ("nightly", "hourly"):
                grant = use(harness, backend, name)
                assert grant.token > greatest
                greatest = grant.token if name == "nightly" else greatest
            for name in ("nightly", "hourly"):
                assert forget(other, name)
        assert take(backend, harness.claim()).token > greatest

    def test_so_it_is_on_a_host_whose_clock_is_behind(
        self, harness: Harness, backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = use(harness, backend).token
        assert forget(other)
        seconds, nanoseconds = time.time, time.time_ns
        monkeypatch.setattr("lockctl.clock.time.time", lambda: seconds() - BEHIND)
        monkeypatch.setattr("lockctl.clock.time.time_ns", lambda: nanoseconds() - int(BEHIND * 1e9))
        assert take(other, harness.claim()).token > before

    def test_names_are_shown_in_their_order_if_they_match(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        for name in ("web.b", "db.a", "web.a"):
            use(harness, backend, name)
        backend.remember("web.never-held", a_run(), timeout=LIMIT)
        assert unused(other) == ["db.a", "web.a", "web.b", "web.never-held"]
        assert unused(other, "web.?") == ["web.a", "web.b"]
        assert forget(other, "web.a")
        assert forget(other, "web.never-held")
        assert unused(other) == ["db.a", "web.b"]
        assert other.history("web.never-held", timeout=LIMIT) == ()
        assert other.history("web.b", timeout=LIMIT) == (a_run(),)

    def test_what_was_used_more_recently_is_kept(self, harness: Harness, backend: Backend) -> None:
        grant = use(harness, backend)
        assert unused(backend, older_than=DAY) == []
        assert not forget(backend, older_than=DAY)
        assert backend.history("nightly", timeout=LIMIT) == (a_run(),)
        noted = backend.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - grant.at) < 0.001
        assert take(backend, harness.claim()).token > grant.token

    @pytest.mark.parametrize("mode", ["exclusive", "shared"])
    def test_a_lock_that_is_held_is_not_forgotten(
        self, harness: Harness, backend: Backend, other: Backend, mode: str
    ) -> None:
        if mode == "shared" and not harness.capabilities.shared:
            return  # refused, as another test shows
        use(harness, backend)
        (name,) = unused(other)
        grant = take(backend, harness.claim(mode=mode, ttl=30.0))
        assert unused(other) == []
        assert not forget(other, name), "it was taken after the look"
        assert backend.renew(grant, timeout=LIMIT).token == grant.token
        assert refused(other, harness.claim())
        assert other.history("nightly", timeout=LIMIT) == (a_run(),)
        backend.release(grant, timeout=LIMIT)
        assert forget(other)
        assert take(backend, harness.claim()).token > grant.token

    def test_a_hold_is_not_forgotten(self, harness: Harness, backend: Backend, other: Backend) -> None:
        use(harness, backend)
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT, hold=60.0)
        assert unused(other) == []
        assert not forget(other)
        assert refused(other, harness.claim())

    def test_a_lock_that_is_waited_for_is_not_forgotten_and_the_waiter_gets_it(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        third = harness.client()
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim(ttl=30.0)
        waiting = start_waiting(other, claim, backend)
        assert not forget(third)
        backend.release(grant, timeout=LIMIT)
        waiting.result(LIMIT)
        if harness.capabilities.lists_waiters:
            assert not forget(third), "it is the waiter's turn"
        later = take(other, claim)
        assert later.token > grant.token
        assert not forget(third)
        assert other.renew(later, timeout=LIMIT).token == later.token

    def test_the_lock_of_another_program_is_not_touched(self, harness: Harness, backend: Backend) -> None:
        with harness.foreign_hold("nightly"):
            assert unused(backend) == []
            assert not forget(backend)
            assert backend.inspect("nightly", timeout=LIMIT).state == "foreign"
            assert refused(backend, harness.claim())
        if harness.foreign_was_ours:
            assert forget(backend)
        assert unused(backend) == []
        use(harness, backend, "hourly")
        with harness.foreign_hold("hourly"):
            assert unused(backend) == []
            assert not forget(backend, "hourly")
            assert refused(backend, harness.claim("hourly"))

    def test_what_has_another_prefix_is_not_touched(self, harness: Harness, backend: Backend) -> None:
        neighbour = harness.neighbour()
        if neighbour is None:
            return  # then there is nothing that could be mistaken
        grant = use(harness, neighbour)
        use(harness, neighbour, "theirs")
        use(harness, backend)
        assert unused(backend) == ["nightly"]
        assert not forget(backend, "theirs")
        assert forget(backend)
        assert unused(neighbour) == ["nightly", "theirs"]
        assert neighbour.history("nightly", timeout=LIMIT) == (a_run(),)
        assert neighbour.last_success("nightly", timeout=LIMIT) is not None
        assert take(neighbour, harness.claim()).token > grant.token

    def test_to_forget_while_others_come_and_go_neither_lets_two_in_nor_turns_the_tokens_back(
        self, harness: Harness, backend: Backend
    ) -> None:
        inside = threading.Lock()
        tokens: list[int] = []
        begun = time.monotonic()

        def goes_on() -> bool:
            return time.monotonic() < begun + (0.5 if tokens else LIMIT)

        def come_and_go() -> None:
            client = harness.client()
            while goes_on():
                claim = harness.claim(ttl=30.0)
                grant = client.try_acquire(claim, timeout=LIMIT)
                if grant is None:
                    client.withdraw(claim, timeout=LIMIT)
                    continue
                assert inside.acquire(blocking=False), "two at once"
                tokens.append(grant.token)
                inside.release()
                client.release(grant, timeout=LIMIT)

        runs = [Background(come_and_go) for _ in range(2)]
        while goes_on():
            forget(backend)
        for run in runs:
            run.result()
        assert tokens
        assert tokens == sorted(set(tokens))
        while unused(backend) and not forget(backend):
            assert time.monotonic() < begun + 2 * LIMIT, "nobody uses it any more"
        assert take(backend, harness.claim()).token > tokens[-1]

    def test_a_store_out_of_reach_is_said(self, harness: Harness, backend: Backend) -> None:
        use(harness, backend)
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            list(backend.unused("*", older_than=0.0, timeout=0.5))
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.forget("nightly", older_than=0.0, timeout=0.5)
        assert backend.history("nightly", timeout=LIMIT) == (a_run(),)
