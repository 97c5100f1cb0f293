"""Tables and facts on stdout: in a terminal by rich, fitted to its width and in colours, in a pipe whole and unpadded.

Rich is loaded for a terminal alone: it would take almost half of the time of a verb that a script calls.

No text becomes markup here: what a backend returns was written by others, and is cleaned before.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from lockctl.cli.columns import Column, lay_out, lines, shorten_place
from lockctl.cli.output import data_stream, on_styled_screen, print_data
from lockctl.cli.rows import facts, row, run_row, wide_row
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.segment import Segment
    from rich.style import Style

    from lockctl.cli.places import Place
    from lockctl.model import LockInfo, Run

STYLES = {"held": "green", "free": "dim", "foreign": "bold yellow"}
USUAL_SIZE = (80, 24)  # columns, lines: of a terminal that does not know its own
LONGEST_CELL = 400  # characters: what a stranger wrote must not fill the screen
LABEL = 12  # cells of the label of a fact
BACKEND = Column("BACKEND", least=8)
LOCKS = (
    Column("NAME", is_name=True),
    Column("STATE", marked=True),
    Column("HOLDER", least=8, rank=1, weight=2, shorten=shorten_place),
    Column("TOKEN", right=True),
    Column("AGE", right=True),
    Column("EXPIRES", right=True),
    Column("WAITERS", rank=2),
    Column("COMMAND", least=12, rank=3),
)
WIDE_LOCKS = (*LOCKS, Column("KEY"), Column("LABELS"))
RUNS = (
    Column("WHEN"),
    Column("OUTCOME", marked=True),
    Column("DURATION", right=True, rank=2),
    Column("TOKEN", right=True, rank=1),
    Column("WHERE", least=8, rank=3, shorten=shorten_place),
    Column("COMMAND", least=10, rank=4, weight=2),
    Column("DETAIL", least=10, rank=5),
)
UNUSED = (Column("NAME", is_name=True), Column("LAST USED"))
INSTALLED = (Column("FILES", right=True), Column("DIRECTORY", least=12))
SETTINGS = (Column("SETTING"), Column("VALUE", least=12), Column("SOURCE", least=12))
MEASURED = (Column("LOCK"), Column("P50", right=True), Column("P99", right=True), Column("USUAL", rank=1))
PROMISES = (
    Column("BACKEND"),
    Column("HOSTS"),
    Column("FENCING"),
    Column("WAITERS", rank=2),
    Column("HOLDERS", rank=3),
    Column("A HOLDER THAT VANISHES"),
    Column("REVOCATION SEEN IN", rank=1),
)


class Row(Value):
    """The cells of a row, the style of the whole, and that of the marked column."""

    cells: tuple[str, ...]
    style: str = ""
    mark: str = ""


def terminal() -> Console | None:
    """The terminal on stdout, as wide as it is now; ``None``: it is anything else. Raises ``UsageError``."""
    return console() if data_stream().isatty() else None


def console() -> Console:
    """What is on stdout: a terminal as wide as it is now, or anything else. Raises ``UsageError``."""
    from rich.console import Console

    stream = data_stream()
    # variables that would say otherwise (or a size of long ago) do not count
    made = Console(
        file=stream,
        force_terminal=stream.isatty(),
        color_system="auto" if on_styled_screen() else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    fit(made)
    return made


def fit(shown: Console) -> None:
    """Take the size of the terminal as it is now."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return
    shown.size = size if min(size) > 0 else USUAL_SIZE


def print_locks(found: Sequence[tuple[Place, LockInfo]], *, wide: bool, several: bool) -> None:
    """The table of ``list``, of one or several backends."""
    columns = WIDE_LOCKS if wide else LOCKS
    rows = [lock_row(lock, wide_row(lock) if wide else row(lock)) for _, lock in found]
    print_table(columns, rows, backends=[where.label for where, _ in found] if several else None, wide=wide)


def print_runs(found: Sequence[tuple[Place, Run]], *, wide: bool, several: bool) -> None:
    """The table of ``history``; the outcome of a run that did not end well stands out."""
    rows = []
    for _, run in found:
        cells = run_row(run)
        rows.append(Row(cells, mark={"exited 0": "green", "held": "dim"}.get(cells[1], "bold red")))
    print_table(RUNS, rows, backends=[where.label for where, _ in found] if several else None, wide=wide)


def lock_row(lock: LockInfo, cells: tuple[str, ...]) -> Row:
    """A lock in the colours of its state."""
    return Row(cells, "dim" if lock.state == "free" else "", STYLES.get(lock.state, ""))


def print_table(
    columns: Sequence[Column], rows: Sequence[Row], *, backends: Sequence[str] | None = None, wide: bool = False
) -> None:
    """A table under its headings, the *backends* of its rows first if there are several; *wide*: with all of it."""
    if backends is not None:
        columns = (BACKEND, *columns)
        rows = [Row((name, *each.cells), each.style, each.mark) for name, each in zip(backends, rows, strict=True)]
    shown = terminal()
    if shown is not None:
        _print(shown, table(columns, rows, None if wide else shown.width))
    else:
        heading = tuple(column.heading for column in columns)
        print_data("\n".join("\t".join(cells) for cells in (heading, *(each.cells for each in rows))))


def left_out(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[str, ...]:
    """The headings of a table for which the terminal has no room."""
    shown = terminal()
    if shown is None:
        return ()
    layout = lay_out(columns, [each.cells for each in rows], shown.width)
    return tuple(column.heading for number, column in enumerate(columns) if number not in layout.shown)


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[list[Segment]]:
    """The lines of a table, its heading first."""
    return [line for each in table_rows(columns, rows, width) for line in each]


def table_rows(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[list[list[Segment]]]:
    """The same by rows: one with a long name has two lines."""
    heading = Row(tuple(column.heading for column in columns), "bold", "bold")
    if width is not None:
        rows = [Row(tuple(map(_cut, each.cells)), each.style, each.mark) for each in rows]
    layout = lay_out(columns, [each.cells for each in rows], width)
    return [list(_styled(columns, each, lines(columns, each.cells, layout))) for each in (heading, *rows)]


def _styled(columns: Sequence[Column], of: Row, pieces: Iterator[list[tuple[int, str]]]) -> Iterator[list[Segment]]:
    from rich.segment import Segment

    for line in pieces:
        yield [Segment(text, _style(of.mark if columns[number].marked else of.style)) for number, text in line]


def print_facts(found: Sequence[tuple[Place, LockInfo]]) -> None:
    """Everything about one lock, in each of the places where it is."""
    shown = terminal()
    if shown is None:
        locks = [[_head(label) + text for label, text in facts(lock, str(where))] for where, lock in found]
        print_data("\n\n".join("\n".join(each) for each in locks))
        return
    made: list[list[Segment]] = []
    for where, lock in found:
        made += [[]] * bool(made)
        made += fact_lines(shown, lock, str(where))
    _print(shown, made)


def fact_lines(shown: Console, lock: LockInfo, backend: str) -> list[list[Segment]]:
    """Everything about a lock, folded between words where there is no room."""
    from rich.segment import Segment
    from rich.text import Text

    made = []
    for label, text in facts(lock, backend):
        style = STYLES.get(lock.state, "") if label == "state" else "bold" if label == "name" else ""
        folded = [each.plain.rstrip() for each in Text(text).wrap(shown, max(1, shown.width - LABEL))]
        for number, part in enumerate(folded):
            head = _head(label) if number == 0 else " " * LABEL
            made.append([Segment(head, _style("dim")), Segment(part, _style(style))])
    return made


def _head(label: str) -> str:
    return f"{label + ':':{LABEL}}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


@functools.cache
def _style(text: str) -> Style:
    from rich.style import Style

    return Style.parse(text)


def _print(shown: Console, made: list[list[Segment]]) -> None:
    """As data: a terminal that was closed meanwhile is no traceback."""
    from rich.segment import Segment, Segments

    ended = [segment for line in made for segment in (*line, Segment.line())]
    with shown.capture() as captured:
        shown.print(Segments(ended), crop=False, end="")
    print_data(captured.get())
