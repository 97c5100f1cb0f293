"""Tests of what operators and crontabs of many hosts use: each runs once for every backend that it names."""

from __future__ import annotations

from tests.faults.conftest import backend_url, lockctl, place, servers

__all__ = ["backend_url", "lockctl", "place", "servers"]
