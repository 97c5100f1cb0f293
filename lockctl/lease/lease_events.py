"""What happens to a lease, and what the keeper does about it, as values: ``liveness`` decides on these."""

from __future__ import annotations

from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.events import Renewed, StopJob


class RenewalFailed(Value):
    """A renewal got no usable answer; *reason* is one line."""

    reason: str


class LeaseEnded(Value):
    """A renewal was answered with a clear no."""

    reason: str


class RevocationAsked(Value):
    """The lock is ours until *deadline*, and an operator wants it back."""

    by: str
    reason: str
    deadline: float = 0.0


# what the keeper decides, besides StopJob for the guard


class TellDeadline(Value):
    """Tell the guard this deadline, which it confirms."""

    deadline: float


class RenewNow(Value):
    """Renew the lease, for the first time or in the middle of a pause."""


class TakeOver(Value):
    """End the guard, and every process of the job; *detail* is one line about why."""

    cause: str
    detail: str


class Note(Value):
    """Say one line, after what was decided before it was done."""

    level: str
    text: str
    event: str  # its name for programs
    seconds: float | None = None


if TYPE_CHECKING:
    RenewalEvent = Renewed | RenewalFailed | LeaseEnded | RevocationAsked
    KeeperAction = TellDeadline | RenewNow | StopJob | TakeOver | Note
