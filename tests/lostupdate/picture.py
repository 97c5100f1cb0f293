"""The results as a table, as bars of text, and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lostupdate.plan import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lostupdate.plan import Result

    Results = Mapping[str, Sequence[Result]]  # backend -> one result for each variant, in one order

BAR = 40  # characters of the longest bar
COLOURS = ("#c0392b", "#2471a3", "#7d6608")
LEFT, WIDE, ROW, THICK, TOP, FOOT = 350, 420, 54, 13, 54, 40  # pixels


def table(results: Results) -> str:
    """Markdown: a row for each variant; ``lost of acknowledged = percent`` for each backend."""
    lines = ["| | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
    for row in zip(*results.values(), strict=True):
        cells = [f"{each.lost} of {each.acknowledged} = {each.percent:.1f} %" for each in row]
        lines.append(f"| {VARIANTS[row[0].variant].label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def details(results: Results) -> str:
    """Markdown: pauses and refused updates, for who wants to know how often each variant was tried."""
    lines = ["| | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
    for row in zip(*results.values(), strict=True):
        cells = [f"{each.pauses} pauses, {each.refused} refused" for each in row]
        lines.append(f"| {VARIANTS[row[0].variant].label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bars(results: Results) -> str:
    """Bars of text; a variant that lost nothing has none."""
    longest = _longest(results)
    lines = []
    for row in zip(*results.values(), strict=True):
        lines.append(VARIANTS[row[0].variant].label)
        for backend, each in zip(results, row, strict=True):
            bar = "#" * max(round(BAR * each.percent / longest), bool(each.lost))
            lines.append(f"  {backend:11}{bar}{' ' if bar else ''}{each.percent:.1f} %")
    return "\n".join(lines)


def svg(results: Results, title: str) -> str:
    """The same as a picture that browsers show."""
    longest = _longest(results)
    rows = list(zip(*results.values(), strict=True))
    height = TOP + ROW * len(rows) + FOOT
    size = f'width="{LEFT + WIDE + 80}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="28" font-size="16">{title}</text>',
    ]
    for number, row in enumerate(rows):
        top = TOP + ROW * number
        middle = top + THICK * len(row) / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{VARIANTS[row[0].variant].label}</text>')
        for at, each in enumerate(row):
            y = top + THICK * at
            width = WIDE * each.percent / longest
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{THICK - 2}" fill="{COLOURS[at]}"/>')
            parts.append(f'<text x="{LEFT + width + 5:.1f}" y="{y + 10}" font-size="11">{each.percent:.1f} %</text>')
    for at, backend in enumerate(results):
        x = LEFT + 110 * at
        parts.append(f'<rect x="{x}" y="{height - 28}" width="12" height="12" fill="{COLOURS[at]}"/>')
        parts.append(f'<text x="{x + 18}" y="{height - 17}">{backend}</text>')
    return "\n".join([*parts, f'<path d="M{LEFT} {TOP - 6}V{height - FOOT}" stroke="black"/>', "</svg>"]) + "\n"


def _longest(results: Results) -> float:
    return max(1.0, *(each.percent for row in results.values() for each in row))
