"""What the tests of promises share: each runs once for every backend that it names, by its command or by its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_azblob import harness as azblob_harness
from tests.contract.test_consul import harness as consul_harness
from tests.contract.test_dynamodb import harness as dynamodb_harness
from tests.contract.test_etcd import harness as etcd_harness
from tests.contract.test_file import harness as file_harness
from tests.contract.test_gcs import harness as gcs_harness
from tests.contract.test_kubernetes import harness as kubernetes_harness
from tests.contract.test_memory import harness as memory_harness
from tests.contract.test_mysql import harness as mysql_harness
from tests.contract.test_nats import harness as nats_harness
from tests.contract.test_postgresql import harness as postgresql_harness
from tests.contract.test_redis import harness as redis_harness
from tests.contract.test_redlock import harness as redlock_harness
from tests.contract.test_s3 import harness as s3_harness
from tests.contract.test_sqlite import harness as sqlite_harness
from tests.contract.test_zookeeper import harness as zookeeper_harness
from tests.faults.conftest import backend_url, lockctl, place, servers

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from tests.contract.harness import Harness

__all__ = [
    "azblob_harness",
    "backend_url",
    "consul_harness",
    "dynamodb_harness",
    "etcd_harness",
    "file_harness",
    "gcs_harness",
    "kubernetes_harness",
    "lockctl",
    "memory_harness",
    "mysql_harness",
    "nats_harness",
    "place",
    "postgresql_harness",
    "redis_harness",
    "redlock_harness",
    "s3_harness",
    "servers",
    "sqlite_harness",
    "zookeeper_harness",
]


@pytest.fixture
def harness(backend_name: str, request: pytest.FixtureRequest) -> Harness:
    """An empty store of the backend of this round."""
    made: Harness = request.getfixturevalue(f"{backend_name}_harness")
    return made


@pytest.fixture
def backend(harness: Harness) -> Backend:
    """A client of the store."""
    return harness.client()


@pytest.fixture
def other(harness: Harness) -> Backend:
    """A second client of the same store."""
    return harness.client()
