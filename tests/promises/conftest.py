"""What the tests of promises share: each runs once for every backend that it names, by its command or by its calls."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import PLACES
from tests.faults.conftest import backend_url, lockctl, place, servers

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from tests.contract.harness import Harness

HARNESSES = {f"{name}_harness": import_module(f"tests.contract.test_{name}").harness for name in ("memory", *PLACES)}
globals().update(HARNESSES)  # pytest looks for fixtures among the names of this module
__all__ = ["HARNESSES", "backend", "backend_url", "harness", "lockctl", "other", "place", "servers"]


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
