"""Keys that anybody may have written below the prefix."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import LeaseRevoked, LockctlError
from lockctl.model import Revocation
from lockctl.stores.etcd import inspect, layout
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of, revoke

if TYPE_CHECKING:
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd


HOSTILE = {
    "nothing": b"",
    "no JSON": b"\xff\xfe\x00",
    "a number": b"1e999",
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "deep objects": b'{"owner":' * 20_000,
    "large": b"x" * 1_000_000,
    "an owner of no kind": b'{"owner":{"a":1}}',
    "an empty owner": b'{"owner":""}',
    "not a constant": b'{"owner":"x","pid":NaN}',
}
ODD = {
    "wrong types": b'{"owner":"o","host":1,"pid":"x","user":[],"command":{"a":1},"mode":2,"acquired_at":"y","ttl":[]}',
    "impossible times": b'{"owner":"o","acquired_at":1e300,"ttl":-1,"since":1e300}',
    "words of no kind": b'{"owner":"o","command":[1,null,{"a":"\\u001b[2J"}]}',
}


class TestHostileKeys:
    """Whoever may write below the prefix can write anything, and hurts nobody but who wants this lock."""

    def test_what_is_not_ours_is_foreign_and_can_be_taken_away(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        for value in HOSTILE.values():
            etcd_server.write(f"{prefix}nightly/anything", value)
            lock = backend.inspect("nightly", timeout=LIMIT)
            assert lock.state == "foreign", value[:50]
            assert [each.state for each in backend.list("*", timeout=LIMIT)] == ["foreign"]
            assert refused(backend, claim())
            with pytest.raises(LockctlError):
                revoke(backend, lock.holders[0])
            floor = revoke(backend, lock.holders[0], now=True)
            assert floor is not None
            grant = take(backend, claim())
            assert grant.token >= floor
            backend.release(grant, timeout=LIMIT)

    @pytest.mark.parametrize("value", [b"another program's", b'{"owner":"o","since":1.0}'], ids=["foreign", "waiter"])
    def test_who_is_taken_away_and_has_no_token_leaves_those_of_later_grants_above_all_before(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, value: bytes
    ) -> None:
        grant = take(backend, claim())
        backend.release(grant, timeout=LIMIT)
        etcd_server.write(f"{prefix}nightly/anything", value)
        seen, wanted = holder_of(backend), Revocation(now=True, by="ops", reason="")
        assert seen.token is None
        assert backend.revoke("nightly", seen, wanted, timeout=LIMIT) == grant.token + 1

    def test_what_looks_like_ours_is_shown_as_far_as_it_makes_sense(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        for value in ODD.values():
            etcd_server.write(f"{prefix}nightly/anything", value)
            shown = holder_of(backend)
            assert (shown.owner, shown.host, shown.pid, shown.acquired_at) == ("o", None, None, None)
            with pytest.raises(LockctlError, match="lease"):
                revoke(backend, shown)
            assert revoke(backend, shown, now=True) is not None

    def test_hostile_places_in_the_queue_are_waiters_of_whom_nothing_is_known(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        take(backend, claim())
        for number, value in enumerate((*HOSTILE.values(), *ODD.values())):
            etcd_server.write(f"{prefix}nightly/{number}", value)
        waiters = backend.inspect("nightly", timeout=LIMIT).waiters
        assert waiters is not None
        assert len(waiters) == len(HOSTILE) + len(ODD)
        assert {waiter.pid for waiter in waiters} == {None}

    def test_a_request_to_give_back_that_makes_no_sense_is_none(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        mine = claim()
        grant = take(backend, mine)
        key = backend.layout.revocation("nightly", b"/%x" % backend.lease_of(mine)).decode()
        for value in (*HOSTILE.values(), b'{"owner":"another","by":"x"}'):
            etcd_server.write(key, value)
            assert backend.renew(grant, timeout=LIMIT).token == grant.token
        etcd_server.write(key, b'{"owner":"%s","by":5,"reason":"\\u001b[2J"}' % mine.owner.encode())
        with pytest.raises(LeaseRevoked) as told:
            backend.renew(grant, timeout=LIMIT)
        assert (told.value.by, told.value.reason.isprintable()) == ("an unknown operator", True)

    def test_other_keys_below_the_prefix_are_no_locks(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        for key in ("plain", "/a", "bad name/a", ".revoke/x/1", "-x/a", "x" * 201 + "/a", "\N{SNOWMAN}/a"):
            etcd_server.write(prefix + key, b"x")
        assert list(backend.list("*", timeout=LIMIT)) == []
        take(backend, claim("plain"))

    def test_locks_of_many_pages_are_listed_in_order(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inspect, "PAGE", 300)
        names = [f"{prefix}job-{number:05d}/1".encode() for number in range(1000)]
        random.shuffle(names)
        for some in itertools.zip_longest(*[iter(names)] * 100):
            puts: list[dict[str, Any]] = [layout.put(name, b'{"owner":"o"}', 0) for name in some]
            status, answer = etcd_server.request("/v3/kv/txn", {"success": puts})
            assert status == 200, answer
        listed = [lock.name for lock in backend.list("*", timeout=LIMIT)]
        assert listed == [f"job-{number:05d}" for number in range(1000)]
