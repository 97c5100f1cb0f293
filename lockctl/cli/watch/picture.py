"""What ``lockctl watch`` shows on the whole screen: a line of facts, the table or one lock in full, a line of keys."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.console import Group
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from lockctl.cli import screen
from lockctl.cli.columns import cell_len, middle, shorten_place
from lockctl.cli.rows import place_of, row
from lockctl.cli.watch import view
from lockctl.durations import format_age, format_duration
from lockctl.names import printable
from lockctl.value import Value, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lockctl.cli.places import Place
    from lockctl.cli.watch.polling import Polling
    from lockctl.model import LockInfo

    Found = tuple[Place, LockInfo]

INDENT = " " * 32
SELECTED = Style(reverse=True)
LEAST_TITLE, LEAST_WHO = 12, 8  # cells
KEYS = ("q quit", "? help", "enter details", "/ filter", "s sort", "a all", "f force-release")
HELP = (
    ("up, down, k, j", "select a lock"),
    ("page up, page down, home, end", "move further"),
    ("enter", "the lock in full, with its waiters and its last run; enter or escape goes back"),
    ("/", "show only what has this text in its name, place or command; escape shows all again"),
    ("s", "sort by the next column"),
    ("a", "show the free locks, too, or only what is held or waited for"),
    ("f", "ask the holder to stop its command and to release the lock, after a question"),
    ("q, Ctrl-C", "quit"),
)


class Frame(Value):
    """What a picture is made of."""

    title: str
    polling: Polling
    console: Console
    keyboard: bool
    old: float  # seconds since the locks were looked at


def picture(frame: Frame, shown: view.View) -> Group:
    """The whole screen, with as many rows as there are lines for."""
    polling = frame.polling
    trouble = polling.trouble()
    top: list[Text] = [Text(frame.title, style="bold")]
    if polling.answer is None:
        told = Text(trouble, style="bold red") if trouble else Text("loading ...", style="dim")
        return Group(*map(_one_line, (*top, told)))
    top[0] = _headline(frame, shown)
    if trouble:
        top.append(Text(trouble, style="bold red"))
    bottom = [_footer(shown, frame.console.width)] if frame.keyboard else []
    height = max(0, frame.console.height - len(top) - len(bottom))
    if shown.mode == view.HELP:
        body = _help(frame.console.width)[:height]
    elif shown.mode == view.LOCK:
        body = _lock(frame, shown, height)
    else:
        body = _table(frame, shown, height, grey=polling.is_stale())
    if bottom:  # on the last line
        lines = sum(segment.text.count("\n") for part in body for segment in part.segments)
        body.append(Segments([Segment.line()] * (height - lines)))
    return Group(*map(_one_line, top), *body, *map(_one_line, bottom))


def _headline(frame: Frame, shown: view.View) -> Text:
    """The place and what was counted there: where there is no room, whole facts leave, the last one first."""
    facts, width = _facts(frame, shown), frame.console.width
    while len(facts) > 1 and cell_len(frame.title) + cell_len("".join(facts)) > width:
        facts.pop()
    line = Text(middle(frame.title, max(LEAST_TITLE, width - cell_len("".join(facts)))), style="bold")
    return line.append("".join(facts), "dim")


def _facts(frame: Frame, shown: view.View) -> list[str]:
    found = frame.polling.found
    counts = [f"{count} {state}" for state in screen.STYLES if (count := sum(each[1].state == state for each in found))]
    only = f", only {shown.filter!r}" if shown.filter else ""
    order = f", by {shown.query.sort}" if frame.keyboard else ""
    every = f"; every {format_duration(frame.polling.interval)}"
    return [
        f"  {', '.join(counts) or 'no locks'}",
        printable(only),
        order,
        every,
        f", seen {format_age(frame.old)} ago",
    ]


def _footer(shown: view.View, width: int) -> Text:
    if shown.mode == view.FILTER:
        return Text(f"/{printable(shown.filter)}", style="bold")
    if shown.mode == view.CONFIRM and shown.asked is not None:
        _, lock = shown.asked
        who = ", ".join(place_of(holder) for holder in lock.holders)
        return Text(_question(printable(lock.name), who, width), style="bold yellow")
    if shown.message:
        return Text(printable(shown.message), style="bold")
    if shown.mode == view.LOCK:
        return Text("escape back  f force-release  q quit", style="dim")
    keys = list(KEYS)
    while len("  ".join(keys)) > width and len(keys) > 1:
        keys.pop()  # the help has all of them
    return Text("  ".join(keys), style="dim")


def _question(name: str, who: str, width: int) -> str:
    """In one line, with the answers at its end: the name stays whole as long as that is possible."""
    asked = f"Release {name}? This stops the command of "
    room = width - cell_len(asked + ". [y/N]")
    if room >= min(LEAST_WHO, cell_len(who)):
        return f"{asked}{shorten_place(who, room)}. [y/N]"
    return f"Release {middle(name, width - len('Release ? [y/N]'))}? [y/N]"


def _table(frame: Frame, shown: view.View, height: int, *, grey: bool) -> list[Segments]:
    rows = shown.rows(frame.polling.found)
    room = height - 1  # under the heading
    if not rows or room < 1:
        return _nothing(frame, shown)[: max(0, height)]
    if len(rows) > room > 1:
        room -= 1  # for how many more
    cursor = shown.cursor(rows) if frame.keyboard else 0
    first = max(0, min(cursor - room // 2, len(rows) - room))
    several = shown.query.all_backends
    columns = (screen.BACKEND, *screen.LOCKS) if several else screen.LOCKS
    cells = [_row(each, frame.old, grey=grey, several=several) for each in rows[first : first + room]]
    heading, *made = screen.table_rows(columns, cells, frame.console.width)
    while first < cursor and sum(map(len, made[: cursor - first + 1])) > room:
        first += 1  # a long name above has a line of its own
        made.pop(0)
    if frame.keyboard:
        made[cursor - first] = [_marked(line, frame.console.width) for line in made[cursor - first]]
    lines = [line for each in made for line in each][: max(0, room)]
    body = [Segments([*line, Segment.line()]) for line in (heading[0], *lines)]
    below = len(rows) - first - _whole(made, room)
    if below > 0 and len(lines) < height - 1:
        body.append(Segments([Segment(f"... and {below} more\n", Style(dim=True))]))
    return body


def _nothing(frame: Frame, shown: view.View) -> list[Segments]:
    """Why there are no rows: locks that are not wanted, or that are elsewhere."""
    hidden = len(frame.polling.found) - len(shown.rows(frame.polling.found))
    key = (": escape shows all" if shown.filter else ": a shows all") if frame.keyboard else ""
    said = [f"nothing to show; {hidden} not shown{key}"] if hidden else []
    said += [place.hint for place in frame.polling.places if place.hint]
    return [Segments([Segment(f"{each}\n", Style(dim=True))]) for each in said]


def _whole(made: Sequence[list[list[Segment]]], room: int) -> int:
    """How many of the rows are on the screen."""
    count = 0
    for each in made:
        room -= len(each)
        count += room >= 0
    return count


def _row(found: Found, old: float, *, grey: bool, several: bool) -> screen.Row:
    place, lock = found
    cells = row(lock, old=old)
    made = screen.lock_row(lock, (place.label, *cells) if several else cells)
    return replace(made, style="dim", mark="dim") if grey else made


def _marked(line: list[Segment], width: int) -> list[Segment]:
    """The same line under the cursor, over the whole width."""
    used = sum(segment.cell_length for segment in line)
    blanks = Segment(" " * max(0, width - used))
    return [Segment(segment.text, (segment.style or Style()) + SELECTED) for segment in (*line, blanks)]


def _help(width: int) -> list[Segments]:
    room = max(10, width - len(INDENT))
    lines = [f"{keys:{len(INDENT)}}{meaning}" for keys, meaning in HELP]
    folded = [each for line in lines for each in textwrap.wrap(line, room + len(INDENT), subsequent_indent=INDENT)]
    return [Segments([Segment(line + "\n")]) for line in folded]


def _lock(frame: Frame, shown: view.View, height: int) -> list[Segments]:
    """One lock in full: with its last run as soon as that was asked for."""
    rows = shown.rows(frame.polling.found)
    if not rows:
        return []
    place, lock = rows[shown.cursor(rows)]
    full = frame.polling.answer.lock if frame.polling.answer else None
    if full is not None and (full[0].label, full[1].name) == (place.label, lock.name):
        place, lock = full
    lines = screen.fact_lines(frame.console, lock, str(place))
    first = max(0, min(shown.scroll, len(lines) - height))
    return [Segments([*line, Segment.line()]) for line in lines[first : first + height]]


def _one_line(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
