"""A prefix of each test's own in a shared Redis server, clients there, and redis-py beside them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import redis

from lockctl.stores.redis.lock import RedisBackend
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.redis import Redis

    Connect = Callable[[], RedisBackend]


@pytest.fixture
def prefix() -> str:
    return f"s{os.urandom(6).hex()}:"


@pytest.fixture
def key(prefix: str) -> str:
    return f"{prefix}nightly"


@pytest.fixture
def connect(redis_server: Redis, prefix: str) -> Iterator[Connect]:
    """A call that makes a client."""
    made: list[RedisBackend] = []

    def new() -> RedisBackend:
        made.append(RedisBackend.from_url(parse_url(f"{redis_server.url}/0?prefix={prefix}")))
        return made[-1]

    yield new
    for client in made:
        client.close()


@pytest.fixture
def backend(connect: Connect) -> RedisBackend:
    return connect()


@pytest.fixture
def peer(redis_server: Redis) -> Iterator[redis.Redis]:
    made = redis.Redis(redis_server.host, redis_server.port, retry=None)  # type: ignore[arg-type]
    yield made
    made.close()
