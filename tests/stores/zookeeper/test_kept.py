"""Holds of ZooKeeper locks, by the leader's clock; and stores that do not want what is kept beside a lock."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.security import make_acl

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.model import Revocation
from lockctl.stores.zookeeper import grant as grants
from lockctl.stores.zookeeper import hold, inspect
from lockctl.stores.zookeeper import node as nodes
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from lockctl.value import replace
from tests.contract.harness import LIMIT, UNHEARD, Background, queue_up, refused, take
from tests.contract.remembering import a_run
from tests.contract.test_zookeeper import ZooKeeperHarness
from tests.jobs import eventually
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim

FORGED: list[object] = [None, -1, 1e300, "\x1b[2J", [[]], {}, True]  # in the place of a field
GARBAGE = [b"\0\xff" * 100, b"{" * 50_000, b"[]", b'{"owner":5}', b"null", b"x" * 900_000, b'{"owner":"x"}']


def kept(harness: ZooKeeperHarness, name: str = "nightly") -> str:
    return f"{harness.root}/.kept/{name}"


def end_with_a_hold(client: ZooKeeperBackend, claim: Claim, seconds: float) -> int:
    grant = take(client, claim)
    client.release(grant, timeout=LIMIT, hold=seconds)
    return grant.token


# Holds


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0], ids=["behind", "ahead"])
def test_a_hold_ends_by_the_leaders_clock_whatever_our_own_says(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    for module in (grants, nodes, hold, inspect):
        monkeypatch.setattr(module, "wall", lambda: time.time() + wrong)
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    began = time.monotonic()
    end_with_a_hold(client, harness.claim(), 1.0)
    assert refused(other, harness.claim())

    def is_in_line() -> bool:
        lock = client.inspect("nightly", timeout=LIMIT)
        assert mine.owner not in [each.owner for each in lock.holders], "it waits for the end of the hold"
        return bool(lock.waiters)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.wait, mine, timeout=LIMIT, interrupt=None)
        eventually(is_in_line)
        waiting.result(LIMIT)
    grant = take(other, mine)
    assert 1.0 <= time.monotonic() - began < 5.0
    assert abs(grant.at - time.time()) < 5.0
    (holder,) = client.inspect("nightly", timeout=LIMIT).holders
    assert holder.owner == mine.owner, "its node shows what time it is at the leader"


def test_who_waits_when_the_hold_begins_gets_the_lock_at_its_end_in_the_order_of_the_queue(
    harness: ZooKeeperHarness,
) -> None:
    client, observer = harness.client(), harness.client()
    grant = take(client, harness.claim(ttl=30.0))
    served: list[tuple[int, float]] = []

    def turn(number: int) -> None:
        own, mine = harness.client(), harness.claim(ttl=30.0)
        tries = 0
        while (got := own.try_acquire(mine, timeout=LIMIT)) is None:
            tries += 1
            own.wait(mine, timeout=LIMIT, interrupt=None)
        served.append((number, time.monotonic()))
        assert tries <= 2
        own.release(got, timeout=LIMIT)

    turns = []
    for number in range(3):
        turns.append(Background(lambda number=number: turn(number)))  # type: ignore[misc]
        eventually(lambda number=number: len(harness.line("nightly")) == number + 2)  # type: ignore[misc]
    began = time.monotonic()
    client.release(grant, timeout=LIMIT, hold=1.0)
    lock = observer.inspect("nightly", timeout=LIMIT)
    assert (lock.state, len(lock.holders), len(lock.waiters or ())) == ("held", 1, 3)
    assert 0.0 < (lock.holders[0].expires_in or 0.0) <= 1.0
    for each in turns:
        each.result()
    assert [number for number, _ in served] == [0, 1, 2]
    assert all(at - began >= 1.0 for _, at in served)


def test_a_hold_of_a_lock_whose_session_has_ended_is_none(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    expired = take(client, harness.claim())
    harness.expire(expired)
    client.release(expired, timeout=LIMIT, hold=60.0)
    take(harness.client(), harness.claim())


def test_a_release_with_a_hold_whose_answer_was_lost_can_be_repeated(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    end_with_a_hold(client, harness.claim(), 0.001)  # so that the record is there
    grant = take(client, harness.claim(ttl=5.0))
    with harness.lost_transaction(client), pytest.raises(BackendUnavailable):
        client.release(grant, timeout=UNHEARD, hold=60.0)
    version = harness.admin.get(kept(harness))[1].version
    client.release(grant, timeout=LIMIT, hold=60.0)
    client.release(grant, timeout=LIMIT, hold=60.0)
    assert harness.admin.get(kept(harness))[1].version == version == 3, "it was begun once"
    assert harness.line("nightly") == []
    assert refused(other, harness.claim())


def test_a_grant_that_was_waited_for_is_dated_at_its_end_and_not_when_its_node_was_made(
    harness: ZooKeeperHarness,
) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=5.0)
    first = take(client, harness.claim(ttl=5.0))
    queue_up(other, mine, client)
    time.sleep(0.5)  # what is measured
    client.release(first, timeout=LIMIT)
    grant = take(other, mine)
    assert grant.at >= first.at + 0.4
    assert other.renew(grant, timeout=LIMIT).at == grant.at
    again = take(other, mine)
    assert (again.token, again.at) == (grant.token, grant.at)


def test_holds_leave_one_node_however_many_there_were(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    for _ in range(5):
        end_with_a_hold(client, harness.claim(), 0.001)
        time.sleep(0.01)
    assert harness.admin.get_children(f"{harness.root}/.kept") == ["nightly"]
    assert harness.admin.get_children(kept(harness)) == ["runs"]
    assert harness.admin.get_children(f"{kept(harness)}/runs") == []
    assert harness.line("nightly") == []


def test_a_hold_that_begins_at_one_server_is_known_to_who_asks_another(
    zookeeper_three: ZooKeeperEnsemble, harness: ZooKeeperHarness
) -> None:
    urls = [parse_url(f"zookeeper://{server.address}/holds") for server in zookeeper_three.members]
    clients = [ZooKeeperBackend.from_url(url) for url in urls]
    for number in range(12):
        name = f"hold{number}"
        end_with_a_hold(clients[number % 3], harness.claim(name, ttl=5.0), 60.0)
        assert refused(clients[(number + 1) % 3], harness.claim(name, ttl=5.0))
    for client in clients:
        client.close()


def test_garbage_in_the_record_is_no_hold_and_the_next_hold_replaces_it(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    for number, data in enumerate(GARBAGE):
        name = f"lock{number}"
        harness.admin.create(kept(harness, name), data, makepath=True)
        assert client.inspect(name, timeout=LIMIT).state == "free", data[:13]
        end_with_a_hold(client, harness.claim(name), 60.0)
        assert refused(client, harness.claim(name))
        assert client.inspect(name, timeout=LIMIT).state == "held"


@pytest.mark.parametrize("field", ["hold", "ended_at", "token", "acquired_at", "host", "mode", "command"])
def test_a_forged_record_breaks_nothing(harness: ZooKeeperHarness, field: str) -> None:
    client = harness.client()
    for number, content in enumerate(FORGED):
        name, document = f"lock{number}", {"owner": "me", "hold": 60, "token": 5, field: content}
        harness.admin.create(kept(harness, name), json.dumps(document).encode(), makepath=True)
        lock = client.inspect(name, timeout=LIMIT)
        assert lock.state == ("free" if field == "hold" else "held"), content
        assert refused(client, harness.claim(name)) == (field != "hold")
        for holder in lock.holders:
            assert holder.ended_at is not None
            assert client.revoke(name, holder, Revocation(now=True, by="ops", reason=""), timeout=LIMIT) is not None
            take(client, harness.claim(name))


# A store that does not want it


def test_a_store_that_is_full_takes_no_history_and_no_hold_but_the_lock_goes_on(
    start_server: Callable[..., ZooKeeper],
) -> None:
    server = start_server(ZooKeeper, extra=("enforceQuota=true",))
    harness = ZooKeeperHarness(server)
    try:
        client = harness.client()
        client.remember("nightly", a_run(1), timeout=LIMIT)
        grant = take(client, harness.claim(ttl=5.0))
        server.command("setquota", "-N", str(1 + len(below(harness.admin, harness.root))), harness.root)
        for attempt in (
            lambda: client.remember("nightly", a_run(2), timeout=LIMIT),
            lambda: client.remember("another", a_run(2), timeout=LIMIT),
            lambda: client.note_success(grant, timeout=LIMIT),
        ):
            began = time.monotonic()
            with pytest.raises(BackendUnavailable, match=r"the server refuses .*/\.kept/"):
                attempt()
            assert time.monotonic() - began < 6.0
        assert client.renew(grant, timeout=LIMIT).token == grant.token
        assert client.history("nightly", timeout=LIMIT) == (a_run(1),)
        client.release(grant, timeout=LIMIT, hold=0.001)  # needs no node more
        other = eventually(lambda: client.try_acquire(harness.claim(ttl=5.0), timeout=LIMIT))
        harness.admin.delete(kept(harness), recursive=True)
        server.command("setquota", "-N", str(1 + len(below(harness.admin, harness.root))), harness.root)
        with pytest.raises(BackendUnavailable, match=r"the server refuses .*/\.kept/nightly"):
            client.release(other, timeout=LIMIT, hold=60.0)
        client.release(other, timeout=LIMIT)
        take(client, harness.claim())
    finally:
        harness.close()


def below(admin: Any, path: str) -> list[str]:
    """All nodes below one."""
    children = [f"{path}/{name}" for name in admin.get_children(path)]
    return children + [node for child in children for node in below(admin, child)]


@pytest.mark.parametrize("record", ["is missing", "may not be written"])
def test_who_may_not_write_beside_a_lock_is_told_and_does_not_get_it(harness: ZooKeeperHarness, record: str) -> None:
    everybody = [make_acl("world", "anyone", all=True)]
    harness.admin.create(f"{harness.root}/nightly", b"", acl=everybody, makepath=True)
    narrow = harness.root
    if record != "is missing":
        narrow = kept(harness)
        harness.admin.ensure_path(narrow)
    harness.admin.set_acls(narrow, [make_acl("world", "anyone", read=True, admin=True)])
    client = harness.client()
    with pytest.raises(ConfigError, match="no permission"):
        client.try_acquire(harness.claim(ttl=5.0), timeout=LIMIT)
    assert harness.line("nightly") == []
    with pytest.raises(ConfigError, match="no permission"):
        client.remember("nightly", a_run(1), timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == ()
    assert client.last_success("nightly", timeout=LIMIT) is None
    harness.admin.set_acls(narrow, everybody)
    take(client, harness.claim())


def test_who_does_not_know_the_leaders_time_leaves_a_hold_as_it_is(harness: ZooKeeperHarness) -> None:
    client, others = harness.client(), [harness.client() for _ in range(3)]
    token = end_with_a_hold(client, harness.claim(), 1.0)
    began = time.monotonic()
    before = client.inspect("nightly", timeout=LIMIT).holders
    for other in others:
        assert refused(other, harness.claim())
    (holder,) = client.inspect("nightly", timeout=LIMIT).holders
    assert replace(holder, expires_in=None) == replace(before[0], expires_in=None)
    assert holder.token == token
    granted = eventually(lambda: client.try_acquire(harness.claim(ttl=5.0), timeout=LIMIT))
    assert 0.9 <= time.monotonic() - began < 2.5, "nobody has made it longer"
    assert granted.token > token


def test_a_record_that_we_may_not_read_may_be_a_hold(harness: ZooKeeperHarness) -> None:
    harness.admin.ensure_path(kept(harness))
    harness.admin.set_acls(kept(harness), [make_acl("world", "anyone", admin=True)])
    client = harness.client()
    with pytest.raises(ConfigError, match="no permission"):
        client.try_acquire(harness.claim(), timeout=LIMIT)
    harness.admin.set_acls(kept(harness), [make_acl("world", "anyone", all=True)])
