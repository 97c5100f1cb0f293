"""What Redis keeps of a lock when nobody holds it: holds that late requests cannot end, successes, runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.model import EXCLUSIVE, SHARED, SLOT
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from lockctl.value import replace
from tests.contract.harness import LIMIT, claim, refused, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.remembering import a_run
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers.proxy import Proxy

    StartServer = Callable[..., Any]

REFUSAL = a_run(outcome="held", started_at=None, duration=None)


@pytest.fixture
def url(redis_server: Redis, prefix: str) -> str:
    return f"{redis_server.url}/0?prefix={prefix}"


@pytest.fixture
def other(connect: Callable[[], RedisBackend]) -> RedisBackend:
    return connect()


def test_only_an_operator_who_means_it_ends_a_hold_also_one_who_looked_before_it_began(
    backend: RedisBackend, other: RedisBackend
) -> None:
    grant = take(backend, claim())
    before = holder_of(other)
    backend.release(grant, timeout=LIMIT, hold=60.0)
    with pytest.raises(LockctlError, match="--now"):
        revoke(other, holder_of(other))
    assert revoke(other, before) is None, "nobody is there who could be asked"
    assert refused(other, claim())
    floor = revoke(other, before, now=True)
    assert floor is not None
    assert grant.token < floor <= take(other, claim()).token


def test_a_server_whose_memory_is_full_holds_and_frees_and_says_what_it_cannot_remember(
    start_server: StartServer,
) -> None:
    server = start_server(Redis)
    backend = RedisBackend.from_url(parse_url(server.url))
    grants = [take(backend, replace(claim(), name=name)) for name in ("held", "freed", "doubted")]
    server.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(BackendUnavailable, match="OOM"):
        backend.remember("held", a_run(), timeout=LIMIT)
    with pytest.raises(BackendUnavailable, match="OOM"):
        backend.note_success(grants[0], timeout=LIMIT)
    assert backend.history("held", timeout=LIMIT) == ()
    assert backend.last_success("held", timeout=LIMIT) is None
    backend.release(grants[0], timeout=LIMIT, hold=60.0)
    backend.release(grants[1], timeout=LIMIT)
    backend._doubted.add(grants[2].claim.owner)  # as if a request of it could still be on its way
    backend.release(grants[2], timeout=LIMIT, hold=1.0)
    assert backend.inspect("held", timeout=LIMIT).holders[0].ended_at is not None
    assert 55_000 < server.ask("PTTL", "lockctl:held") <= 60_000
    assert server.ask("EXISTS", "lockctl:freed") == 0
    assert 0 < server.ask("PTTL", "lockctl:doubted") <= 1000
    assert server.ask("EXISTS", f"{{lockctl:doubted}}:gone:{grants[2].claim.owner}") == 1
    server.ask("CONFIG", "SET", "maxmemory", "0")
    backend.remember("held", a_run(), timeout=LIMIT)
    backend.close()


@pytest.mark.parametrize("patterns", ["%R~{lockctl:*", "~{lockctl:nightly}:[fqlwhg]* ~{lockctl:nightly}:revoke"])
def test_a_user_who_may_not_remember_can_lock_all_the_same(start_server: StartServer, patterns: str) -> None:
    rights = f"~lockctl:* {patterns} &{{lockctl:* +@all -@admin -@dangerous"
    server = start_server(Redis, password="s3cret", extra=[f"user narrow on >s3cret {rights}"])
    backend = RedisBackend.from_url(parse_url(f"redis://narrow:s3cret@{server.address}/0"))
    if not patterns.startswith("%R"):
        grant = take(backend, claim())
        with pytest.raises(ConfigError, match="NOPERM"):
            backend.note_success(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT, hold=0.1)
    with pytest.raises(ConfigError, match="NOPERM"):
        backend.remember("nightly", a_run(), timeout=LIMIT)
    assert server.ask("KEYS", "*runs") == []
    backend.close()


def test_a_success_that_is_no_time_counts_as_never(backend: RedisBackend, peer: redis.Redis, key: str) -> None:
    grant = take(backend, claim())
    for text in (b"", b"x", b"nan", b"inf", b"-5", b"1e300", b"1_0_", b"\xff", b"9" * 100_000):
        peer.set(f"{{{key}}}:success", text)
        assert backend.last_success("nightly", timeout=LIMIT) is None, text[:10]
        backend.note_success(grant, timeout=LIMIT)
        assert backend.last_success("nightly", timeout=LIMIT) == pytest.approx(grant.at, abs=1e-5)


def test_a_grant_has_the_time_of_the_server(backend: RedisBackend, peer: redis.Redis) -> None:
    for mode, slots in ((EXCLUSIVE, 1), (SHARED, 1), (SLOT, 3)):
        before = peer.time()
        grant = take(backend, claim(mode=mode, slots=slots))
        after = peer.time()
        assert before[0] + before[1] / 1e6 <= grant.at <= after[0] + after[1] / 1e6
        assert grant.token >= int(grant.at * 1_000_000) - 1
        backend.release(grant, timeout=LIMIT)


@pytest.mark.parametrize("word", ["runs", "refused", "success"])
def test_a_key_that_holds_something_else_is_named_and_does_not_touch_the_lock(
    backend: RedisBackend, peer: redis.Redis, key: str, word: str
) -> None:
    peer.zadd(f"{{{key}}}:{word}", {"x": 1.0})
    grant = take(backend, claim())
    assert backend.inspect("nightly", timeout=LIMIT).last_run is None
    calls: list[Callable[[], Any]] = [
        lambda: backend.history("nightly", timeout=LIMIT),
        lambda: backend.remember("nightly", REFUSAL if word == "refused" else a_run(), timeout=LIMIT),
    ]
    if word == "success":
        calls = [lambda: backend.last_success("nightly", timeout=LIMIT)]
    for call in calls:
        with pytest.raises(ConfigError, match="companion key"):
            call()
    assert peer.type(f"{{{key}}}:{word}") in {b"zset", b"string"}
    backend.release(grant, timeout=LIMIT)


def test_runs_that_are_none_are_passed_over(backend: RedisBackend, peer: redis.Redis, key: str) -> None:
    backend.remember("nightly", a_run(), timeout=LIMIT)
    for text in (b"", b"x", b"{}", b'{"outcome":5}', b"[" * 50_000, b"\xff" * 100_000, b"[1]"):
        peer.lpush(f"{{{key}}}:runs", text)
        peer.rpush(f"{{{key}}}:refused", text)
        assert backend.inspect("nightly", timeout=LIMIT).last_run is None
    assert backend.history("nightly", timeout=LIMIT) == (a_run(),)
    assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == []


def test_a_history_is_as_long_as_it_may_be_and_ends_a_year_after_its_last_run(
    backend: RedisBackend, peer: redis.Redis, key: str
) -> None:
    for number in range(history.KEPT + 5):
        backend.remember("nightly", a_run(number), timeout=LIMIT)
        backend.remember("nightly", replace(REFUSAL, ended_at=float(number)), timeout=LIMIT)
    for word in ("runs", "refused"):
        assert peer.llen(f"{{{key}}}:{word}") == history.KEPT
        assert history.AGE - 60 < peer.ttl(f"{{{key}}}:{word}") <= history.AGE
    assert backend.history("nightly", timeout=LIMIT)[0] == a_run(history.KEPT + 4)
    assert peer.ttl(f"{{{key}}}:success") == -2


def test_a_run_whose_answer_was_lost_and_that_is_sent_again_is_remembered_once(
    redis_server: Redis, prefix: str, backend: RedisBackend, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(redis_server, "drop_replies")
    cut = RedisBackend.from_url(parse_url(f"redis://{proxy.address}/0?prefix={prefix}"))
    with pytest.raises(BackendUnavailable):
        cut.remember("nightly", a_run(), timeout=0.3)
    assert backend.history("nightly", timeout=LIMIT) == (a_run(),)
    proxy.mode = "pass"
    cut.remember("nightly", a_run(), timeout=LIMIT)
    assert backend.history("nightly", timeout=LIMIT) == (a_run(),)
    cut.close()


def test_what_is_remembered_costs_one_round_trip_each(
    redis_server: Redis, prefix: str, backend: RedisBackend, start_proxy: Callable[..., Proxy]
) -> None:
    grant = take(backend, claim())
    backend.inspect("nightly", timeout=LIMIT)
    backend.note_success(grant, timeout=LIMIT)
    backend.remember("nightly", a_run(), timeout=LIMIT)
    backend.release(grant, timeout=LIMIT, hold=0.001)  # the server knows the scripts now
    proxy = start_proxy(redis_server, "delay=0.4")
    slow = RedisBackend.from_url(parse_url(f"redis://{proxy.address}/0?prefix={prefix}"))
    calls: list[Callable[[], Any]] = [
        lambda: slow.note_success(grant, timeout=LIMIT),
        lambda: slow.last_success("nightly", timeout=LIMIT),
        lambda: slow.remember("nightly", a_run(), timeout=LIMIT),
        lambda: slow.history("nightly", timeout=LIMIT),
        lambda: slow.inspect("nightly", timeout=LIMIT),
        lambda: slow.release(grant, timeout=LIMIT, hold=1.0),
    ]
    for call in calls:
        before = time.monotonic()
        call()
        assert time.monotonic() - before < 1.55
    assert proxy.accepted == 1
    slow.close()
