"""``lockctl acquire``: have a daemon take a lock, wait until it has, and hand out the handle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lockctl import clock, kernel
from lockctl.cli import exit_status
from lockctl.cli.daemon.daemonize import Wanted
from lockctl.cli.daemon.handle import Handle, check_replaceable, document, shell, write
from lockctl.cli.daemon.launch import Daemon, start
from lockctl.cli.daemon.remains import ID_LENGTH, Remains, directory, sweep
from lockctl.cli.files import can_put
from lockctl.cli.group import verb
from lockctl.cli.options import with_settings, written
from lockctl.cli.output import data_stream
from lockctl.cli.parameters import LockWord, positive_duration
from lockctl.errors import ConfigError, UsageError
from lockctl.names import check_name, printable
from lockctl.url import whole_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# the settings of a run that mean something for a lock without a command
HOLDING = (
    *("backend", "ttl", "wait", "no_wait", "conflict_exit_code", "kill_after", "splay", "guarantee"),
    *("slots", "shared", "min_hold", "label"),
)
SAYING = ("log_format", "log", "verbose", "quiet", "config")


@with_settings(*HOLDING, *SAYING)
@verb(
    "acquire",
    examples={
        "lockctl acquire deploy --for 30m --wait 10m --handle deploy.lock": (
            "In the first step of a job; the last step releases what the handle names."
        ),
        'lock=$(lockctl acquire deploy --for 30m --bind-pid $$ --export sh) && eval "$lock"': (
            "In a script: the lock ends with the script, which gets LOCKCTL_TOKEN."
        ),
    },
)
@click.argument("name", type=LockWord())
@click.option("--for", "span", metavar="DURATION", required=True, help="Hold the lock for at most this long.")
@click.option("--bind-pid", metavar="PID", help="Release the lock when this process ends, such as $$ in a shell.")
@click.option(
    "--handle",
    "file",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Write the handle to this file; - for stdout.",
)
@click.option("--export", type=click.Choice(["sh"]), metavar="sh", help="Print assignments for eval in a POSIX shell.")
def command(name: str, *, span: str, bind_pid: str | None, file: str | None, export: str | None, **given: Any) -> int:
    """Acquire a lock and hold it in the background.

    For the steps of a CI job, which share no process. Prints a handle, with which it is renewed and released.
    """
    wanted = _wanted(name, span, bind_pid, file, for_shell=export is not None)
    return _acquire(wanted, written(given), os.environ)


def _wanted(name: str, span: str, bind_pid: str | None, file: str | None, *, for_shell: bool) -> Wanted:
    """The words of the command line, checked; raises ``UsageError``."""
    try:
        check_name(name)
    except ValueError as wrong:
        raise UsageError(printable(str(wrong))) from None
    pid, bound = (0, -1) if bind_pid is None else _living(bind_pid)
    if file == "-":
        file = None
    if file is not None:
        if not can_put(file):
            raise UsageError(f"--handle: cannot write {printable(file)}: no such directory, or no permission")
        file = whole_path(file, UsageError)
        check_replaceable(file, name, acquired=False)
    if file is None or for_shell:
        data_stream()  # a handle that nobody gets would hold the lock for nothing
    try:
        seconds = positive_duration("30m")(span)
    except ValueError as wrong:
        raise UsageError(f"--for: {printable(str(wrong))}") from None
    return Wanted(name, seconds, pid, bound, file, for_shell)


def _living(text: str) -> tuple[int, int]:
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 10 or not int(text):
        raise UsageError(f"--bind-pid: {printable(text[:30])!r} is not a process ID, such as $$ in a shell")
    try:
        return int(text), kernel.process_descriptor(int(text))
    except ProcessLookupError:
        raise UsageError(f"--bind-pid: there is no process {text}") from None


def _acquire(order: Wanted, given: Mapping[str, str | bool], environ: Mapping[str, str]) -> int:
    """Take the lock and hand out its handle; the exit status is that of a ``run`` which could not begin."""
    place = directory(environ)
    sweep(place, clock.wall())
    remains = Remains(f"{place}/{os.urandom(ID_LENGTH // 2).hex()}")
    daemon = start(order, remains, given, environ)
    try:
        granted = daemon.await_grant(order)
        if granted is not None:
            _hand_out(order, _handle(granted, daemon.pid, remains), remains, daemon, environ)
            daemon.confirm()
            return exit_status.OK
        status = daemon.status()
    except BaseException:
        daemon.cancel()
        remains.remove()
        daemon.restore_signals()
        raise
    remains.remove()
    daemon.restore_signals()
    return status


def _handle(granted: Mapping[str, str], pid: int, remains: Remains) -> Handle:
    ttl = float(granted["ttl"])
    return Handle(
        name=granted["lock"],
        backend=granted["backend"],
        owner=granted["owner"],
        token=int(granted["token"]),
        token_domain=granted["token_domain"],
        fencing=granted["fencing"],
        ttl=int(ttl) if ttl.is_integer() else ttl,
        expires_at=granted["expires_at"],
        pid=pid,
        socket=remains.path(".sock"),
    )


def _hand_out(order: Wanted, handle: Handle, remains: Remains, daemon: Daemon, environ: Mapping[str, str]) -> None:
    """To the file if one was named; to stdout as JSON, or as assignments that name a file."""
    file = order.file
    if file is None and order.for_shell:
        file = remains.path(".handle")
    if file is not None:
        check_replaceable(file, handle.name, acquired=True)  # another one may have come while we waited
        write(file, document(handle))
    if order.for_shell:
        _print_all(shell(handle, str(file), environ), daemon.print_all)
    elif file is None:
        _print_all(document(handle) + "\n", daemon.print_all)


def _print_all(text: str, write_all: Callable[[bytes], object]) -> None:
    """Print on a stdout that somebody reads; raises ``ConfigError`` if nobody does."""
    try:
        write_all(os.fsencode(text))  # a path may be of any bytes
    except OSError as failure:
        raise ConfigError(f"cannot write the handle to stdout: {failure.strerror}") from None
