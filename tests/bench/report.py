"""What was measured: as values, as text, and as JSON."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Row(NamedTuple):
    """One tool in one table."""

    name: str
    samples: Sequence[float]  # in the table's unit
    peer: str = ""  # the row that this one is compared with, "" for a peer itself

    @property
    def median(self) -> float:
        """What all ratios are made of."""
        return statistics.median(self.samples)


class Table(NamedTuple):
    """Rows that were measured in turn."""

    name: str
    title: str
    unit: str
    base: str  # the row that all others are compared with
    rows: Sequence[Row]

    def ratio(self, row: Row, other: str) -> float | None:
        """The median of a row by that of another one; ``None`` if that was not measured."""
        for each in self.rows:
            if each.name == other:
                return row.median / each.median
        return None

    def to_peer(self, row: Row) -> tuple[str, float] | None:
        """The tool that a row of lockctl is compared with, the base where there is no other, and the ratio."""
        if not row.name.startswith("lockctl"):
            return None
        for other in (row.peer, self.base):
            ratio = self.ratio(row, other) if other else None
            if ratio is not None:
                return other, ratio
        return None


def as_text(table: Table) -> Iterator[str]:
    """The lines of a table."""
    yield f"{table.title}: median, least, and the median by that of others"
    for row in table.rows:
        to_base = table.ratio(row, table.base)
        line = f"  {row.name:28}{row.median:9.1f} {table.unit}{min(row.samples):9.1f}"
        if to_base is not None:
            line += f"{to_base:9.2f} x {table.base}"
        peer = table.to_peer(row)
        if peer is not None and peer[0] != table.base:
            line = f"{line:76}{peer[1]:7.2f} x {peer[0]}"
        yield line


def as_json(tables: Sequence[Table], about: Mapping[str, Any]) -> dict[str, Any]:
    """All of it, with every sample."""
    return {**about, "tables": [_table(table) for table in tables]}


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "unit": table.unit,
        "base": table.base,
        "rows": [_row(table, row) for row in table.rows],
    }


def _row(table: Table, row: Row) -> dict[str, Any]:
    peer, to_peer = table.to_peer(row) or (None, None)
    return {
        "name": row.name,
        "median": row.median,
        "samples": list(row.samples),
        "to_base": table.ratio(row, table.base),
        "peer": peer,
        "to_peer": to_peer,
    }
