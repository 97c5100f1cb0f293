"""What the fault tests share: each runs once for every backend that it names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import PLACES, Place, addresses_of, on_backends

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that uses the backend of the round, and does not say which, is about what is in files of one host."""
    if "backend_name" in metafunc.fixturenames and not any(
        "backend_name" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    ):
        metafunc.parametrize("backend_name", on_backends("file"))


@pytest.fixture
def place(backend_name: str) -> Place:
    """The backend of this round."""
    return PLACES[backend_name]


@pytest.fixture
def servers(place: Place, request: pytest.FixtureRequest) -> Any:
    """The server or servers of this round, if there are any."""
    return request.getfixturevalue(place.servers) if place.servers else None


@pytest.fixture
def backend_url(place: Place, servers: Any, locks: Path) -> str:
    """The URL of an empty place for locks, in turn on every backend."""
    return place.url(addresses_of(servers) if servers else (), "t" + os.urandom(6).hex(), locks)


@pytest.fixture
def lockctl(lockctl: Lockctl, backend_url: str) -> Lockctl:
    """The installed command, on the backend of this round."""
    lockctl.url = backend_url
    return lockctl
