"""Who waits for a job with a long lease has a short one until it has the lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lockctl.clock import boottime
from lockctl.errors import LeaseRevoked
from lockctl.stores.etcd import layout, session
from lockctl.stores.etcd.queue import View
from lockctl.stores.etcd.wait import Position
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, claim, one_of, queue_up, reader, refused, take, wait_for_turn
from tests.contract.keeping import holder_of, revoke
from tests.jobs import eventually
from tests.stores.etcd.claims import TTL, keys_of_locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim, Grant
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd

    Open = Callable[..., EtcdBackend]

HOUR = 3600.0  # seconds
EVERY_MODE = pytest.mark.parametrize("mode", [claim, reader, lambda **changes: one_of(1, **changes)])
LEAST = HOUR - 60  # seconds that a lease of an hour still has in a test


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of those who wait that a test can outlast."""
    monkeypatch.setattr(session, "LONGEST_WAITING", TTL, raising=False)


def left(server: Etcd, lease: int) -> int:
    """How many seconds a lease still runs; at most 0: it has ended."""
    status, answer = server.request("/v3/lease/timetolive", {"ID": str(lease)})
    assert status == 200, answer
    return int(answer.get("TTL", 0))


def attached(server: Etcd, client: EtcdBackend, mine: Claim) -> int:
    """The lease of the key of a claim."""
    key = client.layout.claim_key("nightly", client.lease_of(mine), layout.group(mine.mode, mine.slots))
    _, answer = server.request("/v3/kv/range", layout.only(key))
    (entry,) = layout.entries(answer)
    return entry.lease


def lives_for_an_hour(server: Etcd, client: EtcdBackend, grant: Grant) -> bool:
    assert grant.ttl == HOUR
    assert attached(server, client, grant.claim) == client.lease_of(grant.claim)
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    return left(server, client.lease_of(grant.claim)) > LEAST


@EVERY_MODE
def test_a_waiter_that_vanished_keeps_nobody_out_for_longer(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open, mode: Callable[..., Claim]
) -> None:
    grant = take(backend, claim())
    queue_up(connect(etcd_server.address), mode(ttl=HOUR), backend)
    backend.release(grant, timeout=LIMIT)
    assert refused(backend, claim())
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).state == "free", limit=TTL + 2.0)
    take(backend, claim())


@EVERY_MODE
def test_the_lease_of_the_job_is_the_whole_one_from_the_grant_on(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open, mode: Callable[..., Claim], prefix: str
) -> None:
    grant, mine, client = take(backend, claim()), mode(ttl=HOUR), connect(etcd_server.address)
    waits = Background(lambda: wait_for_turn(client, mine))
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
    short = attached(etcd_server, client, mine)
    assert left(etcd_server, short) <= TTL
    time.sleep(2 * TTL)  # no longer than that without a beat
    assert attached(etcd_server, client, mine) == short
    backend.release(grant, timeout=LIMIT)
    granted = waits.result()
    assert lives_for_an_hour(etcd_server, client, granted)
    eventually(lambda: left(etcd_server, short) <= 0, limit=TTL + 2.0)
    assert client.renew(granted, timeout=LIMIT).token == granted.token
    client.release(granted, timeout=LIMIT)
    assert keys_of_locks(etcd_server, prefix) == []


@EVERY_MODE
def test_a_release_leaves_neither_lease(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open, mode: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    grant, mine, client = take(backend, claim()), mode(ttl=HOUR), connect(etcd_server.address)
    waits = Background(lambda: wait_for_turn(client, mine))
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
    leases = (attached(etcd_server, client, mine), client.lease_of(mine))
    backend.release(grant, timeout=LIMIT)
    client.release(waits.result(), timeout=LIMIT)
    assert max(left(etcd_server, lease) for lease in leases) <= 0


@pytest.mark.parametrize("times", [1, 2], ids=["as it waits", "as its turn comes"])
@EVERY_MODE
def test_a_lease_of_the_job_that_ended_in_the_wait_is_made_anew(
    etcd_server: Etcd,
    backend: EtcdBackend,
    connect: Open,
    mode: Callable[..., Claim],
    times: int,
) -> None:
    grant, mine, client = take(backend, claim()), mode(ttl=HOUR), connect(etcd_server.address)
    waits = Background(lambda: wait_for_turn(client, mine))
    eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
    lease = client.lease_of(mine)
    etcd_server.command("lease", "revoke", f"{lease:x}")
    if mine.mode == "exclusive":
        eventually(lambda: left(etcd_server, lease) > LEAST)
    if times > 1:
        etcd_server.request("/v3/lease/revoke", {"ID": str(lease)})
    backend.release(grant, timeout=LIMIT)
    assert lives_for_an_hour(etcd_server, client, waits.result())


def test_who_withdraws_leaves_neither_its_key_nor_a_lease(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open, prefix: str
) -> None:
    take(backend, claim())
    mine, client = claim(ttl=HOUR), connect(etcd_server.address)
    assert refused(client, mine)
    queue_up(client, mine, backend)
    leases = (attached(etcd_server, client, mine), client.lease_of(mine))
    client.withdraw(mine, timeout=LIMIT)
    assert len(keys_of_locks(etcd_server, prefix)) == 1
    assert max(left(etcd_server, lease) for lease in leases) <= 0


def test_who_is_asked_for_the_lock_before_it_was_granted_hears_of_it(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open
) -> None:
    grant, mine, client = take(backend, claim()), claim(ttl=HOUR), connect(etcd_server.address)
    queue_up(client, mine, backend)
    backend.release(grant, timeout=LIMIT)
    seen = holder_of(backend)
    assert (seen.owner, seen.token) == (mine.owner, None)
    revoke(backend, seen)
    granted = take(client, mine)
    with pytest.raises(LeaseRevoked):
        client.renew(granted, timeout=LIMIT)


@pytest.mark.parametrize("view", [View(b"another", (), writes=False, revision=1, held=held) for held in (False, True)])
def test_a_watch_that_died_silently_is_noticed_within_seconds_whatever_the_lease(
    monkeypatch: pytest.MonkeyPatch, backend: EtcdBackend, view: View
) -> None:
    monkeypatch.undo()
    mine = claim(ttl=HOUR)
    lease, ttl = backend.waiting_lease(mine, Deadline(LIMIT))
    position = Position(mine, b"ours", lease, 2, view, ttl=ttl, since=boottime())
    assert position.next_beat - boottime() <= 10.0
