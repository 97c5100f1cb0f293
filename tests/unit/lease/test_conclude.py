"""lockctl.lease.conclude: what becomes of a lock after its job."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from lockctl.clock import monotonic
from lockctl.errors import BackendUnavailable
from lockctl.lease import conclude
from lockctl.model import Claim, Grant, Outcome
from lockctl.value import replace

OUTCOME = Outcome("lost", "nightly", "etcd", ("true",), "host", 0.0, token=7, duration=1.0)
GRANT = Grant(Claim("nightly", "owner", 30.0, "host", 1, "user", ("true",)), 7, "etcd:there", "nightly", 30.0, 1.0)
PLAN = conclude.Plan(note_success=True, keep_until=0.0, deadline=0.0)  # the lease is over


class Failing:
    """A backend whose requests all fail so."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def _fail(self, *_: Any, **__: Any) -> None:
        raise self.failure

    release = remember = note_success = _fail


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("change", [{}, {"kind": "exited", "status": 0}, {"kind": "exited", "status": 256}])
def test_an_outcome_stands_whatever_limit_of_this_host_is_reached_after_it(
    number: int, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclude, "GIVE_BACK_TIMEOUT", 0.1)
    backend: Any = Failing(OSError(number, os.strerror(number)))
    outcome, told = replace(OUTCOME, **change), []
    concluded = conclude.conclude(backend, GRANT, outcome, PLAN, monotonic, lambda *said: told.append(said))
    assert concluded == replace(outcome, not_released=os.strerror(number))
    assert told[-1] == (
        "warning",
        f"could not release the lock; it becomes free when its lease ends: {os.strerror(number)}",
    )
    conclude.remember(backend, GRANT, outcome, lambda *said: told.append(said))
    assert told[-1] == ("info", f"the run was not recorded in the history: {os.strerror(number)}")


def test_another_failure_is_a_bug_and_is_not_hidden() -> None:
    backend: Any = Failing(OSError(errno.EBADF, "closed"))
    with pytest.raises(OSError, match="closed"):
        conclude.remember(backend, GRANT, OUTCOME, lambda *_: None)


def test_a_refusal_is_given_on() -> None:
    with pytest.raises(BackendUnavailable, match="gone"):
        conclude.insist(Failing(BackendUnavailable("gone"))._fail, 0.0, monotonic)
