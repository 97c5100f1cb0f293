"""A signal at any step between the start of `lockctl run` and that of its command: it is never lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import on_kinds
from tests.run.test_signals import end_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl

__all__ = ["end_at"]

FARTHER = 1.3  # from one step to the next that is tried: a client library makes thousands of them


@pytest.mark.parametrize("backend_name", on_kinds())
def test_a_signal_between_the_start_and_that_of_the_command_ends_the_run_and_frees_the_lock(
    lockctl: Lockctl, end_at: Callable[..., int], tmp_path: Path
) -> None:
    step, up, tried = 24.0, tmp_path / "up", 0
    while not up.exists():
        number = (signal.SIGTERM, signal.SIGINT)[tried % 2]
        words: tuple[Any, ...] = ("run", "-l", "a", "-w", "20s", "--", "sh", "-c", ': >"$0"; exec sleep 60', str(up))
        assert end_at(int(step), number, up, *words) in (-number, 128 + number), step
        step, tried = step * FARTHER, tried + 1
    assert tried > 4
    assert lockctl("run", "-l", "a", "--", "true").returncode == 0
