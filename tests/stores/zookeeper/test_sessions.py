"""Sessions of ZooKeeper: how long they last, what ends them, and what is left of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LeaseLost
from tests.contract.harness import LIMIT, Background, queue_up, refused, take, wait_for_turn
from tests.contract.waiting import start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from tests.contract.test_zookeeper import ZooKeeperHarness


def test_a_lease_is_half_of_the_session_that_the_server_grants(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    assert take(client, harness.claim("one", ttl=3.0)).ttl == 3.0
    assert take(client, harness.claim("two", ttl=60.0)).ttl == 40.0, "half of the longest session"
    assert take(client, harness.claim("three", ttl=0.1)).ttl == 0.5, "two ticks are the shortest"


def test_an_expired_session_is_a_lost_lease_and_its_claim_may_try_again(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    mine = harness.claim()
    grant = take(client, mine)
    harness.expire(grant)
    with pytest.raises(LeaseLost, match="ended the session"):
        client.renew(grant, timeout=LIMIT)
    again = take(client, mine)
    assert again.token > grant.token
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)  # the old one: nothing happens
    assert client.renew(again, timeout=LIMIT).token == again.token


def test_a_waiter_whose_session_was_ended_gets_the_lock_all_the_same(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    mine = harness.claim(ttl=4.0)

    waiting = Background(lambda: wait_for_turn(other, mine))
    eventually(lambda: len(harness.line("nightly")) == 2)
    harness.admin.delete(harness.line("nightly")[1])
    client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert waiting.result().token > grant.token


def test_a_release_leaves_no_session_no_thread_and_no_descriptor(harness: ZooKeeperHarness) -> None:
    client = harness.client()

    def tenure() -> None:
        client.release(take(client, harness.claim()), timeout=LIMIT)
        client.inspect("nightly", timeout=LIMIT)

    def sessions() -> int:
        return harness.server.four_letters("dump").count("\t0x")

    tenure()
    before = (threading.active_count(), len(os.listdir("/proc/self/fd")), sessions())
    for _ in range(10):
        tenure()

    def after() -> bool:
        now = (threading.active_count(), len(os.listdir("/proc/self/fd")), sessions())
        return all(is_now <= was for is_now, was in zip(now, before, strict=True))

    eventually(after, limit=3.0)


def test_neither_a_holder_nor_a_waiter_has_threads(harness: ZooKeeperHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    before = threading.active_count()
    grant = take(client, harness.claim(ttl=5.0))
    assert refused(other, mine)
    queue_up(other, mine, client)
    assert threading.active_count() == before
    client.release(grant, timeout=LIMIT)
    assert other.renew(take(other, mine), timeout=LIMIT)
    assert threading.active_count() == before


def test_who_is_next_has_its_second_session_ready_and_leaves_none_behind(harness: ZooKeeperHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    take(client, harness.claim(ttl=5.0))
    assert refused(other, mine)
    waiting = start_waiting(other, mine, client)
    ready, _ = eventually(lambda: other._attempts[mine.owner].next._made)
    eventually(lambda: ready.connected)
    name = f"{ready.link.identity[0]:#x}"
    assert name in harness.server.four_letters("dump")
    harness.admin.delete(harness.line("nightly")[1])
    harness.usurp("nightly")
    waiting.result()
    other.withdraw(mine, timeout=LIMIT)
    assert name not in harness.server.four_letters("dump")
