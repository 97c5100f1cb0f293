"""What ``lockctl watch`` shows on the whole screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.segment import Segment, Segments
from rich.text import Text

from lockctl.cli import screen
from lockctl.cli.rows import row
from lockctl.durations import format_age, format_duration
from lockctl.value import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockctl.model import LockInfo


def picture(
    locks: Sequence[LockInfo] | None, *, title: str, old: float, trouble: str, interval: float, size: tuple[int, int]
) -> Group:
    """Who holds first, as many rows as there are lines for, and how many more.

    *old*: seconds since the locks were looked at. *trouble*: why they are not newer, one line or none.
    """
    if locks is None:
        told = Text(trouble, style="bold red") if trouble else Text("loading ...", style="dim")
        return Group(_one_line(Text(title, style="bold")), _one_line(told))
    counts = [f"{count} {state}" for state in screen.STYLES if (count := sum(lock.state == state for lock in locks))]
    head = Text(title, style="bold")
    head.append(
        f"  {', '.join(counts) or 'no locks'}; every {format_duration(interval)}, seen {format_age(old)} ago", "dim"
    )
    parts: list[Text | Segments] = [_one_line(head)]
    if trouble:
        parts.append(_one_line(Text(trouble, style="bold red")))
    width, height = size
    by_state = sorted(locks, key=lambda lock: (lock.state == "free", lock.name))
    heading, *lines = screen.table(screen.LOCKS, [_row(lock, old, grey=bool(trouble)) for lock in by_state], width)
    room = max(0, height - len(parts) - 1)  # under the heading
    if len(locks) > room:
        room = max(0, room - 1)  # for how many more
    if locks and room:
        parts += [Segments([*line, Segment.line()]) for line in (heading, *lines[:room])]
    if len(lines) > room:
        parts.append(_one_line(Text(f"... and {len(lines) - room} more", style="dim")))
    return Group(*parts)


def _row(lock: LockInfo, old: float, *, grey: bool) -> screen.Row:
    shown = screen.lock_row(lock, row(lock, old=old))
    return replace(shown, style="dim", mark="dim") if grey else shown


def _one_line(text: Text) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
