"""A cluster of three members: any of them may die, sleep, or be cut off."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from tests.contract.harness import LIMIT, Background, claim, one_of, reader, refused, take
from tests.contract.keeping import holder_of
from tests.jobs import best_of_a_few, eventually
from tests.stores.etcd.claims import TTL, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.etcd.connection import Requests
    from lockctl.stores.etcd.lock import EtcdBackend
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.stream import Endpoint
    from tests.servers.etcd import EtcdCluster

    Open = Callable[..., EtcdBackend]


class TestMembers:
    """A cluster of three: any of them may fail."""

    def test_a_holder_outlives_the_death_of_any_member(self, etcd_three: EtcdCluster, connect: Open) -> None:
        client = connect(*etcd_three.addresses)
        grant = take(client, claim(ttl=10.0))
        leader = etcd_three.leader()
        leader.kill()
        try:

            def renewed() -> bool:
                try:
                    return client.renew(grant, timeout=0.9).token == grant.token
                except BackendUnavailable:
                    return False

            eventually(renewed, limit=8.0, pause=0.1)
            assert refused(connect(*etcd_three.addresses), claim())
        finally:
            leader.start()
        client.release(grant, timeout=LIMIT)

    def test_a_member_that_refuses_costs_nothing(self, etcd_three: EtcdCluster, connect: Open) -> None:
        etcd_three.members[0].kill()
        try:
            etcd_three.members[1].command("endpoint", "health")
            client = connect(*etcd_three.addresses)
            eventually(lambda: client.inspect("nightly", timeout=LIMIT).state == "free")

            def tenure() -> float:
                client = connect(*etcd_three.addresses)
                before = time.monotonic()
                client.release(take(client, claim()), timeout=LIMIT)
                return time.monotonic() - before

            best_of_a_few(tenure, 1.0)
        finally:
            etcd_three.members[0].start()

    def test_frozen_members_cost_a_renewal_only_a_part_of_its_time(
        self, etcd_three: EtcdCluster, connect: Open
    ) -> None:
        """The URL names the frozen one twice, as if two of five were: both are asked before another."""
        frozen, second, third = etcd_three.members
        client = connect(frozen.address, frozen.address, second.address, third.address)
        grant = take(connect(second.address, third.address), claim(ttl=10.0))
        frozen.pause()
        try:
            client.cluster.turn = 0
            assert client.renew(grant, timeout=6.0).token == grant.token
        finally:
            frozen.resume()

    def test_a_frozen_member_is_left_for_another_and_remembered(self, etcd_three: EtcdCluster, connect: Open) -> None:
        client = connect(*etcd_three.addresses)
        grant = take(client, claim())
        (follower, *_) = [member for member in etcd_three.members if member is not etcd_three.leader()]
        client.cluster.turn = etcd_three.members.index(follower)
        follower.pause()
        try:
            before = time.monotonic()
            assert client.renew(grant, timeout=3.0).token == grant.token
            assert time.monotonic() - before < 3.0

            def again() -> float:
                before = time.monotonic()
                assert client.renew(grant, timeout=3.0).token == grant.token
                return time.monotonic() - before

            best_of_a_few(again, 0.8)  # the frozen one would cost a third of its time
        finally:
            follower.resume()
        client.release(grant, timeout=LIMIT)

    def test_a_waiter_outlives_the_member_that_it_watches(self, etcd_three: EtcdCluster, connect: Open) -> None:
        (follower, *others) = [member for member in etcd_three.members if member is not etcd_three.leader()]
        others.append(etcd_three.leader())
        holding = connect(*(member.address for member in others))
        grant = take(holding, claim())
        client, mine = connect(follower.address, *(member.address for member in others)), claim(ttl=TTL)
        waiting_ = Background(lambda: client.wait(mine, timeout=30.0, interrupt=None))
        eventually(lambda: holding.inspect("nightly", timeout=LIMIT).waiters)
        follower.kill()
        try:
            time.sleep(2 * TTL)  # nobody but the waiter itself keeps its place
            assert waiting_.running
            holding.release(grant, timeout=LIMIT)
            waiting_.result(5.0)
            assert take(client, mine).token > grant.token
        finally:
            follower.start()

    def test_a_leader_that_slept_through_an_election_is_not_believed(
        self, etcd_three: EtcdCluster, connect: Open
    ) -> None:
        sleeper = etcd_three.leader()
        awake = connect(*(member.address for member in etcd_three.members if member is not sleeper))
        sleeper.pause()
        try:
            grant = eventually(functools.partial(attempt, awake))
        finally:
            sleeper.resume()
        told = connect(sleeper.address)
        for _ in range(20):  # at first it knows neither of the lease nor that it leads no more
            with contextlib.suppress(BackendUnavailable):
                assert told.renew(grant, timeout=0.3).token == grant.token
        awake.release(grant, timeout=LIMIT)

    @pytest.mark.parametrize("mine", [claim(), reader(), one_of(2)], ids=["alone", "reader", "slot"])
    @pytest.mark.parametrize("stale", [{"TTL": "0"}, {"header": {"raft_term": "1"}}], ids=["no lease", "old term"])
    def test_what_a_leader_says_that_was_deposed_is_neither_yes_nor_no(
        self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch, stale: dict[str, Any], mine: Claim
    ) -> None:
        """Such a leader needs a disk that hangs: its answer is made here from that of the real one."""
        grant = take(backend, mine)
        truly, wrong, asked = backend.cluster._connections.answers, iter([stale] * 2), 0

        def answers(member: Endpoint, requests: Requests, deadline: Deadline) -> list[Any]:
            nonlocal asked
            found: list[Any] = truly(member, requests, deadline)
            for number, (path, _) in enumerate(requests):
                if path.endswith("keepalive"):
                    asked += 1
                    found[number] = {**found[number], **next(wrong, {})}
            return found

        monkeypatch.setattr(backend.cluster._connections, "answers", answers)
        with pytest.raises(BackendUnavailable):
            backend.renew(grant, timeout=LIMIT)
        assert take(backend, mine).token == grant.token, "it asks until the answers agree"
        assert asked == 3, "the third answer is not stale any more"
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_minority_says_so_at_once(self, etcd_three: EtcdCluster, connect: Open) -> None:
        survivor, *others = etcd_three.members
        client = connect(survivor.address)
        grant = take(client, claim())
        for member in others:
            member.kill()
        try:

            def leaderless() -> bool:
                with pytest.raises(BackendUnavailable) as unknown:
                    client.renew(grant, timeout=0.9)
                return "no leader" in str(unknown.value)

            eventually(leaderless, pause=0.1)
            before = time.monotonic()
            with pytest.raises(BackendUnavailable):
                client.try_acquire(claim(), timeout=5.0)
            assert time.monotonic() - before < 4.0
        finally:
            for member in others:
                member.launch()
            for member in others:
                member.await_answer()
        eventually(lambda: holder_of(client).token == grant.token)
