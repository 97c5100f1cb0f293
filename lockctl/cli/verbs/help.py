"""``lockctl help VERB``: the same as ``lockctl VERB --help``."""

from __future__ import annotations

import click

from lockctl.cli.group import verb


@verb(
    "help",
    examples={
        "lockctl help run": "The options of run, in groups.",
        "lockctl help fence write": "A verb of fence.",
    },
)
@click.argument("words", nargs=-1, metavar="[VERB]...")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a verb."""
    found = ctx.find_root()
    for word in words:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f"'{found.command_path}' has no verbs of its own", found)
        name, inner, _ = found.command.resolve_command(found, [word])
        assert inner is not None, "an unknown word is refused"
        found = inner.context_class(inner, parent=found, info_name=name, **inner.context_settings)
    click.echo(found.get_help())
