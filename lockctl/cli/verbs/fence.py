"""``lockctl fence``: a resource that remembers the highest token, as a person or a script speaks to it."""

from __future__ import annotations

import click

from lockctl.cli.group import Group, Verbs

VERBS = ("advance", "check", "exec", "reset", "show", "sql", "write")


@click.group("fence", cls=Group, commands=Verbs("lockctl.cli.fence", VERBS))
def command() -> None:
    """Have a resource refuse the tokens of holders that have been replaced."""
