"""Who was inside a lock, and when: a command that writes it down, and the reader of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STAY = 1.0  # seconds inside: much longer than a hand-off beside other tests
INSIDE = f'date "+%s.%N + $1" >>"$0"; sleep {STAY}; date "+%s.%N - $1" >>"$0"'  # for `sh -c`, with the log and a name


def visits(log: Path) -> list[tuple[float, str, str]]:
    """(time, + or -, who) in the order of time."""
    events = [line.split() for line in log.read_text().splitlines()]
    return sorted((float(moment), sign, who) for moment, sign, who in events)
