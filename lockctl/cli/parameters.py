"""Parameters of command lines that can be completed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandWord(click.ParamType[str]):
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


class Words(click.ParamType[str]):
    """One of a few words, for completion; checked where all settings are."""

    name = "word"

    def __init__(self, words: tuple[str, ...]) -> None:
        """Complete to these."""
        self.words = words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Those that begin with what is there."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]
