"""``lockctl config show|check|path``: the effective settings, and where each value came from."""

from __future__ import annotations

import json
import os

import click

from lockctl import config as settings_files
from lockctl.cli import exit_status
from lockctl.cli.crontab import line, unseen
from lockctl.cli.effects import in_effect
from lockctl.cli.group import CONTEXT, Command, Group
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, with_settings
from lockctl.cli.output import print_data, without_secrets
from lockctl.cli.parameters import LockName, TextType
from lockctl.config_file import mistakes, parse, readable_secrets
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.settings import BY_NAME
from lockctl.settings_values import shown
from lockctl.url import parse_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lockctl.errors import LockctlError


@click.group(
    "config",
    cls=Group,
    examples={
        "lockctl config show": "The settings, and where each comes from.",
        "lockctl config check": "Whether the file has a mistake.",
    },
)
def command() -> None:
    """Show and check the effective settings."""


@with_settings("backend", "config")
@command.command(
    "show",
    cls=Command,
    examples={
        "lockctl config show": "What applies to every lock.",
        "lockctl config show -l nightly": "What applies to this one, and where each value comes from.",
    },
)
@click.option("-l", "--lock", metavar="NAME", type=LockName(), help="Show the settings for this lock.")
@AS_JSON
def show(lock: str | None, *, as_json: bool, config: str | None, backend: str | None) -> int:
    """Print every setting, its value and where it came from."""
    # a backend is shown without user, password and parameters
    file = settings_files.read_config(settings_files.config_path(config, os.environ))
    given: dict[str, str | bool] = {} if backend is None else {"backend": backend}
    settings = settings_files.resolve(given, os.environ, file, lock)
    rows = []
    for name, setting in settings.items():
        if not BY_NAME[name].in_config:
            continue
        content = shown(BY_NAME[name], setting.content).replace("\n", ", ")
        if name == "backend":
            content = str(settings_files.backend_url(setting, os.environ, file))
        elif name == "fence" and "@" in content:
            content = without_secrets(content)
        elif name == "fence" and "://" in content:
            content = str(parse_url(content))
        rows.append((name, printable(content), printable(setting.source)))
    if as_json:
        print_data(json.dumps({name: {"value": content, "source": source} for name, content, source in rows}, indent=2))
    else:
        from lockctl.cli import screen

        screen.print_table(
            screen.SETTINGS, [screen.Row((name, content or "-", source)) for name, content, source in rows]
        )
    return exit_status.OK


@with_settings("backend", "config")
@command.command(
    "check",
    cls=Command,
    examples={
        "lockctl config check": "The file that is in use.",
        "lockctl config check --config new.toml": "Another one, before it is installed.",
    },
)
@AS_JSON
def check(*, as_json: bool, config: str | None, backend: str | None) -> int:
    """Check every key and value of the configuration file."""
    place = settings_files.config_path(config, os.environ)
    file = None if place is None else parse(place)
    found: list[LockctlError] = [] if file is None else list(mistakes(file))
    doubts: list[str] = []
    if not found:  # else what follows from it would be said, too
        found, doubts = in_effect(file, backend, os.environ)
    if found:
        talk = Talk()
        for mistake in found[:-1]:
            talk("error", str(mistake))
        raise found[-1]
    for warning in [*doubts, *(readable_secrets(file) if file is not None else ())]:
        Talk()("warning", warning)
    said = f"{printable(place)}: ok" if place else "no configuration file: the built-in settings apply"
    print_data(_path_document(place) if as_json else said)
    return exit_status.OK


@with_settings("config")
@command.command(
    "path",
    cls=Command,
    examples={
        "lockctl config path": "Such as /etc/lockctl/config.toml.",
        "lockctl config path --json": "The same for a program; null if there is none.",
    },
)
@AS_JSON
def path(*, as_json: bool, config: str | None) -> int:
    """Print the path of the configuration file in use.

    Nothing if there is none.
    """
    found = settings_files.config_path(config, os.environ)
    if found:
        try:
            os.stat(found)
        except OSError as failure:
            raise ConfigError(f"{printable(found)}: cannot read the configuration: {failure.strerror}") from None
    if as_json:
        print_data(_path_document(found))
    elif found:
        print_data(printable(found))
    return exit_status.OK


class RunWord(TextType):
    """A word of the command line of `run`."""

    name = "word"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What `run` completes there."""
        from click.shell_completion import ShellComplete

        from lockctl.cli.verbs import run

        before = list(ctx.params[str(param.name)] or ())
        return ShellComplete(run.command, {}, "lockctl run", "").get_completions(before, incomplete)


class Crontab(Command):
    """`crontab`, whose options after the schedule are those of `run`."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Those that begin so."""
        if ctx.params["schedule"] is None:
            return super().shell_complete(ctx, incomplete)
        return self.params[1].shell_complete(ctx, incomplete)


@command.command(
    "crontab",
    cls=Crontab,
    examples={
        "lockctl config crontab '*/5 * * * *' -l sync --skip-ok -- sync-all": "Every five minutes, never two at once.",
        "lockctl config crontab @hourly -b etcd://etcd1/ -l report --once-per 1h -- report": "On each of many hosts.",
    },
    context_settings={"allow_interspersed_args": False},
)
@click.argument("schedule")
@click.argument("words", nargs=-1, type=RunWord(), metavar="[RUN OPTIONS] [--] COMMAND [ARG]...")
def crontab(schedule: str, words: tuple[str, ...]) -> int:
    """Print a checked line for a crontab, with absolute paths.

    Takes what `lockctl run` takes. The settings are checked as cron will see them: without the variables of this shell.
    """
    from lockctl.cli.verbs import run

    given, job, locks = run.read(**run.command.make_context("lockctl run", list(words), **CONTEXT).params)
    options = words[: len(words) - len(job)]
    print_data(line(schedule, given, job, locks, options[:-1] if options[-1:] == ("--",) else options))
    ignored = unseen(os.environ, given)
    if ignored:
        Talk()("warning", f"cron does not see {', '.join(ignored)}: use options, or a configuration file")
    return exit_status.OK


def _path_document(path: str | None) -> str:
    return json.dumps({"path": None if path is None else printable(path)}, indent=2)
