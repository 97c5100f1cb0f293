"""Groups of verbs for click: each verb is a module of its own, which is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli.parameters import CommandWord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.shell_completion import CompletionItem

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
LINE = 60  # characters of the sentence beside a verb
FEW = 12  # options that a help or a page shows in one list


class Verbs(Mapping[str, click.Command]):
    """Name -> command, which is the ``command`` of the module of that name in a package."""

    def __init__(self, package: str, names: tuple[str, ...]) -> None:
        """Nothing is loaded yet."""
        self._package = package
        self._names = names

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._names:
            raise KeyError(name)
        command: click.Command = import_module(f"{self._package}.{name.replace('-', '_')}").command
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class HelpWanted(Exception):
    """A group of verbs was called without one: its help is the answer."""

    def __init__(self, text: str) -> None:
        """*text* is the help."""
        super().__init__(text)


class Examples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *words: Any, examples: Mapping[str, str], **attributes: Any) -> None:
        """*examples*: command line -> what it is for."""
        super().__init__(*words, **attributes)
        self.examples = examples

    def get_short_help_str(self, limit: int = LINE) -> str:
        """The first sentence, which shells show beside a verb, too; on a narrow terminal it is folded and not cut."""
        return super().get_short_help_str(max(limit, LINE))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command line as it is typed, on one line however long."""
        with formatter.section("Examples"):
            for line, purpose in self.examples.items():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                with formatter.indentation(), formatter.indentation():
                    formatter.write_text(purpose)


class WrappedCommand(click.Command):
    """What another command completes: words of the command that is to run, options included."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """How many words before the cursor are that command's: the scripts of the shells ask for the rest."""
        from click.shell_completion import CompletionItem

        words = ctx.params[str(self.name)]
        return [CompletionItem(str(len(words) - (words[0] == "--")), type="command")]


class Command(Examples):
    """A verb."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever. While a word is completed, what comes after a command is not ours."""
        rest = super().parse_args(ctx, args)
        for parameter in self.params if ctx.resilient_parsing else ():
            words = ctx.params.get(str(parameter.name))
            if isinstance(parameter.type, CommandWord) and words and words != ("--",):
                ctx.command = WrappedCommand(parameter.name, add_help_option=False)
        return rest

    def groups(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """Heading -> options: the verb's own options first, --help last; in one list if they are few."""
        found: dict[str, list[click.Parameter]] = {}
        parameters = self.get_params(ctx)
        several = sum(isinstance(parameter, click.Option) for parameter in parameters) > FEW
        for parameter in parameters:
            if isinstance(parameter, click.Option):
                heading = getattr(parameter, "group", "") if several else ""
                found.setdefault(heading or next(reversed(found), "Options"), []).append(parameter)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each group of options under its heading, all with the same columns."""
        for heading, options in self.groups(ctx).items():
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])


def verb(name: str, examples: Mapping[str, str], **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Declare a verb, as ``click.command`` does."""
    return click.command(name, cls=Command, examples=examples, **attributes)


class Group(Examples, click.Group):
    """Verbs. Without a word after it the help goes to stderr, which each click does in another way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever. Raises ``HelpWanted``."""
        if not args and not ctx.resilient_parsing:
            raise HelpWanted(ctx.get_help())
        return super().parse_args(ctx, args)
