"""Groups of verbs for click: each verb is a module of its own, which is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


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


class Group(click.Group):
    """Verbs. Without a word after it the help goes to stderr, which each click does in another way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever. Raises ``HelpWanted``."""
        if not args and not ctx.resilient_parsing:
            raise HelpWanted(ctx.get_help())
        return super().parse_args(ctx, args)
