"""``lockctl fence``: a resource that remembers the highest token, as a person or a script speaks to it."""

from __future__ import annotations

import click

from lockctl.cli.group import Group, Verbs

VERBS = ("advance", "check", "exec", "reset", "show", "sql", "write")


@click.group(
    "fence",
    cls=Group,
    commands=Verbs("lockctl.cli.fence", VERBS),
    examples={
        "lockctl run -l stock --fence /srv/stock.json -- ./update": "Register the token before the command starts.",
        "./compute /srv/stock.json > new && lockctl fence write /srv/stock.json < new": (
            "In the command: only the newest token may write."
        ),
    },
)
def command() -> None:
    """Make a resource refuse the tokens of earlier holders."""
