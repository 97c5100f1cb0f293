"""Waiting for a lock in PostgreSQL: in the order of arrival, without a herd, and without leaving anything behind."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.stores.postgresql.lock import PostgresqlBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, take
from tests.contract.test_postgresql import PostgresqlHarness
from tests.jobs import eventually
from tests.servers.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl

CROWD = 100
QUEUED = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@pytest.fixture
def harness(postgres_server: Postgres) -> Iterator[PostgresqlHarness]:
    made = PostgresqlHarness(postgres_server)
    yield made
    made.close()


def url_of(harness: PostgresqlHarness) -> str:
    return f"{harness.server.url}?prefix={harness.prefix}"


def test_a_hundred_waiters_are_served_in_their_order_and_none_is_woken_in_vain(
    start_server: Callable[..., Postgres],
) -> None:
    server = start_server(Postgres, extra=("max_connections = 120",))
    harness = PostgresqlHarness(server)
    clients = [PostgresqlBackend.from_url(parse_url(server.url)) for _ in range(CROWD + 1)]
    grant = take(clients[CROWD], harness.claim(ttl=60.0))
    served: list[int] = []
    tries = itertools.count()

    def wait_for_turn(number: int) -> None:
        client, claim = clients[number], harness.claim(ttl=60.0)
        client.wait(claim, timeout=60.0, interrupt=None)
        next(tries)
        mine = take(client, claim)
        served.append(number)
        client.release(mine, timeout=LIMIT)

    turns = []
    for number in range(CROWD):
        turns.append(Background(functools.partial(wait_for_turn, number)))
        eventually(lambda number=number: len(clients[CROWD].inspect("nightly", timeout=LIMIT).waiters or ()) > number)  # type: ignore[misc]
    clients[CROWD].release(grant, timeout=LIMIT)
    for turn in turns:
        turn.result(60.0)
    assert served == list(range(CROWD))
    assert next(tries) == CROWD, "one wakes for each release"
    for client in clients:
        client.close()


def test_a_waiter_that_is_killed_leaves_nothing_to_those_behind_it(
    lockctl: Lockctl, harness: PostgresqlHarness
) -> None:
    holder = harness.client()
    grant = take(holder, harness.claim(ttl=60.0))
    words = ("run", "-b", url_of(harness), "-l", "nightly", "-t", "60s", "-w", "forever")
    first = lockctl.start(*words, "--", "true")
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) == 1)
    second = lockctl.start(*words, "--", "true")
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) == 2)
    first.kill()
    # the server looks after the connection of a waiter twice a second
    eventually(lambda: len(holder.inspect("nightly", timeout=LIMIT).waiters or ()) == 1, limit=3.0)
    holder.release(grant, timeout=LIMIT)
    assert second.wait(5) == 0


def test_a_waiter_that_is_killed_when_it_is_its_turn_delays_nobody(
    lockctl: Lockctl, harness: PostgresqlHarness
) -> None:
    holder = harness.client()
    grant = take(holder, harness.claim(ttl=60.0))
    waiter = lockctl.start("run", "-b", url_of(harness), "-l", "nightly", "-t", "60s", "-w", "forever", "--", "true")
    eventually(lambda: holder.inspect("nightly", timeout=LIMIT).waiters)
    os.kill(waiter.pid, signal.SIGSTOP)
    holder.release(grant, timeout=LIMIT)
    claim = harness.claim()
    assert holder.try_acquire(claim, timeout=LIMIT) is None, "it is the turn of the one that stands still"
    waiter.kill()
    before = time.monotonic()
    holder.wait(claim, timeout=LIMIT, interrupt=None)
    take(holder, claim)
    assert time.monotonic() - before < 2.0


def test_a_waiter_outlasts_a_restart_of_the_server(lockctl: Lockctl, start_server: Callable[..., Postgres]) -> None:
    server = start_server(Postgres)
    harness = PostgresqlHarness(server)
    holder = harness.client()
    take(holder, harness.claim(ttl=60.0))
    waiter = lockctl.start("run", "-b", url_of(harness), "-l", "nightly", "-w", "forever", "--", "true")
    eventually(lambda: holder.inspect("nightly", timeout=LIMIT).waiters)
    server.restart()  # which frees the lock of a session
    assert waiter.wait(LIMIT) == 0
    harness.close()


def test_a_server_that_stands_still_for_half_a_lease_costs_no_job_its_life(
    lockctl: Lockctl, start_server: Callable[..., Postgres]
) -> None:
    server = start_server(Postgres)
    harness = PostgresqlHarness(server)
    holder = lockctl.start_holding("nightly", "-b", url_of(harness), "-t", "6s", "-k", "0.2s", "--", "sleep", "6")
    server.pause()
    time.sleep(3.0)
    server.resume()
    assert holder.wait(LIMIT) == 0
    harness.close()
