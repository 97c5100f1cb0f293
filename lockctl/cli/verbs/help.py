"""``lockctl help VERB``: the same as ``lockctl VERB --help``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockctl.cli.group import verb
from lockctl.cli.parameters import TextType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class VerbWord(TextType):
    """A verb; completed from those below the words before it."""

    name = "verb"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin so, with what they do."""
        found = below(ctx.find_root(), ctx.params.get(param.name or "") or ())
        return found.command.shell_complete(found, incomplete)


@verb(
    "help",
    examples={
        "lockctl help run": "The options of run, in groups.",
        "lockctl help fence write": "A verb of fence.",
    },
)
@click.argument("words", nargs=-1, type=VerbWord(), metavar="[VERB]...")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a verb."""
    click.echo(below(ctx.find_root(), words).get_help())


def below(found: click.Context, words: tuple[str, ...]) -> click.Context:
    """Where the verb is that *words* name. Raises ``click.UsageError``."""
    for word in words:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f"'{found.command_path}' has no verbs of its own", found)
        name, inner, _ = found.command.resolve_command(found, [word])
        assert inner is not None, "an unknown word is refused"
        found = inner.context_class(inner, parent=found, info_name=name, **inner.context_settings)
    return found
