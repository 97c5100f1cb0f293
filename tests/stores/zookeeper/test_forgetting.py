"""Names in ZooKeeper that nobody uses any more: what goes, what stays, and what comes in between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable
from lockctl.stores.zookeeper import prune
from tests.contract.forgetting import forget, unused, use
from tests.contract.harness import LIMIT, take
from tests.contract.remembering import a_run
from tests.jobs import eventually
from tests.stores.zookeeper.test_kept import kept

if TYPE_CHECKING:
    from lockctl.stores.zookeeper.session import Session
    from lockctl.wire.deadline import Deadline
    from tests.contract.test_zookeeper import ZooKeeperHarness


def test_nothing_of_a_name_stays(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    grant = take(client, harness.claim())
    client.note_success(grant, timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    client.remember("nightly", a_run(1, started_at=None), timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    take_again = take(client, harness.claim())
    client.release(take_again, timeout=LIMIT, hold=0.1)
    eventually(lambda: unused(client) == ["nightly"])
    assert forget(client)
    assert harness.admin.get_children(harness.root) == [".kept"]
    assert harness.admin.get_children(f"{harness.root}/.kept") == []


def test_a_lock_without_any_run_goes_too(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT)
    assert unused(client) == ["nightly"]
    assert unused(client, older_than=3600.0) == []
    assert not forget(client, older_than=3600.0)
    assert forget(client)
    assert harness.admin.get_children(harness.root) == [".kept"]
    assert harness.admin.get_children(f"{harness.root}/.kept") == []


def test_a_counter_ahead_of_the_clock_is_not_forgotten(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    use(harness, client)
    ahead = int((time.time() + 3600) * 1_000_000)
    harness.admin.set(kept(harness), b'{"last":%d}' % ahead)
    assert unused(client) == []
    assert not forget(client)
    assert take(client, harness.claim()).token == ahead + 1


def test_more_runs_than_one_transaction_can_remove(harness: ZooKeeperHarness) -> None:
    client = harness.client()
    use(harness, client)
    for _ in range(2 * history.KEPT + 50):
        harness.admin.create_async(f"{kept(harness)}/runs/started-", b"", sequence=True)
    harness.admin.create(f"{kept(harness)}/runs/strange", b"")
    assert forget(client)
    assert harness.admin.get_children(f"{harness.root}/.kept") == []


def test_the_lock_of_a_kazoo_program_goes_on_to_work(harness: ZooKeeperHarness) -> None:
    theirs = harness.admin.Lock(f"{harness.root}/nightly", "another program")
    with theirs:
        pass
    client = harness.client()
    assert unused(client) == [], "lockctl has nothing of it"
    assert not forget(client)
    use(harness, client)
    assert unused(client) == ["nightly"]
    assert forget(client)
    assert unused(client) == []
    with theirs:
        assert not forget(client)


def test_nodes_of_other_programs_below_the_root_are_left_alone(harness: ZooKeeperHarness) -> None:
    harness.admin.create(f"{harness.root}/config", b"theirs", makepath=True)
    harness.admin.create(f"{harness.root}/flag", b"")
    client = harness.client()
    assert unused(client) == []
    for name in ("config", "flag"):
        client.remember(name, a_run(), timeout=LIMIT)
        assert forget(client, name)
        assert harness.admin.exists(f"{harness.root}/{name}")


@pytest.mark.parametrize("seen", ["with a node", "without"])
@pytest.mark.parametrize("late", ["a run", "a success", "a holder", "a hold"])
def test_a_use_between_the_look_and_the_removal_keeps_all_of_it(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch, late: str, seen: str
) -> None:
    client, other = harness.client(), harness.client()
    before = use(harness, other)
    if seen == "without":
        harness.admin.delete(f"{harness.root}/nightly")

    def come(_session: Session, _name: str, runs: list[str] | None, _deadline: Deadline) -> list[str] | None:
        if late == "a run":
            other.remember("nightly", a_run(1), timeout=LIMIT)
        elif late == "a success":
            other.note_success(before, timeout=LIMIT)
        else:
            grant = take(other, harness.claim(ttl=30.0))
            if late == "a hold":
                other.release(grant, timeout=LIMIT, hold=60.0)
        return runs

    if late == "a success":  # the same one is no news
        harness.admin.set(f"{kept(harness)}/success", b"{}")
    monkeypatch.setattr(prune, "_without_surplus", come)
    assert not forget(client)
    assert a_run() in other.history("nightly", timeout=LIMIT)
    assert other.last_success("nightly", timeout=LIMIT) == before.at


def test_an_answer_that_is_lost_does_no_harm(harness: ZooKeeperHarness) -> None:
    client, other = harness.client(), harness.client()
    use(harness, client)
    with harness.lost_transaction(client), pytest.raises(BackendUnavailable):
        client.forget("nightly", older_than=0.0, timeout=1.0)
    eventually(lambda: unused(other) == [])
    assert other.history("nightly", timeout=LIMIT) == ()
    use(harness, other)
    assert not forget(client, older_than=3600.0)


def test_what_time_it_is_here_does_not_decide(harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    client = harness.client()
    use(harness, client)
    monkeypatch.setattr(prune, "wall", lambda: 4e9)
    assert unused(client, older_than=3600.0) == ["nightly"], "a look does not know the leader's time"
    assert not forget(client, older_than=3600.0)
    assert client.last_success("nightly", timeout=LIMIT) is not None
