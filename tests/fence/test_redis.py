"""Marks in Redis: the contract, and what only Redis can do to a mark."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import LARGEST, Stale
from tests.contract.test_redis import wipe
from tests.fence.contract import DOMAIN, LIMIT, Client, mark
from tests.fence.lock_servers import LockServerContract, ServedFenceHarness, store_at
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl

PASSWORD = "s3cret"
MANUAL = Path(__file__).parents[2] / "man/text/lockctl-fence.1.txt"
(RIGHTS,) = re.findall(r"Redis needs `([^`]+)`", MANUAL.read_text())


class RedisHarness(ServedFenceHarness):
    """See there."""

    def __init__(self, server: Redis) -> None:
        super().__init__(server)
        self.prefix = f"f{os.urandom(6).hex()}:"
        self.peer = redis.Redis(server.host, server.port, retry=None, socket_timeout=LIMIT)  # type: ignore[arg-type]

    def url(self, address: str | None = None) -> str:
        return f"redis://{address or self.proxy.address}/0?prefix={self.prefix}"

    def key(self, resource: str) -> str:
        return f"{self.prefix}{{{resource}}}"

    def stored(self, key: str) -> bytes | None:
        found = self.peer.get(key)
        assert found is None or isinstance(found, bytes)
        return found

    def put(self, key: str, content: bytes) -> None:
        self.peer.set(key, content)

    def close(self) -> None:
        super().close()
        wipe(self.peer, self.prefix)
        self.peer.close()


@pytest.fixture
def harness(redis_server: Redis) -> Iterator[RedisHarness]:
    made = RedisHarness(redis_server)
    yield made
    made.close()


@pytest.fixture
def private(start_server: Callable[..., Any]) -> Redis:
    """A server that the test may harm."""
    server = start_server(Redis, fsync=True)
    assert isinstance(server, Redis)
    return server


class TestRedis(LockServerContract):
    """Every promise."""

    def test_a_mark_never_expires(self, harness: RedisHarness, client: Client) -> None:
        key = harness.key("stock")
        for token in (33, 33, 34):
            client.advance(mark(token))
            assert harness.peer.ttl(key) == -1
            harness.peer.expire(key, 1000)
        client.reset(mark(7))
        assert harness.peer.ttl(key) == -1

    def test_a_key_of_another_type_is_left_alone_until_a_reset(self, harness: RedisHarness, client: Client) -> None:
        key = harness.key("stock")
        harness.peer.rpush(key, "s3cret")
        for step in (lambda: client.advance(mark(34)), client.current):
            with pytest.raises(ConfigError, match="holds a list, and no mark"):
                step()
        assert harness.peer.lrange(key, 0, -1) == [b"s3cret"]
        assert client.reset(None) is None
        assert client.advance(mark(34)) == mark(34)

    @pytest.mark.parametrize("length", range(1, 20))
    def test_digits_of_every_length_are_compared_exactly(self, client: Client, length: int) -> None:
        """The script has no whole numbers of 64 bits."""
        least = 10 ** (length - 1)
        most = min(10**length - 1, LARGEST)
        for lower, higher in ((least, least + 1), (most - 1, most), (most, min(most + 1, LARGEST))):
            client.reset(mark(higher))
            assert client.accepts(mark(lower)) is (lower == higher)
            assert client.accepts(mark(higher))
            client.reset(mark(lower))
            assert client.accepts(mark(higher))
            assert client.current() == mark(higher)


def test_the_key_is_what_the_manual_says(private: Redis) -> None:
    with store_at(f"redis://{private.address}/0") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
    assert private.command("GET", "lockctl-fence:{stock}") == f"{DOMAIN};33"


def test_a_unix_socket_and_another_database(start_server: Callable[..., Any]) -> None:
    server = start_server(Redis, unix=True)
    with store_at(f"redis+unix://{server.socket}?db=3") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
    with store_at(f"redis://{server.address}/3") as store:
        assert store.current("stock", timeout=LIMIT) == mark(33)
    with store_at(f"redis://{server.address}/0") as store:
        assert store.current("stock", timeout=LIMIT) is None


def test_a_server_that_writes_to_disk_keeps_the_mark_when_it_is_killed(private: Redis) -> None:
    with store_at(f"redis://{private.address}/0") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
        private.kill()
        private.start()
        with pytest.raises(Stale):
            store.advance("stock", mark(32), timeout=LIMIT)


def test_a_server_that_may_forget_marks_is_refused(private: Redis) -> None:
    for limit, policy, allowed in (
        ("0", "allkeys-lru", True),
        ("100mb", "noeviction", True),
        ("100mb", "volatile-lru", True),
        ("100mb", "allkeys-lru", False),
        ("100mb", "allkeys-random", False),
    ):
        private.command("CONFIG", "SET", "maxmemory-policy", policy)
        private.command("CONFIG", "SET", "maxmemory", limit)
        private.wipe()
        with store_at(f"redis://{private.address}/0") as store:
            if allowed:
                store.advance("stock", mark(33), timeout=LIMIT)
                continue
            for step in (store.advance, store.reset):
                with pytest.raises(ConfigError, match="maxmemory-policy") as told:
                    step("stock", mark(33), timeout=LIMIT)
                assert "\n" not in str(told.value)
            assert store.current("stock", timeout=LIMIT) is None
            assert store.reset("stock", None, timeout=LIMIT) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "appendonly is no"),
        (["save 60 1"], "appendonly is no"),
        (["appendonly yes", "appendfsync everysec"], "appendfsync is everysec"),
        (["appendonly yes", "appendfsync always"], ""),
    ],
)
def test_a_server_that_can_lose_marks_is_refused_where_correctness_is_asked_for(
    start_server: Callable[..., Any], lockctl: Lockctl, lines: list[str], said: str
) -> None:
    server = start_server(Redis, extra=lines)
    words = ["run", "-l", "a", "--fence", f"redis://{server.address}/0?resource=stock"]
    done = lockctl(*words, "--guarantee", "correctness", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == ((78, "") if said else (0, "ran\n")), done.stderr
    assert said in done.stderr
    assert lockctl(*words, "--", "true").returncode == 0
    if "appendonly no" in said:
        server.kill()
        server.start()
        with store_at(f"redis://{server.address}/0") as store:
            assert store.current("stock", timeout=LIMIT) is None


def test_a_full_memory_refuses_new_marks_and_old_tokens(private: Redis) -> None:
    with store_at(f"redis://{private.address}/0") as store:
        store.advance("stock", mark(33), timeout=LIMIT)
        private.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(BackendUnavailable, match=r"OOM .*maxmemory'?\.$"):
            store.advance("stock", mark(34), timeout=LIMIT)
        assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
        with pytest.raises(Stale):
            store.advance("stock", mark(32), timeout=LIMIT)
        private.command("CONFIG", "SET", "maxmemory", "0")
        assert store.advance("stock", mark(34), timeout=LIMIT) == mark(34)


def test_a_replica_is_never_written_to(private: Redis, start_server: Callable[..., Any]) -> None:
    replica = start_server(Redis, replica_of=private)
    with (
        store_at(f"redis://{replica.address}/0") as store,
        pytest.raises(BackendUnavailable, match="name the primary"),
    ):
        store.advance("stock", mark(34), timeout=LIMIT)


def test_users_without_the_rights_or_the_password(start_server: Callable[..., Any], tmp_path: Path) -> None:
    users = [
        f"user elsewhere on >{PASSWORD} ~other:* +@all",
        f"user reader on >{PASSWORD} ~lockctl-fence:* +@read +@scripting",
        f"user writer on >{PASSWORD} {RIGHTS}",
        f"user silent on >{PASSWORD} ~lockctl-fence:* +evalsha +eval +type +getrange",
    ]
    server = start_server(Redis, password=PASSWORD, fsync=True, extra=users)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    file = f"?password_file={tmp_path / 'password'}"
    for login, params, problem in (
        ("", "", "wants a password"),
        ("writer:wr0ng@", "", "does not accept"),
        ("elsewhere@", file, r"NOPERM.*it may not use a key: .*~PREFIX\* .*lockctl-fence:"),
        ("reader@", file, r"NOPERM.*it may not run a command of a script: .*lockctl-fence\(1\)"),
        ("silent@", file, r"NOPERM.*it may not run a command of a script"),
        ("writer@", file, ""),  # what the manual says
    ):
        with store_at(f"redis://{login}{server.address}/0{params}") as store:
            if problem:
                with pytest.raises(ConfigError, match=problem) as told:
                    store.advance("stock", mark(33), timeout=LIMIT)
                assert "\n" not in str(told.value)
                assert PASSWORD not in str(told.value)
                assert "wr0ng" not in str(told.value)
            else:
                assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
                assert store.reset("stock", None, timeout=LIMIT) == mark(33)
                store.check_durable(timeout=LIMIT)
    with (
        store_at(f"redis://silent@{server.address}/0{file}") as store,
        pytest.raises(ConfigError, match=r"it cannot be seen .*\(NOPERM\).*\+config\|get"),
    ):
        store.check_durable(timeout=LIMIT)
