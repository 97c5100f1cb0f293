"""Redis gives every holder a larger token than all before it, whatever is killed, restarted, deleted or failed over."""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import Claim
from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url
from tests.contract.remembering import a_run
from tests.jobs import LIMIT, eventually
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lockctl.model import Grant
    from tests.jobs import Lockctl

KEY = "lockctl:nightly"
FENCE = "{lockctl:nightly}:fence"
# a job that writes down its token and says when it is alone no more
JOB = 'mkdir "$0.inside" || echo overlap >> "$0"; echo "$LOCKCTL_TOKEN" >> "$0"; rmdir "$0.inside"'


@pytest.fixture
def durable(start_server: Callable[..., Any]) -> Redis:
    """A server of which nothing that it acknowledged is lost when it is killed."""
    server: Redis = start_server(Redis, fsync=True)
    return server


def grant_of(server: Redis) -> Grant:
    """A lock taken and given back, by a client of its own."""
    client = RedisBackend.from_url(parse_url(f"{server.url}/0"))
    claim = Claim("nightly", os.urandom(16).hex(), 5.0, "web3", os.getpid(), "ops", ("x",))

    def attempt() -> Grant | None:
        try:
            return client.try_acquire(claim, timeout=2.0)
        except BackendUnavailable:
            return None

    grant: Grant = eventually(attempt)
    client.release(grant, timeout=2.0)
    client.close()
    return grant


def rising(tokens: list[int]) -> bool:
    return all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_fifty_runs_one_after_the_other_get_rising_tokens(
    lockctl: Lockctl, redis_server: Redis, tmp_path: Path
) -> None:
    url, log = f"{redis_server.url}/0?prefix=s{os.urandom(6).hex()}:", tmp_path / "tokens"
    for _ in range(50):
        assert lockctl("run", "-l", "nightly", "-b", url, "--", "sh", "-c", JOB, str(log)).returncode == 0
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert rising(tokens)


def test_fifty_runs_that_contend_get_rising_tokens_and_are_never_inside_together(
    lockctl: Lockctl, redis_server: Redis, tmp_path: Path
) -> None:
    url, log = f"{redis_server.url}/0?prefix=c{os.urandom(6).hex()}:", tmp_path / "tokens"
    words = ["run", "-l", "nightly", "-b", url, "--wait", "60s", "--", "sh", "-c", JOB, str(log)]
    runs = [lockctl.start(*words, stderr=subprocess.PIPE) for _ in range(50)]
    assert [run.wait(timeout=90) for run in runs] == [0] * 50
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert rising(tokens)


def test_tokens_rise_when_each_holder_is_killed(lockctl: Lockctl, redis_server: Redis, tmp_path: Path) -> None:
    url, log = f"{redis_server.url}/0?prefix=k{os.urandom(6).hex()}:", tmp_path / "tokens"
    job = ["sh", "-c", 'echo "$LOCKCTL_TOKEN" >> "$0"; sleep 60', str(log)]
    for count in range(1, 4):
        words = ["run", "-l", "nightly", "-b", url, "--ttl", "1s", "--kill-after", "0", "--wait", "60s", "--", *job]
        holder = lockctl.start(*words)
        eventually(lambda count=count: log.exists() and log.read_text().count("\n") == count)  # type: ignore[misc]
        holder.kill()
        holder.wait(LIMIT)
    assert rising([int(line) for line in log.read_text().split()])


def _restart(server: Redis) -> None:
    server.restart()


def _kill(server: Redis) -> None:
    server.kill()
    server.start()


def _delete_lock(server: Redis) -> None:
    server.ask("DEL", KEY)


def _delete_counter(server: Redis) -> None:
    server.ask("DEL", FENCE)


def _flush(server: Redis) -> None:
    server.wipe()


def _set_back(server: Redis) -> None:
    server.ask("SET", FENCE, "1")


@pytest.mark.parametrize("harm", [_restart, _kill, _delete_lock, _delete_counter, _flush, _set_back])
def test_tokens_rise_over_what_servers_and_operators_do(durable: Redis, harm: Callable[[Redis], None]) -> None:
    tokens = []
    for _ in range(3):
        tokens += [grant_of(durable).token for _ in range(2)]
        harm(durable)
    tokens.append(grant_of(durable).token)
    assert rising(tokens)


def test_the_counter_alone_keeps_tokens_rising_when_the_clock_was_ahead(durable: Redis) -> None:
    before = grant_of(durable).token
    ahead = before + 3_600_000_000  # as if the server's clock had been an hour ahead until now
    durable.ask("SET", FENCE, str(ahead))
    tokens = [grant_of(durable).token, grant_of(durable).token]
    _kill(durable)
    tokens.append(grant_of(durable).token)
    assert tokens == [ahead + 1, ahead + 2, ahead + 3]


@pytest.fixture
def failing_over(start_server: Callable[..., Any]) -> Iterator[tuple[Redis, Redis]]:
    """A primary and its replica."""
    primary = start_server(Redis)
    return primary, start_server(Redis, replica_of=primary)  # type: ignore[return-value]


@pytest.mark.parametrize("caught_up", [True, False])
def test_tokens_rise_over_a_failover_also_to_a_replica_that_lacks_the_last_writes(
    failing_over: tuple[Redis, Redis], *, caught_up: bool
) -> None:
    primary, replica = failing_over
    tokens = [grant_of(primary).token, grant_of(primary).token]
    assert primary.ask("WAIT", "1", "5000", timeout=10.0) == 1
    if not caught_up:
        replica.ask("REPLICAOF", "NO", "ONE")
    tokens.append(grant_of(primary).token)
    if caught_up:
        assert primary.ask("WAIT", "1", "5000", timeout=10.0) == 1
    primary.stop()
    replica.ask("REPLICAOF", "NO", "ONE")
    tokens += [grant_of(replica).token for _ in range(2)]
    assert rising(tokens)


def test_what_is_kept_of_a_name_goes_a_year_after_its_last_use_and_no_token_gets_smaller(
    start_server: Callable[..., Any],
) -> None:
    server = start_server(Redis)
    grant = grant_of(server)
    client = RedisBackend.from_url(parse_url(server.url))
    client.note_success(grant, timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    client.close()
    kept = [key for key in server.ask("KEYS", "*") if b"nightly" in key]
    assert len(kept) == 3
    assert all(365 * 86400 < server.ask("TTL", key) <= 366 * 86400 for key in kept)
    server.ask("DEL", *kept)  # as after that year
    later = grant_of(server)
    assert later.token > grant.token
    # a clock that went back must not be what the next token comes from
    ahead = later.token + 366 * 86400 * 1_000_000
    server.ask("SET", FENCE, str(ahead))
    assert grant_of(server).token == ahead + 1
    assert server.ask("TTL", FENCE) == -1
