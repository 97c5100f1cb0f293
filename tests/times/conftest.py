"""What lockctl promises to do in a time, on every backend: these tests run alone, and the best of a few tries counts."""

from __future__ import annotations

from tests.promises.conftest import HARNESSES, backend, backend_url, harness, lockctl, other, place, servers

globals().update(HARNESSES)  # pytest looks for fixtures among the names of this module
__all__ = ["backend", "backend_url", "harness", "lockctl", "other", "place", "servers"]
