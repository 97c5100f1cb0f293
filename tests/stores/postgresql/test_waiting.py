"""Waiters of PostgreSQL: what they ask for when they are told, and sessions that end with them, not with their leases."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LeaseRevoked
from lockctl.registry import open_backend
from lockctl.stores.postgresql import scope, wait
from lockctl.stores.postgresql.session import Session
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, claim, one_of, take, waiters
from tests.contract.keeping import revoke
from tests.jobs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.backend import Backend
    from lockctl.model import Claim
    from lockctl.stores.postgresql.lock import PostgresqlBackend
    from tests.jobs import Lockctl
    from tests.servers.postgres import Postgres
    from tests.stores.postgresql.places import Place

WAIT = ("run", "-l", "nightly", "-t", "60s", "-w", "forever", "--", "true")


@pytest.fixture
def holder(lockctl: Lockctl, postgres_server: Postgres) -> Iterator[Backend]:
    """A client at a place for locks of its own, to which `lockctl` goes, too."""
    lockctl.url = f"{postgres_server.url}?prefix=w{os.urandom(6).hex()}:"
    made = open_backend(parse_url(lockctl.url))
    yield made
    made.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent, while who waits looks only when it is told."""
    found: list[str] = []
    send = Session.send

    def noted(session: Session, sql: str, args: tuple[object, ...] | None = None) -> None:
        found.append(sql)
        send(session, sql, args)

    monkeypatch.setattr(Session, "send", noted)
    monkeypatch.setattr(wait, "SHORTEST_PAUSE", LIMIT)
    monkeypatch.setattr(wait, "FIRST_PAUSE", LIMIT)
    return found


def asleep(client: PostgresqlBackend, mine: Claim, sent: list[str]) -> Background:
    """Wait for a lock that is held; only for what it is told by now."""
    assert client.try_acquire(mine, timeout=LIMIT) is None
    waiting = Background(lambda: client.wait(mine, timeout=LIMIT, interrupt=None))
    eventually(lambda: any("EXPLAIN" in sql for sql in sent) and not client._attempts[mine.owner].session.pending)
    return waiting


def test_who_is_told_takes_the_lock_with_its_token_in_one_request(place: Place, sent: list[str]) -> None:
    holder, waiter, mine = place.client(), place.client(), claim()
    grant = take(holder, claim())
    waiting = asleep(waiter, mine, sent)
    asked = len(sent)
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    later = take(waiter, mine)
    assert later.token > grant.token
    assert len(sent) == asked + 3, "the release; the lock with its token; the position in the queue is given back"
    assert place.command(f"select token from {place.fence}") == str(later.token)
    assert waiter.renew(later, timeout=LIMIT).token == later.token


def test_the_first_renewal_plans_what_the_release_says_and_says_nothing(place: Place, sent: list[str]) -> None:
    holder, waiter, mine = place.client(), place.client(), claim()
    grant = take(holder, claim())
    waiting = asleep(waiter, mine, sent)
    asked = len(sent)
    for _ in range(2):
        holder.renew(grant, timeout=LIMIT)
    assert ["EXPLAIN" in sql for sql in sent[asked:]] == [True, False], "and the waiter was told nothing"
    assert waiting.running
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    take(waiter, mine)


def test_so_does_that_of_who_has_a_slot(place: Place, sent: list[str]) -> None:
    holder = place.client()
    grant = take(holder, one_of(2))
    asked = len(sent)
    for _ in range(2):
        holder.renew(grant, timeout=LIMIT)
    assert ["EXPLAIN" in sql for sql in sent[asked:]] == [True, False]


def test_a_server_that_refuses_to_plan_is_asked_once_and_requests_to_give_back_are_heard(
    place: Place, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope, "telling", lambda *_: "SELECT pg_catalog.no_function()")
    holder, other = place.client(), place.client()
    grant = take(holder, claim())
    asked = len(sent)
    holder.renew(grant, timeout=LIMIT)
    (seen,) = other.inspect("nightly", timeout=LIMIT).holders
    revoke(other, seen)
    with pytest.raises(LeaseRevoked):
        holder.renew(grant, timeout=LIMIT)
    assert sum("EXPLAIN" in sql for sql in sent[asked:]) == 1


def test_who_is_told_and_finds_no_table_makes_it_anew(place: Place, sent: list[str]) -> None:
    holder, waiter, mine = place.client(), place.client(), claim()
    grant = take(holder, claim())
    waiting = asleep(waiter, mine, sent)
    place.command(f"drop table {place.fence}")
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    assert take(waiter, mine).token > grant.token
    assert place.client().try_acquire(claim(), timeout=LIMIT) is None


def test_a_token_that_came_late_is_drawn_anew_as_the_lease_counts_from_the_request(
    place: Place, sent: list[str]
) -> None:
    holder, waiter, mine = place.client(), place.client(), claim()
    grant = take(holder, claim())
    waiting = asleep(waiter, mine, sent)
    with place.session() as other:
        other.execute(f"begin; select * from {place.fence} for update")
        holder.release(grant, timeout=LIMIT)
        waiting.result()
        waiter.wait(mine, timeout=0.2, interrupt=None)  # it asks, and there is no answer in time
        other.execute("commit")
    eventually(lambda: place.command(f"select token from {place.fence}") != str(grant.token))
    late = int(place.command(f"select token from {place.fence}"))
    assert take(waiter, mine).token > late > grant.token


def test_a_waiter_that_is_killed_leaves_nothing_to_those_behind_it(lockctl: Lockctl, holder: Backend) -> None:
    grant = take(holder, claim(ttl=60.0))
    first = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder) == 1)
    second = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder) == 2)
    first.kill()
    # the server looks after the connection of a waiter twice a second
    eventually(lambda: waiters(holder) == 1, limit=3.0)
    holder.release(grant, timeout=LIMIT)
    assert second.wait(5) == 0


def test_a_waiter_that_is_killed_when_it_is_its_turn_delays_nobody(lockctl: Lockctl, holder: Backend) -> None:
    grant = take(holder, claim(ttl=60.0))
    waiter = lockctl.start(*WAIT)
    eventually(lambda: waiters(holder))
    os.kill(waiter.pid, signal.SIGSTOP)
    holder.release(grant, timeout=LIMIT)
    mine = claim()
    assert holder.try_acquire(mine, timeout=LIMIT) is None, "it is the turn of the one that stands still"
    waiter.kill()
    before = time.monotonic()
    holder.wait(mine, timeout=LIMIT, interrupt=None)
    take(holder, mine)
    assert time.monotonic() - before < 6.0
