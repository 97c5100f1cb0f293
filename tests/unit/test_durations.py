"""lockctl.durations: what people write is what is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.durations import FOREVER, LONGEST, UNITS, format_age, format_duration, parse_duration, parse_wait


@given(st.integers(min_value=0, max_value=int(LONGEST) * 1000))
def test_every_duration_that_is_written_reads_back_the_same(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.lists(st.tuples(st.integers(0, 700), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5))
def test_parts_add_up_in_any_order(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert parse_duration(text) == pytest.approx(sum(count * UNITS[unit] for count, unit in parts))


@given(st.text())
def test_any_other_text_is_refused_in_one_line_or_means_a_span_that_is_possible(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as wrong:
        said, seconds = str(wrong), 0.0
    else:
        said = ""
    assert "\n" not in said
    assert 0 <= seconds <= LONGEST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 30),
        ("1.5", 1.5),
        ("30s", 30),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1d", 86400),
        (" 5m ", 300),
        ("0.5h", 1800),
    ],
)
def test_these_mean_what_they_say(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "banana",
        "-1",
        "-5s",
        "+5",
        "1e3",
        "inf",
        "nan",
        "5 s",
        "s",
        "5x",
        "1.2.3",
        "٣s",
        "٣",
        "5S",
        "1h-2m",
        "99999d",
        "1_0",
        ".",
        "1s2",
        "1..5s",
        "1e400",
        "\N{SUPERSCRIPT TWO}",
        "3651d",
        "9" * 400,
        "9" * 400 + "ms",
    ],
)
def test_these_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|ten years"):
        parse_duration(text)


def test_only_a_wait_can_last_forever() -> None:
    assert parse_wait("forever") == FOREVER
    assert parse_wait("2s") == 2
    assert format_duration(FOREVER) == "forever"
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration("forever")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-3, "0s"), (59.9, "59s"), (60, "1m"), (723, "12m3s"), (14400, "4h"), (90061, "1d1h")],
)
def test_an_age_has_at_most_two_units(seconds: float, text: str) -> None:
    assert format_age(seconds) == text
