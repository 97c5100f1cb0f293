"""``lockctl completion``: the script that click makes, the same that the package installs."""

from __future__ import annotations

from click.shell_completion import get_completion_class

from lockctl.cli import exit_status
from lockctl.cli.output import print_data


def script(shell: str) -> str:
    """The completion script for *shell*."""
    from lockctl.cli.commands import cli

    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - click.Choice lets only known shells through
        raise KeyError(shell)
    # not .source(): for bash it runs a shell to look at its version; the packaged file must not depend on that
    completer = kind(cli, {}, "lockctl", "_LOCKCTL_COMPLETE")
    return (completer.source_template % completer.source_vars()).strip() + "\n"


def print_script(shell: str) -> int:
    """Print it."""
    print_data(script(shell))
    return exit_status.OK
