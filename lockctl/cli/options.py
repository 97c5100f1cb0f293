"""Options that several verbs have: the settings of ``run``, which backend is meant, ``--json``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli.output import data_stream
from lockctl.cli.parameters import BackendWord, LockWord, TextType, Words
from lockctl.errors import UsageError
from lockctl.settings import BY_NAME, FLAG, NO_FENCE, REPEATED, SETTINGS, SIGNAL, Setting
from lockctl.supervise.signals import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# in a help and on its page; a setting that is not named here belongs to OUTPUT
GROUPS = {
    "Which lock": ("lock", "backend", "ttl", "slots", "shared", "guarantee", "fence"),
    "Waiting": ("wait", "no_wait", "splay", "conflict_exit_code", "skip_ok", "on_unavailable"),
    "Stopping": ("max_runtime", "kill_after", "signal", "leftover", "on_lost", "contain"),
    "Many hosts": ("once_per", "min_hold", "restart"),
    "The command": ("shell",),
}
INSTEAD_OF_FILE = {"log": ("syslog", "journald"), "fence": (NO_FENCE,)}
OUTPUT = "Output and configuration"
GROUP_OF = dict.fromkeys(BY_NAME, OUTPUT) | {name: group for group, names in GROUPS.items() for name in names}
REQUEST_TIMEOUT = 10.0  # seconds for one question to the backend


def _with_output(_: click.Context, __: click.Parameter, wanted: Any) -> Any:
    """Nothing is done whose document could not be written. Raises ``UsageError``."""
    if wanted:
        data_stream()
    return wanted


AS_JSON = click.option("--json", "as_json", is_flag=True, callback=_with_output, help="Print one JSON document.")
HANDLE = click.option(
    "--handle", "file", metavar="FILE", type=click.Path(readable=False), help="What acquire wrote; - for stdin."
)
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")


def with_settings(*names: str) -> Callable[[click.Command], click.Command]:
    """Give a command the options of these settings, after its own."""

    def decorate(command: click.Command) -> click.Command:
        settings = [setting for setting in SETTINGS if setting.name in names]
        settings.sort(key=lambda setting: [*GROUPS, OUTPUT].index(GROUP_OF[setting.name]))
        command.params += map(_option, settings)
        return command

    return decorate


class SettingOption(click.Option):
    """A setting as an option of click, with the heading that it stands under."""

    def __init__(self, *words: Any, group: str, **attributes: Any) -> None:
        """*group* is the heading."""
        super().__init__(*words, **attributes)
        self.group = group


def _option(setting: Setting) -> click.Option:
    """One setting as an option of click. Values stay text: ``lockctl.settings_values`` alone reads them."""
    group = GROUP_OF[setting.name]
    # not by show_default, which puts a default that only the settings know into parentheses
    help_text = setting.help + (f"  [default: {setting.default}]" if setting.default else "")
    if setting.kind == FLAG:
        words = [*setting.flags, setting.name]
        return SettingOption(words, group=group, is_flag=True, default=None, help=help_text)
    return SettingOption(
        [*setting.flags, setting.name],
        group=group,
        type=_type(setting),
        default=None,
        multiple=setting.name in ("lock", "fence") or setting.kind in REPEATED,
        metavar=setting.metavar,
        help=help_text,
    )


def written(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that were given, as the settings want them: of several of a kind one text."""
    found = {name: content for name, content in given.items() if content is not None}
    for name in found.keys() & BY_NAME.keys():
        if BY_NAME[name].kind in REPEATED:
            several = found.pop(name)
            found |= {name: "\n".join(several)} if several else {}
    return found


def _type(setting: Setting) -> TextType | click.Path:
    if setting.choices:
        return Words(setting.choices)
    if setting.kind == SIGNAL:
        return Words(tuple(NAMES))
    if setting.name in INSTEAD_OF_FILE:
        return Words(INSTEAD_OF_FILE[setting.name], or_file=True)
    if setting.kind == "file":
        return click.Path(readable=False)
    return {"lock": LockWord(), "backend": BackendWord()}.get(setting.name, click.STRING)


def ask_person(alone: str, shown: str, question: str) -> bool:
    """Whether the answer to *question* is yes. Above it stands *shown*, in the refusal *alone*.

    Raises ``UsageError`` without a terminal. Not by ``click.confirm``: with click 8.1 it puts a blank on stdout.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{alone}; --yes is required without a terminal")
    sys.stderr.write(f"{shown}\n{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
