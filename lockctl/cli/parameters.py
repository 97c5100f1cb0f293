"""Types of parameters: how a word is completed, and how it is read. The same with every click since 8.1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lockctl import config
from lockctl.cli.places import place
from lockctl.durations import parse_duration
from lockctl.errors import LockctlError, UsageError
from lockctl.names import check_name, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    TextType = click.ParamType[str]
    AnyType = click.ParamType[Any]
else:
    TextType = AnyType = click.ParamType  # before click 8.4 it takes no argument


class Parsed(AnyType):
    """A value that a function reads. What it refuses is one line, which begins with the option."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        """*parse* raises ``ValueError``."""
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What *parse* made of it. Raises ``UsageError``."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as wrong:
            option = param.opts[-1] if param is not None else self.name
            raise UsageError(f"{option}: {printable(str(wrong))}") from None


def positive_duration(example: str) -> Callable[[str], float]:
    """Reads a span that is longer than nothing, in seconds; *example* is one for who gives none."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not seconds:
            raise ValueError(f"must be greater than 0, such as {example}")
        return seconds

    return parse


def whole_number(most: int) -> Callable[[str], int]:
    """Reads a number from 1 to *most*."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or not 0 < int(text) <= most:
            raise ValueError(f"must be a number from 1 to {most}")
        return int(text)

    return parse


class LockWord(TextType):
    """The name of a lock, or a pattern; completed from the locks that exist."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of locks in the backend that the words before the cursor mean."""
        from click.shell_completion import CompletionItem

        try:
            backend = place(ctx.params.get("backend"), ctx.params.get("config")).open()
            found = backend.list("*", timeout=2.0)
            return [CompletionItem(lock.name) for lock in found if lock.name.startswith(incomplete)]
        except LockctlError:
            return []


class LockName(LockWord):
    """The name of a lock, checked."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name. Raises ``UsageError``."""
        try:
            return check_name(value)
        except ValueError as wrong:
            raise UsageError(printable(str(wrong))) from None


class BackendWord(TextType):
    """A backend: the profiles of the configuration are completed."""

    name = "backend"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of profiles in the file that the words before the cursor mean."""
        from click.shell_completion import CompletionItem

        try:
            file = config.read_config(config.config_path(ctx.params.get("config"), os.environ))
        except LockctlError:
            return []
        profiles = [] if file is None else sorted(file.tables.get("backends", {}))
        return [CompletionItem(profile) for profile in profiles if profile.startswith(incomplete)]


class CommandWord(TextType):
    """A command to run, which is completed from the PATH, and its words (see ``group.WrappedCommand``)."""

    name = "command"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Executables, or files."""
        from click.shell_completion import CompletionItem

        if "/" in incomplete:
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

    def __init__(self, words: tuple[str, ...], *, or_file: bool = False) -> None:
        """Complete to these, and what none of them begins with to files, if it may be one."""
        self.words = words
        self._or_file = or_file

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Those that begin with what is there."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(word) for word in self.words if word.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")] * self._or_file


class OneOf(Words):
    """Exactly one of a few words, or nothing at all where that is the default."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word. Raises ``UsageError``."""
        if value and value not in self.words:
            option = param.opts[-1] if param is not None else self.name
            raise UsageError(f"{option}: {printable(value[:40])!r} is none of: {', '.join(self.words)}")
        return value


class SomeOf(OneOf):
    """Some of a few words, with commas between them."""

    def convert(self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The words as a tuple. Raises ``UsageError``."""
        if isinstance(value, tuple):
            return value
        return tuple(super(SomeOf, self).convert(word, param, ctx) for word in value.split(",") if word)
