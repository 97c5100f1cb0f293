"""A prefix of each test's own in a shared etcd, and clients there."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.etcd import Etcd

    Open = Callable[..., EtcdBackend]


@pytest.fixture
def prefix(etcd_server: Etcd) -> Iterator[str]:
    """A prefix of this test's own."""
    made = f"t{os.urandom(6).hex()}/"
    yield made
    etcd_server.command("del", made, "--prefix")


@pytest.fixture
def connect(prefix: str) -> Iterator[Open]:
    """Open a backend on some addresses."""
    with contextlib.ExitStack() as ends:

        def open_one(*addresses: str) -> EtcdBackend:
            made = open_backend(parse_url(f"etcd://{','.join(addresses)}/?prefix={prefix}"))
            assert isinstance(made, EtcdBackend)
            ends.callback(made.close)
            return made

        yield open_one


@pytest.fixture
def backend(etcd_server: Etcd, connect: Open) -> EtcdBackend:
    return connect(etcd_server.address)
