"""``lockctl watch``: a live table on a terminal, and one line for each change everywhere else."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import with_settings
from lockctl.cli.output import data_stream, discard_output, on_screen
from lockctl.cli.parameters import LockWord, Parsed
from lockctl.cli.query import SORTS, STATES, Query, sort_option, state_option, with_query
from lockctl.cli.watch.changes import follow
from lockctl.cli.watch.keys import Keyboard, read
from lockctl.cli.watch.polling import Events, Polling
from lockctl.cli.watch.view import LOCK, View
from lockctl.clock import monotonic
from lockctl.durations import parse_duration
from lockctl.errors import BackendUnavailable
from lockctl.names import printable
from lockctl.value import replace

if TYPE_CHECKING:
    from lockctl.cli.places import Place
    from lockctl.model import LockInfo

SHORTEST = 0.1  # seconds between two looks: a screen is not read faster, and a backend has other work
FRAME = 1.0  # seconds between two pictures: what counts down is shown in whole seconds
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
@click.option("-a", "--all", "everything", is_flag=True, help="Show the free locks, too.")
@state_option(STATES, "Show only the locks in these states: held, foreign, free.")
@sort_option(SORTS, "state")
@with_query
def command(pattern: str, *, interval: float, **given: Any) -> int:
    """Watch the locks of a backend that are held or waited for.

    A live table on a terminal, else a line for each change.
    """
    query = Query(**given)
    places = query.places()
    data_stream()
    events = Events()
    polling = Polling(places, pattern, interval, events)
    where = f"{printable(pattern)} in {', '.join(map(str, places))}"
    try:
        if query.form not in ("", "wide") or not on_screen():
            if query.for_people:
                Talk(verbose=True)(
                    "info", f"watching {where}" + "".join(f"; {each.hint}" for each in places if each.hint)
                )
            follow(polling, events, query)
        else:
            named = str(places[0]) if len(places) == 1 else ", ".join(each.label for each in places)
            _show(polling, events, View(query), named if pattern == "*" else f"{printable(pattern)} in {named}")
    except OSError as failure:
        discard_output()
        if failure.errno not in CLOSED:
            raise BackendUnavailable(f"cannot write to stdout: {failure.strerror}") from None
    polling.close()
    return exit_status.OK


def _show(polling: Polling, events: Events, view: View, title: str) -> None:
    """The live table, on the alternate screen. It is always left again, and the keyboard given back."""
    from rich.live import Live

    from lockctl.cli import screen
    from lockctl.cli.watch.picture import Frame, picture

    console = screen.console()
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    keyboard = Keyboard()
    events.let_suspend()
    told: list[str] = []
    try:
        with live:
            listening = False
            while not (events.ended or view.ended):
                if not listening and (listening := keyboard.start()):  # also after bg and fg
                    events.listen()
                polling.advance()
                view = _pressed(view, polling, events, told)
                screen.fit(console)
                live.update(
                    picture(Frame(title, polling, console, listening, monotonic() - polling.seen_at), view),
                    refresh=True,
                )
                events.wait(min(FRAME, polling.until_due()))
                if events.suspended:
                    keyboard.stop()
                    live.stop()
                    events.stop_here()
                    live.start()
                    listening = False
    finally:
        keyboard.stop()


def _pressed(view: View, polling: Polling, events: Events, told: list[str]) -> View:
    """The view after what was typed. What became of a request to a holder comes later, through *told*."""
    data, events.typed = events.typed, b""
    for key in read(data):
        view = view.pressed(key, polling.found)
        if view.released is not None:
            _release(*view.released, events, told)
            view = replace(view, released=None, message=f"asking the holder of {view.released[1].name} ...")
        if view.mode == LOCK and view.selected is not None:
            polling.focus(view.selected)
    return replace(view, message=told.pop()) if told else view


def _release(place: Place, lock: LockInfo, events: Events, told: list[str]) -> None:
    """Ask in a thread: a backend that hangs must not hold up the screen."""
    from lockctl.cli.revoke import ask_holders

    def ask() -> None:
        told.append(ask_holders(place, lock))
        events.happened()

    threading.Thread(target=ask, daemon=True).start()
