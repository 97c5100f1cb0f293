"""lockctl.lease.period: when a success counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.lease.period import is_done, start_of

MOMENTS = st.floats(0, 4e9)
SPANS = st.sampled_from([1.0, 5.0, 60.0, 3600.0, 86400.0, 7 * 86400.0])


@pytest.mark.parametrize(
    ("last", "at", "done"),
    [
        (None, 100.0, False),
        (100.0, 119.999, True),
        (119.999, 100.0, True),
        (99.999, 100.0, False),
        (100.0, 120.0, False),
        (120.5, 119.5, True),  # the clock was set back by a second, over the end of a period
        (139.999, 100.0, True),
        (141.0, 100.0, False),  # written by a clock that was far ahead
        (1e12, 100.0, False),
        (0.0, 1e9, False),
    ],
)
def test_a_success_counts_for_its_own_period(last: float | None, at: float, *, done: bool) -> None:
    assert is_done(last, at, 20.0) is done


@given(MOMENTS, SPANS)
def test_periods_begin_at_multiples_of_their_length_from_the_epoch(at: float, span: float) -> None:
    start = start_of(at, span)
    assert start % span == 0
    assert 0 <= at - start < span
    assert is_done(start, at, span)
    assert not is_done(start - span, at, span)
    assert not is_done(start - 0.001, at, span)
