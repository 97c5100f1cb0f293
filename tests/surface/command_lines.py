"""Reading the command lines of documents and samples the way `lockctl` itself reads them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click

from lockctl import settings, settings_values
from lockctl.cli import fastpath
from lockctl.cli.commands import cli
from lockctl.names import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = ["-h", "--help"]  # click keeps the first spelling that it is asked for, so always ask for both
VARIABLES = {"$LOCKCTL_TOKEN": "7", "$t": "7"}  # what a shell puts there, where it must be a number
CALL = re.compile(r"(?<![\w.`-])(?<! /)lockctl (?=[a-z-])")  # not of a node of ZooKeeper, /lockctl


def commands() -> dict[str, click.Command]:
    """Words after `lockctl` -> command, for all commands; the empty words are `lockctl` itself."""
    found: dict[str, click.Command] = {}
    queue: list[tuple[str, click.Command]] = [("", cli)]
    while queue:
        words, command = queue.pop()
        found[words] = command
        if isinstance(command, click.Group):
            queue += [(f"{words} {name}".strip(), child) for name, child in command.commands.items()]
    return found


def flags(command: click.Command) -> set[str]:
    """Every spelling of every option of a command."""
    context = click.Context(command, help_option_names=HELP)
    return {flag for option in command.get_params(context) if isinstance(option, click.Option) for flag in option.opts}


def calls(text: str) -> Iterator[list[str]]:
    """The words after `lockctl` of every call in the indented lines of a document."""
    for line in text.splitlines():
        if line.startswith("    ") and CALL.search(line):
            yield from calls_in_line(line)


def calls_in_line(line: str) -> Iterator[list[str]]:
    """The words after `lockctl` of every call in one line for a shell."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    simple: list[list[str]] = [[]]
    for token in reader:
        if set(token) <= set("();<>|&"):
            simple.append([])
        else:
            simple[-1].append(token)
    for words in simple:
        if words[:1] == ["ssh"]:  # another shell reads its words again, joined
            yield from calls_in_line(" ".join(words[2:]))
            continue
        number = next((number for number, word in enumerate(words) if is_lockctl(word)), None)
        if number is not None:
            yield words[number + 1 :]


def is_lockctl(word: str) -> bool:
    """Whether a shell would start `lockctl` for this word."""
    return word == "lockctl" or word.endswith("/bin/lockctl")


def check_call(words: list[str]) -> None:
    """Fail unless `lockctl` would accept these words."""
    if words[0] == "run":
        parsed = fastpath.read(words[1:])
        assert parsed is not None, f"`run` does not accept {words}"
        given, command, more = parsed
        for name in more:
            settings_values.check(settings.BY_NAME["lock"], name)
        for name, content in given.items():
            if isinstance(content, str):
                settings_values.check(settings.BY_NAME[name], content)
        if is_lockctl(command[0]):
            check_call(list(command[1:]))
        return
    command_: click.Command = cli
    rest = [VARIABLES.get(word, word) for word in words]
    while isinstance(command_, click.Group):
        command_ = command_.commands[rest.pop(0)]
    context = command_.make_context("lockctl", rest, help_option_names=HELP)
    if "name" in context.params:
        check_name(context.params["name"])
