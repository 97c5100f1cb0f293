"""Why a job is stopped, and what both loops of ``supervise`` decide on, as values.

What only one of them knows is in ``supervise/job_events`` and ``lease/lease_events``: each process loads its own, since
to make a class takes 20 microseconds.
"""

from __future__ import annotations

from lockctl.value import Value

# causes: why a job was stopped
LOST = "lost"  # the lease: at its deadline, or because the backend said so
REVOKED = "revoked"  # an operator asked for the lock
TIMED_OUT = "timed_out"  # --max-runtime
KEEPER_GONE = "keeper_gone"  # the process that renews was killed
GUARD_GONE = "guard_gone"  # the process that watches was killed


class Renewed(Value):
    """The lease is ours until *deadline* (seconds on the clock of the watch)."""

    deadline: float


class StopJob(Value):
    """The job must end: *at_once* without grace, because another may already hold the lock."""

    cause: str
    at_once: bool


def told_of_kill(left: str) -> tuple[str, str, str]:
    """What is noted when KILL was sent; *left*: for people, who lives long after that."""
    if left:
        text = f"waiting for processes that KILL does not end (of another user, or stuck in the kernel): {left}"
        return "warning", text, "not_ended"
    return "info", "sent KILL to all processes of the job", "killed"
