"""What a lock in etcd costs, and what follows when a request was done and its answer was lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from tests.contract.harness import LIMIT, claim, one_of, reader, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.stores.etcd.claims import keys_of_locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd
    from tests.servers.proxy import Proxy

    Open = Callable[..., EtcdBackend]


class TestRequests:
    """What a lock costs."""

    @pytest.mark.parametrize("mine", [claim(), reader(), one_of(3)], ids=["alone", "reader", "slot"])
    def test_taking_and_giving_back_are_three_requests_on_one_connection(
        self, etcd_server: Etcd, connect: Open, start_proxy: Callable[..., Proxy], mine: Claim
    ) -> None:
        def handled() -> dict[str, float]:
            _, text = etcd_server.request("/metrics")
            found = re.findall(
                r'^grpc_server_handled_total\{grpc_code="OK",grpc_method="(\w+)".* (\S+)$', text, re.MULTILINE
            )
            return {method: float(count) for method, count in found}

        proxy = start_proxy(etcd_server)
        client = connect(proxy.address)
        first = connect(etcd_server.address)
        first.release(take(first, mine), timeout=LIMIT)  # which looks for the counter of the lock, that there is not
        before = handled()
        client.release(take(client, mine), timeout=LIMIT)
        after = handled()
        assert {
            method: after[method] - before.get(method, 0) for method in after if after[method] != before[method]
        } == {
            "LeaseGrant": 1,
            "Txn": 1,
            "LeaseRevoke": 1,
        }
        assert proxy.accepted == 1

    def test_nothing_is_left_after_a_release_that_followed_a_revocation(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        grant = take(backend, claim())
        revoke(backend, holder_of(backend))
        assert len(keys_of_locks(etcd_server, prefix)) == 2
        assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == ["nightly"]
        backend.release(grant, timeout=LIMIT)
        assert keys_of_locks(etcd_server, prefix) == []


class TestLostAnswers:
    """A request may have been done although no answer came."""

    @pytest.fixture
    def proxy(self, etcd_server: Etcd, start_proxy: Callable[..., Proxy]) -> Proxy:
        return start_proxy(etcd_server)

    @pytest.fixture
    def shaky(self, proxy: Proxy, connect: Open) -> EtcdBackend:
        return connect(proxy.address)

    def test_the_same_claim_finds_the_lease_whose_grant_was_not_answered(
        self, shaky: EtcdBackend, proxy: Proxy, backend: EtcdBackend
    ) -> None:
        mine = claim()
        proxy.mode = "drop_replies"
        with pytest.raises(BackendUnavailable):
            shaky.try_acquire(mine, timeout=0.3)
        proxy.mode = "pass"
        grant = take(shaky, mine)
        assert refused(backend, claim())
        assert shaky.renew(grant, timeout=LIMIT).token == grant.token

    @pytest.mark.parametrize("mine", [claim(), reader(), one_of(2)], ids=["alone", "reader", "slot"])
    def test_the_same_claim_finds_the_lock_whose_grant_was_not_answered(
        self, shaky: EtcdBackend, proxy: Proxy, backend: EtcdBackend, mine: Claim
    ) -> None:
        lost = take(shaky, mine)  # and then its answer never came
        proxy.mode = "drop_replies"
        with pytest.raises(BackendUnavailable):
            shaky.try_acquire(mine, timeout=0.3)
        proxy.mode = "pass"
        assert take(shaky, mine).token == lost.token

    def test_withdrawing_frees_a_lock_that_a_lost_answer_had_granted(
        self, shaky: EtcdBackend, proxy: Proxy, backend: EtcdBackend
    ) -> None:
        mine = claim()
        take(shaky, mine)
        proxy.mode = "drop_replies"
        with pytest.raises(BackendUnavailable):
            shaky.try_acquire(mine, timeout=0.3)
        proxy.mode = "pass"
        shaky.withdraw(mine, timeout=LIMIT)
        take(backend, claim())

    def test_a_release_that_is_late_never_ends_the_next_tenure_of_the_same_claim(
        self, shaky: EtcdBackend, proxy: Proxy, backend: EtcdBackend
    ) -> None:
        mine = claim()
        first = take(shaky, mine)
        proxy.mode = "blackhole"
        with pytest.raises(BackendUnavailable):
            shaky.release(first, timeout=0.3)
        proxy.mode = "pass"
        second = take(shaky, mine)
        assert second.token > first.token
        shaky.release(first, timeout=LIMIT)  # as when the request had been on its way all the time
        assert shaky.renew(second, timeout=LIMIT).token == second.token
        assert refused(backend, claim())
        shaky.release(second, timeout=LIMIT)
        take(backend, claim())
