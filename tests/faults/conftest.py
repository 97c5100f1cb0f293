"""What the fault tests share: each runs once for every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import BACKENDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl


@pytest.fixture(params=BACKENDS)
def backend_url(request: pytest.FixtureRequest, locks: Path) -> str:
    """The URL of an empty place for locks, in turn on every backend."""
    return BACKENDS[request.param](locks)


@pytest.fixture
def lockctl(lockctl: Lockctl, backend_url: str) -> Lockctl:
    """The installed command, on the backend of this round."""
    lockctl.url = backend_url
    return lockctl
