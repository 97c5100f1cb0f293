"""A give-back that arrives late never frees what the next attempt was granted, and keeps nobody out."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import registry
from lockctl.lease.together import Together
from lockctl.model import Revocation
from lockctl.stores.mysql.session import Session
from lockctl.url import parse_url
from tests.contract.harness import claim
from tests.faults.backends import SERVED, Place, addresses_of, on_backends
from tests.jobs import eventually
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.backend import Backend
    from lockctl.model import Grant
    from lockctl.wire.deadline import Deadline

LIMIT = 10.0  # seconds for a request that must succeed
TTL = 40.0  # seconds: nothing of this test ends with its lease
LATE = 4.0  # seconds that a give-back is on its way
PATIENCE = 1.5  # seconds after which it counts as not answered


@pytest.fixture
def proxies(servers: Any) -> Iterator[list[Proxy]]:
    made = [Proxy(address) for address in addresses_of(servers)]
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture
def opened(place: Place, servers: Any, proxies: list[Proxy], tmp_path: Path) -> Iterator[Callable[..., Backend]]:
    """Opens a client, behind the proxies if asked."""
    word, clients = "t" + os.urandom(6).hex(), []

    def client(*, behind: bool = False) -> Backend:
        addresses = [proxy.address for proxy in proxies] if behind else addresses_of(servers)
        clients.append(registry.open_backend(parse_url(place.url(addresses, word, tmp_path))))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.mark.parametrize("backend_name", on_backends(*SERVED))
def test_a_give_back_that_comes_late_does_not_hit_the_next_attempt(
    backend_name: str, opened: Callable[..., Backend], proxies: list[Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two locks in one run: the first is asked for while the second is waited for, so it is given back and retried."""
    # Redlock's clients must name the same nodes
    behind = backend_name == "redlock"
    other = opened(behind=behind)
    held = other.try_acquire(claim("b", ttl=TTL), timeout=LIMIT)
    assert held is not None
    clients: list[Backend] = []

    def open_next() -> Backend:
        clients.append(opened(behind=True))
        return clients[-1]

    together, asked = Together(("a", "b"), open_next, 0.1), claim("a", ttl=TTL)
    assert together.try_acquire(asked, timeout=LIMIT) is None
    together.inspect("a", timeout=LIMIT)  # what looks from another connection has it
    (seen,) = other.inspect("a", timeout=LIMIT).holders
    assert other.revoke("a", seen, Revocation(now=False, by="ops", reason=""), timeout=LIMIT)

    first, release = clients[0], clients[0].release

    def late(grant: Grant, *, timeout: float, hold: float = 0.0) -> None:
        for proxy in proxies:
            proxy.mode = f"delay={LATE}"
        try:
            release(grant, timeout=min(timeout, PATIENCE), hold=hold)
        finally:
            for proxy in proxies:
                proxy.mode = "pass"

    monkeypatch.setattr(first, "release", late)
    assert together.try_acquire(asked, timeout=LIMIT) is None
    given_back = time.monotonic()
    monkeypatch.undo()
    other.release(held, timeout=LIMIT)

    def again() -> Grant | None:
        grant = together.try_acquire(asked, timeout=LIMIT)
        if grant is None:
            together.wait(asked, timeout=0.2, interrupt=None)
        return grant

    whole: Grant = eventually(again, limit=TTL / 2)
    assert time.monotonic() - given_back < TTL / 2, "it kept itself out"
    eventually(lambda: all(proxy.is_idle for proxy in proxies), limit=3 * LATE)
    assert other.try_acquire(claim("a", ttl=TTL), timeout=LIMIT) is None
    whole = together.renew(whole, timeout=LIMIT)
    together.release(whole, timeout=LIMIT)
    assert other.inspect("a", timeout=LIMIT).state == "free"


@pytest.mark.parametrize("backend_name", on_backends("mysql"))
def test_who_was_told_to_end_is_not_shown_once_more_before_it_leaves(
    opened: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has little time, and needs a new connection: far away each request counts."""
    client, mine, asked = opened(), claim(ttl=TTL), []
    assert opened().try_acquire(claim(ttl=TTL), timeout=LIMIT)
    assert client.try_acquire(mine, timeout=LIMIT) is None
    ask = Session.ask

    def note(self: Session, sql: str, deadline: Deadline, *values: Any) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return ask(self, sql, deadline, *values)

    monkeypatch.setattr(Session, "ask", note)
    interrupt, signal = os.pipe()
    os.close(signal)  # it is readable
    client.wait(mine, timeout=LIMIT, interrupt=interrupt)
    asked.clear()
    client.withdraw(mine, timeout=LIMIT)
    os.close(interrupt)
    assert any("UPDATE" in sql for sql in asked), "it may have come into the queue"
    assert not [sql for sql in asked if "GET_LOCK" in sql]
