"""Counters of ZooKeeper that were forgotten, the floor above them, and those who had seen them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.model import SHARED, SLOT, Grant
from lockctl.stores.zookeeper import grant as grants
from lockctl.stores.zookeeper import hold, prune
from tests.contract.forgetting import forget, unused, use
from tests.contract.harness import LIMIT, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.waiting import start_waiting
from tests.stores.zookeeper.test_kept import kept
from tests.stores.zookeeper.test_tokens import at, on_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline
    from tests.contract.test_zookeeper import ZooKeeperHarness


def just_before_the_grant(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Have this happen, between the look at the record and the transaction of a host whose clock is behind."""
    granting = grants._granting

    def late(*args: Any) -> Any:
        monkeypatch.setattr(grants, "_granting", granting)
        at(monkeypatch, 0.0)
        happens()
        at(monkeypatch, -3600.0)
        return granting(*args)

    at(monkeypatch, -3600.0)
    monkeypatch.setattr(grants, "_granting", late)


@pytest.mark.parametrize("mode", [{}, {"mode": SHARED}, {"mode": SLOT, "slots": 2}], ids=["alone", "reader", "slot"])
def test_who_read_that_there_is_no_counter_is_not_below_one_that_came_and_was_forgotten(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]
) -> None:
    slow, before = harness.client(), list[int]()

    def come() -> None:
        before.append(use(harness, harness.client()).token)
        assert forget(harness.client())

    just_before_the_grant(monkeypatch, come)
    assert take(slow, harness.claim(**mode)).token > before[0]


def test_so_it_is_for_one_that_has_waited_behind_another_program(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = use(harness, harness.client()).token
    client, claim = harness.client(), harness.claim(ttl=5.0)
    with harness.foreign_hold("nightly"):
        waiting = start_waiting(client, claim, harness.client())
        harness.admin.set(f"{harness.root}/.kept", b'{"last":%d}' % before)
        harness.admin.delete(kept(harness), recursive=True)
        at(monkeypatch, -3600.0)
    waiting.result()
    assert take(client, claim).token == before + 1


@pytest.mark.parametrize("state", ["free", "held"])
def test_who_read_a_counter_is_not_below_another_one_that_took_its_place(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    slow, fast, before = harness.client(), harness.client(), list[Grant]()
    at(monkeypatch, -3600.0)
    use(harness, fast)

    def come() -> None:
        assert forget(fast)
        before.append(take(fast, harness.claim(ttl=30.0)))
        if state == "free":
            fast.release(before[0], timeout=LIMIT)

    just_before_the_grant(monkeypatch, come)
    claim = harness.claim(ttl=30.0)
    if state == "held":
        assert slow.try_acquire(claim, timeout=LIMIT) is None
        assert json.loads(on_record(harness))["last"] == before[0].token
        fast.release(before[0], timeout=LIMIT)
    assert take(slow, claim).token == before[0].token + 1


def test_who_has_waited_is_granted_the_lock_although_another_name_was_forgotten(harness: ZooKeeperHarness) -> None:
    client, other, claim = harness.client(), harness.client(), harness.claim(ttl=30.0)
    use(harness, client, "another")
    first = take(client, harness.claim(ttl=30.0))
    waiting = start_waiting(other, claim, client)
    assert forget(client, "another")
    client.release(first, timeout=LIMIT)
    waiting.result()
    assert take(other, claim).token > first.token


@pytest.mark.parametrize("data", [b"", b"{", b'{"last":-1}', b'{"last":"x"}', b"\xff\x00", b'{"last":%d}' % (1 << 62)])
def test_a_floor_that_is_damaged_is_none_and_is_put_right(harness: ZooKeeperHarness, data: bytes) -> None:
    client = harness.client()
    take(client, harness.claim("another"))
    harness.admin.set(f"{harness.root}/.kept", data)
    token = use(harness, client).token
    assert token <= time.time() * 1e6
    assert forget(client)
    floor = json.loads(harness.admin.get(f"{harness.root}/.kept")[0])["last"]
    assert token < floor <= time.time() * 1e6
    use(harness, client)


def test_a_counter_that_took_the_place_of_the_one_that_was_seen_is_kept(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other, tokens = harness.client(), harness.client(), list[int]()
    use(harness, client)
    use(harness, client, "another")
    assert forget(client, "another"), "and so the floor is above the counter"

    def come(_session: Session, _name: str, runs: list[str] | None, _deadline: Deadline) -> list[str] | None:
        if not tokens:
            tokens.append(0)
            assert forget(other)
            at(monkeypatch, 60.0)
            tokens.append(use(harness, other).token)
            monkeypatch.undo()
        return runs

    monkeypatch.setattr(prune, "_without_surplus", come)
    assert not forget(client)
    assert take(client, harness.claim()).token == tokens[1] + 1


def test_names_that_are_forgotten_at_the_same_time_all_go(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = harness.client(), harness.client()
    use(harness, client)
    use(harness, client, "another")

    def come(_session: Session, _name: str, runs: list[str] | None, _deadline: Deadline) -> list[str] | None:
        monkeypatch.undo()
        assert forget(other, "another")
        return runs

    monkeypatch.setattr(prune, "_without_surplus", come)
    assert forget(client)
    assert unused(client) == []


def test_a_hold_is_not_ended_in_a_counter_that_took_its_place(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, end, last = harness.client(), hold.end, int((time.time() + 3600) * 1e6)
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=60.0)
    seen, record = holder_of(client), kept(harness)

    def late(*args: Any) -> bool:
        version = harness.admin.exists(record).version
        harness.admin.delete(record, recursive=True)
        harness.admin.create(record)
        for _ in range(version):
            stat = harness.admin.set(record, b'{"last":%d}' % last)
        assert stat.version == version > 0
        return end(*args)

    monkeypatch.setattr(hold, "end", late)
    assert revoke(client, seen, now=True) is None
    assert take(client, harness.claim()).token == last + 1
