"""Hypothesis, set for a shared and busy machine: no limit for one example, nothing written to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

settings.register_profile("lockctl", deadline=None, database=None, max_examples=100)
settings.register_profile("quick", settings.get_profile("lockctl"), max_examples=20)


def pytest_configure(config: pytest.Config) -> None:
    """With fewer examples for `make quick`; `make test` has them all."""
    settings.load_profile("quick" if config.getoption("markexpr") == "quick" else "lockctl")
