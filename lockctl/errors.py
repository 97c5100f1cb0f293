"""What can go wrong, as data: one root, one level below it. ``cli/exit_status`` gives each its number."""

from __future__ import annotations

import errno
import os

# of an OSError: a limit was reached; with ETOOMANYREFS that of descriptors which are on their way to other processes
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS)
GUARD_KILLED = errno.EOWNERDEAD  # in place of an errno of exec: killed before it was told to start the command


def limit_reached(failure: BaseException) -> OSError | None:
    """The error of a call that a limit of this host refused; ``None`` if *failure* is anything else."""
    if isinstance(failure, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return failure if isinstance(failure, OSError) and failure.errno in EXHAUSTED else None


class LockctlError(Exception):
    """Root of all errors of lockctl; its text is one line that says what to do next."""

    of_fence = False  # whether it is about the words that name the resource of a run


class UsageError(LockctlError):
    """The words of the command line are wrong; nothing ran."""


class ConfigError(LockctlError):
    """The configuration, or the place of the locks, must be changed by a person; nothing ran."""

    wants_password = False  # whether a URL has a user and no password
    while_waiting = False  # whether this came up while a standby waited: at its start all was right


class BackendUnavailable(LockctlError):
    """The backend gave no usable answer in time: whether the lock is ours is *not known*."""


class TokenRefused(LockctlError):
    """A resource has seen a newer fencing token than the one that was shown: it was not touched."""


class LeaseLost(LockctlError):
    """The backend said clearly that the lease is not ours any more."""


class LeaseRevoked(LockctlError):
    """An operator asked for the lock: still ours, to be given back as soon as the job has stopped."""

    def __init__(self, by: str, reason: str) -> None:
        """Keep who asked (``user@host``) and the reason they gave (may be empty)."""
        super().__init__(f"revoked by {by}" + (f": {reason}" if reason else ""))
        self.by = by
        self.reason = reason


class Interrupted(LockctlError):
    """A signal ended the wait for a lock; nothing ran."""

    def __init__(self, signum: int) -> None:
        """Keep the number of the signal."""
        super().__init__(f"interrupted by signal {signum}")
        self.signum = signum


class RequestInterrupted(LockctlError):
    """A request was given up because the caller's interrupt became readable; what it did is *not known*."""


# what comes of an answer that has another form than it should
STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def another_program(name: str, which: str = "") -> LockctlError:
    """The error for a lock that another program holds; *which* one, if that is known."""
    return LockctlError(f"{name} is held by another program{which}, which cannot be told: end it, or use --now")


def only_a_hold(name: str) -> LockctlError:
    """The error for a lock whose job has ended."""
    return LockctlError(f"{name} is kept by --min-hold, and its job has ended: use --now to free it")
