"""``lockctl watch``: a live table on a terminal, and one line for each change everywhere else."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
from typing import TYPE_CHECKING

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import with_settings
from lockctl.cli.output import data_stream, discard_output, lock_document, on_screen
from lockctl.cli.parameters import LockWord, Parsed, open_backend
from lockctl.cli.polling import Events, Polling
from lockctl.cli.rows import UNKNOWN, holder_place
from lockctl.clock import monotonic, utc, wall
from lockctl.durations import format_age, parse_duration
from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.value import replace

if TYPE_CHECKING:
    from lockctl.model import LockInfo

SHORTEST = 0.1  # seconds between two looks: a screen is not read faster, and a backend has other work
FRAME = 1.0  # seconds between two pictures: what counts down is shown in whole seconds
AT_ONCE = 4096  # bytes, PIPE_BUF: a pipe that is ready takes as many without blocking
CLOSED = (errno.EPIPE, errno.EIO, errno.ENXIO)  # the reader, or the terminal, is gone


def _interval(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < SHORTEST:
        raise ValueError(f"{printable(text)!r} is too short: at least {SHORTEST:g}s")
    return seconds


@with_settings("backend", "config")
@verb(
    "watch",
    examples={
        "lockctl watch 'deploy-*'": "A table that is renewed every two seconds.",
        "lockctl watch --json | jq -r 'select(.state == \"held\") | .name'": (
            "The names of locks at the moment when they are taken."
        ),
    },
)
@click.argument("pattern", default="*", type=LockWord(), metavar="[GLOB]")
@click.option(
    "--interval",
    metavar="DURATION",
    type=Parsed(_interval),
    default="2s",
    show_default=True,
    help="Time between two requests to the backend.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each change, in a line of its own.")
def command(pattern: str, *, interval: float, as_json: bool, backend: str | None, config: str | None) -> int:
    """Watch the locks of a backend.

    A live table on a terminal, else a line for each change.
    """
    opened = open_backend(backend, config)
    data_stream()
    events = Events()
    polling = Polling(opened, pattern, interval, events)
    try:
        if as_json or not on_screen():
            _follow(polling, events, as_json=as_json)
        else:
            _show(polling, events, f"lockctl watch {printable(pattern)}")
    except OSError as failure:
        discard_output()
        if failure.errno not in CLOSED:
            raise BackendUnavailable(f"cannot write to stdout: {failure.strerror}") from None
    polling.close()
    return exit_status.OK


def _show(polling: Polling, events: Events, title: str) -> None:
    """The live table, on the alternate screen, which is always left again."""
    from rich.live import Live

    from lockctl.cli import screen
    from lockctl.cli.picture import picture

    console = screen.console()
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    events.let_suspend()
    with live:
        while not events.ended:
            polling.advance()
            screen.fit(console)
            shown = picture(
                polling.locks,
                title=title,
                old=monotonic() - polling.seen_at,
                trouble=polling.trouble(),
                interval=polling.interval,
                size=console.size,
            )
            live.update(shown, refresh=True)
            events.wait(min(FRAME, polling.until_due()))
            if events.suspended:
                live.stop()
                events.stop_here()
                live.start()


def _follow(polling: Polling, events: Events, *, as_json: bool) -> None:
    """One line for each lock at first, and then for each change. A backend that fails is told of on stderr, once."""
    talk = Talk()
    known: dict[str, LockInfo] = {}
    failing: float | None = None
    while not events.ended:
        if polling.advance():
            known = _tell_changes(known, polling.locks or [], events, as_json=as_json)
            if failing is not None:
                talk("warning", f"the backend answers again, after {format_age(monotonic() - failing)}")
            failing = None
        elif polling.error is not None and failing is None:
            failing = monotonic()
            talk("error", f"{polling.error}; still watching")
        events.wait(polling.until_due())


def _tell_changes(
    known: dict[str, LockInfo], locks: list[LockInfo], events: Events, *, as_json: bool
) -> dict[str, LockInfo]:
    """Print what differs from what is *known*; what is known now."""
    present = {lock.name: lock for lock in locks}
    vanished = [
        replace(lock, state="free", holders=(), waiters=None if lock.waiters is None else ())
        for name, lock in known.items()
        if name not in present and lock.state != "free"
    ]
    changed = [lock for lock in locks if lock.name not in known or _essence(lock) != _essence(known[lock.name])]
    moment = utc(wall())
    for lock in sorted([*vanished, *changed], key=lambda lock: lock.name):
        line = json.dumps({"time": moment, **lock_document(lock)}) if as_json else _line(moment, lock)
        _write(line + "\n", events)
        if events.ended:
            break
    return present


def _essence(lock: LockInfo) -> object:
    """What makes a change: not a renewal, and not one more that waits."""
    return (lock.state, [(each.owner, each.host, each.pid, each.user, each.token) for each in lock.holders])


def _line(moment: str, lock: LockInfo) -> str:
    holder = lock.holders[0] if lock.holders else None
    where = UNKNOWN if holder is None else holder_place(holder)
    token = UNKNOWN if holder is None or holder.token is None else str(holder.token)
    return f"{moment}  {printable(lock.name):20}  {printable(lock.state):7}  {where:28}  {token}"


def _write(text: str, events: Events) -> None:
    """All of it, unless the end comes first: a reader that does not read must not keep us from ending."""
    left = text.encode(sys.stdout.encoding, "replace")
    while left and not events.ended:
        if not select.select([], [1], [], 0)[1]:
            events.wait(FRAME, writable=True)
            continue
        left = left[os.write(1, left[:AT_ONCE]) :]
