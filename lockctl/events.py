"""What can happen to a job, as values: the loops of ``supervise`` decide on these and nothing else."""

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


class PassSignal(Value):
    """Somebody sent lockctl this signal, for the command."""

    signum: int


class CommandEnded(Value):
    """The command itself is gone, with this status of ``waitpid``."""

    status: int


class CommandStopped(Value):
    """The command was stopped by this signal (Ctrl-Z, SIGSTOP)."""

    signum: int


class CommandContinued(Value):
    """The command runs again."""


class GuardContinued(Value):
    """The guard itself was stopped, and goes on."""


class NobodyLeft(Value):
    """No descendant is alive: the kernel says that there is no child, and orphans become children."""


class KeeperGone(Value):
    """The other end of the channel was closed: the keeper is dead."""


class Due(Value):
    """Time has passed; nothing else happened."""


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


# what the watch decides


class SignalTree(Value):
    """Send *signum* to every process of the job."""

    signum: int


class SignalCommand(Value):
    """Send *signum* to the command itself."""

    signum: int


class TellLeftovers(Value):
    """Say that processes outlived the command and are being stopped."""


class Finish(Value):
    """The tree is gone, or left alone as asked."""


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


def told_of_kill(left: str) -> tuple[str, str, str]:
    """What is noted when KILL was sent; *left*: for people, who lives long after that."""
    if left:
        text = f"waiting for processes that KILL does not end (of another user, or stuck in the kernel): {left}"
        return "warning", text, "not_ended"
    return "info", "sent KILL to all processes of the job", "killed"


TYPE_CHECKING = False
if TYPE_CHECKING:
    WatchEvent = (
        Renewed
        | StopJob
        | PassSignal
        | CommandEnded
        | CommandStopped
        | CommandContinued
        | GuardContinued
        | NobodyLeft
        | KeeperGone
        | Due
    )
    RenewalEvent = Renewed | RenewalFailed | LeaseEnded | RevocationAsked
    KeeperAction = TellDeadline | RenewNow | StopJob | TakeOver | Note
    Action = SignalTree | SignalCommand | TellLeftovers | Finish
