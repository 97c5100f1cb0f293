"""The stores whose drivers the promises of cells are held against: one line for each in ``STORES``."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.azblob import address as azblob
from lockctl.stores.azblob.cell import AzureBlobCells
from lockctl.stores.consul import address as consul
from lockctl.stores.consul.cell import ConsulCells
from lockctl.stores.dynamodb.cell import DynamoDbCells
from lockctl.stores.dynamodb.protocol import Table
from lockctl.stores.etcd import address as etcd
from lockctl.stores.etcd.cell import EtcdCells
from lockctl.stores.gcs.cell import GcsBackend, GcsCells
from lockctl.stores.kubernetes.cell import KubernetesCells
from lockctl.stores.kubernetes.protocol import Leases
from lockctl.stores.memory.cell import MemoryCells, MemoryServer
from lockctl.stores.mysql.address import from_url
from lockctl.stores.mysql.cell import MysqlCells
from lockctl.stores.nats.address import read_url as read_nats_url
from lockctl.stores.nats.cell import NatsCells
from lockctl.stores.nats.protocol import Bucket
from lockctl.stores.s3 import address as s3
from lockctl.stores.s3.cell import S3Cells
from lockctl.stores.sqlite.cell import SqliteCells
from lockctl.stores.zookeeper.address import read_url
from lockctl.stores.zookeeper.cell import ZooKeeperCells
from lockctl.url import parse_url
from tests.scratch import local_directory
from tests.servers import azurite, dynamodb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.locks.driver import Cells
    from lockctl.url import Url
    from tests.servers.process import Server

    Opening = Callable[[Any], contextlib.AbstractContextManager[Callable[[], Cells]]]


@contextlib.contextmanager
def memory(_: None) -> Iterator[Callable[[], Cells]]:
    """One server in this process."""
    server = MemoryServer()
    yield lambda: MemoryCells(server)
    assert not server.watchers, "a watch was left running"


@contextlib.contextmanager
def sqlite(_: None) -> Iterator[Callable[[], Cells]]:
    """A database of its own."""
    directory = tempfile.mkdtemp(prefix="lockctl-test-", dir=local_directory())
    yield lambda: SqliteCells(f"{directory}/cells.db", "cells")
    shutil.rmtree(directory)


def on(make: Callable[[Any], Cells]) -> Opening:
    """Cells in a shared server."""

    @contextlib.contextmanager
    def opening(server: Server) -> Iterator[Callable[[], Cells]]:
        yield lambda: make(server)

    return opening


def etcd_cells(server: Server) -> Cells:
    """As a URL without parameters has them."""
    return EtcdCells(etcd.cluster(parse_url(f"etcd://{server.address}"), etcd.PARAMETERS))


def consul_cells(server: Server) -> Cells:
    """As a URL without parameters has them."""
    parameters = {"prefix": "", "dc": "", "ns": "", "partition": "", "lock_delay": "0"}
    url = parse_url(f"consul://{server.address}")
    return ConsulCells(consul.from_url(url, {**etcd.PARAMETERS, **parameters}))


def zookeeper_cells(server: Server) -> Cells:
    """Below a node that the first write makes."""
    return ZooKeeperCells(read_url(parse_url(f"zookeeper://{server.address}")), f"/cells-{os.getpid()}/all")


def s3_cells(server: Server) -> Cells:
    """Below a path of a bucket."""
    url = parse_url(f"s3://test:s3cret@locks/cells-{os.getpid()}/all?endpoint=http://{server.address}")
    return S3Cells(s3.from_url(url, s3.PARAMETERS))


def dynamodb_cells(server: Server) -> Cells:
    """As a URL without parameters has them."""
    return DynamoDbCells(Table(parse_url(dynamodb.place(server.address))))


def on_the_real_thing(variable: str, cells: Callable[[Url], Cells]) -> Opening:
    """Cells in the bucket that a variable names."""

    @contextlib.contextmanager
    def opening(_: None) -> Iterator[Callable[[], Cells]]:
        url = parse_url(os.environ[variable])
        yield lambda: cells(url)

    return opening


def gcs_cells(server: Server) -> Cells:
    """Below a path of a bucket."""
    url = parse_url(f"gcs://locks/cells-{os.getpid()}/all?anonymous=yes&endpoint=http://{server.address}")
    return GcsCells(url, GcsBackend.parameters)


def azblob_cells(server: Server) -> Cells:
    """Below a path of a container."""
    return azblob_at(parse_url(azurite.place(server.address, f"cells-{os.getpid()}/all")))


def azblob_at(url: Url) -> Cells:
    """Where a URL says."""
    return AzureBlobCells(azblob.from_url(url, azblob.PARAMETERS))


STORES: dict[str, tuple[Opening, str | None]] = {  # and the fixture of the server
    "memory": (memory, None),
    "sqlite": (sqlite, None),
    "mysql": (on(lambda server: MysqlCells(from_url(parse_url(server.url)))), "mariadb_server"),
    "s3": (on(s3_cells), "s3_server"),
    "gcs": (on(gcs_cells), "gcs_server"),
    "azblob": (on(azblob_cells), "azblob_server"),
    "s3-seaweedfs": (on(s3_cells), "s3_seaweedfs"),
    "etcd": (on(etcd_cells), "etcd_server"),
    "consul": (on(consul_cells), "consul_server"),
    "nats": (on(lambda server: NatsCells(Bucket(read_nats_url(parse_url(server.url))))), "nats_server"),
    "kubernetes": (on(lambda server: KubernetesCells(Leases(parse_url(server.place)))), "kubernetes_server"),
    "dynamodb": (on(dynamodb_cells), "dynamodb_server"),
    "dynamodb-dynalite": (on(dynamodb_cells), "dynamodb_dynalite"),
    "zookeeper": (on(zookeeper_cells), "zookeeper_server"),
}
CLOUDS: dict[str, Callable[[Url], Cells]] = {  # see `make cloud-tests`
    "S3": lambda url: S3Cells(s3.from_url(url, s3.PARAMETERS)),
    "GCS": lambda url: GcsCells(url, GcsBackend.parameters),
    "AZBLOB": azblob_at,
    "DYNAMODB": lambda url: DynamoDbCells(Table(url)),
    "KUBERNETES": lambda url: KubernetesCells(Leases(url)),
}
for cloud, cells_at in CLOUDS.items():
    if f"LOCKCTL_CLOUD_{cloud}" in os.environ:
        STORES[f"{cloud.lower()}-cloud"] = on_the_real_thing(f"LOCKCTL_CLOUD_{cloud}", cells_at), None
CASES = [
    pytest.param(name, marks=() if server is None else (pytest.mark.servers(server), pytest.mark.slow))
    for name, (_, server) in STORES.items()
]
