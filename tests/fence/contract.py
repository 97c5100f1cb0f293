"""The contract of a store of marks: every promise of ``lockctl.fence.store``, for every store the same."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import LARGEST, Mark, Stale, locate
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.fence import Store

LIMIT = 10.0  # seconds for one step
DOMAIN = "etcd:14841639068965178418"
OTHER = "redis:db.example:6379/0"
# what a holder does in a loop, for tests that kill it: advances the mark, and says what was acknowledged
CLIMB = """
import sys
from lockctl.fence import Mark, locate
location = locate(sys.argv[1], sys.argv[2] or None)
token = int(sys.argv[3])
while True:
    location.store.advance(location.resource, Mark(sys.argv[4], token), timeout=10.0)
    print(token, flush=True)
    token += 1
"""
HOLD = """
import sys
from lockctl.fence import Mark, locate
location = locate(sys.argv[1], sys.argv[2] or None)
with location.store.holding(location.resource, Mark(sys.argv[4], int(sys.argv[3])), timeout=10.0):
    print("inside", flush=True)
    sys.stdin.read()
"""


def mark(token: int, domain: str = DOMAIN) -> Mark:
    return Mark(domain, token)


class FenceHarness(ABC):
    """One empty store, and ways to harm it. Subclasses close what they opened in :meth:`close`."""

    crashes = 4  # how often a climbing process is killed; more often where it writes itself, and not a server

    @abstractmethod
    def words(self, resource: str = "stock") -> tuple[str, str]:
        """RESOURCE and the URL of its store ("" if the words are a place of their own), as on a command line."""

    @abstractmethod
    def damage(self, resource: str = "stock") -> None:
        """Make the mark of a resource something that no store of ours wrote."""

    @abstractmethod
    def cut_off(self) -> contextlib.AbstractContextManager[object]:
        """The block runs while clients cannot reach the store."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what was started for this."""

    def open(self, resource: str = "stock") -> tuple[Store, str]:
        """A fresh client, and the name of the resource in it."""
        words, store = self.words(resource)
        location = locate(words, store or None)
        return location.store, location.resource


class Client:
    """A store and one resource in it."""

    def __init__(self, harness: FenceHarness, resource: str = "stock") -> None:
        self.store, self.resource = harness.open(resource)

    def advance(self, offered: Mark, timeout: float = LIMIT) -> Mark:
        return self.store.advance(self.resource, offered, timeout=timeout)

    def accepts(self, offered: Mark) -> bool:
        try:
            self.advance(offered)
        except Stale:
            return False
        return True

    def current(self) -> Mark | None:
        return self.store.current(self.resource, timeout=LIMIT)

    def reset(self, to: Mark | None) -> Mark | None:
        return self.store.reset(self.resource, to, timeout=LIMIT)


@contextlib.contextmanager
def running(harness: FenceHarness, program: str, token: int) -> Iterator[subprocess.Popen[str]]:
    """A process at the store; killed when the block ends."""
    words = [sys.executable, "-c", program, *harness.words(), str(token), DOMAIN]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class StoreContract:
    """All promises; to be inherited by one class for each store, beside a ``harness`` fixture."""

    @pytest.fixture
    def client(self, harness: FenceHarness) -> Iterator[Client]:
        made = Client(harness)
        yield made
        made.store.close()

    @pytest.fixture
    def other(self, harness: FenceHarness) -> Iterator[Client]:
        made = Client(harness)
        yield made
        made.store.close()

    def test_a_resource_has_no_mark_before_its_first_token(self, client: Client) -> None:
        assert client.current() is None
        assert client.current() is None

    def test_a_token_is_recorded_and_seen_by_everybody(self, client: Client, other: Client) -> None:
        assert client.advance(mark(33)) == mark(33)
        assert other.current() == mark(33)

    def test_a_higher_token_and_the_same_are_accepted_and_a_lower_one_is_refused(
        self, client: Client, other: Client
    ) -> None:
        client.advance(mark(33))
        assert other.advance(mark(34)) == mark(34)
        assert other.advance(mark(34)) == mark(34)
        with pytest.raises(Stale) as refused:
            client.advance(mark(33))
        assert (refused.value.offered, refused.value.current) == (mark(33), mark(34))
        assert "34" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert client.current() == mark(34)

    def test_a_token_of_another_domain_is_refused_until_a_reset(self, client: Client, other: Client) -> None:
        client.advance(mark(33))
        for offered in (mark(5, OTHER), mark(33, OTHER), mark(10**18, OTHER)):
            with pytest.raises(Stale, match="domain"):
                other.advance(offered)
        assert client.current() == mark(33)
        assert other.reset(mark(5, OTHER)) == mark(33)
        assert other.advance(mark(6, OTHER)) == mark(6, OTHER)
        assert not client.accepts(mark(34))

    def test_a_reset_without_a_mark_removes_it(self, client: Client) -> None:
        assert client.reset(None) is None
        client.advance(mark(33))
        assert client.reset(None) == mark(33)
        assert client.current() is None
        assert client.advance(mark(1)) == mark(1)

    def test_resources_have_nothing_to_do_with_each_other(self, harness: FenceHarness, client: Client) -> None:
        client.advance(mark(33))
        second = Client(harness, "stock2")
        assert second.current() is None
        second.advance(mark(5, OTHER))
        assert client.current() == mark(33)
        second.store.close()

    @pytest.mark.parametrize("token", [1, 2**31, 2**53 + 1, LARGEST - 1])
    def test_tokens_are_compared_as_whole_numbers_however_large(self, client: Client, token: int) -> None:
        client.advance(mark(token))
        assert client.accepts(mark(token + 1))
        assert client.current() == mark(token + 1)
        assert not client.accepts(mark(token))

    def test_tokens_are_not_compared_as_text(self, client: Client) -> None:
        client.advance(mark(9))
        assert client.accepts(mark(10))
        assert not client.accepts(mark(9))
        assert client.accepts(mark(100))

    def test_domains_come_back_as_they_were(self, client: Client) -> None:
        strange = "file:h\N{LATIN SMALL LETTER O WITH DIAERESIS}st:/a b;c'\"\\%5c{}$x,=&\N{SNOWMAN}"
        client.advance(mark(1, strange))
        assert client.current() == mark(1, strange)
        assert client.accepts(mark(2, strange))
        assert not client.accepts(mark(3, strange + "x"))

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 12), st.sampled_from([DOMAIN, DOMAIN, DOMAIN, OTHER])),
            max_size=25,
        )
    )
    def test_after_any_history_an_older_token_never_succeeds(
        self, harness: FenceHarness, history: list[tuple[int, int, str]]
    ) -> None:
        """Several holders with pauses of any length: each step is one of them, that shows its token."""
        clients = [Client(harness, "history") for _ in range(3)]
        clients[0].reset(None)
        highest: Mark | None = None
        for who, token, domain in history:
            offered = mark(token, domain)
            allowed = highest is None or (highest.domain == domain and token >= highest.token)
            assert clients[who].accepts(offered) is allowed
            highest = offered if allowed else highest
            assert clients[(who + 1) % 3].current() == highest
        for client in clients:
            client.store.close()

    def test_of_many_at_once_those_that_are_accepted_rise(self, harness: FenceHarness, client: Client) -> None:
        tokens = list(range(1, 65))
        random.Random(7).shuffle(tokens)
        accepted: list[tuple[float, float, int]] = []
        start = threading.Barrier(16)

        def show(mine: list[int]) -> None:
            client = Client(harness)
            start.wait()
            for token in mine:
                begun = time.monotonic()
                if client.accepts(mark(token)):
                    accepted.append((begun, time.monotonic(), token))
            client.store.close()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(show, [tokens[number::16] for number in range(16)]))
        assert max(token for _, _, token in accepted) == 64
        for _, ended, token in accepted:
            later = [other for begun, _, other in accepted if begun > ended]
            assert all(other >= token for other in later)
        assert client.current() == mark(64)

    def test_a_process_that_is_killed_at_any_moment_leaves_a_mark_that_is_whole_and_not_lower(
        self, harness: FenceHarness, client: Client
    ) -> None:
        token = 1
        chance = random.Random(11)
        for _ in range(harness.crashes):
            with running(harness, CLIMB, token) as process:
                assert process.stdout is not None
                assert process.stdout.readline().strip() == str(token)
                time.sleep(chance.random() * 0.02)
                process.send_signal(signal.SIGKILL)
                acknowledged = [token, *map(int, process.stdout.read().split())]
            seen = client.current()
            assert seen is not None
            assert seen.token >= acknowledged[-1]
            assert seen.token <= acknowledged[-1] + 1
            token = seen.token + 1
            assert token == 2 or not client.accepts(mark(token - 2))

    def test_a_mark_that_is_not_ours_is_neither_believed_nor_overwritten(
        self, harness: FenceHarness, client: Client
    ) -> None:
        client.advance(mark(33))
        harness.damage()
        for step in (lambda: client.advance(mark(10**18)), client.current):
            with pytest.raises(ConfigError) as told:
                step()
            assert "\n" not in str(told.value)
        client.reset(mark(34))
        assert client.accepts(mark(34))

    def test_a_store_out_of_reach_says_so_in_time(self, harness: FenceHarness, client: Client) -> None:
        client.advance(mark(33))
        fresh = Client(harness)
        with harness.cut_off():
            before = time.monotonic()
            with pytest.raises((BackendUnavailable, ConfigError)):
                fresh.advance(mark(34), timeout=1.0)
            assert time.monotonic() - before < 6.0
        fresh.store.close()
        again = Client(harness)
        assert again.accepts(mark(34))
        again.store.close()

    def test_nobody_advances_a_mark_that_is_held(self, harness: FenceHarness, client: Client, other: Client) -> None:
        if not client.store.lockable:
            with pytest.raises(ConfigError), client.store.holding(client.resource, mark(33), timeout=LIMIT):
                pass
            assert client.current() is None
            return
        with client.store.holding(client.resource, mark(33), timeout=LIMIT):
            with pytest.raises(BackendUnavailable):
                other.advance(mark(34), timeout=0.3)
            with pytest.raises(BackendUnavailable):
                other.store.reset(other.resource, None, timeout=0.3)
        assert other.advance(mark(34)) == mark(34)
        with pytest.raises(Stale), client.store.holding(client.resource, mark(33), timeout=LIMIT):
            pytest.fail("it was let in")
        assert other.current() == mark(34)

    def test_a_mark_is_not_held_any_more_when_its_holder_was_killed(
        self, harness: FenceHarness, client: Client
    ) -> None:
        if not client.store.lockable:
            return  # asserted above
        with running(harness, HOLD, 33) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "inside\n"
            with pytest.raises(BackendUnavailable):
                client.advance(mark(34), timeout=0.3)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(LIMIT)
            eventually(lambda: client.current() == mark(33))  # recorded for good before its block began
            eventually(lambda: client.accepts(mark(34)))

    def test_a_store_may_go_from_thread_to_thread(self, client: Client, other: Client) -> None:
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            first.submit(client.advance, mark(33)).result(LIMIT)
            assert second.submit(client.current).result(LIMIT) == mark(33)
            if client.store.lockable:
                block = client.store.holding(client.resource, mark(34), timeout=LIMIT)
                first.submit(block.__enter__).result(LIMIT)
                second.submit(block.__exit__, None, None, None).result(LIMIT)
                assert other.advance(mark(35)) == mark(35)
