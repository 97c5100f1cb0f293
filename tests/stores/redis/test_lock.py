"""What only the Redis backend has: URLs, strange contents of a shared database, refusals, lost and late requests."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LockctlError
from lockctl.model import Grant, Revocation
from lockctl.registry import open_backend
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, claim, reader, take
from tests.contract.keeping import holder_of, revoke
from tests.jobs import eventually
from tests.promises.tokens import rising
from tests.servers.process import free_port
from tests.servers.redis import Redis, RedisSentinel
from tests.servers.replay import echo, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from lockctl.model import Claim
    from tests.jobs import Lockctl
    from tests.servers.proxy import Proxy

    StartServer = Callable[..., Any]


def client(url: str) -> RedisBackend:
    return RedisBackend.from_url(parse_url(url))


def test_no_text_of_an_address_shows_a_password() -> None:
    made = client("redis://ops:s3cret@h:1/2")
    assert "s3cret" not in repr(made._address)
    assert made._address.domain == "redis:h:1/2"


HOSTILE = [
    b"",
    b"|",
    b"||",
    b"x|5|",
    b'x|99999999999999999999|{"owner":"x"}',
    b'x|-5|{"owner":"x"}',
    b'x|5|{"owner":"another"}',
    b"x|5|" + b"[" * 5000,
    b"\xff\xfe" * 50_000,
    b'x|5|{"owner":"x","pid":"p","command":[{}],"ttl":1e999,"host":[],"acquired_at":-1}',
    b"x" * 1_000_000,
]


def test_a_strange_value_of_a_lock_is_a_lock_and_never_an_error(
    backend: RedisBackend, peer: redis.Redis, prefix: str
) -> None:
    for value in HOSTILE:
        peer.set(f"{prefix}nightly", value, px=30_000)
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert lock.state in {"foreign", "held"}, value[:50]
        assert [each.state for each in backend.list("*", timeout=LIMIT)] == [lock.state]
        assert backend.try_acquire(claim(), timeout=LIMIT) is None
        assert revoke(backend, lock.holders[0], now=True)
        backend.release(take(backend, claim()), timeout=LIMIT)


def test_a_lock_key_of_another_type_is_another_programs_lock(
    backend: RedisBackend, peer: redis.Redis, prefix: str
) -> None:
    key = f"{prefix}nightly"
    for command in (
        ("HSET", key, "owner:1", "1"),  # as Redisson does
        ("RPUSH", key, "x"),
        ("SADD", key, "x"),
        ("ZADD", key, "1", "x"),
        ("XADD", key, "*", "a", "b"),
    ):
        peer.execute_command(*command)
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.holders[0].expires_in) == ("foreign", None), command
        assert backend.try_acquire(claim(), timeout=LIMIT) is None
        with pytest.raises(LockctlError, match="another program"):
            revoke(backend, lock.holders[0])
        assert peer.exists(key)
        assert revoke(backend, lock.holders[0], now=True)
        assert not peer.exists(key)


def test_a_holder_by_redisson_is_known_by_its_field_as_often_as_it_enters(
    backend: RedisBackend, peer: redis.Redis, prefix: str
) -> None:
    key, now = f"{prefix}nightly", Revocation(now=True, by="ops", reason="")
    peer.hset(key, "client-a:1", "1")
    earlier = holder_of(backend)
    peer.delete(key)
    peer.hset(key, "client-b:1", "1")
    assert backend.revoke("nightly", earlier, now, timeout=LIMIT) is None
    later = holder_of(backend)
    peer.hincrby(key, "client-b:1", 1)
    assert backend.revoke("nightly", later, now, timeout=LIMIT) is not None
    assert not peer.exists(key)


def test_a_counter_that_is_no_number_of_ours_counts_as_lost(
    backend: RedisBackend, peer: redis.Redis, prefix: str
) -> None:
    fence, tokens = f"{{{prefix}nightly}}:fence", [tenure_of(backend)]
    for kept in (b"abc", b"-5", b"1e300", b"inf", b"nan", b"9" * 16, b"9" * 400, b"", None):
        peer.delete(fence)
        if kept is None:
            peer.rpush(fence, "x")
        else:
            peer.set(fence, kept)
        tokens += [tenure_of(backend), tenure_of(backend)]
    assert rising([*tokens, 1 << 53])


def tenure_of(backend: RedisBackend) -> int:
    """The token of one."""
    grant = take(backend, claim())
    backend.release(grant, timeout=LIMIT)
    return grant.token


@pytest.mark.parametrize("word", ["queue", "live", "who", "revoke"])
def test_a_companion_key_that_holds_something_else_is_named_or_passed_over(
    backend: RedisBackend, peer: redis.Redis, prefix: str, word: str
) -> None:
    peer.rpush(f"{{{prefix}nightly}}:{word}", "x")
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    try:
        grant = backend.try_acquire(claim(), timeout=LIMIT)
    except ConfigError as refused:
        assert "companion key" in str(refused)  # noqa: PT017
    else:
        assert grant is not None
        assert backend.renew(grant, timeout=LIMIT)
    with contextlib.suppress(ConfigError):
        backend.wait(claim(), timeout=0.2, interrupt=None)


def test_ten_thousand_locks_of_ours_and_of_others_are_listed_in_order_and_in_time(
    backend: RedisBackend, peer: redis.Redis, prefix: str
) -> None:
    with peer.pipeline(transaction=False) as many:
        for number in range(5000):
            many.set(f"{{{prefix}ours-{number:05}}}:fence", "5")
            many.set(f"{prefix}theirs-{number:05}", "x")
        many.set(f"{prefix}no lock's name", "x")
        many.set(f"{{{prefix}ours-00000}}:gone:x", "1")
        many.execute()
    before = time.monotonic()
    locks = list(backend.list("*", timeout=LIMIT))
    assert time.monotonic() - before < LIMIT
    assert [lock.name for lock in locks] == sorted(lock.name for lock in locks)
    assert [(lock.name, lock.state) for lock in (locks[0], locks[-1])] == [
        ("ours-00000", "free"),
        ("theirs-04999", "foreign"),
    ]
    assert len(locks) == 10_000
    peer.delete(*peer.scan_iter(f"*{prefix}*", count=5000))


def test_a_request_takes_one_connection_and_one_round_trip_also_the_first_one(
    redis_server: Redis, prefix: str, start_proxy: Callable[..., Proxy]
) -> None:
    known = client(f"{redis_server.url}/3?prefix={prefix}")
    known.release(take(known, claim()), timeout=LIMIT)  # the server knows the scripts now
    known.close()
    proxy = start_proxy(redis_server, "delay=0.4")
    slow = client(f"redis://{proxy.address}/3?prefix={prefix}")
    before = time.monotonic()
    grant = take(slow, claim())
    between = time.monotonic()
    slow.release(grant, timeout=LIMIT)
    assert between - before < 1.55
    assert time.monotonic() - between < 1.55
    assert proxy.accepted == 1
    slow.close()


def test_a_connection_that_the_server_closed_and_scripts_that_it_forgot_cost_nothing_but_time(
    backend: RedisBackend, peer: redis.Redis
) -> None:
    grant = take(backend, claim())
    peer.script_flush()
    assert backend.renew(grant, timeout=LIMIT)
    peer.client_kill_filter(_type="normal", skipme=True)
    assert backend.renew(grant, timeout=LIMIT)


@pytest.mark.parametrize(
    ("lines", "error", "said"),
    [
        (["maxmemory 1", "maxmemory-policy noeviction"], BackendUnavailable, "OOM"),
        (["min-replicas-to-write 1"], BackendUnavailable, "NOREPLICAS"),
        (["replicaof 127.0.0.1 1"], BackendUnavailable, "name the primary"),
        (["replicaof 127.0.0.1 1", "replica-serve-stale-data no"], BackendUnavailable, "MASTERDOWN"),
        (["cluster-enabled yes"], BackendUnavailable, "CLUSTERDOWN"),
        (["rename-command EVALSHA nothing"], ConfigError, "unknown command"),
        (["databases 1"], ConfigError, "DB index"),
        (["user default on nopass ~other:* +@all"], ConfigError, "NOPERM"),
    ],
)
def test_what_the_server_refuses_is_said_with_its_reason(
    start_server: StartServer, lines: list[str], error: type[LockctlError], said: str
) -> None:
    if lines == ["cluster-enabled yes"]:  # its own choice, 10000 above its port, is among those of the kernel's clients
        lines = [*lines, f"cluster-port {free_port()}"]
    server = start_server(PlainRedis, extra=lines)
    refused = client(f"{server.url}/{2 if lines == ['databases 1'] else 0}")
    with pytest.raises(error, match=said):
        refused.try_acquire(claim(), timeout=LIMIT)
    refused.close()


class PlainRedis(Redis):
    """A server that may be anything: it is there when it says PONG or gives an error."""

    def _answers(self) -> bool:
        with socket.create_connection((self.host, self.port), LIMIT) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in {b"+", b"-"}


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*2\r\n:1\r\n$-1\r\n",
        b"*2\r\n:1\r\n$3\r\nabc\r\n",
        b"*3\r\n:7\r\n*1\r\n+x\r\n:1\r\n",
        b"*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n",
        b"$99999999999\r\n",
        b"-ERR \x1b[2J something\r\n",
        b"-WEIRD\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
)
def test_whatever_answers_there_no_call_raises_anything_but_our_errors(reply: bytes) -> None:
    with _answering(reply) as port:
        strange = client(f"redis://127.0.0.1:{port}/0")
        held = claim()
        grant = None
        for call in (
            lambda: strange.try_acquire(held, timeout=1.0),
            lambda: strange.wait(held, timeout=0.2, interrupt=None),
            lambda: strange.inspect("nightly", timeout=1.0),
            lambda: list(strange.list("*", timeout=1.0)),
            lambda: strange.withdraw(held, timeout=1.0),
        ):
            try:
                grant = call()
            except LockctlError as error:
                assert str(error).isprintable()  # noqa: PT017
            assert grant is None or not hasattr(grant, "token"), "nothing was granted there"
        strange.close()


@pytest.mark.parametrize("scheme", ["redis", "redlock"])
def test_a_lease_is_not_renewed_by_what_only_gives_back_the_request(scheme: str) -> None:
    with contextlib.ExitStack() as ends:
        nodes = [ends.enter_context(listening(echo)) for _ in range(1 if scheme == "redis" else 3)]
        backend = open_backend(parse_url(f"{scheme}://{','.join(nodes)}/0"))
        ends.callback(backend.close)
        with pytest.raises(BackendUnavailable):
            backend.renew(Grant(claim(), 7, "redis", "nightly", 30.0, 1.0), timeout=LIMIT)


@contextlib.contextmanager
def _answering(reply: bytes) -> Iterator[int]:
    """A server that answers everything with the same bytes, or closes if there are none."""

    def answer(connection: socket.socket) -> None:
        while connection.recv(65536) and reply:
            connection.sendall(reply)

    with listening(answer) as address:
        yield int(address.rpartition(":")[2])


@pytest.mark.parametrize("wanted", [claim, reader])
def test_a_request_that_is_executed_after_it_was_given_up_leaves_no_lock(
    start_server: StartServer, wanted: Callable[..., Claim]
) -> None:
    server = start_server(Redis)
    late, given_up = client(server.url), wanted(ttl=30.0)
    late.release(take(late, wanted()), timeout=LIMIT)
    server.pause()
    try:
        with pytest.raises(BackendUnavailable):
            late.try_acquire(given_up, timeout=0.3)
        leaving = Background(lambda: late.withdraw(given_up, timeout=LIMIT))
        time.sleep(0.2)
    finally:
        server.resume()
    leaving.result()
    assert late.inspect("nightly", timeout=LIMIT).state == "free"
    # the same once more by hand: whatever comes of that owner now is refused
    assert late.try_acquire(given_up, timeout=LIMIT) is None
    take(late, claim())
    late.close()


def test_a_waiter_without_the_right_to_subscribe_looks_every_second(start_server: StartServer) -> None:
    server = start_server(Redis, password="s3cret", extra=["user narrow on >s3cret ~lockctl:* ~{lockctl:* +@all"])
    holder, waiting = client(server.url), client(f"redis://narrow:s3cret@{server.address}/0")
    grant, mine = take(holder, claim(ttl=30.0)), claim(ttl=30.0)
    wait = Background(lambda: waiting.wait(mine, timeout=LIMIT, interrupt=None))
    eventually(lambda: holder.inspect("nightly", timeout=LIMIT).waiters)
    holder.release(grant, timeout=LIMIT)
    wait.result(limit=2.5)
    waiting.release(take(waiting, mine), timeout=LIMIT)
    holder.close()
    waiting.close()


def test_a_unix_socket_serves_as_well(start_server: StartServer) -> None:
    server = start_server(Redis, unix=True)
    local, over_tcp = client(f"redis+unix://{server.socket}?db=1"), client(f"{server.url}/1")
    grant = take(local, claim())
    assert over_tcp.try_acquire(claim(), timeout=LIMIT) is None
    local.release(grant, timeout=LIMIT)
    local.close()
    over_tcp.close()


def test_a_lock_that_is_flushed_away_is_lost(start_server: StartServer) -> None:
    server = start_server(Redis)
    held = client(server.url)
    grant = take(held, claim())
    server.wipe()
    with pytest.raises(LeaseLost, match="ran out or was deleted"):
        held.renew(grant, timeout=LIMIT)
    held.close()


def test_sentinels_are_followed_to_the_next_primary_and_the_lock_with_its_token_is_there(
    start_server: StartServer,
) -> None:
    group = start_server(RedisSentinel)
    url = f"redis+sentinel://{','.join(group.sentinel_addresses)}/{group.name}?db=0"
    watched = client(url)
    grant = take(watched, claim(ttl=60.0))
    assert grant.domain == "redis:sentinel:main/0"
    group.primary.ask("WAIT", "1", "5000", timeout=10.0)
    group.primary.kill()
    kept = eventually(lambda: _renewed(watched, grant), limit=20.0)
    assert kept.token == grant.token
    watched.release(grant, timeout=LIMIT)
    assert take(watched, claim()).token > grant.token
    watched.close()


def test_who_waits_follows_the_sentinels_from_a_host_that_has_died(start_server: StartServer, lockctl: Lockctl) -> None:
    group = start_server(RedisSentinel)
    for sentinel in group.sentinels:  # they are asked before they have seen it
        sentinel.ask("SENTINEL", "SET", group.name, "down-after-milliseconds", "2000")
    group.primary.pause()  # nothing is refused, and nothing answered
    url = f"redis+sentinel://{','.join(group.sentinel_addresses)}/{group.name}"
    done = lockctl("run", "-l", "nightly", "-b", url, "--wait", "1m", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def _renewed(backend: RedisBackend, grant: Any) -> Any:
    try:
        return backend.renew(grant, timeout=1.0)
    except BackendUnavailable:
        return None


def test_sentinels_out_of_reach_cost_no_more_than_the_time_that_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away = client(f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/main")
        before = time.monotonic()
        with pytest.raises(BackendUnavailable):
            away.try_acquire(claim(), timeout=0.7)
        assert time.monotonic() - before < LIMIT / 2


def test_sentinels_are_asked_in_turn_and_those_that_are_down_or_silent_passed_over(start_server: StartServer) -> None:
    group = start_server(RedisSentinel)
    group.sentinels[0].pause()
    group.sentinels[1].kill()
    watched = client(f"redis+sentinel://{','.join(group.sentinel_addresses)}/main")
    watched.release(take(watched, claim()), timeout=LIMIT)
    watched.close()


def test_a_server_that_has_answered_is_not_taken_for_one_that_wants_tls(
    redis_server: Redis, prefix: str, start_proxy: Callable[..., Proxy]
) -> None:
    proxy = start_proxy(redis_server)
    backend = client(f"redis://{proxy.address}/0?prefix={prefix}")
    grant = take(backend, claim())
    proxy.mode = "reset"  # the connection that it has
    proxy.mode, before = "blackhole", proxy.accepted
    renewing = Background(lambda: backend.renew(grant, timeout=LIMIT))
    eventually(lambda: proxy.accepted > before)
    time.sleep(0.1)  # its request was sent
    proxy.mode = "reset"
    with pytest.raises(BackendUnavailable, match="reset") as known:
        renewing.result()
    assert "TLS" not in str(known.value)
    proxy.mode = "pass"
    backend.release(grant, timeout=LIMIT)
    backend.close()
