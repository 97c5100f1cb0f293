"""The queue of keys that a lock in etcd is: others look into it and write to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.clock import boottime
from lockctl.stores.etcd import layout, turn, wait
from lockctl.stores.etcd.queue import View
from lockctl.wire.deadline import Deadline
from tests.contract.harness import LIMIT, Background, claim, refused, take
from tests.contract.keeping import holder_of
from tests.jobs import eventually
from tests.stores.etcd.claims import TTL

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd
    from tests.servers.proxy import Proxy

    Open = Callable[..., EtcdBackend]


def in_line(client: EtcdBackend, mine: Claim, monkeypatch: pytest.MonkeyPatch) -> Background:
    """A wait whose claim was refused, is in the queue, and knows who is before it."""
    watch, watched = client.cluster.watch, []
    assert refused(client, mine)

    def noted(*words: Any) -> Any:
        watched.append(words)
        return watch(*words)

    monkeypatch.setattr(client.cluster, "watch", noted)
    waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
    eventually(lambda: watched)
    return waits


def turn_of(client: EtcdBackend, mine: Claim) -> turn.Turn:
    place = client.turns[mine.owner]
    assert isinstance(place, turn.Turn)
    return place


class TestQueue:
    """The queue is the cluster's: others look into it and write to it."""

    def test_a_watch_from_before_a_compaction_has_the_queue_read_again(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        backend.release(take(backend, claim()), timeout=LIMIT)
        grant = take(backend, claim())
        created = backend.created(grant)
        assert created is not None
        etcd_server.command("compaction", str(created))
        key = backend.layout.claim_key("nightly", 1)
        view = View(before=key, inside=(), writes=False, revision=2)
        late = wait.Position(claim(), key, 1, created, view, ttl=1e6, since=boottime())
        assert wait._watch(backend, late, Deadline(5.0)) is None

    def test_a_waiter_whose_key_was_deleted_comes_to_the_end_of_the_queue(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, prefix: str
    ) -> None:
        grant = take(backend, claim())
        client, mine = connect(etcd_server.address), claim()
        waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
        place = client.layout.claim_key("nightly", client.lease_of(mine)).decode()
        assert etcd_server.command("del", place).strip() == "1"
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
        assert waits.running
        backend.release(grant, timeout=LIMIT)
        waits.result()
        assert take(client, mine).token > grant.token

    def test_who_is_next_takes_its_turn_in_one_round_trip(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, mine, behind = take(backend, claim()), claim(ttl=60.0), claim(ttl=60.0)
        client, last = connect(etcd_server.address), connect(etcd_server.address)
        waits, follows = in_line(client, mine, monkeypatch), in_line(last, behind, monkeypatch)
        asked = []
        send = client.cluster._connections._send

        def counted(*words: Any) -> Any:
            asked.append(words)
            return send(*words)

        monkeypatch.setattr(client.cluster._connections, "_send", counted)
        backend.release(grant, timeout=LIMIT)
        waits.result()
        granted = take(client, mine)
        assert len(asked) == 1
        assert client.renew(granted, timeout=LIMIT).token == granted.token
        assert follows.running
        asked.clear()
        monkeypatch.undo()
        send = last.cluster._connections._send
        monkeypatch.setattr(last.cluster._connections, "_send", counted)
        client.release(granted, timeout=LIMIT)
        follows.result()
        assert take(last, behind).token > granted.token
        assert len(asked) == 1, "also behind another waiter"

    def test_the_document_of_who_went_is_sent_only_where_it_tells_something(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told, read = [], wait._read

        def noted(line: bytes, telling: set[bytes | None]) -> Any:
            told.append(b"prev_kv" in line)
            return read(line, telling)

        monkeypatch.setattr(wait, "_read", noted)
        grant, mine, behind = take(backend, claim()), claim(), claim()
        client, last = connect(etcd_server.address), connect(etcd_server.address)
        waits, follows = in_line(client, mine, monkeypatch), in_line(last, behind, monkeypatch)
        backend.release(grant, timeout=LIMIT)
        waits.result()
        granted = take(client, mine)
        assert not any(told), "a holder was seen as one before"
        client.release(granted, timeout=LIMIT)
        follows.result()
        assert told[-1], "a waiter may have become the holder"

    @pytest.mark.parametrize(("over", "prolonged"), [(0.0, 0), (10.0, 1)])
    def test_the_turn_is_asked_for_in_the_wait_and_its_lease_counts_from_when_it_was_prolonged(
        self,
        etcd_server: Etcd,
        backend: EtcdBackend,
        connect: Open,
        monkeypatch: pytest.MonkeyPatch,
        over: float,
        prolonged: int,
    ) -> None:
        grant, mine, client = take(backend, claim()), claim(), connect(etcd_server.address)
        waits, place = in_line(client, mine, monkeypatch), turn_of(client, mine)
        place.prolonged(place._since - over, place._ttl)
        since, begun = place._since, client.cluster.begin

        def begin(requests: Requests, deadline: Deadline) -> None:
            assert [path for path, _ in requests] == [layout.KEEP_ALIVE] * prolonged + ["/v3/kv/txn"]
            begun(requests, deadline)

        monkeypatch.setattr(client.cluster, "begin", begin)
        backend.release(grant, timeout=LIMIT)
        waits.result()
        eventually(lambda: holder_of(backend).owner == mine.owner)
        monkeypatch.setattr(turn, "boottime", lambda: boottime() + 5.0)
        granted = take(client, mine)
        assert (granted.ttl, granted.token) == (mine.ttl, holder_of(backend).token)
        assert 5.0 <= granted.age <= boottime() + 5.0 - since
        assert (granted.age < 5.0 + LIMIT) == (not over or bool(prolonged))
        assert client.renew(granted, timeout=LIMIT).age == 0

    def test_who_is_next_has_a_lease_that_a_job_can_start_with(
        self, backend: EtcdBackend, connect: Open, etcd_server: Etcd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, mine, behind = take(backend, claim()), claim(ttl=TTL), claim(ttl=TTL)
        client, last = connect(etcd_server.address), connect(etcd_server.address)
        waits, follows = in_line(client, mine, monkeypatch), in_line(last, behind, monkeypatch)
        place, next_place = turn_of(client, mine), turn_of(last, behind)
        first, often, seldom = place._since, set(), set()
        while boottime() < first + TTL:
            often.add(place._since)
            seldom.add(next_place._since)
            time.sleep(0.01)
        assert len(often) > 2 * wait.BEATS_PER_TTL >= len(seldom) - 1
        backend.release(grant, timeout=LIMIT)
        waits.result()
        take(client, mine)
        beats = [next_place._since]

        def goes_on() -> bool:
            if next_place._since != beats[-1]:
                beats.append(next_place._since)
            return len(beats) > 2 * wait.BEATS_PER_TTL + 2

        eventually(goes_on)
        assert beats[-1] - beats[2] < TTL, "from the second one on it knows that it is next"
        assert follows.running

    def test_a_lease_that_a_deposed_leader_prolonged_does_not_count(
        self, backend: EtcdBackend, connect: Open, etcd_server: Etcd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, mine, client = take(backend, claim()), claim(ttl=TTL), connect(etcd_server.address)
        waits, place = in_line(client, mine, monkeypatch), turn_of(client, mine)
        call, asked = client.cluster.call_in_turn, []

        def deposed(requests: Requests, deadline: Deadline) -> list[dict[str, Any]]:
            kept, answer = call(requests, deadline)
            asked.append(requests)
            return [kept, {**answer, "header": {**answer["header"], "raft_term": "999"}}]

        monkeypatch.setattr(client.cluster, "call_in_turn", deposed)
        eventually(lambda: len(asked) > 1)
        since = place._since
        eventually(lambda: len(asked) > 3)
        assert place._since == since
        monkeypatch.undo()
        backend.release(grant, timeout=LIMIT)
        waits.result()
        assert take(client, mine).token > grant.token

    def test_a_turn_whose_connection_is_closed_meanwhile_is_asked_for_again(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, start_proxy: Callable[..., Proxy]
    ) -> None:
        proxy = start_proxy(etcd_server)
        grant, mine, client = take(backend, claim()), claim(ttl=60.0), connect(proxy.address)
        waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
        backend.release(grant, timeout=LIMIT)
        waits.result()
        proxy.mode = "reset"
        eventually(lambda: proxy.is_idle)
        proxy.mode = "pass"
        assert take(client, mine).token == holder_of(backend).token

    def test_who_waited_is_shown_as_holder_since_the_grant(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        grant = take(backend, claim())
        mine = claim()
        client = connect(etcd_server.address)
        waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
        time.sleep(0.5)
        released = time.time()
        backend.release(grant, timeout=LIMIT)
        waits.result()
        later = take(client, mine)
        shown = holder_of(backend)
        assert shown.acquired_at is not None
        assert shown.acquired_at >= released - 0.01
        assert (shown.token, shown.owner) == (later.token, mine.owner)

    def test_a_wait_keeps_its_place_although_its_lease_is_short(self, backend: EtcdBackend, connect: Open) -> None:
        grant = take(backend, claim())
        mine = claim(ttl=TTL)
        backend.wait(mine, timeout=2.5 * TTL, interrupt=None)
        shown = backend.inspect("nightly", timeout=LIMIT).waiters
        assert shown is not None
        assert [waiter.pid for waiter in shown] == [mine.pid]
        assert shown[0].since is not None
        assert shown[0].since < time.time() - 2 * TTL
        backend.release(grant, timeout=LIMIT)
