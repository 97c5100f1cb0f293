"""What lockctl promises to do in a time, on every backend: these tests run alone, and the best of a few tries counts."""

from __future__ import annotations

from tests.promises.conftest import (
    backend,
    backend_url,
    consul_harness,
    dynamodb_harness,
    etcd_harness,
    file_harness,
    harness,
    lockctl,
    memory_harness,
    mysql_harness,
    nats_harness,
    other,
    place,
    postgresql_harness,
    redis_harness,
    redlock_harness,
    s3_harness,
    servers,
    sqlite_harness,
    zookeeper_harness,
)

__all__ = [
    "backend",
    "backend_url",
    "consul_harness",
    "dynamodb_harness",
    "etcd_harness",
    "file_harness",
    "harness",
    "lockctl",
    "memory_harness",
    "mysql_harness",
    "nats_harness",
    "other",
    "place",
    "postgresql_harness",
    "redis_harness",
    "redlock_harness",
    "s3_harness",
    "servers",
    "sqlite_harness",
    "zookeeper_harness",
]
