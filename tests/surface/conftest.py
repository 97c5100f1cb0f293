"""What the tests of the surface share: the root of the tree, and every command that click knows."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder."""
    return ROOT
