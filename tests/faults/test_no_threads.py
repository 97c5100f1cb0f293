"""A job whose user may start no more threads keeps its lock."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from tests.faults.backends import on_backends
from tests.jobs import NO_STACK

if TYPE_CHECKING:
    from tests.jobs import Lockctl

TTL = 4.0  # seconds
LENGTH = 1.2 * TTL  # of a job: longer than its lease lasts without a renewal


@pytest.mark.parametrize("backend_name", on_backends())
def test_it_renews_between_its_other_work(lockctl: Lockctl) -> None:
    def refuse_threads() -> None:
        """Too many processes, or too little memory, fail them the same way."""
        resource.setrlimit(resource.RLIMIT_STACK, (NO_STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    words = ("run", "-l", "nightly", "-t", f"{TTL}s", "--", "sleep", str(LENGTH))
    done = lockctl(*words, preexec_fn=refuse_threads)
    assert (done.returncode, done.stderr) == (0, "")
