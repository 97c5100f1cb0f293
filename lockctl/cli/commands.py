"""All verbs for click: option tables become parameters, errors become one line and a status."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lockctl import __version__, config, registry
from lockctl.cli import exit_status
from lockctl.cli.fence_commands import fence_
from lockctl.cli.messages import Talk
from lockctl.cli.output import discard_output
from lockctl.cli.parameters import CommandWord, Group, HelpWanted, TextType, Words
from lockctl.errors import Interrupted, LockctlError, UsageError
from lockctl.settings import FLAG, SETTINGS, SIGNAL
from lockctl.supervise.signals import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from lockctl.backend import Backend
    from lockctl.settings import Setting

# the settings of a run that mean something for a lock without a command
HOLDING = (
    *("backend", "ttl", "wait", "no_wait", "conflict_exit_code", "kill_after", "splay", "guarantee"),
    *("slots", "shared", "min_hold"),
)
SAYING = ("log_format", "verbose", "quiet", "config")
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # where click prints a help itself
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def invoke(words: Sequence[str]) -> int:
    """Run one command line through click; the exit status."""
    talk = Talk()
    try:
        result = cli.main(args=list(words), prog_name="lockctl", standalone_mode=False)
    except HelpWanted as help_wanted:
        sys.stderr.write(f"{help_wanted}\n")
        return exit_status.USAGE
    except click.UsageError as wrong:
        where = f" (try: {wrong.ctx.command_path} --help)" if wrong.ctx else ""
        said = wrong.format_message().rstrip(".").replace("\n", " ") + where
        talk("error", said)
        _report_run(words, said, talk)
        return exit_status.USAGE
    except click.Abort:
        return exit_status.SIGNALED + 2
    except click.ClickException as failure:
        talk("error", failure.format_message())
        return exit_status.USAGE
    except LockctlError as error:
        if not isinstance(error, Interrupted):
            talk("error", str(error))
        _report_run(words, str(error), talk)
        return exit_status.of_error(error)
    except OSError as failure:
        if failure.errno not in UNWRITTEN or failure.filename is not None:
            raise
        discard_output()  # else what is left of it would be tried again at the end
        talk("error", f"cannot write to stdout: {failure.strerror}")
        return exit_status.UNAVAILABLE
    return result if isinstance(result, int) else exit_status.OK


def _report_run(words: Sequence[str], said: str, talk: Talk) -> None:
    """Write the report of a ``run`` whose words are wrong, as far as they say where; one of yesterday does not stay."""
    if list(words[:1]) == ["run"]:
        from lockctl.cli import fastpath, report

        report.report_refusal(fastpath.guess(list(words[1:])), (), os.environ, said, talk)


class LockName(TextType):
    """The name of a lock; completed from the locks that exist."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of locks in the backend that the words before the cursor mean."""
        from click.shell_completion import CompletionItem

        try:
            backend = open_backend(ctx.params.get("backend"), ctx.params.get("config"))
            found = backend.list("*", timeout=2.0)
            return [CompletionItem(lock.name) for lock in found if lock.name.startswith(incomplete)]
        except LockctlError:
            return []


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


def option(setting: Setting) -> click.Option:
    """One setting as an option of click. Values stay text: ``lockctl.settings`` alone reads them."""
    kind: TextType | click.Path = click.STRING
    if setting.choices:
        kind = Words(setting.choices)
    elif setting.kind == "file":
        kind = click.Path()
    elif setting.name == "lock":
        kind = LockName()
    elif setting.kind == SIGNAL:
        kind = Words(tuple(NAMES))
    elif setting.name == "backend":
        kind = BackendWord()
    help_text = setting.help + (f"  [default: {setting.default}]" if setting.default else "")
    if setting.kind == FLAG:
        return click.Option([*setting.flags, setting.name], is_flag=True, default=None, help=help_text)
    return click.Option(
        [*setting.flags, setting.name],
        type=kind,
        default=None,
        multiple=setting.name in ("lock", "fence"),
        metavar=setting.metavar,
        help=help_text,
    )


def open_backend(word: str | None, config_file: str | None, lock: str | None = None) -> Backend:
    """The backend that the options, variables and configuration mean."""
    given: dict[str, str | bool] = {} if word is None else {"backend": word}
    file = config.read_config(config.config_path(config_file, os.environ))
    settings = config.resolve(given, os.environ, file, lock)
    return registry.open_backend(config.backend_url(settings["backend"], os.environ, file))


def with_settings(command: click.Command, *names: str) -> None:
    """Add the options of these settings."""
    command.params += [option(setting) for setting in SETTINGS if setting.name in names]


@click.group(cls=Group, context_settings=CONTEXT)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Run a command under a lease, with a fencing token, and never twice.

    lockctl run [OPTIONS] [--] COMMAND [ARG]... takes a lock, runs the command, keeps the lock while it
    runs, and stops the command with all its descendants when the lock is lost.
    """


@cli.command("run", context_settings={**CONTEXT, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=CommandWord(), metavar="[--] COMMAND [ARG]...")
def run_(words: tuple[str, ...], **given: Any) -> int:
    """Run a command under a lock.

    Exits with the command's own status; 75 if another holds the lock, 76 if the lease was lost.
    """
    from lockctl.cli.main import start_run

    settings = {name: content for name, content in given.items() if content is not None}
    locks, resources = settings.pop("lock"), settings.pop("fence")
    if locks:
        settings["lock"] = locks[0]
    if len(resources) > 1:  # elsewhere the last one counts; here another one would be left without a fence
        raise UsageError("--fence is for one resource: advance the others in the command, with lockctl fence advance")
    if resources:
        settings["fence"] = resources[0]
    if not words:
        raise UsageError("no command: lockctl run [OPTIONS] [--] COMMAND [ARG]...")
    os._exit(start_run(settings, words, tuple(locks[1:])))


run_.params += [option(setting) for setting in SETTINGS]


@cli.command("acquire")
@click.argument("name", type=LockName())
@click.option("--for", "span", metavar="DURATION", required=True, help="Hold the lock for at most this long.")
@click.option("--bind-pid", metavar="PID", help="Give the lock back when this process ends, such as $$ in a shell.")
@click.option(
    "--handle", "file", metavar="FILE", type=click.Path(), help="Write the handle to this file; - for stdout."
)
@click.option("--export", type=Words(("sh",)), metavar="sh", help="Print assignments for eval in a POSIX shell.")
def acquire_(name: str, *, span: str, bind_pid: str | None, file: str | None, export: str | None, **given: Any) -> int:
    """Take a lock that a detached process holds, across the steps of a CI job, and print its handle."""
    from lockctl.cli import acquire

    settings = {name: content for name, content in given.items() if content is not None}
    try:
        status = acquire.acquire(acquire.wanted(name, span, bind_pid, file, export), settings, os.environ)
    except LockctlError as error:
        acquire.tell_shell(export, exit_status.of_error(error))
        raise
    acquire.tell_shell(export, status)
    return status


@cli.command("renew")
@click.option("--handle", "file", metavar="FILE", type=click.Path(), help="What acquire wrote; - for stdin.")
@click.option("--for", "span", metavar="DURATION", help="Hold the lock for at most this long, from now on.")
def renew_(*, file: str | None, span: str | None) -> int:
    """Hold an acquired lock for longer."""
    from lockctl.cli import release

    return release.renew(file, span, os.environ)


@cli.command("release")
@click.option("--handle", "file", metavar="FILE", type=click.Path(), help="What acquire wrote; - for stdin.")
def release_(*, file: str | None) -> int:
    """Give an acquired lock back, and wait until it is free. Releases only what this handle acquired."""
    from lockctl.cli import release

    return release.release(file, os.environ)


@cli.command("list")
@click.argument("pattern", default="*", type=LockName(), metavar="[GLOB]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(pattern: str, *, as_json: bool, backend: str | None, config: str | None) -> int:
    """List the locks of a backend: name, state, holder, token, age, waiters."""
    from lockctl.cli import look

    return look.list_locks(open_backend(backend, config), pattern, as_json=as_json)


@cli.command("inspect")
@click.argument("name", type=LockName())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def inspect_(name: str, *, as_json: bool, backend: str | None, config: str | None) -> int:
    """Show one lock in full: holder, waiters in order, the place that other tools must be given."""
    from lockctl.cli import look

    return look.inspect_lock(open_backend(backend, config, name), name, as_json=as_json)


@cli.command("history")
@click.argument("name", type=LockName())
@click.option("--limit", metavar="N", help="How many runs.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def history_(name: str, *, limit: str | None, as_json: bool, backend: str | None, config: str | None) -> int:
    """Show the last runs under a lock, the newest first: host, command, token, start, duration, outcome."""
    from lockctl.cli import past

    return past.print_history(open_backend(backend, config, name), name, limit, as_json=as_json)


@cli.command("watch")
@click.argument("pattern", default="*", type=LockName(), metavar="[GLOB]")
@click.option("--interval", default="2s", metavar="DURATION", help="How long to wait between two looks.  [default: 2s]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each change, in a line of its own.")
def watch_(pattern: str, *, interval: str, as_json: bool, backend: str | None, config: str | None) -> int:
    """Watch the locks of a backend: a live table on a terminal, else a line for each change."""
    from lockctl.cli import watch

    return watch.watch(open_backend(backend, config), pattern, interval=interval, as_json=as_json)


@cli.command("force-release")
@click.argument("name", type=LockName())
@click.option("--now", is_flag=True, help="Free the lock at once; the old holder may still be running.")
@click.option("--token", metavar="N", help="Refuse (75) unless the holder has this token.")
@click.option("--reason", default="", metavar="TEXT", help="Tell the holder why.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where no terminal is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def force_release_(
    name: str,
    *,
    now: bool,
    token: str | None,
    reason: str,
    yes: bool,
    as_json: bool,
    backend: str | None,
    config: str | None,
) -> int:
    """Ask the holder of a lock to stop its command and give the lock back, and wait until it has."""
    from lockctl.cli import force_release
    from lockctl.cli.output import look_options

    where = look_options({"config": config or "", "backend": backend or ""})
    order = force_release.Order(name=name, now=now, token=token, reason=reason, yes=yes, as_json=as_json, where=where)
    return force_release.force_release(open_backend(backend, config, name), order)


@cli.command("prune")
@click.argument("pattern", default="*", type=LockName(), metavar="[GLOB]")
@click.option("--older-than", metavar="DURATION", required=True, help="Only what nobody has used for this long.")
@click.option("--dry-run", is_flag=True, help="Print what would be forgotten, and forget nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def prune_(
    pattern: str, *, older_than: str, dry_run: bool, as_json: bool, backend: str | None, config: str | None
) -> int:
    """Forget names that nobody uses any more: their history, successes and counters, never the order of tokens."""
    from lockctl.cli import prune

    return prune.prune(open_backend(backend, config), pattern, older_than, dry_run=dry_run, as_json=as_json)


@cli.command("backends")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def backends_(*, as_json: bool) -> int:
    """Show what each backend promises: fencing, order of waiters, what it survives, what frees a lock."""
    from lockctl.cli import backends

    return backends.print_backends(as_json=as_json)


@cli.group("config")
def config_() -> None:
    """Show and check the effective settings."""


@config_.command("show")
@click.option("-l", "--lock", metavar="NAME", type=LockName(), help="As they are for this lock.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def config_show(lock: str | None, *, as_json: bool, config: str | None, backend: str | None) -> int:
    """Print every setting, its value and where it came from."""
    from lockctl.cli import config as verb

    return verb.show(lock, config, backend, as_json=as_json)


@config_.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def config_check(*, as_json: bool, config: str | None, backend: str | None) -> int:
    """Check the configuration file: every key, every value."""
    from lockctl.cli import config as verb

    return verb.check(config, backend, as_json=as_json)


@config_.command("path")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def config_path(*, as_json: bool, config: str | None) -> int:
    """Print the path of the configuration file that counts; nothing if there is none."""
    from lockctl.cli import config as verb

    return verb.path(config, as_json=as_json)


@cli.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_(shell: str) -> int:
    """Print the completion script for a shell."""
    from lockctl.cli import completion

    return completion.print_script(shell)


cli.add_command(fence_)
for verb in (list_, inspect_, history_, watch_, force_release_, prune_, config_show, config_check):
    with_settings(verb, "backend", "config")
with_settings(config_path, "config")
with_settings(acquire_, *HOLDING, *SAYING)
