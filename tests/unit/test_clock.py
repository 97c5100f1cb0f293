"""lockctl.clock: what each clock counts, and how a point of time is written."""

from __future__ import annotations

import datetime as dt
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl import clock


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_a_time_is_written_in_utc_to_the_millisecond(milliseconds: int) -> None:
    written = clock.utc(milliseconds / 1000)
    assert written.endswith("Z")
    assert len(written) == len("2026-11-20T02:00:00.123Z")
    read = dt.datetime.fromisoformat(written.replace("Z", "+00:00"))
    assert abs(round(read.timestamp() * 1000) - milliseconds) <= 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1.5, "1970-01-01T00:00:01.500Z"),
        (1_795_140_000.75, "2026-11-20T02:00:00.750Z"),
    ],
)
def test_these_times_are_written_like_this(seconds: float, text: str) -> None:
    assert clock.utc(seconds) == text


@pytest.mark.parametrize(
    ("ours", "kernels"), [(clock.boottime, time.CLOCK_BOOTTIME), (clock.monotonic, time.CLOCK_MONOTONIC)]
)
def test_a_clock_is_the_one_of_the_kernel_that_its_name_says(ours: clock.Clock, kernels: int) -> None:
    assert ours.clock_id == kernels
    before = time.clock_gettime(kernels)
    assert before <= ours() <= time.clock_gettime(kernels)


def test_a_pause_lasts_as_long_as_it_was_asked_for_unless_it_is_interrupted() -> None:
    reading, writing = os.pipe()
    try:
        before = clock.boottime()
        assert clock.pause(0.02, reading) is False
        assert clock.pause(0.01) is False
        assert clock.boottime() - before >= 0.03
        os.write(writing, b".")
        assert clock.pause(3600.0, reading) is True
    finally:
        os.close(reading)
        os.close(writing)
