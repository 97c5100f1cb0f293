"""lockctl.cli.exit_status: one status for each error and each outcome, the same wherever a number is written down."""

from __future__ import annotations

import errno

import pytest

from lockctl import errors
from lockctl.cli import exit_status, main, messages
from lockctl.fence import Stale
from lockctl.model import Outcome
from lockctl.settings import BY_NAME
from lockctl.value import replace

OUTCOME = Outcome("exited", "a", "file", ("true",), "host", 0.0)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UsageError("a"), 64),
        (errors.BackendUnavailable("a"), 69),
        (errors.LockctlError("a"), 75),
        (errors.LeaseLost("a"), 75),
        (errors.TokenRefused("a"), 77),
        (errors.ConfigError("a"), 78),
        (errors.Interrupted(15), 143),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_a_status(error: errors.LockctlError, status: int) -> None:
    assert exit_status.of_error(error) == status


@pytest.mark.parametrize(
    ("failure", "status"), [(MemoryError(), 126), (OSError(errno.EMFILE, "full"), 126), (OSError(errno.EIO, "a"), 70)]
)
def test_a_limit_of_this_host_is_no_bug(failure: Exception, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.tell_failure(failure, messages.Talk()) == status
    assert ("a bug" in capfd.readouterr().err) == (status == 70)


def test_an_error_has_the_status_of_what_it_is_a_kind_of() -> None:
    assert issubclass(Stale, errors.TokenRefused)
    kind = type("Narrow", (errors.ConfigError,), {})
    assert exit_status.of_error(kind("a")) == 78


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"status": 7 << 8}, 7),
        ({"kind": "signaled", "status": 15}, 143),
        ({"kind": "signaled"}, 137),
        ({"kind": "held"}, 75),
        ({"kind": "unavailable"}, 69),
        ({"kind": "lost", "status": 0}, 76),
        ({"kind": "revoked", "status": 0}, 76),
        ({"kind": "timed_out", "status": 0}, 124),
        ({"kind": "not_executed", "error": errno.ENOENT}, 127),
        ({"kind": "not_executed", "error": errno.EACCES}, 126),
        ({"kind": "not_executed", "fence": "stale"}, 77),
        ({"kind": "not_executed", "fence": "unavailable"}, 69),
        ({"kind": "not_executed", "fence": "config"}, 78),
        ({"kind": "held", "interrupted": 2}, 130),
    ],
    ids=str,
)
def test_each_outcome_has_a_status(change: dict[str, object], status: int) -> None:
    assert exit_status.of_outcome(replace(OUTCOME, **change), conflict=75) == status


def test_numbers_that_must_be_known_elsewhere_are_the_same() -> None:
    assert messages.NOT_EXECUTABLE == exit_status.NOT_EXECUTABLE
    assert messages.LOST == exit_status.LOST
    assert BY_NAME["conflict_exit_code"].default == str(exit_status.HELD)
