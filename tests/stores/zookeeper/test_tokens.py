"""The token of ZooKeeper: the counter beside a lock, whatever clocks say, and the name of the store it comes from."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import documents
from lockctl.model import SHARED, SLOT
from lockctl.stores.zookeeper import grant as grants
from lockctl.stores.zookeeper import queue
from tests.contract.harness import LIMIT, Background, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.test_zookeeper import ZooKeeperHarness
from tests.contract.waiting import start_waiting
from tests.jobs import eventually
from tests.promises.tokens import holding, rising, tenure
from tests.stores.zookeeper.test_kept import kept

if TYPE_CHECKING:
    from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble


def test_the_token_rises_when_the_leader_changes(zookeeper_three: ZooKeeperEnsemble) -> None:
    url = f"zookeeper://{zookeeper_three.hosts}/tokens-{os.urandom(6).hex()}"
    grants = []
    for _ in range(2):
        leader = zookeeper_three.leader()
        with holding(url, ttl=1.0) as grant:
            grants.append(grant)
            leader.kill()
            try:
                grants.append(tenure(url))  # the first is not renewed: its session ends
            finally:
                leader.start()
                eventually(lambda: len(zookeeper_three.followers()) == 2, limit=30.0)
    assert rising([grant.token for grant in grants])
    assert len({grant.domain for grant in grants}) == 1


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have the host's clock so far ahead."""
    monkeypatch.setattr(grants, "wall", lambda: time.time() + seconds)


def on_record(harness: ZooKeeperHarness) -> bytes:
    """What is written beside the lock."""
    return bytes(harness.admin.get(kept(harness))[0])


def served(harness: ZooKeeperHarness, **mode: Any) -> list[int]:
    """The tokens of one who finds the lock free, of one who waits behind it, and of one that repeats its claim."""
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0, **mode)
    first = take(client, harness.claim(ttl=5.0))
    waiting = start_waiting(other, mine, client)
    assert holder_of(other).token == first.token
    client.release(first, timeout=LIMIT)
    waiting.result()
    second = take(other, mine)
    assert take(other, mine).token == holder_of(client).token == second.token
    other.release(second, timeout=LIMIT)
    return [first.token, second.token]


@pytest.mark.parametrize("mode", [{}, {"mode": SHARED}], ids=["alone", "shared"])
def test_tokens_rise_by_one_while_clocks_are_behind_the_counter(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]
) -> None:
    before = served(harness, **mode)
    assert before[0] >= (time.time() - 60) * 1_000_000
    at(monkeypatch, -3600)
    assert served(harness, **mode) == [before[1] + 1, before[1] + 2]


@pytest.mark.parametrize("mode", [{"mode": SHARED}, {"mode": SLOT, "slots": 5}], ids=["shared", "slots"])
def test_those_who_are_inside_together_have_tokens_of_their_own(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]
) -> None:
    client = harness.client()
    first = take(client, harness.claim(ttl=30.0))
    at(monkeypatch, -3600)
    together = [(harness.client(), harness.claim(ttl=30.0, **mode)) for _ in range(5)]
    turns = [start_waiting(*each, client, count=count) for count, each in enumerate(together, 1)]
    client.release(first, timeout=LIMIT)
    grants = [Background(lambda each=each: take(*each)) for each in together]  # type: ignore[misc]
    tokens = sorted(each.result().token for each in grants)
    for turn in turns:
        turn.result()
    assert tokens == [first.token + count for count in range(1, 6)]
    shown = [holder.token or 0 for holder in client.inspect("nightly", timeout=LIMIT).holders]
    assert sorted(shown) == tokens
    assert on_record(harness) == b'{"last":%d}' % tokens[-1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\xff" * 100,
        b'{"last":',
        b'{"last":-5}',
        b'{"last":1e300}',
        b'{"last":9999999999999999999}',
        b"[]",
        b"7",
    ],
    ids=repr,
)
def test_a_damaged_counter_counts_as_none(harness: ZooKeeperHarness, data: bytes) -> None:
    before = served(harness)
    harness.admin.set(kept(harness), data)
    assert rising([*before, *served(harness)])
    assert json.loads(on_record(harness))["last"] > before[1]


def test_the_first_in_the_queue_who_was_not_granted_the_lock_yet_is_shown_without_a_token(
    harness: ZooKeeperHarness,
) -> None:
    client, mine = harness.client(), harness.claim(ttl=5.0)
    document = documents.describe(mine, {"since": time.time()})
    node = f"{harness.root}/nightly/{queue.prefix('a' * 32, 'kazoo')}"
    harness.admin.create(node, document, ephemeral=True, sequence=True, makepath=True)
    seen = holder_of(client)
    assert (seen.owner, seen.token) == (mine.owner, None)
    assert revoke(client, seen, now=True) is not None
    assert client.inspect("nightly", timeout=LIMIT).state == "free"


@pytest.mark.parametrize("layout", ["kazoo", "curator"])
def test_a_holder_of_an_older_lockctl_is_shown_with_the_number_of_its_node(
    zookeeper_server: ZooKeeper, layout: str
) -> None:
    harness = ZooKeeperHarness(zookeeper_server, layout)
    try:
        client, mine = harness.client(), harness.claim(ttl=5.0)
        document = documents.describe(mine, {"acquired_at": time.time()})
        node = f"{harness.root}/nightly/{queue.prefix('a' * 32, layout)}"
        path = harness.admin.create(node, document, ephemeral=True, sequence=True, makepath=True)
        seen = holder_of(client)
        assert (seen.owner, seen.token) == (mine.owner, harness.admin.exists(path).czxid)
        floor = revoke(client, seen, now=True)
        assert seen.token is not None
        assert floor is not None
        assert seen.token < floor <= take(client, harness.claim()).token
    finally:
        harness.close()


def test_a_root_without_a_name_keeps_the_domain_of_an_older_lockctl(harness: ZooKeeperHarness) -> None:
    harness.admin.create(harness.root)
    stat = harness.admin.exists(harness.root)
    client = harness.client()
    grant = take(client, harness.claim())
    assert grant.domain == f"zookeeper:{stat.czxid:x}-{stat.ctime:x}"
    client.release(grant, timeout=LIMIT)
    harness.admin.set(harness.root, b"lockctl:main")
    assert take(client, harness.claim()).domain == "zookeeper:main"


def test_a_root_that_lockctl_makes_is_named_after_the_address(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    domains = set()
    for _ in range(2):
        grant = take(client, harness.claim())
        domains.add(grant.domain)
        client.release(grant, timeout=LIMIT)
        harness.admin.delete(harness.root, recursive=True)
    assert len(domains) == 1
    assert domains != {take(harness.neighbour(), harness.claim()).domain}
