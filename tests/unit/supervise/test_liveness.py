"""lockctl.supervise.liveness: what the keeper decides, replayed with a clock of the test's. No processes, no sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockctl.events import LOST, REVOKED, Renewed, StopJob
from lockctl.lease.lease_events import (
    LeaseEnded,
    Note,
    RenewalFailed,
    RenewNow,
    RevocationAsked,
    TakeOver,
    TellDeadline,
)
from lockctl.lease.schedule import Schedule
from lockctl.supervise.liveness import AWAKE_AT_LOSS, NEVER, Liveness
from lockctl.value import replace

if TYPE_CHECKING:
    from lockctl.lease.lease_events import KeeperAction, RenewalEvent

# deadline 130: first signal at 123, SIGKILL at 128
SCHEDULE = Schedule(ttl=30.0, grace=5.0, margin=2.0, interval=5.0, request_timeout=3.0, rate_error=0.0)
START = 100.0
DEADLINE = SCHEDULE.deadline(START, SCHEDULE.ttl)
KILL_AT, PATIENCE = SCHEDULE.kill_at(DEADLINE), SCHEDULE.margin / 2


def begun(*, kernel_held: bool = False, kill_on_loss: bool = True) -> Liveness:
    """A keeper whose guard was just told to start the command."""
    live = Liveness(SCHEDULE, kernel_held=kernel_held, kill_on_loss=kill_on_loss)
    live.begin(START, DEADLINE)
    return live


def without_notes(actions: list[KeeperAction]) -> list[KeeperAction]:
    return [action for action in actions if not isinstance(action, Note)]


def test_without_a_lease_nothing_is_ever_due() -> None:
    live = Liveness(SCHEDULE, kernel_held=False, kill_on_loss=True)
    assert live.wake_at() == NEVER
    assert live.due(1e9) == []


def test_the_first_renewal_is_due_one_interval_after_the_request_that_the_deadline_counts_from() -> None:
    live = begun()
    assert live.wake_at() == pytest.approx(START + SCHEDULE.interval)
    assert live.due(START + SCHEDULE.interval) == [RenewNow()]
    assert live.wake_at() == KILL_AT, "who renews keeps its own time"


def test_a_renewal_that_is_due_already_lets_the_command_start_first() -> None:
    live = begun()
    late = DEADLINE - 3 * SCHEDULE.interval
    live.begin(START, late)
    assert START < live.wake_at() <= START + 0.1, "as long as a start takes"
    assert live.due(START) == []
    assert live.due(START + 0.1) == [RenewNow()]


def test_a_renewal_is_told_to_the_guard_if_it_gains_enough() -> None:
    live = begun()
    assert live.report(105.0, Renewed(DEADLINE + 0.1)) == []
    told = Note("trace", "renewed the lease", "renewed", DEADLINE - 100)
    assert live.report(106.0, Renewed(DEADLINE + 6)) == [TellDeadline(DEADLINE + 6), told]
    assert live.deadline == DEADLINE + 6


def test_a_silence_of_the_server_is_said_once_and_stops_nothing() -> None:
    live = begun()
    failed = ("cannot renew the lease: no answer", "renewal_failed")
    assert live.report(105.0, RenewalFailed("no answer")) == [Note("warning", *failed)]
    assert live.report(106.0, RenewalFailed("no answer")) == [Note("trace", *failed)]
    assert live.report(107.0, Renewed(DEADLINE + 7))[-1] == Note(
        "info", "the lease was renewed again", "renewed", DEADLINE - 100
    )
    assert (live.renewals, live.failures) == (1, 2)


@pytest.mark.parametrize("kill_on_loss", [True, False])
def test_a_clear_no_stops_the_job_once_and_before_it_is_said(kill_on_loss: bool) -> None:  # noqa: FBT001
    live = begun(kill_on_loss=kill_on_loss)
    live.due(START + SCHEDULE.interval)
    stop, note = live.report(110.0, LeaseEnded("taken away"))
    assert (stop, note) == (StopJob(LOST, kill_on_loss), Note("info", "the lease is lost: taken away", "stopping"))
    assert live.report(111.0, LeaseEnded("taken away")) == []
    asked_at = 110.0 + (0 if kill_on_loss else SCHEDULE.grace)
    assert live.wake_at() == asked_at, "then the guard must show that it is awake"
    assert live.due(asked_at) == [TellDeadline(DEADLINE)]
    patience = AWAKE_AT_LOSS if kill_on_loss else PATIENCE
    assert live.wake_at() == pytest.approx(asked_at + patience)
    (over,) = live.due(asked_at + patience)
    assert isinstance(over, TakeOver)


def test_who_asks_for_the_lock_stops_the_job_with_grace_and_once() -> None:
    live = begun()
    asked = RevocationAsked("ops@web3", "maintenance", DEADLINE + 6)
    assert without_notes(live.report(106.0, asked)) == [TellDeadline(DEADLINE + 6), StopJob(REVOKED, at_once=False)]
    assert without_notes(live.report(107.0, asked)) == []
    assert live.detail == "by ops@web3: maintenance"
    assert without_notes(live.report(108.0, LeaseEnded("gone"))) == [StopJob(LOST, at_once=True)], "it has become worse"


def test_a_guard_that_confirms_nothing_is_asked_at_the_deadline_and_then_replaced() -> None:
    live = begun()
    live.due(START + SCHEDULE.interval)
    assert live.due(KILL_AT - 0.001) == []
    assert live.due(KILL_AT) == [TellDeadline(DEADLINE)]
    assert live.due(KILL_AT + PATIENCE - 0.001) == []
    (over,) = live.due(KILL_AT + PATIENCE)
    assert over == TakeOver(LOST, "the guard process did not answer")
    assert KILL_AT + PATIENCE < DEADLINE


def test_a_guard_can_be_asked_although_no_deadline_is_near() -> None:
    live = Liveness(SCHEDULE, kernel_held=True, kill_on_loss=True, asks_every=10.0)
    live.begin(START, START + 1e9)
    live.due(START + SCHEDULE.interval)
    for asked_at in (START + 10.0, START + 20.5):
        assert live.wake_at() == asked_at
        assert live.due(asked_at) == [TellDeadline(START + 1e9)]
        live.confirmed(asked_at + 0.5, START + 1e9)
    live.due(live.wake_at())
    assert live.wake_at() == START + 31.0 + PATIENCE
    live.held_up(START + 500.0)
    assert live.due(START + 500.0) == [], "the guard was stopped like us"
    (over,) = live.due(START + 500.0 + SCHEDULE.ttl)
    assert over == TakeOver(LOST, "the guard process did not answer")


def test_a_guard_that_is_heard_in_time_stays() -> None:
    live = begun()
    live.due(KILL_AT)
    live.heard(KILL_AT + 0.5)
    live.confirmed(KILL_AT + 0.5, DEADLINE)
    assert live.wake_at() == KILL_AT + 0.5 + PATIENCE
    assert live.due(KILL_AT + 0.9) == []


def test_a_guard_that_says_something_else_than_its_answer_gets_the_time_for_that_once_more() -> None:
    live = begun()
    live.lose(START, "taken away")
    assert TellDeadline(DEADLINE) in live.due(START)
    live.heard(START + 0.1)  # its cause, and then it is stopped before it does anything
    assert live.due(START + 0.1 + AWAKE_AT_LOSS - 0.001) == []
    assert live.due(START + 0.1 + AWAKE_AT_LOSS) == [TakeOver(LOST, "the guard process did not answer")]


def test_a_guard_that_confirms_a_deadline_after_an_order_to_stop_is_asked_when_the_grace_is_over() -> None:
    live = begun()
    live.due(START + SCHEDULE.interval)
    live.report(107.0, RevocationAsked("ops", "", DEADLINE + 7.0))
    live.heard(107.1)
    live.confirmed(107.1, DEADLINE + 7.0)
    assert live.due(107.0 + SCHEDULE.grace - 0.001) == []
    assert live.due(107.0 + SCHEDULE.grace) == [TellDeadline(DEADLINE + 7.0)]
    live.heard(112.1)
    live.confirmed(112.1, DEADLINE + 7.0)
    assert live.wake_at() == KILL_AT + 7.0, "it is awake, and has sent KILL"


def test_the_answer_to_a_deadline_before_an_order_to_stop_says_nothing_of_what_came_behind_it() -> None:
    """Without a grace the guard is to be awake at once, and it may be stopped between the two."""
    live = Liveness(replace(SCHEDULE, grace=0.0), kernel_held=False, kill_on_loss=True)
    live.begin(START, DEADLINE)
    now, later = START + 5, DEADLINE + 5
    assert without_notes(live.report(now, RevocationAsked("ops", "", later))) == [
        TellDeadline(later),
        StopJob(REVOKED, at_once=False),
    ]
    assert live.due(now) == [RenewNow()]
    live.confirmed(now + 0.001, later)
    asked_at = live.wake_at()
    assert live.due(asked_at) == [TellDeadline(later)]
    assert live.due(live.wake_at()) == [TakeOver(LOST, "the guard process did not answer")]
    assert live.wake_at() < now + AWAKE_AT_LOSS + 2 * PATIENCE


def test_where_the_kernel_has_the_lock_a_guard_gets_a_whole_lease_after_a_stop() -> None:
    live = begun(kernel_held=True)
    live.due(KILL_AT)
    live.held_up(KILL_AT + 600)
    assert live.due(KILL_AT + 600) == []
    assert live.wake_at() == KILL_AT + 600 + SCHEDULE.ttl


class Histories(RuleBasedStateMachine):
    """Any order of reports, answers of the guard and pauses, with leases of a server."""

    @initialize(kill_on_loss=st.booleans())
    def first_job(self, kill_on_loss: bool) -> None:  # noqa: FBT001
        self.begin(kill_on_loss=kill_on_loss)

    def begin(self, *, kill_on_loss: bool) -> None:
        self.live = begun(kill_on_loss=kill_on_loss)
        self.now = START
        self.told = DEADLINE
        self.stops: list[StopJob] = []
        self.clear_no = self.asked = self.over = self.heard = False

    def take(self, actions: list[KeeperAction]) -> None:
        for action in actions:
            if isinstance(action, TellDeadline):
                self.told = action.deadline
            elif isinstance(action, StopJob):
                self.stops.append(action)
            elif isinstance(action, TakeOver):
                self.over = True

    def report(self, event: RenewalEvent) -> None:
        self.take(self.live.report(self.now, event))

    @precondition(lambda self: self.over)
    @rule(kill_on_loss=st.booleans())
    def another_job(self, kill_on_loss: bool) -> None:  # noqa: FBT001
        self.begin(kill_on_loss=kill_on_loss)

    @precondition(lambda self: not self.over)
    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds: float) -> None:
        """As the keeper lets it pass: it wakes when there is something to do."""
        until = self.now + seconds
        while self.live.wake_at() <= until and not self.over:
            wake = max(self.live.wake_at(), self.now)
            before = self.live.wake_at()
            self.now = wake
            self.take(self.live.due(wake))
            assert self.over or self.live.wake_at() > before, "it would spin"
        self.now = self.now if self.over else until

    @precondition(lambda self: not self.over)
    @rule(ago=st.floats(0.0, 3.0))
    def renewed(self, ago: float) -> None:
        self.report(Renewed(SCHEDULE.deadline(self.now - ago, SCHEDULE.ttl)))

    @precondition(lambda self: not self.over)
    @rule()
    def failed(self) -> None:
        before = len(self.stops)
        self.report(RenewalFailed("no answer"))
        assert len(self.stops) == before, "what is not known stops nothing"

    @precondition(lambda self: not self.over)
    @rule()
    def lost(self) -> None:
        self.clear_no = True
        self.report(LeaseEnded("taken away"))

    @precondition(lambda self: not self.over)
    @rule()
    def revoked(self) -> None:
        self.asked = True
        self.report(RevocationAsked("ops", "", SCHEDULE.deadline(self.now, SCHEDULE.ttl)))

    @precondition(lambda self: not self.over)
    @rule()
    def guard_confirms(self) -> None:
        self.heard = True
        self.live.heard(self.now)
        self.live.confirmed(self.now, self.told)

    @precondition(lambda self: not self.over)
    @rule()
    def guard_says_something(self) -> None:
        self.heard = True
        self.live.heard(self.now)

    @invariant()
    def a_guard_that_was_never_heard_is_replaced_before_its_deadline(self) -> None:
        if not self.heard:
            assert self.over or self.now < DEADLINE

    @invariant()
    def only_a_clear_no_or_a_request_stops_the_job(self) -> None:
        causes = {stop.cause for stop in self.stops}
        assert (LOST in causes) == self.clear_no
        assert REVOKED not in causes or self.asked
        assert len(self.stops) == len(causes), "each cause is told once"


Histories.TestCase.settings = settings(
    max_examples=settings().max_examples * 3 // 2, stateful_step_count=30, deadline=None, database=None
)
TestHistories = Histories.TestCase
