"""Wrong words on the command line, in one sentence: what is wrong, where, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from lockctl.cli.fastpath import BY_FLAG, split
from lockctl.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


def sentence(wrong: click.UsageError) -> str:
    """The sentence for what click found; which classes and words it has for that changes with its version."""
    where = f" (try: {wrong.ctx.command_path} --help)" if wrong.ctx else ""
    return _said(wrong).rstrip(".").replace("\n", " ") + where


def _said(wrong: click.UsageError) -> str:
    text = wrong.message or wrong.format_message()
    group = wrong.ctx.command if wrong.ctx else None
    command = re.match(r"No such command '(.*?)'", text)
    if command and isinstance(group, click.Group):
        return f"there is no command {command[1]!r}{did_you_mean(command[1], group.commands)}"
    if isinstance(wrong, click.NoSuchOption):
        commands = group.commands.values() if isinstance(group, click.Group) else ()
        if any(wrong.option_name in param.opts for each in commands for param in each.params):
            return f"{wrong.option_name} stands after the command: lockctl COMMAND {wrong.option_name}"
        known = [each for param in group.params for each in param.opts] if group else []
        return f"there is no option {wrong.option_name}{did_you_mean(wrong.option_name, known)}"
    if isinstance(wrong, click.MissingParameter) and wrong.param is not None:
        return f"{_name(wrong.param)} is missing"
    if isinstance(wrong, click.BadOptionUsage):
        what = "takes no value" if "not take" in text else "needs a value"
        return f"{wrong.option_name} {what}"
    if isinstance(wrong, click.BadParameter) and wrong.param is not None:
        return f"{_name(wrong.param)}: {text}"
    extra = re.match(r"Got unexpected extra arguments? \((.*)\)", text)
    return f"too many arguments: {extra[1]}" if extra else text[:1].lower() + text[1:]


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return param.opts[-1]
    return param.metavar or (param.name or "").upper()


def settings_in(words: Sequence[str], *, of_run: bool) -> dict[str, str | bool]:
    """What of wrong words can be understood: the settings that have a value, of a run up to what may be its command."""
    given: dict[str, str | bool] = {}
    rest = iter(words)
    for word in rest:
        if word == "--" or (of_run and not word.startswith("-")):
            break
        flag, value = split(word)
        setting = BY_FLAG.get(flag)
        if setting is not None and setting.takes_value:
            value = next(rest, None) if value is None else value
            if value is not None:
                given[setting.name] = value
    return given
