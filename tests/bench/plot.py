"""The ratios as a bar chart: SVG that is readable on a light and on a dark background."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.report import Table

WIDTH, LEFT, RIGHT = 860, 190, 590  # of the picture, and where bars may be, in pixels
LINE, BAR, HEAD, MARGIN = 22, 14, 46, 16  # heights in pixels
STEPS = (0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0)  # of the scale, as far as bars reach
# the picture brings its background: the colours are legible whatever is around it
STYLE = """
rect.page { fill: #ffffff } text { fill: #24292f; font: 13px sans-serif } text.small { fill: #57606a; font-size: 11px }
text.head { font-weight: bold } line { stroke: #d0d7de } line.one { stroke: #57606a }
rect.less { fill: #2f7ed8 } rect.more { fill: #d9822b }
@media (prefers-color-scheme: dark) {
rect.page { fill: #0d1117 } text { fill: #e6edf3 } text.small { fill: #9da7b3 }
line { stroke: #30363d } line.one { stroke: #9da7b3 }
rect.less { fill: #58a6ff } rect.more { fill: #e3a04f } }
"""


def as_svg(tables: Sequence[Table], heading: str) -> str:
    """One part for each table, one bar for each backend: its median by that of its peer, on a logarithmic scale."""
    y = HEAD + MARGIN
    parts: list[str] = []
    for table in tables:
        bars = [(row.name, *peer) for row in table.rows if (peer := table.to_peer(row)) is not None]
        if bars:
            parts += _part(table.title, bars, y)
            y += HEAD + LINE * len(bars) + MARGIN
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
    head = [start, f"<title>lockctl beside its peers</title><style>{STYLE}</style>"]
    head.append(f'<rect class="page" width="{WIDTH}" height="{y}"/>')
    head.append(_text(MARGIN, 24, "head", "lockctl beside its peers: ratios of medians, on a logarithmic scale"))
    head.append(_text(MARGIN, 42, "small", f"{heading}; blue: less than the peer, orange: more"))
    return "\n".join([*head, *parts, "</svg>", ""])


def _part(title: str, bars: Sequence[tuple[str, str, float]], y: int) -> Iterator[str]:
    yield _text(MARGIN, y + 12, "head", title)
    ratios = [max(ratio, STEPS[0]) for _, _, ratio in bars]
    least = max([step for step in STEPS if step <= min(ratios)], default=STEPS[0])
    most = min([step for step in STEPS if step >= max(ratios)], default=max(ratios))
    low, high = math.log(min(least, 0.5)), math.log(max(most, 2.0))

    def at(ratio: float) -> float:
        return LEFT + (math.log(max(ratio, STEPS[0])) - low) / (high - low) * (RIGHT - LEFT)

    top, bottom = y + HEAD - 6, y + HEAD + LINE * len(bars)
    for step in STEPS:
        if low <= math.log(step) <= high:
            kind = ' class="one"' if step == 1 else ""
            yield f'<line{kind} x1="{at(step):.1f}" x2="{at(step):.1f}" y1="{top}" y2="{bottom}"/>'
            yield _text(at(step), top - 4, "small", f"{step:g}", anchor="middle")
    for number, (name, peer, ratio) in enumerate(bars):
        begin, end = sorted((at(1.0), at(ratio)))
        place = y + HEAD + LINE * number
        kind = "less" if ratio <= 1 else "more"
        size = f'y="{place + 3}" width="{end - begin:.1f}" height="{BAR}"'
        yield _text(LEFT - 8, place + 14, "", name, anchor="end")
        yield f'<rect class="{kind}" x="{begin:.1f}" {size}/>'
        yield _text(RIGHT + 14, place + 14, "", f"{ratio:.2f} x {peer}")


def _text(x: float, y: int, kind: str, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
