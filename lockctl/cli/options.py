"""Options that several verbs have: the settings of ``run``, which backend is meant, ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockctl.cli.parameters import BackendWord, LockWord, Words
from lockctl.settings import FLAG, SETTINGS, SIGNAL
from lockctl.supervise.signals import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.cli.parameters import TextType
    from lockctl.settings import Setting

REQUEST_TIMEOUT = 10.0  # seconds for one question to the backend
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
HANDLE = click.option("--handle", "file", metavar="FILE", type=click.Path(), help="What acquire wrote; - for stdin.")
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")


def with_settings(*names: str) -> Callable[[click.Command], click.Command]:
    """Give a command the options of these settings, after its own."""

    def decorate(command: click.Command) -> click.Command:
        command.params += [_option(setting) for setting in SETTINGS if setting.name in names]
        return command

    return decorate


def _option(setting: Setting) -> click.Option:
    """One setting as an option of click. Values stay text: ``lockctl.settings_values`` alone reads them."""
    # not by show_default, which puts a default that only the settings know into parentheses
    help_text = setting.help + (f"  [default: {setting.default}]" if setting.default else "")
    if setting.kind == FLAG:
        return click.Option([*setting.flags, setting.name], is_flag=True, default=None, help=help_text)
    return click.Option(
        [*setting.flags, setting.name],
        type=_type(setting),
        default=None,
        multiple=setting.name in ("lock", "fence"),
        metavar=setting.metavar,
        help=help_text,
    )


def _type(setting: Setting) -> TextType | click.Path:
    if setting.choices:
        return Words(setting.choices)
    if setting.kind == SIGNAL:
        return Words(tuple(NAMES))
    if setting.kind == "file":
        return click.Path()
    return {"lock": LockWord(), "backend": BackendWord()}.get(setting.name, click.STRING)
