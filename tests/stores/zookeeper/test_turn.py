"""The turn of a waiter of ZooKeeper: one round trip, and no grant for who is not the first any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lockctl.model import SHARED
from tests.contract.harness import LIMIT, Background, refused, take
from tests.contract.waiting import start_waiting
from tests.jobs import eventually
from tests.stores.zookeeper.test_handover import session_of

if TYPE_CHECKING:
    from lockctl.model import Claim, Grant
    from lockctl.stores.zookeeper.lock import ZooKeeperBackend
    from tests.contract.test_zookeeper import ZooKeeperHarness
    from tests.servers.zookeeper import ZooKeeper
    from tests.stores.zookeeper.conftest import Asked


def watches(server: ZooKeeper) -> int:
    """How many events the server owes to its clients."""
    line = next(line for line in server.four_letters("mntr").splitlines() if line.startswith("zk_watch_count"))
    return int(line.split()[1])


def wait_behind(
    harness: ZooKeeperHarness, holder: ZooKeeperBackend, *, count: int = 1, **mode: Any
) -> tuple[ZooKeeperBackend, Claim, Background]:
    """A client that waits as the last of so many, with its watch, for the claim beside it."""
    client, claim = harness.client(), harness.claim(ttl=5.0, **mode)
    assert refused(client, claim)
    before = watches(harness.server)
    waiting = start_waiting(client, claim, holder, count=count)
    eventually(lambda: watches(harness.server) > before)
    return client, claim, waiting


def await_silence(asked: list[Asked]) -> None:
    """Return when nothing was asked for a moment: who has just connected looks twice."""
    counts = [-1]

    def is_silent() -> bool:
        counts.append(len(asked))
        return counts[-1] == counts[-2]

    eventually(is_silent, pause=0.3)


def remembered(harness: ZooKeeperHarness) -> tuple[ZooKeeperBackend, Grant]:
    """A holder of a lock that was used before, as all are but new ones."""
    holder = harness.client()
    grant = take(holder, harness.claim(ttl=5.0))
    holder.note_success(grant, timeout=LIMIT)
    return holder, grant


@pytest.mark.parametrize("mode", [{}, {"mode": SHARED}], ids=["alone", "shared"])
@pytest.mark.parametrize("lock", ["used before", "new"])
def test_who_is_next_takes_its_turn_in_one_round_trip(
    harness: ZooKeeperHarness, asked: list[Asked], mode: dict[str, Any], lock: str
) -> None:
    holder, grant = remembered(harness)
    if lock == "new":
        harness.admin.delete(f"{harness.root}/.kept/nightly", recursive=True)
    other, mine, waiting = wait_behind(harness, holder, **mode)
    await_silence(asked)

    def trips() -> int:
        return sum(each.place is other._place for each in asked)

    before = trips()
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    granted = take(other, mine)
    assert trips() - before == 1
    assert granted.token > grant.token
    assert other.renew(granted, timeout=LIMIT).token == granted.token


@pytest.mark.parametrize(("lock", "trips"), [("used before", 2), ("used with a hold", 2), ("new", 4)])
def test_a_free_lock_is_taken_in_two_round_trips(
    harness: ZooKeeperHarness, asked: list[Asked], lock: str, trips: int
) -> None:
    client, other = harness.client(), harness.client()
    name = "another" if lock == "new" else "nightly"
    client.release(take(client, harness.claim()), timeout=LIMIT, hold=0.001 if "hold" in lock else 0.0)
    before = len(asked)
    take(other, harness.claim(name))
    assert len(asked) - before == trips, "the first time in its life its node is made"


@pytest.mark.parametrize("harm", ["its node is deleted", "its session is ended"])
def test_who_was_told_of_its_turn_and_lost_its_position_is_refused(harness: ZooKeeperHarness, harm: str) -> None:
    holder, grant = remembered(harness)
    other, mine, waiting = wait_behind(harness, holder)
    third, last, follows = wait_behind(harness, holder, count=2)
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    if "deleted" in harm:
        harness.usurp("nightly")
    else:
        harness.end(session_of(other, mine))
    follows.result()
    granted = take(third, last)
    assert refused(other, mine)
    assert third.renew(granted, timeout=LIMIT).token == granted.token
    third.release(granted, timeout=LIMIT)
    assert take(other, mine).token > granted.token


def test_who_was_told_of_its_turn_is_refused_when_the_one_before_it_was_made_again(harness: ZooKeeperHarness) -> None:
    holder, grant = remembered(harness)
    other, mine, waiting = wait_behind(harness, holder)
    (first, _) = harness.line("nightly")
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    harness.admin.create(first, ephemeral=True)
    assert refused(other, mine)
    assert harness.line("nightly") == [first], "it has no position, and queues up again"
    harness.admin.delete(first)
    assert take(other, mine).token > grant.token


def test_who_was_told_of_its_turn_waits_for_a_hold_at_its_position(harness: ZooKeeperHarness) -> None:
    holder, grant = remembered(harness)
    other, mine, waiting = wait_behind(harness, holder)
    third, last, follows = wait_behind(harness, holder, count=2)
    (_, *positions) = harness.line("nightly")
    holder.release(grant, timeout=LIMIT, hold=1.5)
    waiting.result()
    assert refused(other, mine)
    assert harness.line("nightly") == positions
    assert follows.running
    other.wait(mine, timeout=LIMIT, interrupt=None)
    granted = take(other, mine)
    assert follows.running
    assert refused(third, last)
    other.release(granted, timeout=LIMIT)
    follows.result()


def test_who_was_told_of_its_turn_takes_it_although_the_session_that_was_ready_has_ended(
    harness: ZooKeeperHarness,
) -> None:
    holder, grant = remembered(harness)
    other, mine, waiting = wait_behind(harness, holder)
    (ready, _) = eventually(lambda: other._attempts[mine.owner].next._made)
    eventually(lambda: ready.connected)
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    harness.end(ready)
    granted = take(other, mine)
    assert granted.token > grant.token
    assert other.renew(granted, timeout=LIMIT).token == granted.token


def test_each_waiter_watches_one_node_and_no_other(harness: ZooKeeperHarness) -> None:
    holder = harness.client()
    grant, before = take(holder, harness.claim()), watches(harness.server)
    waits = []
    for number in range(10):
        client, claim = harness.client(), harness.claim()
        waits.append((start_waiting(client, claim, holder, count=number + 1), client, claim))
    eventually(lambda: watches(harness.server) - before == len(waits))
    for waiting, client, claim in waits:
        holder.release(grant, timeout=LIMIT)
        waiting.result()
        holder, grant = client, take(client, claim)
