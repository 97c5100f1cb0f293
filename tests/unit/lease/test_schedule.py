"""lockctl.lease.schedule: the arithmetic that keeps two jobs apart."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lockctl.lease.schedule import FIRST_TIMEOUT, SHORTEST_TTL, SLACK, TRIES_BEFORE_SIGNAL, USUAL_GRACE, Schedule, plan
from lockctl.stores.file.lock import FileBackend
from lockctl.stores.memory.cell import MemoryBackend
from lockctl.value import replace

LEASED, KERNEL = MemoryBackend.capabilities, FileBackend.capabilities
TTL = st.floats(min_value=SHORTEST_TTL, max_value=86400)
RATES = st.floats(min_value=0, max_value=0.05)


def planned(ttl: float, grace: float | None, rate: float) -> Schedule | None:
    """A schedule, or ``None`` if it was refused."""
    try:
        return plan(ttl, grace, replace(LEASED, rate_error=rate))
    except ValueError:
        return None


@given(TTL, st.none() | st.floats(min_value=0, max_value=90000), RATES, st.floats(min_value=0, max_value=1e9))
def test_the_signal_comes_before_the_kill_and_the_kill_before_the_end_of_the_lease(
    ttl: float, grace: float | None, rate: float, sent: float
) -> None:
    schedule = planned(ttl, grace, rate)
    assume(schedule is not None)
    assert schedule is not None
    deadline = schedule.deadline(sent, ttl)
    assert schedule.signal_at(deadline) <= schedule.kill_at(deadline) < deadline < sent + ttl
    assert schedule.kill_at(deadline) - schedule.signal_at(deadline) == pytest.approx(schedule.grace, abs=1e-5)
    assert deadline - schedule.kill_at(deadline) == pytest.approx(schedule.margin, abs=1e-5)


@given(TTL, st.floats(min_value=0, max_value=90000), RATES)
def test_several_renewals_may_fail_before_the_first_signal(ttl: float, grace: float, rate: float) -> None:
    schedule = planned(ttl, grace, rate)
    assume(schedule is not None)
    assert schedule is not None
    before_signal = schedule.signal_at(schedule.deadline(0.0, ttl))
    assert before_signal >= TRIES_BEFORE_SIGNAL * schedule.interval + schedule.request_timeout - 1e-6


@given(TTL, st.floats(min_value=0, max_value=90000), RATES)
def test_a_grace_that_does_not_fit_is_refused_and_the_longest_that_fits_is_named_and_fits(
    ttl: float, grace: float, rate: float
) -> None:
    usable = ttl * (1 - rate) - SLACK
    if planned(ttl, grace, rate) is None:
        longest = plan(ttl, None, replace(LEASED, rate_error=rate))
        assert grace > longest.grace or longest.grace == USUAL_GRACE
    else:
        assert grace < usable


@given(st.floats(min_value=3.0, max_value=86400))
def test_without_a_word_about_it_the_grace_is_the_usual_one_or_a_quarter_of_a_short_lease(ttl: float) -> None:
    assert plan(ttl, None, LEASED).grace == pytest.approx(min(USUAL_GRACE, ttl / 4))


@given(st.floats(min_value=0, max_value=SHORTEST_TTL, exclude_max=True))
def test_a_lease_that_is_too_short_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="at least 1s"):
        plan(ttl, None, LEASED)


def test_these_are_the_times_of_the_default_lease() -> None:
    schedule = plan(30.0, None, LEASED)
    assert (schedule.grace, schedule.margin, schedule.interval, schedule.request_timeout) == (5.0, 1.5, 5.0, 3.0)
    deadline = schedule.deadline(100.0, 30.0)
    assert deadline == pytest.approx(129.89)
    assert schedule.kill_at(deadline) == pytest.approx(128.39)
    assert schedule.signal_at(deadline) == pytest.approx(123.39)


def test_a_backend_can_ask_to_be_looked_at_more_often() -> None:
    assert plan(30.0, None, KERNEL).interval == KERNEL.heartbeat


def test_the_deadline_goes_by_what_the_server_confirmed_not_by_what_was_asked() -> None:
    schedule = plan(30.0, None, LEASED)
    assert schedule.deadline(0.0, 20.0) == pytest.approx(20 * 0.998 - SLACK)


def test_the_message_about_the_grace_says_what_would_fit() -> None:
    with pytest.raises(ValueError, match=r"^kill-after 9s is too long for a ttl of 10s and its renewals: at most 3s"):
        plan(10.0, 9.0, LEASED)


@given(st.floats(min_value=2, max_value=86400), st.floats(min_value=0, max_value=0.5))
def test_a_dead_connection_leaves_as_much_time_for_the_second_try_as_the_first_one_got(ttl: float, age: float) -> None:
    schedule = plan(ttl, None, LEASED)
    deadline = schedule.deadline(0.0, ttl)
    begun = age * schedule.signal_at(deadline)
    first = schedule.renewal_timeout(begun, deadline, 0)
    second = schedule.renewal_timeout(begun + first, deadline, 1)
    assert second >= first - 1e-6
    assert begun + first + second <= deadline
    assert second >= min(0.5 * (schedule.signal_at(deadline) - begun), FIRST_TIMEOUT) - 1e-6


def test_the_time_for_a_request_follows_from_the_lease_and_grows_after_each_that_got_no_answer() -> None:
    schedule = plan(30.0, None, replace(LEASED, heartbeat=0.9))
    deadline = schedule.deadline(0.0, 30.0)
    assert [schedule.renewal_timeout(0.9, deadline, late) for late in (0, 1, 2)] == pytest.approx([5.0, 10.0, 20.0])
    assert schedule.renewal_timeout(20.0, deadline, 1) == pytest.approx(schedule.signal_at(deadline) - 20.0)
    short = plan(10.0, None, replace(LEASED, heartbeat=0.9))
    end = short.deadline(0.0, 10.0)
    assert short.renewal_timeout(0.9, end, 0) == pytest.approx(0.5 * (short.signal_at(end) - 0.9))


def test_the_lock_of_a_job_that_is_being_stopped_is_kept_until_its_deadline() -> None:
    schedule = plan(30.0, None, LEASED)
    deadline = schedule.deadline(0.0, 30.0)
    now = schedule.signal_at(deadline) + 1.0
    assert schedule.request_timeout <= schedule.renewal_timeout(now, deadline, 1) <= deadline - now
    assert schedule.renewal_timeout(deadline + 5.0, deadline, 1) == schedule.request_timeout


def test_renewals_follow_each_other_by_their_sending_and_failures_back_off_while_there_is_time() -> None:
    schedule = plan(30.0, None, replace(LEASED, heartbeat=1.0))
    assert [schedule.pause(took, 0, 20.0) for took in (0.1, 5.0)] == pytest.approx([0.9, 0.5])
    assert [schedule.pause(0.0, count, 20.0) for count in (1, 2, 3, 4, 5)] == pytest.approx([0.5, 1.0, 2.0, 4.0, 5.0])
    assert schedule.pause(0.0, 5, 4.0) == pytest.approx(1.0)
    assert schedule.pause(0.0, 5, -3.0) == pytest.approx(0.5)
    assert schedule.pause(5.0, 1, 15.0) == 0.0  # no answer in all that time: another connection at once


def test_the_first_renewal_counts_from_the_request_that_took_the_lock() -> None:
    schedule = plan(30.0, None, LEASED)
    assert schedule.first_renewal(schedule.deadline(100.0, 30.0)) == pytest.approx(100.0 + schedule.interval)
