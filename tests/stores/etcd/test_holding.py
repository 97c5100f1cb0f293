"""A lock in etcd that is kept after its job: in its own lease, without any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.stores.etcd import hold, layout
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.jobs import eventually
from tests.servers.etcd import Etcd
from tests.stores.etcd.claims import keys_of_locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Grant
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.proxy import Proxy

    Open = Callable[..., EtcdBackend]


def lease_of_hold(grant: Grant) -> str:
    return f"{layout.lease_id(grant.claim.owner, hold.HELD + grant.token):x}"


def left(client: EtcdBackend) -> float:
    seconds = holder_of(client).expires_in
    assert seconds is not None
    return seconds


class TestHold:
    """A hold ends with its lease, and with nothing else but an operator."""

    def test_it_keeps_key_and_token_and_nothing_of_the_lease_that_the_job_had(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        grant = take(backend, claim())
        revoke(backend, holder_of(backend))
        backend.release(grant, timeout=LIMIT, hold=60.0)
        (key,) = keys_of_locks(etcd_server, prefix)
        assert key.encode() == backend.layout.claim_key("nightly", layout.lease_id(grant.claim.owner, 0))
        shown = holder_of(backend)
        assert (shown.token, shown.acquired_at) == (grant.token, grant.at)
        assert 50.0 < left(backend) <= 60.0
        assert "already expired" in etcd_server.command("lease", "timetolive", key.rpartition("/")[2])

    def test_a_release_without_an_answer_is_done_again(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, start_proxy: Callable[..., Proxy]
    ) -> None:
        proxy = start_proxy(etcd_server)
        shaky = connect(proxy.address)
        grant = take(shaky, claim())
        proxy.mode = "drop_replies"
        with pytest.raises(BackendUnavailable):
            shaky.release(grant, timeout=0.3, hold=60.0)
        proxy.mode = "pass"
        assert holder_of(backend).ended_at is None
        shaky.release(grant, timeout=LIMIT, hold=60.0)
        assert holder_of(backend).ended_at is not None
        assert refused(backend, claim())

    def test_a_lock_that_was_taken_away_is_not_kept_and_its_successor_not_touched(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, prefix: str
    ) -> None:
        grant = take(backend, claim())
        etcd_server.command("del", f"{prefix}nightly/", "--prefix")
        other = connect(etcd_server.address)
        later = take(other, claim())
        backend.release(grant, timeout=LIMIT, hold=60.0)
        assert other.renew(later, timeout=LIMIT).token == later.token
        assert (holder_of(backend).token, holder_of(backend).ended_at) == (later.token, None)
        assert "already expired" in etcd_server.command("lease", "timetolive", lease_of_hold(grant))
        other.release(later, timeout=LIMIT)
        assert backend.inspect("nightly", timeout=LIMIT).state == "free"

    def test_it_outlives_a_crash_of_the_server(self, start_server: Callable[..., Etcd], connect: Open) -> None:
        server = start_server(Etcd)
        client = connect(server.address)
        grant = take(client, claim())
        client.release(grant, timeout=LIMIT, hold=60.0)
        server.kill()
        server.start()
        assert refused(client, claim())
        assert holder_of(client).token == grant.token
        assert revoke(client, holder_of(client), now=True) is not None
        assert "already expired" in server.command("lease", "timetolive", lease_of_hold(grant))
        take(client, claim())

    def test_it_begins_anew_when_the_server_does(self, start_server: Callable[..., Etcd], connect: Open) -> None:
        server = start_server(Etcd)
        client = connect(server.address)
        client.release(take(client, claim()), timeout=LIMIT, hold=60.0)
        eventually(lambda: left(client) < 58.0)
        server.kill()
        server.start()
        assert 58.0 < left(client) <= 60.0, "never too short, as the manual has it"

    def test_it_lasts_at_least_as_long_as_the_shortest_lease(self, backend: EtcdBackend) -> None:
        grant = take(backend, claim())
        backend.release(grant, timeout=LIMIT, hold=0.1)
        assert holder_of(backend).ended_at is not None
        assert left(backend) <= 2.0
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).state == "free", limit=4.0)


class TestClock:
    """When a lock was granted is said by the member that granted it."""

    def test_it_is_the_date_of_the_answer(self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        grant = take(backend, claim())
        assert grant.at == int(grant.at)
        assert backend.renew(grant, timeout=LIMIT).at == grant.at
        backend.release(grant, timeout=LIMIT)
        monkeypatch.setattr("lockctl.wire.answer.Response.date", 1_000_000_000.0)
        assert take(backend, claim()).at == 1_000_000_000.0
        assert take(backend, claim("other", mode="shared")).at == 1_000_000_000.0

    def test_without_a_date_it_is_our_own_clock(self, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lockctl.wire.answer.Response.date", None)
        monkeypatch.setattr(layout, "wall", lambda: 1234.5)
        assert take(backend, claim()).at == 1234.5
