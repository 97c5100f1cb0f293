"""How soon a job is ended whose lock file was removed: the kernel tells nobody, so the keeper looks."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends
from tests.jobs import LIMIT, best_of_a_few

if TYPE_CHECKING:
    from tests.jobs import Lockctl

SOON = 1.0  # seconds: what the contract promises where the backend can notify


@pytest.mark.parametrize("backend_name", on_backends("file"))
@pytest.mark.parametrize("mode", [(), ("--shared",), ("--slots", "2")], ids=["alone", "shared", "slots"])
def test_the_job_is_killed_within_a_second(mode: tuple[str, ...], lockctl: Lockctl) -> None:
    names = (f"nightly{number}" for number in itertools.count())

    def attempt() -> float:
        name = next(names)
        holder = lockctl.start_holding(name, *mode)
        begun = time.monotonic()
        (lockctl.directory / name).unlink()
        assert holder.wait(LIMIT) == 76
        return time.monotonic() - begun

    best_of_a_few(attempt, SOON)
