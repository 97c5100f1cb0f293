"""Locks in a store whose clock tells whole seconds, and not the same ones in each answer."""

from __future__ import annotations

import pytest

from lockctl.locks.lock_cells import FLOOR, LOCK
from lockctl.model import MICROSECONDS
from lockctl.stores.memory.cell import MemoryBackend, MemoryCells, MemoryServer
from tests.contract.harness import LIMIT, claim, refused, take

NOON = 1_790_000_000.0


class Store:
    """A store with a clock of whole seconds."""

    def __init__(self) -> None:
        self.time = NOON
        self.server = MemoryServer(lambda: float(int(self.time)))

    def client(self) -> MemoryBackend:
        made = MemoryBackend(self.server)
        made.cells.clock_error = 2.0
        return made

    def remove(self, name: str) -> None:
        with self.server.mutex:
            self.server.write(LOCK + name, None)


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_lease_ends_only_when_it_has_ended_by_every_clock(store: Store) -> None:
    store.time = NOON + 0.99
    take(store.client(), claim(ttl=10.0))
    for later in (10.0, 10.98, 11.5, 11.99):
        store.time = NOON + later
        assert refused(store.client(), claim(ttl=10.0)), later
    store.time = NOON + 12.0
    take(store.client(), claim(ttl=10.0))


def test_tokens_rise_also_within_a_second_in_which_the_cell_is_removed_again_and_again(store: Store) -> None:
    tokens = []
    for tenures in (1, 3, 2, 1):
        for _ in range(tenures):
            client = store.client()
            grant = take(client, claim())
            tokens.append(grant.token)
            client.release(grant, timeout=LIMIT)
        store.remove("nightly")
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("first", [1.0, 60.0])
def test_tokens_rise_when_a_cell_is_removed_long_after_it_was_made(store: Store, first: float) -> None:
    client, tokens = store.client(), []
    for passed in (0.0, first, 0.0, first, 0.5):
        store.time += passed
        for removed in (False, True):
            grant = take(client, claim())
            tokens.append(grant.token)
            client.release(grant, timeout=LIMIT)
            if removed:
                store.remove("nightly")
    assert tokens == sorted(set(tokens))


def test_tokens_rise_when_all_is_lost_soon_after_many_new_names(store: Store) -> None:
    client = store.client()
    for number in range(1000):
        last = take(client, claim(f"job-{number}")).token
        store.time += 0.005
    assert last < (store.time + 2.0 + 1.0) * MICROSECONDS
    store.server.cells.clear()
    store.time += 1.0
    assert take(store.client(), claim("job-999")).token > last


def test_a_wait_for_a_lease_that_ends_does_not_ask_all_the_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    take(store.client(), claim(ttl=0.1))
    waiting, watched = store.client(), list[float]()

    def watch(*_: object) -> None:
        watched.append(store.time)
        store.time += 1.0

    monkeypatch.setattr(MemoryCells, "watch", watch)
    waiting.wait(claim(ttl=30.0), timeout=LIMIT, interrupt=None)
    assert len(watched) <= 3


@pytest.mark.parametrize("data", [b"9" * 5000, b"1" + b"0" * 30, b"no number"])
def test_a_floor_that_is_none_is_made_anew_when_a_name_is_forgotten(store: Store, data: bytes) -> None:
    client = store.client()
    grant = take(client, claim())
    client.release(grant, timeout=LIMIT)
    (floor,) = [key for key in store.server.cells if key.startswith(FLOOR)]
    with store.server.mutex:
        store.server.write(floor, data)
    assert client.forget("nightly", older_than=0.0, timeout=LIMIT)
    store.time -= 1000.0
    assert take(store.client(), claim()).token > grant.token
