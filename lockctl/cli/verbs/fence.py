"""``lockctl fence``: a resource that remembers the highest token, as a person or a script speaks to it."""

from __future__ import annotations

import click

from lockctl.cli.group import Group, Verbs

VERBS = ("advance", "check", "exec", "reset", "show", "sql", "write")


@click.group("fence", cls=Group, commands=Verbs("lockctl.cli.fence", VERBS))
def command() -> None:
    """Make a resource refuse the fencing tokens of earlier holders."""
