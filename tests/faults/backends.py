"""The backends that the tests of faults, fleets and promises run on, with places for their locks.

A new backend gets an entry in ``PLACES``, and in ``TWINS`` if its lock is that of ``CellBackend``. Its server, its contract and
what harms it are elsewhere: step 9 of CONTRIBUTING.md names all places.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.servers import azurite, kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Place(NamedTuple):
    """Where a backend keeps its locks, and how fast it frees them. Times in seconds."""

    # the URL of a place for locks that nobody else uses, given the addresses of the servers (or of proxies
    # before them), a word that nobody else uses, and an empty directory
    url: Callable[[Sequence[str], str, Path], str]
    servers: str = ""  # the fixture of the server or servers
    ttl: float = 2.0  # a short lease
    freed_within: float = 2.0  # after the last renewal of that lease
    is_leased: bool = True  # else the kernel holds the lock for the processes of the job


PLACES: dict[str, Place] = {
    "file": Place(lambda _, __, directory: f"file://{directory}", ttl=1.5, freed_within=0.0, is_leased=False),
    "redis": Place(lambda at, word, _: f"redis://{at[0]}/0?prefix={word}:", "redis_server"),
    "redlock": Place(
        lambda at, word, _: f"redlock://{','.join(at)}/0?prefix={word}:", "redis_five", ttl=3.0, freed_within=3.5
    ),
    # etcd ends leases twice a second
    "etcd": Place(lambda at, word, _: f"etcd://{','.join(at)}/?prefix={word}/", "etcd_server", freed_within=3.0),
    # Consul waits twice the ttl, and then for its lock delay, whose end it does not tell
    "consul": Place(lambda at, word, _: f"consul://{at[0]}/?prefix={word}/", "consul_server", freed_within=8.5),
    # the session lasts twice the lease, rounded up to a tick
    "zookeeper": Place(lambda at, word, _: f"zookeeper://{','.join(at)}/{word}", "zookeeper_server", freed_within=5.5),
    "postgresql": Place(lambda at, word, _: f"postgresql://lockctl@{at[0]}/lockctl?prefix={word}.", "postgres_server"),
    # a connection and a grant are many round trips of a driver in Python
    "mysql": Place(
        lambda at, word, _: f"mysql://lockctl:s3cret@{at[0]}/lockctl?prefix={word}.",
        "mariadb_server",
        ttl=3.0,
        freed_within=3.0,
    ),
    # the servers' clock tells whole seconds, and may be wrong by one more
    "s3": Place(
        lambda at, word, _: f"s3://test:s3cret@locks/{word}?endpoint=http://{at[0]}",
        "s3_server",
        ttl=3.0,
        freed_within=6.5,
    ),
    # the clock has whole seconds, and a lease ends only when it has ended by every clock of its servers
    "dynamodb": Place(
        lambda at, word, _: f"dynamodb://test:test@locks/{word}?endpoint=http://{at[0]}",
        "dynamodb_server",
        ttl=3.0,
        freed_within=6.5,
    ),
    "gcs": Place(
        lambda at, word, _: f"gcs://locks/{word}?anonymous=yes&endpoint=http://{at[0]}",
        "gcs_server",
        ttl=3.0,
        freed_within=6.5,
    ),
    "azblob": Place(
        lambda at, word, _: azurite.place(at[0], word),
        "azblob_server",
        ttl=3.0,
        freed_within=6.5,
    ),
    # the clocks of the servers of a cluster may differ by a second
    "nats": Place(lambda at, word, _: f"nats://{','.join(at)}/locks/{word}", "nats_server", freed_within=3.0),
    # whole seconds, and what the clocks of API servers may differ
    "kubernetes": Place(
        lambda at, word, directory: kubernetes.place(directory, at[0], word),
        "kubernetes_server",
        ttl=3.0,
        freed_within=6.5,
    ),
    "sqlite": Place(lambda _, __, directory: f"sqlite://{directory}/.locks.db"),
}
# the same lock as on NATS, over other drivers
TWINS = ("mysql", "s3", "gcs", "azblob", "dynamodb", "kubernetes")
# one of each kind: the kernel's locks, a server's own, those of a connection, and those over cells
SAMPLE = ("file", "redis", "postgresql", "nats")
HTTP = ("azblob", "consul", "dynamodb", "etcd", "gcs", "kubernetes", "s3")  # speak HTTP, to one server
LEASED = [name for name, place in PLACES.items() if place.is_leased]
SERVED = [name for name, place in PLACES.items() if place.servers]


def announced(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """The mark that has the servers of a backend started before the tests."""
    return (pytest.mark.servers(PLACES[name].servers),) if PLACES[name].servers else ()


def on_backends(*names: str) -> list[object]:
    """Parameters of a test that runs once for each of these backends, or for all."""
    return [pytest.param(name, marks=announced(name)) for name in names or PLACES]


def on_kinds(*names: str) -> list[object]:
    """As :func:`on_backends`, without those whose lock is that of another one; with them if EVERY_STORE is set.

    For tests of what is done with locks. How each driver keeps them is for the contract, and for the tests of tokens,
    hanging and waiting, which run for every backend; each has some of the faults of overlap, too.
    """
    left_out = () if os.environ.get("EVERY_STORE") else TWINS
    return on_backends(*(name for name in names or PLACES if name not in left_out))


def on_sample(*names: str) -> list[object]:
    """As :func:`on_kinds`, with a store of each kind alone: for what is decided above the stores."""
    return on_backends(*sampled(*names))


def sampled(*names: str) -> list[str]:
    """Of these backends, or of all, one of each kind; all of them if EVERY_STORE is set."""
    return [name for name in names or PLACES if name in SAMPLE or os.environ.get("EVERY_STORE")]


def addresses_of(server: object) -> list[str]:
    """The addresses of a server, or of several."""
    if isinstance(server, list):
        return [each.address for each in server]
    addresses = getattr(server, "addresses", None)
    return list(addresses) if addresses else [server.address]  # type: ignore[attr-defined]
