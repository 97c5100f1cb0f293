"""Who waits for a ZooKeeper lock has a short session, and another one for the lock: how one becomes the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, LeaseLost, LeaseRevoked
from lockctl.model import SHARED, SLOT
from tests.contract.harness import LIMIT, UNHEARD, queue_up, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.test_zookeeper import ZooKeeperHarness
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.model import Claim
    from lockctl.stores.zookeeper.lock import ZooKeeperBackend
    from lockctl.stores.zookeeper.session import Session
    from tests.servers.zookeeper import ZooKeeper

ENDED = 2.0  # seconds for the end of a session that nobody waits for: by itself it lasts longer


def line_up(client: ZooKeeperBackend, claim: Claim) -> None:
    """Refuse it, and have it wait until it has a place, which it keeps."""
    assert refused(client, claim)
    queue_up(client, claim, client)


def session_of(client: ZooKeeperBackend, claim: Claim) -> Session:
    """The session that a claim has now."""
    found = client._attempts[claim.owner]._session
    assert found is not None
    return found


def identity(session: Session) -> str:
    """As the server lists it, for as long as it has it."""
    return f"{session.link.identity[0]:#x}"


def listed(harness: ZooKeeperHarness) -> str:
    """What the server says of all sessions."""
    return harness.server.four_letters("dump")


@pytest.mark.parametrize("layout", ["kazoo", "curator", "curator-rw"])
@pytest.mark.parametrize("mode", [{}, {"mode": SHARED}, {"mode": SLOT, "slots": 2}], ids=["alone", "shared", "slot"])
def test_a_waiters_session_lasts_one_lease_and_a_holders_two(
    zookeeper_server: ZooKeeper, layout: str, mode: dict[str, Any]
) -> None:
    harness = ZooKeeperHarness(zookeeper_server, layout)
    try:
        client, other = harness.client(), harness.client()
        first = [take(client, harness.claim(ttl=3.0, **mode)) for _ in range(mode.get("slots", 0))]
        first = first or [take(client, harness.claim(ttl=3.0))]
        mine = harness.claim(ttl=3.0, **mode)
        assert refused(other, mine)
        looking = identity(session_of(other, mine))
        assert looking in listed(harness)
        line_up(other, mine)
        assert session_of(other, mine).timeout == 3.0
        waiting = identity(session_of(other, mine))
        assert waiting in listed(harness)
        eventually(lambda: looking not in listed(harness), limit=ENDED)
        place = harness.line("nightly")[-1][-10:]
        for grant in first:
            client.release(grant, timeout=LIMIT)
        grant = take(other, mine)
        assert grant.ttl == 3.0
        assert other.renew(grant, timeout=LIMIT).ttl == 3.0
        (node,) = harness.line("nightly")
        assert node[-10:] == place, "it stays before those who wait behind it"
        eventually(lambda: waiting not in listed(harness), limit=ENDED)
        assert take(other, mine).token == grant.token
        other.release(grant, timeout=LIMIT)
        assert harness.line("nightly") == []
    finally:
        harness.close()


def test_a_claim_whose_node_was_deleted_gets_a_token_of_its_own(harness: ZooKeeperHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    grant = take(client, mine)
    harness.usurp("nightly")
    between = take(other, harness.claim(ttl=5.0))
    other.release(between, timeout=LIMIT)
    again = take(client, mine)
    assert again.token > between.token
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    assert client.renew(again, timeout=LIMIT).token == again.token


@pytest.mark.parametrize("then", ["take", "withdraw", "take, its place was deleted", "take, its session was ended"])
def test_a_hand_over_whose_answer_was_lost_is_found_again_or_given_back(harness: ZooKeeperHarness, then: str) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    grant = take(client, harness.claim(ttl=5.0))
    line_up(other, mine)
    last = harness.claim(ttl=5.0)
    line_up(client, last)
    client.release(grant, timeout=LIMIT)
    with harness.lost_transaction(other), pytest.raises(BackendUnavailable):
        other.try_acquire(mine, timeout=UNHEARD)
    assert len(harness.line("nightly")) == 2, "it has the lock, and does not know"
    waiting = session_of(other, mine)
    if then == "withdraw":
        name = identity(waiting)
        assert name in listed(harness)
        other.withdraw(mine, timeout=LIMIT)
        assert len(harness.line("nightly")) == 1
        client.release(take(client, last), timeout=LIMIT)
        assert name not in listed(harness)
        return
    if "deleted" in then:
        harness.usurp("nightly")
        other.wait(mine, timeout=0.1, interrupt=None)
        other.withdraw(mine, timeout=LIMIT)
        client.release(take(client, last), timeout=LIMIT)
    elif "ended" in then:
        harness.end(waiting)
    got = take(other, mine)
    assert got.token > grant.token
    assert other.renew(got, timeout=LIMIT).token == got.token
    other.release(got, timeout=LIMIT)


def test_who_is_asked_to_give_back_what_it_has_not_taken_yet_learns_of_it(harness: ZooKeeperHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    grant = take(client, harness.claim(ttl=5.0))
    line_up(other, mine)
    client.release(grant, timeout=LIMIT)
    assert revoke(client, holder_of(client)) is not None
    got = take(other, mine)
    with pytest.raises(LeaseRevoked):
        other.renew(got, timeout=LIMIT)
    other.release(got, timeout=LIMIT)


def test_a_waiter_whose_place_was_deleted_takes_the_free_lock_for_a_whole_lease(harness: ZooKeeperHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=3.0)
    grant = take(client, harness.claim(ttl=3.0))
    line_up(other, mine)
    harness.admin.delete(harness.line("nightly")[1])
    client.release(grant, timeout=LIMIT)
    got = take(other, mine)
    assert got.ttl == 3.0
    assert got.token > grant.token
