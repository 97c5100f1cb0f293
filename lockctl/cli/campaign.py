"""``run --restart``: a standby that becomes the leader, again and again.

Each campaign is a process image of its own, with the same pid: when one has ended, lockctl executes itself anew.
So nothing is carried over, neither a stuck thread nor a connection, a standby does not grow in months, and it
takes up a new version of itself. Signals stay blocked all the while, so none is lost between two campaigns.
"""

from __future__ import annotations

import os
import sys

from lockctl.cli import exit_status
from lockctl.commanding import DESCRIPTORS, is_pipe
from lockctl.errors import EXHAUSTED, GUARD_KILLED, ConfigError, Interrupted
from lockctl.model import Outcome
from lockctl.names import printable
from lockctl.supervise.signals import Signals, signal_name
from lockctl.url import SECRETS
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from lockctl.cli.messages import Talk
    from lockctl.config_file import ConfigFile
    from lockctl.url import Url

# failures (of who is no standby yet nothing), ignored SIGCHLD, mask of signals: what this program must know next
VARIABLE = "LOCKCTL_STANDBY"
FIRST_PAUSE = 1.0  # seconds before the next campaign, doubled after each short time as leader, up to
LONGEST_PAUSE = 30.0
STEADY = 10.0  # seconds as leader that count as success
MOST_FAILURES = 99
FENCED_OFF = ("stale", "unavailable")  # the next campaign brings a higher token, and the store may be back by then
AGAIN = ("exited", "signaled", "lost", "revoked", "timed_out", "unavailable")


class Campaign(Value):
    """One that has ended, with its *outcome*; *note* writes one into report and metrics."""

    outcome: Outcome
    note: Callable[[Outcome], None]


def check_readable_again(url: Url, file: ConfigFile | None) -> None:
    """Raise ``ConfigError`` for what a standby could read only once."""
    if file is not None and is_pipe(file.path):
        raise ConfigError(f"{printable(file.path)}: a pipe: --restart reads the configuration again: give a file")
    for name, path in url.params:
        if name in SECRETS and path.startswith(DESCRIPTORS) and is_pipe(path):
            raise ConfigError(f"{name} {printable(path)}: a pipe: --restart reads the password again: give a file")


def again(
    status: int,
    last: Campaign | None,
    failures: int,
    environment: dict[str, str],
    signals: Signals,
    talk: Talk,
) -> int:
    """Campaign again after a pause; returns a status only when this standby is to end.

    It ends when it was told to (TERM, INT, QUIT; while waiting also HUP), when the command cannot be executed, and
    when another has the lock after the time of ``--wait``. *last* ``None``: a later campaign could not begin, for
    want of a password, for example, or because the configuration is just being written; or what a person must change
    came up while it waited.
    """
    outcome = None if last is None else last.outcome
    if outcome is not None and _over(outcome):
        return status
    steady = outcome is not None and outcome.duration is not None and outcome.duration >= STEADY
    failures = 0 if steady else min(failures + 1, MOST_FAILURES)
    why = f"the last run ended with status {status}"
    while True:
        pause = min(FIRST_PAUSE * 2 ** max(failures - 1, 0), LONGEST_PAUSE) * (0.8 + 0.4 * os.urandom(1)[0] / 255)
        talk("info", f"waiting for the lock again in {pause:.1f} s ({why})", "standby")
        signum = signals.pause(pause) or signals.ending()
        if signum is not None:
            talk("info", f"{signal_name(signum)} terminated the standby")
            if last is not None:
                last.note(_ended_in_the_pause(last.outcome, signum))
            return exit_status.SIGNALED + signum
        if _is_installed():
            talk.finish()
            replace_this_program(signals, environment, failures)
        failures, why = min(failures + 1, MOST_FAILURES), "lockctl or its Python is not there, as while it is upgraded"


def _ended_in_the_pause(last: Outcome, signum: int) -> Outcome:
    """The outcome of a campaign that a signal ended before it began: as if it had ended its wait."""
    why = str(Interrupted(signum))
    return Outcome(
        "held", last.name, last.backend, last.words, last.host, 0.0, interrupted=signum, detail=why, labels=last.labels
    )


def _is_installed() -> bool:
    """Whether this program can be executed anew."""
    try:
        os.stat(__file__)
    except NotADirectoryError:
        pass  # in an archive
    except OSError:
        return False
    return os.access(sys.executable, os.X_OK)


def _over(outcome: Outcome) -> bool:
    if outcome.interrupted is not None or outcome.asked_to_end:
        return True
    if outcome.kind == "not_executed" and outcome.error in (*EXHAUSTED, GUARD_KILLED):
        return False  # there were no more processes, or no more memory; there may be again
    if outcome.kind == "held" and outcome.seen is not None:
        # what kept it out may be the place in the queue that an earlier campaign of its own could not take back
        own = (outcome.host, os.getpid())
        return any((each.host, each.pid) != own for each in outcome.seen.holders)
    return outcome.kind not in AGAIN and outcome.fence not in FENCED_OFF


def resume(
    execute: Callable[..., int],
    given: dict[str, str | bool],
    words: tuple[str, ...],
    environ: Mapping[str, str],
    more_locks: tuple[str, ...],
) -> int:
    """Run by ``start.execute`` what :func:`replace_this_program` executed, as the next campaign if it is one."""
    signals, failures = inherited_signals(environ)
    return execute(given, words, environ, signals, more_locks=more_locks, failures=failures)


def replace_this_program(signals: Signals, environment: dict[str, str], failures: int | None) -> NoReturn:
    """Execute lockctl anew, with its words and all signals blocked. Raises ``OSError``.

    *failures*: how often a standby failed before, ``None`` for who is none yet.
    """
    mask = ",".join(map(str, sorted(signals.original_mask)))
    environment[VARIABLE] = f"{'' if failures is None else failures};{int(signals.child_ignored)};{mask}"
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def inherited_signals(environ: Mapping[str, str]) -> tuple[Signals, int | None]:
    """The signals of a program that was executed so, and the *failures* that it was given."""
    try:
        failures, child_ignored, mask = environ[VARIABLE].split(";")
        numbers = frozenset(int(number) for number in mask.split(",") if number)
        before = min(max(int(failures), 0), MOST_FAILURES) if failures else None
        return Signals((numbers, child_ignored == "1")), before
    except ValueError:  # not ours: somebody set it by hand
        return Signals(), None
