"""Tables fit their terminal: what is known stays whole, or is shortened where its beginning and end still say what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from lockctl.cli import screen
from lockctl.cli.columns import middle, shorten_place

if TYPE_CHECKING:
    from rich.segment import Segment

HOST = "ip-10-0-12-34.eu-central-1.compute.internal"
TOKEN = "1763690400123456"
LONG = "a-very-long-name." * 10
COMMAND = "/usr/local/bin/nightly --all --verbose --target s3://bucket/with/a/long/path"


def row(name: str, state: str = "held", waiters: str = "2") -> screen.Row:
    return screen.Row((name, state, f"{HOST} pid 4121 (ops)", TOKEN, "12m3s", "1h29m", waiters, COMMAND))


def text(lines: list[list[Segment]]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_two_hundred_locks_fit_and_one_long_name_changes_no_other_row(width: int) -> None:
    rows = [row(f"lock-{number:03}") for number in range(200)]
    usual = text(screen.table(screen.LOCKS, rows, width))
    assert max(map(cell_len, usual)) <= width
    for number, line in enumerate(usual[1:]):
        assert line.startswith(f"lock-{number:03}  held ")
        assert {TOKEN, "12m3s", "1h29m"} <= set(line.split())
    with_long = text(screen.table(screen.LOCKS, [*rows, row(LONG)], width))
    assert with_long[:-2] == usual
    assert with_long[-2] == LONG
    assert with_long[-1].split()[0] == "held"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_follows_a_long_name_stands_under_its_headings_also_behind_another_column(width: int) -> None:
    rows = [screen.Row(("site-a", *row(name).cells)) for name in ("nightly", LONG)]
    heading, _, name, rest = text(screen.table((screen.BACKEND, *screen.LOCKS), rows, width))
    assert name.split() == ["site-a", LONG]
    assert rest.index("held") == heading.index("STATE")


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (44, "NAME STATE TOKEN AGE EXPIRES"),
        (60, "NAME STATE HOLDER TOKEN AGE EXPIRES"),
        (80, "NAME STATE HOLDER TOKEN AGE EXPIRES WAITERS"),
        (120, "NAME STATE HOLDER TOKEN AGE EXPIRES WAITERS COMMAND"),
    ],
)
def test_columns_leave_in_the_order_of_what_they_are_worth(width: int, headings: str) -> None:
    heading, *lines = text(screen.table(screen.LOCKS, [row("nightly")], width))
    assert heading.split() == headings.split()
    assert ("\N{HORIZONTAL ELLIPSIS}" in lines[-1]) == ("HOLDER" in headings)


def test_nothing_is_left_out_where_everything_is_asked_for() -> None:
    _, line = text(screen.table(screen.LOCKS, [row("nightly")], None))
    assert f"{HOST} pid 4121 (ops)" in line
    assert line.endswith(COMMAND)


def test_a_column_in_which_nothing_is_known_leaves_its_room_to_others() -> None:
    runs = [screen.Row(("2026-11-20T02:00:00.123Z", "exited 0", "12.3s", TOKEN, HOST, COMMAND, "-"))]
    assert "DETAIL" not in text(screen.table(screen.RUNS, runs, 200))[0]


def test_a_history_keeps_its_timestamps_and_outcomes_whole() -> None:
    runs = [screen.Row(("2026-11-20T02:00:00.123Z", "signaled 137", "12.3s", TOKEN, HOST, COMMAND, "by ops"))]
    for width in (60, 80, 120, 200):
        lines = text(screen.table(screen.RUNS, runs, width))
        assert max(map(cell_len, lines)) <= width
        assert lines[1].startswith("2026-11-20T02:00:00.123Z  signaled 137  ")


@pytest.mark.parametrize("width", range(48))
def test_a_place_loses_its_host_first_and_never_more_than_it_must(width: int) -> None:
    shown = shorten_place(f"{HOST} pid 7 (ops)", width)
    assert cell_len(shown) <= width
    assert shown.endswith(" pid 7 (ops)") == (width >= 18)
    assert shorten_place("web1 pid 7 (ops)", 16) == "web1 pid 7 (ops)"


@pytest.mark.parametrize("width", range(12))
def test_wide_characters_are_counted_as_the_terminal_does(width: int) -> None:
    assert cell_len(middle("\u9396\u9396\u9396\u9396\u9396\u9396", width)) <= width
