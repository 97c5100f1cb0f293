"""The contract, held by the memory backend: the reference that the suite itself is checked against."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.locks.machine import LONGEST_LIFE, Lock
from lockctl.registry import open_backend
from lockctl.stores.memory.cell import MemoryBackend, MemoryServer
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Harness, take
from tests.contract.suite import BackendContract
from tests.contract.waiting import start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.locks.driver import Seen
    from lockctl.model import Grant
    from lockctl.wire.deadline import Deadline

FOREIGN = b"web3:4711"


class MemoryHarness(Harness):
    """A server whose clock can be put forward."""

    capabilities = MemoryBackend.capabilities

    def __init__(self) -> None:
        self.ahead = 0.0
        self.behind = 0.0
        self.server = MemoryServer(lambda: time.time() + self.ahead - self.behind)

    def client(self) -> Backend:
        return MemoryBackend(self.server)

    def pass_time(self, seconds: float) -> None:
        with self.server.mutex:
            self.ahead += seconds
            self.server.notify()

    def expire(self, grant: Grant) -> None:
        self.pass_time(grant.ttl)

    def usurp(self, name: str) -> None:
        with self.server.mutex:
            self.server.write(f"lock:{name}", None)

    def forget(self, name: str) -> None:
        with self.server.mutex:
            self.server.write(f"lock:{name}", None)

    def sever(self, client: Backend) -> None:
        assert isinstance(client, MemoryBackend)
        client.cells.reachable = False

    def heal(self, client: Backend) -> None:
        assert isinstance(client, MemoryBackend)
        client.cells.reachable = True

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[None]:
        with self.server.mutex:
            self.server.write(f"lock:{name}", FOREIGN)
        yield
        with self.server.mutex:
            if self.server.cells[f"lock:{name}"][0] == FOREIGN:
                self.server.write(f"lock:{name}", None)

    def position_ends(self) -> float:
        """When the first position in the queue ends, unless it is prolonged."""
        lock = Lock.read(self.server.cells["lock:nightly"][0])
        assert lock is not None
        return float(next(iter(lock.queue.values()))["until"])

    def close(self) -> None:
        assert not self.server.watchers, "a wait was left running"


@pytest.fixture
def harness() -> Iterator[MemoryHarness]:
    made = MemoryHarness()
    yield made
    made.close()


class TestMemory(BackendContract):
    """Every promise, and what only this backend has."""

    def test_the_token_rises_although_the_clock_was_set_back(self, harness: MemoryHarness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT)
        harness.behind = 3600.0
        assert take(backend, harness.claim()).token == grant.token + 1

    def test_who_leaves_after_the_end_of_a_lease_leaves_nothing_for_a_clock_that_is_set_back(
        self, harness: MemoryHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        harness.ahead = 40.0
        backend.release(grant, timeout=LIMIT)
        harness.behind = 40.0
        take(other, harness.claim())

    def test_the_token_rises_although_the_clock_was_set_back_and_the_name_forgotten(
        self, harness: MemoryHarness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT)
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        harness.behind = 3600.0
        assert take(backend, harness.claim()).token == grant.token + 1

    @pytest.mark.parametrize("waited", [False, True])
    def test_the_token_rises_although_the_name_is_used_and_forgotten_between_a_read_and_a_write(
        self, harness: MemoryHarness, backend: Backend, monkeypatch: pytest.MonkeyPatch, *, waited: bool
    ) -> None:
        """The cell is then as absent as it was when it was read."""
        assert isinstance(backend, MemoryBackend)
        other, write, tokens = harness.client(), backend.cells.write, list[int]()

        def write_late(key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
            if key == "lock:nightly" and not tokens:
                grant = take(other, harness.claim())
                tokens.append(grant.token)
                other.release(grant, timeout=LIMIT)
                assert other.forget("nightly", older_than=0.0, timeout=LIMIT)
                harness.behind = 3600.0
            return write(key, seen, data, deadline)

        monkeypatch.setattr(backend.cells, "write", write_late)
        claim = harness.claim()
        if waited:
            backend.wait(claim, timeout=0.01, interrupt=None)
        assert take(backend, claim).token > tokens[0]

    def test_the_token_rises_although_somebody_has_waited_for_a_name_that_was_forgotten(
        self, harness: MemoryHarness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT)
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        harness.behind = 3600.0
        with harness.server.mutex:
            harness.server.write("lock:nightly", Lock().written())  # as of a waiter who has gone
        assert take(backend, harness.claim()).token == grant.token + 1

    def test_a_waiter_with_a_long_lease_keeps_its_position(
        self, harness: MemoryHarness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=3600.0))
        waiting = start_waiting(other, harness.claim(ttl=600.0), backend)
        for _ in range(4):
            harness.pass_time(LONGEST_LIFE / 2)
            eventually(lambda: harness.position_ends() > harness.server.now() + 0.9 * LONGEST_LIFE)
        backend.release(grant, timeout=LIMIT)
        waiting.result()


def test_no_url_leads_to_the_memory_backend() -> None:
    with pytest.raises(ConfigError):
        open_backend(parse_url("memory:"))
