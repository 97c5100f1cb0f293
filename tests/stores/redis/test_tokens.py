"""The token of Redis rises over a failover, with a clock that was ahead, and after its counter has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.contract.remembering import a_run
from tests.jobs import LIMIT
from tests.promises.tokens import rising, tenure
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FENCE = "{lockctl:nightly}:fence"


def test_the_counter_alone_keeps_tokens_rising_when_the_clock_was_ahead(start_server: Callable[..., Any]) -> None:
    server = start_server(Redis, fsync=True)
    before = tenure(server.url).token
    ahead = before + 3_600_000_000  # as if the server's clock had been an hour ahead until now
    server.ask("SET", FENCE, str(ahead))
    tokens = [tenure(server.url).token, tenure(server.url).token]
    server.kill()
    server.start()
    tokens.append(tenure(server.url).token)
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
    tokens = [tenure(primary.url).token, tenure(primary.url).token]
    assert primary.ask("WAIT", "1", "5000", timeout=10.0) == 1
    if not caught_up:
        replica.ask("REPLICAOF", "NO", "ONE")
    tokens.append(tenure(primary.url).token)
    if caught_up:
        assert primary.ask("WAIT", "1", "5000", timeout=10.0) == 1
    primary.stop()
    replica.ask("REPLICAOF", "NO", "ONE")
    tokens += [tenure(replica.url).token for _ in range(2)]
    assert rising(tokens)


def test_what_is_kept_of_a_name_goes_a_year_after_its_last_use_and_no_token_gets_smaller(
    start_server: Callable[..., Any],
) -> None:
    server = start_server(Redis)
    grant = tenure(server.url)
    client = open_backend(parse_url(server.url))
    client.note_success(grant, timeout=LIMIT)
    client.remember("nightly", a_run(), timeout=LIMIT)
    client.close()
    kept = [key for key in server.ask("KEYS", "*") if b"nightly" in key]
    assert len(kept) == 3
    assert all(365 * 86400 < server.ask("TTL", key) <= 366 * 86400 for key in kept)
    server.ask("DEL", *kept)  # as after that year
    later = tenure(server.url)
    assert later.token > grant.token
    # a clock that went back must not be what the next token comes from
    ahead = later.token + 366 * 86400 * 1_000_000
    server.ask("SET", FENCE, str(ahead))
    assert tenure(server.url).token == ahead + 1
    assert server.ask("TTL", FENCE) == -1
