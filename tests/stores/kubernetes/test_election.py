"""lockctl, leader election of client-go and kubectl exclude each other. What client-go asks for is asked here."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.model import Revocation
from lockctl.stores.kubernetes.cell import KubernetesCells
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of
from tests.jobs import eventually
from tests.servers.kubernetes import Kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend

LEASE = 15  # seconds
WHOLE = KubernetesCells.clock_error + 1.0  # seconds after the end of a lease at which it has surely ended


class Elector:
    """One that runs ``LeaderElector.tryAcquireOrRenew`` of client-go with a ``LeaseLock``."""

    def __init__(self, server: Kubernetes, name: str, identity: str = "pod-a_1234") -> None:
        self.server, self.name, self.identity = server, name, identity
        self.observed: dict[str, Any] = {}
        self.observed_at = 0.0
        self.now = 0.0  # its own clock, in seconds from anywhere

    def spec(self, **changed: object) -> dict[str, Any]:
        now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = {"holderIdentity": self.identity, "leaseDurationSeconds": LEASE, "acquireTime": now, "renewTime": now}
        return {**mine, "leaseTransitions": 0, **changed}

    def attempt(self) -> bool:
        """Acquire or renew; whether it leads now."""
        status, lease = self.server.ask("GET", self.name)
        if status == 404:
            meta = {"name": self.name, "namespace": "locks"}
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": self.spec()}
            return bool(self.server.ask("POST", "", made)[0] == 201)
        record = lease["spec"]
        if record != self.observed:
            self.observed, self.observed_at = record, self.now
        leads = record.get("holderIdentity") == self.identity
        valid = self.observed_at + (record.get("leaseDurationSeconds") or 0) > self.now
        if record.get("holderIdentity") and valid and not leads:
            return False
        moves = record.get("leaseTransitions") or 0
        new = self.spec(leaseTransitions=moves if leads else moves + 1)
        if leads:
            new["acquireTime"] = record["acquireTime"]
        return self.update({**lease, "spec": new})

    def release(self) -> bool:
        _, lease = self.server.ask("GET", self.name)
        moves = lease["spec"]["leaseTransitions"]
        new = self.spec(holderIdentity="", leaseDurationSeconds=1, leaseTransitions=moves)
        return self.update({**lease, "spec": new})

    def update(self, lease: dict[str, Any]) -> bool:
        status, made = self.server.ask("PUT", self.name, lease)
        if status == 200:
            self.observed, self.observed_at = made["spec"], self.now
        return bool(status == 200)


@pytest.fixture
def kubernetes_server(start_server: Callable[..., Any]) -> Kubernetes:
    """One whose clock is put forward."""
    made: Kubernetes = start_server(Kubernetes)
    return made


@pytest.fixture
def word() -> str:
    return f"election-{os.urandom(6).hex()}"


@pytest.fixture
def backend(kubernetes_server: Kubernetes, word: str, opened: Callable[[str], Any]) -> Backend:
    made: Backend = opened(kubernetes_server.behind(kubernetes_server.address, word))
    return made


@pytest.fixture
def elector(kubernetes_server: Kubernetes, word: str) -> Elector:
    return Elector(kubernetes_server, f"{word}.nightly")


def test_a_lock_of_ours_keeps_an_elector_out_until_it_is_released(backend: Backend, elector: Elector) -> None:
    grant = take(backend, claim(ttl=30.0))
    assert not elector.attempt()
    assert elector.observed["holderIdentity"].startswith(f"{grant.claim.host}_")
    elector.now += 29.0
    assert not elector.attempt(), "the length of the lease is in the record"
    before = elector.observed
    eventually(lambda: backend.renew(grant, timeout=LIMIT) and not elector.attempt() and elector.observed != before)
    elector.now += 29.0
    assert not elector.attempt(), "each renewal changes the record"
    backend.release(grant, timeout=LIMIT)
    assert elector.attempt()
    assert elector.observed["leaseTransitions"] == 2


def test_an_elector_may_take_what_we_have_not_renewed_and_the_loss_is_found(backend: Backend, elector: Elector) -> None:
    grant = take(backend, claim(ttl=30.0))
    assert not elector.attempt()
    elector.now += 30.0 + WHOLE + 1.0
    assert elector.attempt()
    with pytest.raises(Exception, match="another program"):
        backend.renew(grant, timeout=LIMIT)
    backend.release(grant, timeout=LIMIT)
    assert elector.attempt(), "what is left of ours does not disturb the elector"
    assert refused(backend, claim())


def test_a_leader_keeps_us_out_until_it_releases(backend: Backend, elector: Elector) -> None:
    assert elector.attempt()
    for _ in range(3):
        assert refused(backend, claim())
        assert elector.attempt(), "what is noted in the object does not disturb the leader"
    assert backend.inspect("nightly", timeout=LIMIT).state == "foreign"
    assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == ["nightly"]
    assert elector.release()
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    grant = take(backend, claim())
    assert not Elector(elector.server, elector.name, "pod-b").attempt()
    backend.release(grant, timeout=LIMIT)


def test_a_leader_that_is_gone_has_led_when_its_record_stood_still_for_its_lease(
    backend: Backend, elector: Elector, kubernetes_server: Kubernetes, word: str, opened: Callable[[str], Any]
) -> None:
    assert elector.attempt()
    assert refused(backend, claim())
    kubernetes_server.pass_time(LEASE - 1)
    assert refused(backend, claim())
    assert elector.attempt(), "it was renewed at the last moment"
    kubernetes_server.pass_time(LEASE - 1)
    assert refused(backend, claim()), "what was observed is of another record"
    kubernetes_server.pass_time(LEASE + WHOLE)
    other: Backend = opened(kubernetes_server.behind(kubernetes_server.address, word))
    take(other, claim())  # what was observed is in the object, not in the process that did
    assert not elector.attempt()


def test_a_leader_can_be_put_out_while_it_renews_and_not_in_the_place_of_an_earlier_one(
    backend: Backend, elector: Elector
) -> None:
    now = Revocation(now=True, by="ops", reason="")
    assert elector.attempt()
    earlier = holder_of(backend)
    assert elector.release()
    assert elector.attempt()
    assert backend.revoke("nightly", earlier, now, timeout=LIMIT) is None
    leading = holder_of(backend)
    before = elector.observed
    eventually(lambda: elector.attempt() and elector.observed != before)
    least = backend.revoke("nightly", leading, now, timeout=LIMIT)
    assert least is not None
    assert take(backend, claim()).token >= least
    assert not elector.attempt()


def test_tokens_rise_over_leaders_and_deletion_by_hand(
    backend: Backend, elector: Elector, kubernetes_server: Kubernetes
) -> None:
    tokens = []
    for _ in range(2):
        grant = take(backend, claim())
        tokens.append(grant.token)
        backend.release(grant, timeout=LIMIT)
        assert elector.attempt()
        assert elector.release()
        grant = take(backend, claim())
        tokens.append(grant.token)
        assert kubernetes_server.kubectl("delete", "lease", elector.name).returncode == 0
    assert tokens == sorted(set(tokens))


def test_a_lease_that_kubectl_made_keeps_us_out_until_it_is_deleted(
    backend: Backend, elector: Elector, kubernetes_server: Kubernetes
) -> None:
    made = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": elector.name},
        "spec": {"holderIdentity": "operator"},
    }
    created = kubernetes_server.kubectl("create", "--validate=false", "-f", "-", given=json.dumps(made))
    assert created.returncode == 0, created.stderr
    assert refused(backend, claim())
    kubernetes_server.pass_time(3600)
    assert refused(backend, claim()), "it names no length: it ends by hand alone"
    assert kubernetes_server.kubectl("delete", "lease", elector.name).returncode == 0
    take(backend, claim())
    again = kubernetes_server.kubectl("create", "--validate=false", "-f", "-", given=json.dumps(made))
    assert "already exists" in again.stderr
    shown = kubernetes_server.kubectl("get", "lease", elector.name, "-o", "jsonpath={.spec.holderIdentity}")
    assert shown.stdout.startswith(os.uname().nodename)
