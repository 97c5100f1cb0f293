"""Hypothesis, set for a shared and busy machine: no limit for one example, nothing written to disk."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("lockctl", deadline=None, database=None, max_examples=100)
settings.load_profile("lockctl")
