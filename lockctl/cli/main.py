"""The entry point: the fast path for ``run``, click for everything else, one place for what went wrong."""

from __future__ import annotations

import gc
import os
import sys

from lockctl.cli.messages import NOT_EXECUTABLE, Talk, exhausted
from lockctl.errors import LockctlError, limit_reached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockctl.supervise.signals import Signals

COLLECT_AFTER = 100_000  # new objects: what is loaded stays, and `watch` is looked through seldom enough


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    talk = Talk()
    try:
        hold_standard_descriptors()
        _hide_credentials()
        if words[:1] == ["run"]:
            status = _run(words[1:])
            if status is not None:
                return status
        gc.set_threshold(COLLECT_AFTER)
        from lockctl.cli import lazy_inspect

        lazy_inspect.install()
        from lockctl.cli import commands

        status = commands.invoke(words)
    except Exception as failure:  # noqa: BLE001 - the last resort: a bug is reported and has its own status
        status = tell_failure(failure, talk)
    finally:
        talk.finish()
    if status and any(word.partition("=")[0] == "--export" for word in words) and _may_mean_acquire(words):
        _fail_shell(status)
    return status


def _may_mean_acquire(words: list[str]) -> bool:
    """Whether this verb is or could be meant: the group refuses its own options, and a verb that it does not know."""
    from lockctl.cli.commands import VERBS

    return words[0] == "acquire" or words[0] not in VERBS


def _fail_shell(status: int) -> None:
    """Have ``eval "$(lockctl acquire ...)"`` fail as we do: of nothing it would succeed, and go on without the lock."""
    try:
        os.write(1, b"(exit %d)\n" % status)
    except OSError:
        return  # nobody reads it


def _hide_credentials() -> None:
    """From here on no process that runs as this user, such as the job, finds them in ``/proc/PID/environ``."""
    names = [name for name in ("LOCKCTL_BACKEND", "LOCKCTL_FENCE") if "@" in os.environ.get(name, "")]
    if "LOCKCTL_PASSWORD" in os.environ:
        names.append("LOCKCTL_PASSWORD")
    if names:
        from lockctl import kernel

        kernel.erase_variables(names)


def hold_standard_descriptors() -> None:
    """If 0, 1 or 2 is closed, keep the number busy: a file or connection there would get what stderr is to say."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            while os.open("/", os.O_PATH | os.O_CLOEXEC) < number:  # to read or write there fails, as before
                pass


def _run(words: list[str]) -> int | None:
    from lockctl.cli import fastpath

    parsed = fastpath.read(words)
    if parsed is None:
        return None
    return start_run(*parsed)


def start_run(given: dict[str, str | bool], command: tuple[str, ...], more_locks: tuple[str, ...] = ()) -> int:
    """Block signals first of all: from here on each is a value that waits to be read."""
    from lockctl.cli.start import execute

    if "LOCKCTL_STANDBY" in os.environ:
        from lockctl.cli import campaign

        return campaign.resume(execute, given, command, os.environ, more_locks)
    return execute(given, command, dict(os.environ), own_signals(), more_locks=more_locks)


def own_signals() -> Signals:
    """The signals of this process, if each comes to this thread.

    A library that was loaded before us may have threads, which know nothing of what is blocked here: one of them
    would get the TERM that is meant for us, and end the process. Then lockctl is executed anew with all signals
    blocked: whatever threads are made then inherit that.
    """
    from lockctl.supervise.signals import Signals, has_other_threads

    if "LOCKCTL_STANDBY" in os.environ:
        from lockctl.cli import campaign

        return campaign.inherited_signals(os.environ)[0]
    signals = Signals()
    if has_other_threads() and sys.executable:
        from lockctl.cli import campaign
        from lockctl.cli.start import given_environment

        campaign.replace_this_program(signals, given_environment(os.environ), None)
    return signals


def tell_failure(failure: BaseException, talk: Talk) -> int:
    """Say what went wrong, while it is handled, where nobody else could say it; the exit status."""
    if isinstance(failure, LockctlError):
        from lockctl.cli.exit_status import of_error

        talk("error", str(failure))
        return of_error(failure)
    limit = limit_reached(failure)
    if limit is not None:
        talk("error", exhausted(limit))
        return NOT_EXECUTABLE
    from lockctl.cli import bug

    return bug.tell(failure, talk.lines)
