"""Parameters of command lines that can be completed, and groups of verbs: the same with every click since 8.1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    TextType = click.ParamType[str]
else:
    TextType = click.ParamType  # before click 8.4 it takes no argument


class HelpWanted(Exception):
    """A group of verbs was called without one: its help is the answer."""

    def __init__(self, text: str) -> None:
        """*text* is the help."""
        super().__init__(text)


class Group(click.Group):
    """Verbs. Without a word after it the help goes to stderr, which each click does in another way."""

    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever. Raises ``HelpWanted``."""
        if not args and not ctx.resilient_parsing:
            raise HelpWanted(ctx.get_help())
        return super().parse_args(ctx, args)


class CommandWord(TextType):
    """The command of ``run``: completed from the PATH, and from files."""

    name = "command"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Executables for the first word, files after it."""
        from click.shell_completion import CompletionItem

        if "/" in incomplete or ctx.params.get(param.name or ""):
            return [CompletionItem(incomplete, type="file")]
        found: set[str] = set()
        for directory in os.environ.get("PATH", "").split(":"):
            try:
                entries = os.listdir(directory or ".")
            except OSError:
                continue
            found.update(entry for entry in entries if entry.startswith(incomplete))
        return [CompletionItem(name) for name in sorted(found)]


class Words(TextType):
    """One of a few words, for completion; checked where all settings are."""

    name = "word"

    def __init__(self, words: tuple[str, ...]) -> None:
        """Complete to these."""
        self.words = words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Those that begin with what is there."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]
