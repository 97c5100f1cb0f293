"""Redlock gives every holder a larger token than all before it, whatever happens to a minority, or to all at once."""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import Claim
from lockctl.stores.redlock.lock import RedlockBackend
from lockctl.url import parse_url
from tests.jobs import LIMIT, eventually
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lockctl.model import Grant
    from tests.jobs import Lockctl

FENCE = "{lockctl:nightly}:fence"
JOB = 'mkdir "$0.inside" || echo overlap >> "$0"; echo "$LOCKCTL_TOKEN" >> "$0"; rmdir "$0.inside"'


def url_of(servers: list[Redis], **params: str) -> str:
    query = "&".join(f"{name}={content}" for name, content in params.items())
    return f"redlock://{','.join(server.address for server in servers)}/0" + (f"?{query}" if query else "")


def grant_of(servers: list[Redis]) -> Grant:
    """A lock taken and given back, by a client of its own."""
    client = RedlockBackend.from_url(parse_url(url_of(servers)))
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


@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "contending"])
def test_fifty_runs_get_rising_tokens_and_are_never_inside_together(
    lockctl: Lockctl, redis_five: list[Redis], tmp_path: Path, *, together: bool
) -> None:
    url, log = url_of(redis_five, prefix=f"t{os.urandom(6).hex()}:"), tmp_path / "tokens"
    words = ["run", "-l", "nightly", "-b", url, "--wait", "90s", "--", "sh", "-c", JOB, str(log)]
    if together:
        runs = [lockctl.start(*words, stderr=subprocess.PIPE) for _ in range(50)]
        assert [run.wait(timeout=100) for run in runs] == [0] * 50
    else:
        assert [lockctl(*words).returncode for _ in range(50)] == [0] * 50
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert rising(tokens)


def test_tokens_rise_when_each_holder_is_killed(lockctl: Lockctl, redis_five: list[Redis], tmp_path: Path) -> None:
    url, log = url_of(redis_five, prefix=f"t{os.urandom(6).hex()}:"), tmp_path / "tokens"
    job = ["sh", "-c", 'echo "$LOCKCTL_TOKEN" >> "$0"; sleep 60', str(log)]
    for count in range(1, 4):
        words = ["run", "-l", "nightly", "-b", url, "--ttl", "1s", "--kill-after", "0", "--wait", "60s", "--", *job]
        holder = lockctl.start(*words)
        eventually(lambda count=count: log.exists() and log.read_text().count("\n") == count)  # type: ignore[misc]
        holder.kill()
        holder.wait(LIMIT)
    assert rising([int(line) for line in log.read_text().split()])


@pytest.fixture
def three(start_server: Callable[..., Any]) -> list[Redis]:
    """Three servers that may be harmed."""
    return [start_server(Redis, fsync=True) for _ in range(3)]


def _kill_and_restart(servers: list[Redis]) -> None:
    for server in servers:
        server.kill()
        server.start()


def _flush(servers: list[Redis]) -> None:
    for server in servers:
        server.wipe()


def _forget_counters(servers: list[Redis]) -> None:
    for server in servers:
        server.ask("DEL", FENCE)


@pytest.mark.parametrize("harmed", [1, 3])
@pytest.mark.parametrize("harm", [_kill_and_restart, _flush, _forget_counters])
def test_tokens_rise_over_what_servers_and_operators_do(
    three: list[Redis], harm: Callable[[list[Redis]], None], harmed: int
) -> None:
    tokens = []
    for number in range(3):
        tokens += [grant_of(three).token for _ in range(2)]
        harm([three[(number + each) % 3] for each in range(harmed)])
    tokens.append(grant_of(three).token)
    assert rising(tokens)


def test_tokens_rise_when_the_majority_is_another_one_each_time_and_one_nodes_clock_is_ahead(
    three: list[Redis],
) -> None:
    tokens = [grant_of(three).token]
    three[0].ask("SET", FENCE, str(tokens[0] + 3_600_000_000))  # as after an hour with a clock ahead
    tokens.append(grant_of(three).token)
    assert tokens[1] > tokens[0] + 3_600_000_000
    for away in (0, 1, 2, 0):
        three[away].stop()
        tokens += [grant_of(three).token for _ in range(2)]
        three[away].start()
    assert rising(tokens), "a majority without that node had taken the large token over"
