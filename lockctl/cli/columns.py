"""Columns that fit: which of them there is room for, how wide each is, and what is shortened. Pure; widths in cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import cells

from lockctl.cli.rows import UNKNOWN
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GAP = 2  # cells between two columns
FITTING = 0.5  # share of the names that must fit into their column; each of the others gets a line of its own
WIDEST_NAME = 60  # cells: a name that is longer has its own line, although the width is not limited
LEAST_HOST = 6  # cells of a host that is shortened: below it the rest of the place goes first
MARK = "\N{HORIZONTAL ELLIPSIS}"


def cell_len(text: str) -> int:
    """How many cells of a terminal a text takes."""
    return len(text) if text.isascii() else cells.cell_len(text)


def middle(text: str, width: int) -> str:
    """*text* in at most so many cells: its beginning and its end say more than its middle, its beginning most."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    first = width * 2 // 3
    head = cells.set_cell_size(text, first).rstrip(" ")
    tail = cells.set_cell_size(text[::-1], width - 1 - first)[::-1].lstrip(" ")
    return head + MARK + tail


def shorten_place(text: str, width: int) -> str:
    """``host pid 7 (user)`` in at most so many cells: the host is shortened first, then what follows leaves."""
    host, _, rest = text.partition(" ")
    ends = [rest, rest.partition(" (")[0], ""]  # without the user, without anything
    for end in ends:
        room = width - cell_len(end) - bool(end)
        if room >= min(LEAST_HOST, cell_len(host)):
            return f"{middle(host, room)} {end}".rstrip()
    return middle(host, width)


class Column(Value):
    """What a column may lose where there is no room. One with neither *least* nor *rank* stays whole."""

    heading: str
    least: int = 0  # cells to which its text may be shortened; 0: never
    rank: int = 0  # the highest leaves first; 0: never
    weight: int = 1  # of its share of what is left
    right: bool = False  # numbers
    marked: bool = False  # in the colour of its row
    is_name: bool = False  # what is too long for it stands on a line of its own
    shorten: Callable[[str, int], str] = middle


class Layout(Value):
    """Which columns are shown, and how wide each of them is."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Layout:
    """The columns for these *rows* on a terminal so wide; ``None``: as wide as they are."""
    lengths = [[cell_len(row[number]) for row in rows] for number in range(len(columns))]
    natural = [max(cell_len(column.heading), *each, 0) for column, each in zip(columns, lengths, strict=True)]
    least = [min(column.least, wide) if column.least else wide for column, wide in zip(columns, natural, strict=True)]
    name = next((number for number, column in enumerate(columns) if column.is_name), None)
    if width is None:
        if name is not None:
            natural[name] = _widest(lengths[name], WIDEST_NAME, columns[name])
        return Layout(tuple(range(len(columns))), tuple(natural))
    # a column in which nothing is known has nothing to say, either
    shown = [
        number
        for number, column in enumerate(columns)
        if not column.rank or any(row[number] != UNKNOWN for row in rows)
    ]

    def room(others: list[int]) -> int:
        return width - sum(others[number] + GAP for number in shown if number != name)

    # a few long names must not take the room of everybody's other columns; if many are long, they may
    limit = width if name is None else min(room(least), max(width // 3, room(natural)))
    while not _fits(lengths, name, limit, room(least)):
        if limit < room(least):
            limit = room(least)
            continue
        leaving = max(shown, key=lambda number: columns[number].rank)
        if not columns[leaving].rank:
            break
        shown.remove(leaving)
        limit = room(least)
    if name is not None:
        least[name] = natural[name] = _widest(lengths[name], limit, columns[name])
    weights = [column.weight for column in columns]
    return Layout(tuple(shown), tuple(_shared(width, shown, least, natural, weights)))


def _fits(lengths: list[list[int]], name: int | None, limit: int, room: int) -> bool:
    if name is None:
        return room >= -GAP
    return sum(length <= limit for length in lengths[name]) >= FITTING * len(lengths[name])


def _widest(lengths: list[int], limit: int, column: Column) -> int:
    return max(cell_len(column.heading), *(length for length in lengths if length <= limit), 0)


def _shared(width: int, shown: list[int], least: list[int], natural: list[int], weights: list[int]) -> Iterator[int]:
    """The width of each column: what is left after the *least* goes to the narrowest first, for its weight."""
    widths = {number: least[number] for number in shown}
    spare = width - sum(widths.values()) - GAP * (len(shown) - 1)
    growing = [number for number in shown if widths[number] < natural[number]]
    while growing and spare > 0:
        narrowest = min(growing, key=lambda number: widths[number] / weights[number])
        widths[narrowest] += 1
        spare -= 1
        if widths[narrowest] == natural[narrowest]:
            growing.remove(narrowest)
    return (widths[number] for number in shown)


def lines(columns: Sequence[Column], row: Sequence[str], layout: Layout) -> Iterator[list[tuple[int, str]]]:
    """The one or two lines of a row: (number of a column, its text with the blanks before and behind it)."""
    line: list[tuple[int, str]] = []
    indent = 0
    for number, width in zip(layout.shown, layout.widths, strict=True):
        column, text = columns[number], row[number]
        if column.is_name and cell_len(text) > width:
            yield [*line, (number, text)]
            before = sum(cell_len(shown) for _, shown in line)
            line, indent = [], indent + before + width + GAP
            continue
        fitted = column.shorten(text, width) if column.least else text
        padding = " " * (width - cell_len(fitted))
        line.append((number, " " * indent + (padding + fitted if column.right else fitted + padding) + " " * GAP))
        indent = 0
    if line:
        line[-1] = (line[-1][0], line[-1][1].rstrip(" "))
        yield line
