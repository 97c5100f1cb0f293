"""From what happened to the number that the contract gives it: the only place that knows these numbers."""

from __future__ import annotations

import errno
import os

from lockctl import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.model import Outcome

OK = 0
FAILS = 1  # what doctor has found
NOT_KNOWN = 1  # of what only looks: nothing has that name
USAGE = 64
UNAVAILABLE = 69
BUG = 70
HELD = 75
LOST = 76
STALE = 77
CONFIG = 78
TIMED_OUT = 124
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALED = 128  # plus the number of the signal

OF_ERROR: dict[type, int] = {
    errors.UsageError: USAGE,
    errors.ConfigError: CONFIG,
    errors.BackendUnavailable: UNAVAILABLE,
    errors.TokenRefused: STALE,
    errors.LockctlError: HELD,  # any other
}
OF_KIND = {"unavailable": UNAVAILABLE, "lost": LOST, "revoked": LOST, "timed_out": TIMED_OUT}  # of an outcome
OF_FENCE = {"stale": STALE, "unavailable": UNAVAILABLE, "config": CONFIG}  # why --fence kept a command from starting

MEANINGS = (
    ("the command's own", "the command ran and ended by itself under the lease"),
    ("128+N", "signal N terminated the command"),
    (str(USAGE), "wrong usage: nothing ran"),
    (
        str(UNAVAILABLE),
        "the backend or the store of --fence was not reachable in time, or its disk is full: nothing ran",
    ),
    (str(BUG), "a bug in lockctl, with a report on stderr"),
    (str(HELD), "another process holds the lock (-E changes this status): nothing ran"),
    (str(LOST), "the lease was lost or revoked: the command was stopped"),
    (str(STALE), "the resource has seen a newer token and was not changed (with run --fence: nothing ran)"),
    (str(CONFIG), "wrong configuration, an unusable path or server, or --guarantee not met: nothing ran"),
    (str(TIMED_OUT), "--max-runtime was reached: the command was stopped"),
    (f"{NOT_EXECUTABLE} / {NOT_FOUND}", "the command is not executable / was not found; the lock was released"),
)


def of_error(error: errors.LockctlError) -> int:
    """The status for an error that kept everything from running."""
    if isinstance(error, errors.Interrupted):
        return SIGNALED + error.signum
    return next(OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR)


def of_outcome(outcome: Outcome, *, conflict: int) -> int:
    """The status of a run; *conflict* is what "held by another" exits with."""
    if outcome.interrupted is not None:
        return SIGNALED + outcome.interrupted
    if outcome.kind == "held":
        return conflict
    if outcome.fence:
        return OF_FENCE[outcome.fence]
    if outcome.kind == "not_executed":
        return CONFIG if outcome.detail else of_exec(outcome.error)
    if outcome.kind in OF_KIND:
        return OF_KIND[outcome.kind]
    if outcome.status is None:
        return SIGNALED + 9  # the guard was killed, and the kernel killed the command with it
    return of_wait_status(outcome.status)


def of_exec(error: int) -> int:
    """For a command that could not be executed, with this errno."""
    return NOT_FOUND if error == errno.ENOENT else NOT_EXECUTABLE


def of_wait_status(status: int) -> int:
    """The command's own status, or 128+N as a shell has it."""
    if os.WIFSIGNALED(status):
        return SIGNALED + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
