"""The command line for click: the group of all verbs; errors become one line and a status."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from lockctl import __version__
from lockctl.cli import exit_status
from lockctl.cli.group import CONTEXT, Group, HelpWanted, Verbs
from lockctl.cli.messages import Talk
from lockctl.cli.output import discard_output, print_data
from lockctl.config import unknown_variables
from lockctl.errors import Interrupted, LockctlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # where click prints a help itself
COMPLETE = "_LOCKCTL_COMPLETE"  # what the script of a shell asks: SHELL_complete, or to be printed: SHELL_source
VERBS = (
    *(
        "acquire",
        "backends",
        "bench",
        "completion",
        "config",
        "doctor",
        "fence",
        "force-release",
        "help",
        "history",
        "inspect",
        "install-docs",
        "list",
    ),
    *("prune", "release", "renew", "run", "watch"),
)


@click.group(
    cls=Group,
    commands=Verbs("lockctl.cli.verbs", VERBS),
    context_settings=CONTEXT,
    examples={
        "lockctl run -l nightly --skip-ok -- /usr/local/bin/nightly": "In a crontab: never two at once.",
        "lockctl list": "Which locks are held, by whom, and for how long.",
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Run a command under a lease, with a fencing token, and never twice.

    lockctl run [OPTIONS] [--] COMMAND [ARG]... acquires a lock, runs the command, renews the lease
    while it runs, and stops the command with all its descendants when the lock is lost.
    """


def invoke(words: Sequence[str]) -> int:
    """Run one command line through click; the exit status."""
    talk = Talk()
    # a run says it itself, and the daemon of `acquire` is one
    unknown = None if words[:1] in (["run"], ["acquire"]) else unknown_variables(os.environ)
    if unknown is not None:
        talk("warning", unknown)
    try:
        if os.environ.get(COMPLETE):
            return _complete(*os.environ[COMPLETE].split("_", 1))
        result = cli.main(args=list(words), prog_name="lockctl", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except HelpWanted as help_wanted:
        talk.lines(str(help_wanted))
        return exit_status.USAGE
    except click.UsageError as wrong:
        from lockctl.cli import mistakes

        _refuse(words, mistakes.sentence(wrong), talk)
        return exit_status.USAGE
    except click.Abort as end:
        if isinstance(end.__cause__, EOFError):  # of a file, and not of a question
            raise end.__cause__ from None
        return exit_status.SIGNALED + signal.SIGINT
    except click.ClickException as failure:
        talk("error", failure.format_message())
        return exit_status.USAGE
    except LockctlError as error:
        if not isinstance(error, Interrupted):
            _refuse(words, str(error), talk)
        return exit_status.of_error(error)
    except SystemExit:  # click, when the reader of a help has gone away
        return exit_status.OK
    except OSError as failure:
        if failure.errno not in UNWRITTEN or failure.filename is not None:
            raise
        discard_output()  # else what is left of it would be tried again at the end
        talk("error", f"cannot write to stdout: {failure.strerror}")
        return exit_status.UNAVAILABLE
    return result if isinstance(result, int) else exit_status.OK


def _complete(shell: str, asked: str = "") -> int:
    """Answer the script of a shell. Raises ``UsageError``: click would fail of what no script asks, or say nothing."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    try:
        if found is None or asked not in ("complete", "source"):
            raise LookupError
        completer = found(cli, {}, "lockctl", COMPLETE)
        if asked == "complete":
            completer.get_completion_args()
    except (LookupError, ValueError):
        message = f"${COMPLETE} is for the scripts of `lockctl completion`, which set COMP_WORDS, COMP_CWORD: unset it"
        raise UsageError(message) from None
    print_data(completer.source() if asked == "source" else completer.complete())
    return exit_status.OK


def _refuse(words: Sequence[str], said: str, talk: Talk) -> None:
    """Say what is wrong; for a ``run`` and an ``acquire`` as their words want it, as far as they say how.

    For a ``run`` with the report that they want, too: one of yesterday does not stay.
    """
    verb = words[0] if words else ""
    if verb not in ("run", "acquire"):
        talk("error", said)
        return
    from lockctl.cli import mistakes, report

    given = mistakes.settings_in(words[1:], of_run=verb == "run")
    refusal = report.Refusal(given, os.environ, talk)
    refusal.tell(said)
    if verb == "run":
        refusal.report((), said)
