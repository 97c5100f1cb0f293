"""A directory of each test's own, and clients of its lock files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_file import FileHarness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def harness(locks: Path) -> Iterator[FileHarness]:
    """Clients there."""
    made = FileHarness(locks)
    yield made
    made.close()
