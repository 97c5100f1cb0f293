"""What a majority of Redlock's nodes keeps of a lock when nobody holds it, and the modes that it does not have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import SHARED
from lockctl.stores.redlock import tally
from lockctl.value import replace
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.remembering import a_run
from tests.jobs import eventually

if TYPE_CHECKING:
    from tests.servers.redis import Redis
    from tests.stores.redlock.conftest import Scene


def test_readers_that_a_single_node_has_keep_out_as_another_program_does(scene: Scene) -> None:
    client = scene.client()
    alone = [scene.single(number) for number in range(3)]
    grants = [take(each, claim(mode=SHARED)) for each in alone]
    assert client.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert refused(client, claim())
    assert [each.renew(grant, timeout=LIMIT).token for each, grant in zip(alone, grants, strict=True)] == [
        grant.token for grant in grants
    ]


def test_a_grant_has_the_time_of_the_servers(scene: Scene) -> None:
    client = scene.client()
    before = max(_time_of(server) for server in scene.servers)
    grant = take(client, claim())
    assert before <= grant.at <= min(_time_of(server) for server in scene.servers)


@pytest.mark.parametrize(
    "clocks",
    [[100.2, 100.0, 100.1], [0.0, 100.2, 100.1], [9e9, 100.1, 100.2, 100.0], [9e9, 0.0, 100.0, 9e8, 100.1, 100.2, 0.0]],
)
def test_a_clock_that_is_wrong_does_not_decide_when_a_grant_was(clocks: list[float]) -> None:
    assert 100.0 <= tally.middle(clocks) <= 100.2


def _time_of(server: Redis) -> float:
    seconds, microseconds = server.ask("TIME")
    return int(seconds) + int(microseconds) / 1e6


def test_a_hold_is_kept_by_a_majority_whichever_minority_is_away(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    grant = take(client, claim(ttl=4.0))
    scene.cut(0, 1, mode="refuse")
    client.release(grant, timeout=LIMIT, hold=60.0)
    scene.cut(3, 4, mode="refuse")
    holder = holder_of(other)
    assert (holder.owner, holder.token) == (grant.claim.owner, grant.token)
    assert holder.ended_at is not None
    assert refused(other, claim())
    scene.cut()
    eventually(lambda: scene.where() == [2, 3, 4])
    assert refused(other, claim())
    lock = other.inspect("nightly", timeout=LIMIT)
    assert 50 < (lock.holders[0].expires_in or 0) <= 60
    with pytest.raises(LockctlError, match="--now"):
        revoke(other, lock.holders[0])
    floor = revoke(other, lock.holders[0], now=True)
    assert floor is not None
    assert grant.token < floor <= take(other, claim()).token


def test_a_hold_that_only_a_minority_took_is_said(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    scene.cut(0, 1, 2, mode="refuse")
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes"):
        client.release(grant, timeout=1.0, hold=60.0)


def test_a_hold_frees_a_node_whose_lock_never_got_the_token(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    value = scene.servers[4].ask("GET", scene.key)
    stale = value.replace(f"|{grant.token}|".encode(), b"|5|")
    scene.servers[4].ask("SET", scene.key, stale, "PX", "60000")
    client.release(grant, timeout=LIMIT, hold=60.0)
    eventually(lambda: scene.where() == [0, 1, 2, 3])


def test_the_latest_success_is_known_to_every_majority(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    grant = take(client, claim(ttl=60.0))
    client.note_success(grant, timeout=LIMIT)
    eventually(lambda: scene.where("success") == [0, 1, 2, 3, 4])
    scene.cut(0, 1, mode="refuse")
    later = replace(grant, at=grant.at + 50)
    client.note_success(later, timeout=LIMIT)
    for away in ((), (0, 1), (2, 3), (3, 4)):
        scene.cut(*away, mode="refuse")
        assert other.last_success("nightly", timeout=LIMIT) == pytest.approx(later.at, abs=1e-5)
    scene.cut(0, 1, 2, mode="refuse")
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes noted the success"):
        client.note_success(grant, timeout=1.0)
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes answered"):
        other.last_success("nightly", timeout=1.0)


def test_runs_that_were_remembered_without_a_minority_are_put_together_and_each_is_there_once(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    for number, away in enumerate([(), (0, 1), (3, 4), (1, 2)]):
        scene.cut(*away, mode="refuse")
        client.remember("nightly", a_run(number), timeout=LIMIT)
    scene.cut()
    eventually(lambda: scene.where("runs") == [0, 1, 2, 3, 4])
    for away in ((), (0, 1), (3, 4)):
        scene.cut(*away, mode="refuse")
        assert [run.token for run in other.history("nightly", timeout=LIMIT)] == [44, 43, 42, 41]
        assert other.inspect("nightly", timeout=LIMIT).last_run == a_run(3)
    assert list(other.list("*", timeout=LIMIT)) == []
    scene.cut(0, 1, 2, mode="refuse")
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes remembered the run"):
        client.remember("nightly", a_run(9), timeout=1.0)
    with pytest.raises(BackendUnavailable, match="2 of 5 nodes answered"):
        other.history("nightly", timeout=1.0)


def test_runs_of_hosts_whose_clocks_differ_stay_in_the_order_in_which_they_ended(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    behind = [a_run(number, token=None, ended_at=1_790_000_000.0 - number) for number in range(6)]
    refusals = [replace(run, started_at=None, duration=None, outcome="held") for run in behind]
    for number, (run, refusal) in enumerate(zip(behind, refusals, strict=True)):
        scene.cut(number % 5, mode="refuse")
        client.remember("nightly", run, timeout=LIMIT)
        client.remember("nightly", refusal, timeout=LIMIT)
    scene.cut()
    kept = other.history("nightly", timeout=LIMIT)
    assert [run for run in kept if run.started] == behind[::-1]
    assert [run for run in kept if not run.started] == refusals[::-1]
    ahead = a_run(7, ended_at=1.0)
    scene.cut(0, 1, mode="refuse")
    client.remember("nightly", ahead, timeout=LIMIT)
    scene.cut()
    assert other.inspect("nightly", timeout=LIMIT).last_run == ahead


def test_a_history_is_bounded_also_where_each_node_has_another_one(scene: Scene) -> None:
    for number in range(5):
        alone = scene.single(number)
        for count in range(history.KEPT // 2):
            alone.remember("nightly", a_run(1000 * count + number), timeout=LIMIT)
        scene.servers[number].ask("LPUSH", f"{{{scene.key}}}:runs", b"\xff" * 10_000)
    kept = scene.client().history("nightly", timeout=LIMIT)
    assert len(kept) == history.KEPT
    ended = [run.ended_at or 0.0 for run in kept]
    assert ended == sorted(ended, reverse=True)
    assert ended[0] > a_run(1000 * (history.KEPT // 2 - 1)).ended_at  # type: ignore[operator]


def test_a_minority_that_is_silent_costs_little_time(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    scene.cut(1, 3, mode="blackhole")
    before = time.monotonic()
    client.note_success(grant, timeout=LIMIT)
    client.last_success("nightly", timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    client.history("nightly", timeout=LIMIT)
    client.release(grant, timeout=LIMIT, hold=1.0)
    assert time.monotonic() - before < 3.0


def test_nodes_that_are_full_are_named_and_those_that_are_no_majority_are_not_missed(scene: Scene) -> None:
    client = scene.client()
    grant = take(client, claim(ttl=60.0))
    try:
        for number, server in enumerate(scene.servers[:3]):
            server.ask("CONFIG", "SET", "maxmemory", "1")
            if number == 1:
                client.note_success(grant, timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="OOM"):
            client.note_success(replace(grant, at=grant.at + 1), timeout=LIMIT)
        with pytest.raises(BackendUnavailable, match="OOM"):
            client.remember("nightly", a_run(), timeout=LIMIT)
        client.release(grant, timeout=LIMIT, hold=60.0)
        assert holder_of(client).ended_at is not None
    finally:
        for server in scene.servers[:3]:
            server.ask("CONFIG", "SET", "maxmemory", "0")
