"""Whatever another program writes into the nodes of a ZooKeeper lock, it is shown, and breaks nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import LeaseRevoked, LockctlError
from lockctl.model import Revocation
from tests.contract.harness import LIMIT, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.waiting import start_waiting
from tests.stores.zookeeper.test_kept import FORGED

if TYPE_CHECKING:
    from tests.contract.test_zookeeper import ZooKeeperHarness


def node_of(harness: ZooKeeperHarness) -> str:
    """The path of the holder's node."""
    return harness.line("nightly")[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\xff" * 100,
        b"{" * 50_000,
        b"[" * 1_000,
        b'{"owner": 5}',
        b"\n\n\n",
        b"x" * 900_000,
        b"\x1b[2J web4",
    ],
    ids=["nothing", "bytes", "braces", "brackets", "number", "lines", "long", "escapes"],
)
def test_whatever_a_node_holds_it_is_shown_as_foreign_and_can_be_taken_away(
    harness: ZooKeeperHarness, data: bytes
) -> None:
    client = harness.client()
    harness.admin.create(f"{harness.root}/nightly/lock-", data, ephemeral=True, sequence=True, makepath=True)
    lock = client.inspect("nightly", timeout=LIMIT)
    (holder,) = lock.holders
    assert (lock.state, holder.owner, holder.token, holder.pid) == ("foreign", None, None, None)
    assert holder.host is None or (holder.host.isprintable() and len(holder.host) <= 128)
    assert [each.state for each in client.list("*", timeout=LIMIT)] == ["foreign"]
    assert refused(client, harness.claim())
    with pytest.raises(LockctlError):
        revoke(client, holder)
    assert revoke(client, holder, now=True) is not None
    take(client, harness.claim())


@pytest.mark.parametrize("field", ["host", "pid", "user", "command", "ttl", "acquired_at", "mode"])
def test_a_forged_document_breaks_nothing(harness: ZooKeeperHarness, field: str) -> None:
    client = harness.client()
    for number, content in enumerate(FORGED):
        name, document = f"lock{number}", json.dumps({"owner": "me", field: content}).encode()
        harness.admin.create(f"{harness.root}/{name}/lock-", document, ephemeral=True, sequence=True, makepath=True)
        holder = holder_of(client, name)
        assert (holder.owner, isinstance(holder.token, int)) == ("me", True), content
        assert refused(client, harness.claim(name))


def test_nodes_that_are_no_contenders_neither_block_nor_appear(harness: ZooKeeperHarness) -> None:
    for name in ("nightly/config", "nightly/job-2024", ".hidden", "no lock name"):
        harness.admin.create(f"{harness.root}/{name}", b"", makepath=True)
    client = harness.client()
    assert [(lock.name, lock.state) for lock in client.list("*", timeout=LIMIT)] == [("nightly", "free")]
    take(client, harness.claim())


def test_garbage_written_over_a_holders_node_is_set_right_by_the_next_renewals(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    harness.admin.set(node_of(harness), b"garbage")
    for _ in range(2):
        assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert holder_of(client).owner == grant.claim.owner


def test_curators_revoker_is_understood(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    harness.admin.set(node_of(harness), b"__REVOKE__")
    for _ in range(3):
        with pytest.raises(LeaseRevoked, match="a Curator client"):
            client.renew(grant, timeout=LIMIT)
    assert holder_of(client).owner == grant.claim.owner
    client.release(grant, timeout=LIMIT)
    assert harness.line("nightly") == []


def test_a_holder_that_was_asked_is_still_shown_in_full(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    before = holder_of(other)
    other.revoke("nightly", before, Revocation(now=False, by="ops", reason="now"), timeout=LIMIT)
    assert holder_of(other) == before
    with pytest.raises(LeaseRevoked):
        client.renew(grant, timeout=LIMIT)
    assert holder_of(other) == before


def test_the_smallest_token_after_a_revocation_is_above_the_holders_and_not_above_that_of_the_next_in_line(
    harness: ZooKeeperHarness,
) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, harness.claim(ttl=4.0))
    waiting = start_waiting(other, mine := harness.claim(ttl=4.0), client)
    floor = revoke(client, holder_of(client), now=True)
    waiting.result()
    assert floor is not None
    assert grant.token < floor <= take(other, mine).token
