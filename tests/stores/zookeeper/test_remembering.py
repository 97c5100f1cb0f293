"""Successes and runs of the past in ZooKeeper: bounded, and nothing that is written there breaks a look."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import clock, history
from lockctl.errors import BackendUnavailable
from lockctl.locks.native import LONGEST_PAUSE
from lockctl.stores.zookeeper import records
from lockctl.value import replace
from tests.contract.harness import LIMIT, take
from tests.contract.remembering import a_run
from tests.stores.zookeeper.test_kept import GARBAGE, kept

if TYPE_CHECKING:
    from tests.contract.test_zookeeper import ZooKeeperHarness
    from tests.stores.zookeeper.conftest import Asked


def test_garbage_instead_of_a_success_is_none(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    for number, data in enumerate((*GARBAGE, b"", b'{"at":"now"}', b'{"at":-1}', b'{"at":1e300}', b'{"at":NaN}')):
        name = f"lock{number}"
        harness.admin.create(f"{kept(harness, name)}/success", data, makepath=True)
        assert client.last_success(name, timeout=LIMIT) is None, data[:13]
        grant = take(client, harness.claim(name))
        assert client.last_success(name, timeout=LIMIT) is None
        client.note_success(grant, timeout=LIMIT)
        assert other.last_success(name, timeout=LIMIT) == grant.at


def test_a_success_after_the_session_has_ended_is_noted_in_another_or_refused(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim(ttl=5.0))
    client.note_success(grant, timeout=LIMIT)
    harness.expire(grant)
    noted = grant.at
    for _ in range(2):  # the first request may be the one that hears of it
        with contextlib.suppress(BackendUnavailable):
            client.note_success(replace(grant, at=grant.at + 7), timeout=LIMIT)
            noted = grant.at + 7
        assert client.last_success("nightly", timeout=LIMIT) == noted
    assert noted == grant.at + 7


def test_garbage_among_the_runs_is_left_out(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    client.remember("nightly", a_run(1), timeout=LIMIT)
    for data in (*GARBAGE, b""):
        harness.admin.create(f"{kept(harness)}/runs/other-", data, sequence=True)
    harness.admin.create(f"{kept(harness)}/runs/started-", b"garbage", sequence=True)
    harness.admin.create(f"{kept(harness)}/runs/started", b"")
    harness.admin.create(f"{kept(harness)}/runs/strange-0000000001", b"")
    assert client.history("nightly", timeout=LIMIT) == (a_run(1),)
    assert client.inspect("nightly", timeout=LIMIT).last_run == a_run(1)


def test_of_the_runs_no_more_nodes_stay_than_are_shown_and_a_few(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    runs = f"{kept(harness)}/runs"
    harness.admin.ensure_path(runs)
    for number in range(history.KEPT + 2 * records.SURPLUS):
        data = history.describe(a_run(number))
        harness.admin.create(f"{runs}/started-", data, sequence=True)
    client.remember("nightly", a_run(1000), timeout=LIMIT)
    client.remember("nightly", a_run(1001, started_at=None), timeout=LIMIT)
    assert len(harness.admin.get_children(runs)) == history.KEPT + 1
    shown = client.history("nightly", timeout=LIMIT)
    assert len(shown) == history.KEPT + 1
    assert shown[:2] == (a_run(1001, started_at=None), a_run(1000))
    most = 0
    for number in range(2 * records.SURPLUS):
        client.remember("nightly", a_run(2000 + number), timeout=LIMIT)
        most = max(most, len(harness.admin.get_children(runs)))
    assert most <= history.KEPT + 1 + records.SURPLUS


def test_a_run_that_a_release_added_without_an_answer_is_there_once(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.client()
    grant, add = take(client, harness.claim()), records.add_at_the_end
    run = a_run(token=grant.token)
    client.remember("nightly", a_run(), timeout=LIMIT)

    def unheard(*words: Any) -> bool:
        add(*words)
        raise BackendUnavailable("the answer was lost")

    monkeypatch.setattr(records, "add_at_the_end", unheard)
    assert not client.release_with_run(grant, run, timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (run, a_run()), "it was added"
    client.remember("nightly", run, timeout=LIMIT)
    assert client.history("nightly", timeout=LIMIT) == (run, a_run())


@pytest.mark.parametrize(("duration", "pauses"), [(0.1, 0), (60.0, 1)])
def test_after_a_longer_job_the_next_holder_goes_before_the_history(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, duration: float, pauses: int
) -> None:
    client, run = harness.client(), a_run(duration=duration)
    grant, next_grants = take(client, harness.claim()), []

    def pause(seconds: float, *_: Any) -> None:
        assert 0 < seconds <= LONGEST_PAUSE
        next_one = harness.client()
        assert next_one.history("nightly", timeout=LIMIT) == ()
        next_grants.append(take(next_one, harness.claim()))

    with monkeypatch.context() as patched:
        patched.setattr(clock, "pause", pause)
        assert client.release_with_run(grant, run, timeout=LIMIT)
    assert len(next_grants) == pauses
    assert harness.client().history("nightly", timeout=LIMIT) == (run,)


def test_looking_writes_nothing_and_nobody_looking_makes_a_node(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    assert client.history("nightly", timeout=LIMIT) == ()
    assert client.last_success("nightly", timeout=LIMIT) is None
    assert client.inspect("nightly", timeout=LIMIT).last_run is None
    assert harness.admin.exists(harness.root) is None


@pytest.mark.parametrize(("place", "trips"), [("as it was made", 2), ("deleted meanwhile", 3)])
def test_the_first_run_of_a_lock_is_added_in_the_session_that_had_it(
    harness: ZooKeeperHarness, asked: list[Asked], place: str, trips: int
) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    if "deleted" in place:
        harness.admin.delete(f"{kept(harness)}/runs")
    before = len(asked)
    assert client.release_with_run(grant, a_run(1), timeout=LIMIT)
    assert len(asked) - before == trips
    assert harness.line("nightly") == []
    assert harness.client().history("nightly", timeout=LIMIT) == (a_run(1),)
