"""The backends that the fault tests run on. A later backend is one more line here and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# name -> the URL of a place for locks that nobody else uses, given an empty directory of the test
BACKENDS: dict[str, Callable[[Path], str]] = {
    "file": lambda directory: f"file://{directory}",
}
