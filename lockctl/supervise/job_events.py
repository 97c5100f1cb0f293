"""What happens to a job, and what the guard does about it, as values: its loop decides on these and nothing else."""

from __future__ import annotations

from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.events import Renewed, StopJob


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
    Action = SignalTree | SignalCommand | TellLeftovers | Finish
