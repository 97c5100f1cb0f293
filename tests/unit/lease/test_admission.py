"""lockctl.lease.admission: whether a run that has the lock may start."""

from __future__ import annotations

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError, LockctlError
from lockctl.lease.acquire import Lease
from lockctl.lease.admission import skip
from lockctl.lease.schedule import plan
from lockctl.model import Outcome
from lockctl.stores.memory.cell import MemoryBackend, MemoryServer
from tests.contract.harness import claim, take

SCHEDULE = plan(30.0, None, MemoryBackend.capabilities)


class FailsOnce(MemoryBackend):
    """Who is asked for the last success fails once."""

    failure: LockctlError | None = None

    def last_success(self, name: str, *, timeout: float) -> float | None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().last_success(name, timeout=timeout)


@pytest.mark.parametrize("failure", [BackendUnavailable("it restarts"), ConfigError("a right is missing")])
@pytest.mark.parametrize("succeeded", [False, True])
def test_a_store_that_fails_for_a_moment_is_asked_again_for_the_last_success(
    failure: LockctlError, *, succeeded: bool
) -> None:
    backend = FailsOnce(MemoryServer())
    grant = take(backend, claim())
    if succeeded:
        backend.note_success(grant, timeout=1.0)
    lease = Lease(grant, SCHEDULE.deadline(clock.monotonic(), grant.ttl), SCHEDULE, 0.0)
    outcome = Outcome("held", "nightly", "memory", ("true",), "here", 0.0)
    backend.failure = failure
    refused = skip(backend, lease, outcome, 3600.0, clock.monotonic, lambda *_: None)
    assert (refused is not None) == succeeded
