"""What a terminal shows of locks, by rich: tables in colours, and the picture that ``lockctl watch`` keeps up to date.

No text becomes markup here: what a backend returns was written by others, and goes into ``Text`` after cleaning.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lockctl.cli.output import data_stream, print_data
from lockctl.cli.rows import HEADING, UNKNOWN, facts, row, waiter_place
from lockctl.clock import utc, wall
from lockctl.durations import format_age, format_duration
from lockctl.names import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from lockctl.model import LockInfo

STYLES = {"held": "green", "free": "dim", "foreign": "bold yellow"}
USUAL_SIZE = (80, 24)  # columns, lines: of a terminal that does not know its own
LONGEST_CELL = 200  # characters of a cell: what a stranger wrote must not fill the screen
WAITERS_NAMED = 3  # in one row; `inspect` has all


def console() -> Console:
    """The terminal on stdout, as wide as it is now. Raises ``UsageError``."""
    # it is one: the caller has looked. Variables that would say otherwise (or a size of long ago) do not count
    made = Console(file=data_stream(), force_terminal=True, markup=False, highlight=False, emoji=False)
    fit(made)
    return made


def fit(shown: Console) -> None:
    """Take the size of the terminal as it is now."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return
    shown.size = size if min(size) > 0 else USUAL_SIZE


def print_locks(locks: Sequence[LockInfo]) -> None:
    """The table of ``list``: long names go on in the next line, so that nothing is left out."""
    _print(_table(locks, overflow="fold"))


def print_lock(lock: LockInfo) -> None:
    """Everything about one lock, and who waits for it, in their order."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in facts(lock):
        style = STYLES.get(lock.state, "") if label == "state" else "bold" if label == "name" else ""
        grid.add_row(Text(label), Text(text, style=style))
    if not lock.waiters:
        _print(grid)
        return
    queue = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("WAITER", "WHERE", "SINCE", "FOR"):
        queue.add_column(heading, overflow="fold")
    for number, waiter in enumerate(lock.waiters, 1):
        since = UNKNOWN if waiter.since is None else utc(waiter.since)
        span = UNKNOWN if waiter.since is None else format_age(wall() - waiter.since)
        queue.add_row(*(Text(text) for text in (str(number), _cut(waiter_place(waiter)), since, span)))
    _print(Group(grid, Text(), queue))


def print_runs(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """The table of ``history``; the outcome of a run that did not end well stands out."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in heading:
        made.add_column(name, overflow="fold", justify="right" if name in {"DURATION", "TOKEN"} else "left")
    for cells in rows:
        style = "green" if cells[1] == "exited 0" else "dim" if cells[1] == "held" else "bold red"
        made.add_row(*(Text(_cut(text), style=style if number == 1 else "") for number, text in enumerate(cells)))
    _print(made)


def picture(
    locks: Sequence[LockInfo] | None, *, title: str, old: float, trouble: str, interval: float, lines: int
) -> Group:
    """What the whole screen shows: who holds first, as many rows as there are *lines* for, and how many more.

    *old*: seconds since the locks were looked at. *trouble*: why they are not newer, one line or none.
    """
    if locks is None:
        told = Text(trouble, style="bold red") if trouble else Text("loading ...", style="dim")
        return Group(_one_line(Text(title, style="bold")), _one_line(told))
    counts = [f"{count} {state}" for state in STYLES if (count := sum(lock.state == state for lock in locks))]
    head = Text(title, style="bold")
    head.append(
        f"  {', '.join(counts) or 'no locks'}; every {format_duration(interval)}, seen {format_age(old)} ago", "dim"
    )
    parts: list[Text | Table] = [_one_line(head)]
    if trouble:
        parts.append(_one_line(Text(trouble, style="bold red")))
    room = max(0, lines - len(parts) - 1)  # under the heading
    if len(locks) > room:
        room = max(0, room - 1)  # for how many more
    ordered = sorted(locks, key=lambda lock: (lock.state == "free", lock.name))
    if locks and room:
        parts.append(_table(ordered[:room], overflow="ellipsis", old=old, grey=bool(trouble)))
    if len(locks) > room:
        parts.append(_one_line(Text(f"... and {len(locks) - room} more", style="dim")))
    return Group(*parts)


def _table(
    locks: Sequence[LockInfo], *, overflow: Literal["fold", "ellipsis"], old: float = 0.0, grey: bool = False
) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim" if grey else "bold")
    for heading in HEADING:
        right = heading in {"TOKEN", "AGE", "EXPIRES"}
        made.add_column(
            heading, overflow=overflow, no_wrap=overflow == "ellipsis", justify="right" if right else "left"
        )
    for lock in locks:
        cells = [_cut(text) for text in (*row(lock, old=old)[:-1], _queue(lock))]
        state = "dim" if grey else STYLES.get(lock.state, "")
        whole = "dim" if grey or lock.state == "free" else ""
        styled = [Text(text, style=state if number == 1 else "") for number, text in enumerate(cells)]
        made.add_row(*styled, style=whole)
    return made


def _queue(lock: LockInfo) -> str:
    """How many wait, and the first of them in their order."""
    if not lock.waiters:
        return UNKNOWN if lock.waiters is None else "0"
    named = [waiter_place(waiter) for waiter in lock.waiters[:WAITERS_NAMED]]
    more = ", ..." if len(lock.waiters) > WAITERS_NAMED else ""
    return f"{len(lock.waiters)}: {', '.join(named)}{more}"


def _cut(text: str) -> str:
    clean = printable(text)
    return clean if len(clean) <= LONGEST_CELL else clean[: LONGEST_CELL - 3] + "..."


def _one_line(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _print(content: Table | Group) -> None:
    """As data: a terminal that was closed meanwhile is no traceback."""
    shown = console()
    with shown.capture() as captured:
        shown.print(content)
    print_data(captured.get())
