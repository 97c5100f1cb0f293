"""lockctl.supervise.loop: histories of events are replayed with a clock of the test's. No processes, no sleeps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lockctl.events import KEEPER_GONE, LOST, REVOKED, TIMED_OUT, Renewed, StopJob
from lockctl.lease.schedule import Schedule
from lockctl.supervise.job_events import (
    CommandContinued,
    CommandEnded,
    CommandStopped,
    Due,
    Finish,
    GuardContinued,
    KeeperGone,
    NobodyLeft,
    PassSignal,
    SignalCommand,
    SignalTree,
    TellLeftovers,
)
from lockctl.supervise.loop import REPEAT_KILL, SETTLE, SLOWEST_REPEAT, Watch
from lockctl.supervise.orders import Orders

if TYPE_CHECKING:
    from lockctl.supervise.job_events import Action, WatchEvent

# deadline 128: first signal at 121, SIGKILL at 126
SCHEDULE = Schedule(ttl=30.0, grace=5.0, margin=2.0, interval=5.0, request_timeout=3.0, rate_error=0.0)
START, DEADLINE, SIGNAL_AT, KILL_AT = 100.0, 128.0, 121.0, 126.0
TERM, KILL, CONT = SignalTree(15), SignalTree(9), SignalTree(18)
FOREVER = float("inf")


def orders(
    *,
    leftover: str = "kill",
    max_runtime: float | None = None,
    kernel_held: bool = False,
    on_terminal: bool = False,
) -> Orders:
    return Orders(
        first_signal=15,
        leftover=leftover,
        max_runtime=max_runtime,
        kernel_held=kernel_held,
        on_terminal=on_terminal,
        kill_on_loss=True,
        contain="no",
    )


class Replay:
    """A watch, its clock, and what it has decided so far with the times."""

    def __init__(self, given: Orders | None = None, *, deadline: float = DEADLINE) -> None:
        self.watch = Watch(given or orders(), SCHEDULE, now=START, deadline=deadline)
        self.now = START
        self.decided: list[tuple[float, Action]] = []

    def at(self, moment: float, *happened: WatchEvent) -> list[tuple[float, Action]]:
        """Let time pass as the guard does, waking whenever asked to; then the events. What was decided since."""
        before = len(self.decided)
        while not self.watch.finished and self.watch.wake_at() <= moment:
            wake = max(self.watch.wake_at(), self.now)
            self._take(Due(), wake)
            assert self.watch.finished or self.watch.wake_at() > wake, "it would spin"
        for event in happened:
            self._take(event, moment)
        return self.decided[before:]

    def _take(self, event: WatchEvent, now: float) -> None:
        assert now >= self.now
        self.now = now
        self.decided += [(round(now, 6), action) for action in self.watch.on(event, now)]


def test_a_job_that_ends_by_itself_is_left_in_peace() -> None:
    replay = Replay()
    assert replay.at(110.0, CommandEnded(0), NobodyLeft()) == [(110.0, Finish())]
    assert (replay.watch.cause, replay.watch.status, replay.watch.finished) == (None, 0, True)


def test_at_the_deadline_comes_term_and_cont_then_kill_again_and_again_until_nobody_is_left() -> None:
    replay = Replay()
    assert replay.at(SIGNAL_AT - 0.001) == []
    assert replay.at(SIGNAL_AT) == [(SIGNAL_AT, TERM), (SIGNAL_AT, CONT)]
    assert replay.at(KILL_AT - 0.001) == []
    kills = replay.at(KILL_AT + 10)
    assert {action for _, action in kills} == {KILL}
    assert [moment for moment, _ in kills[:3]] == pytest.approx(
        [KILL_AT, KILL_AT + REPEAT_KILL, KILL_AT + 3 * REPEAT_KILL]
    )
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(kills)]
    assert max(gaps) == pytest.approx(SLOWEST_REPEAT)
    assert replay.at(140.0, CommandEnded(9), NobodyLeft())[-1] == (140.0, Finish())
    assert replay.watch.cause == LOST


def test_renewals_move_the_deadline_and_never_back() -> None:
    replay = Replay()
    assert replay.at(105.0, Renewed(133.0)) == []
    assert replay.at(106.0, Renewed(120.0)) == []
    assert replay.at(SIGNAL_AT + 4.9) == []
    assert replay.at(SIGNAL_AT + 5) == [(126.0, TERM), (126.0, CONT)]
    assert replay.at(KILL_AT + 5) == [(131.0, KILL)]


def test_a_renewal_after_the_first_signal_does_not_take_it_back_but_the_lock_is_kept() -> None:
    replay = Replay()
    replay.at(SIGNAL_AT)
    assert replay.at(122.0, Renewed(150.0)) == []
    assert replay.at(SIGNAL_AT + SCHEDULE.grace) == [(SIGNAL_AT + SCHEDULE.grace, KILL)]
    replay.at(126.0, CommandEnded(9), NobodyLeft())
    assert replay.watch.cause == LOST


def test_a_certain_loss_kills_at_once() -> None:
    replay = Replay()
    assert replay.at(105.0, StopJob(LOST, at_once=True)) == [(105.0, KILL)]
    assert replay.watch.cause == LOST


def test_a_certain_loss_with_on_lost_term_gives_the_usual_grace_but_none_beyond_the_deadline() -> None:
    replay = Replay()
    assert replay.at(105.0, StopJob(LOST, at_once=False)) == [(105.0, TERM), (105.0, CONT)]
    assert replay.at(110.0) == [(110.0, KILL)]
    late = Replay()
    late.at(105.0, Renewed(DEADLINE))
    assert late.at(120.9, StopJob(LOST, at_once=False)) == [(120.9, TERM), (120.9, CONT)]
    assert late.at(125.9) == [(125.9, KILL)]
    short = Replay(deadline=110.0)
    assert short.at(102.9, StopJob(LOST, at_once=False)) == [(102.9, TERM), (102.9, CONT)]
    assert short.at(107.9) == [(107.9, KILL)]


def test_a_revocation_stops_with_grace_and_renewals_keep_the_lock_meanwhile() -> None:
    replay = Replay()
    assert replay.at(120.0, StopJob(REVOKED, at_once=False)) == [(120.0, TERM), (120.0, CONT)]
    replay.at(124.9, Renewed(150.0))
    assert replay.at(125.0) == [(125.0, KILL)]
    assert replay.watch.cause == REVOKED


def test_the_deadline_cuts_a_grace_short_that_began_too_late() -> None:
    late = Watch(orders(), SCHEDULE, now=START, deadline=DEADLINE)  # held up: not woken at 121
    assert late.on(StopJob(REVOKED, at_once=False), 124.0) == [TERM, CONT]
    assert late.wake_at() == KILL_AT
    assert late.on(Due(), KILL_AT) == [KILL]
    cut = Replay(orders(max_runtime=4.0), deadline=110.0)
    assert cut.at(105.0) == [(103.0, TERM), (103.0, CONT)]
    assert cut.at(108.0) == [(108.0, KILL)]


def test_a_guard_that_slept_past_everything_kills_without_asking_first() -> None:
    replay = Replay()
    replay.now = 200.0
    assert replay.watch.on(Due(), 200.0) == [KILL]
    assert replay.watch.cause == LOST


def test_a_dead_keeper_stops_the_job_with_its_grace() -> None:
    replay = Replay()
    assert replay.at(105.0, KeeperGone()) == [(105.0, TERM), (105.0, CONT)]
    assert replay.at(110.0) == [(110.0, KILL)]
    assert replay.watch.cause == KEEPER_GONE


def test_max_runtime_counts_from_the_start_and_renewals_do_not_move_it() -> None:
    replay = Replay(orders(max_runtime=10.0))
    replay.at(109.0, Renewed(137.0))
    assert replay.at(110.0) == [(110.0, TERM), (110.0, CONT)]
    assert replay.at(115.0) == [(115.0, KILL)]
    assert replay.watch.cause == TIMED_OUT


def test_without_a_lease_nothing_but_max_runtime_ends_a_job() -> None:
    replay = Replay(deadline=FOREVER)
    assert replay.watch.wake_at() == FOREVER
    assert replay.at(1e9) == []


def test_leftovers_that_end_in_a_moment_are_not_spoken_of() -> None:
    replay = Replay()
    assert replay.at(105.0, CommandEnded(0)) == []
    assert replay.at(105.0 + SETTLE / 2, NobodyLeft()) == [(105.1, Finish())]


def test_leftovers_are_stopped_with_grace_and_it_is_said() -> None:
    replay = Replay()
    replay.at(105.0, CommandEnded(0))
    assert replay.at(105.2) == [(105.2, TellLeftovers()), (105.2, TERM), (105.2, CONT)]
    assert replay.at(110.2) == [(110.2, KILL)]
    assert replay.at(110.2, NobodyLeft()) == [(110.2, Finish())]
    assert replay.watch.cause is None


def test_leftovers_are_waited_for_if_asked_and_lose_the_lease_like_the_command() -> None:
    replay = Replay(orders(leftover="wait"))
    assert replay.at(115.0, CommandEnded(0)) == []
    assert replay.at(120.0) == []
    assert replay.at(SIGNAL_AT) == [(SIGNAL_AT, TERM), (SIGNAL_AT, CONT)]
    assert replay.watch.cause == LOST


def test_leftovers_that_are_waited_for_can_be_revoked_and_time_out() -> None:
    replay = Replay(orders(leftover="wait", max_runtime=10.0))
    replay.at(102.0, CommandEnded(0))
    assert replay.at(110.0) == [(110.0, TERM), (110.0, CONT)]
    assert replay.watch.cause == TIMED_OUT
    other = Replay(orders(leftover="wait"))
    other.at(102.0, CommandEnded(0))
    other.at(103.0, StopJob(REVOKED, at_once=False))
    assert other.watch.cause == REVOKED


@pytest.mark.parametrize("cause", [LOST, REVOKED])
def test_leftovers_that_are_waited_for_are_a_part_of_the_job_from_the_end_of_the_command_on(cause: str) -> None:
    replay = Replay(orders(leftover="wait"))
    replay.at(102.0, CommandEnded(0))
    replay.at(102.1, StopJob(cause, at_once=cause == LOST))  # who ends by itself soon is still waited for
    assert replay.watch.cause == cause
    other = Replay(orders(leftover="kill"))
    other.at(102.0, CommandEnded(0))
    other.at(102.1, StopJob(cause, at_once=cause == LOST))
    assert other.watch.cause is None


def test_a_loss_while_leftovers_are_stopped_that_were_waited_for_is_told() -> None:
    replay = Replay(orders(leftover="wait"))
    replay.at(102.0, CommandEnded(0))
    replay.at(103.0, StopJob(REVOKED, at_once=False))
    replay.at(104.0, StopJob(LOST, at_once=True))
    assert replay.watch.cause == LOST


def test_leftovers_that_are_stopped_for_another_reason_than_the_end_of_the_command_are_told() -> None:
    replay = Replay(orders(max_runtime=5.0))
    replay.at(104.9, CommandEnded(0))
    assert replay.at(105.0) == [(105.0, TellLeftovers()), (105.0, TERM), (105.0, CONT)]


def test_leftovers_that_may_stay_are_left_at_once() -> None:
    replay = Replay(orders(leftover="leave"))
    assert replay.at(105.0, CommandEnded(0)) == [(105.0, Finish())]


def test_who_is_being_stopped_is_not_left_alone_although_leftovers_may_stay() -> None:
    replay = Replay(orders(leftover="leave"))
    replay.at(105.0, StopJob(REVOKED, at_once=False))
    assert replay.at(106.0, CommandEnded(15)) == []
    assert replay.at(110.0) == [(110.0, KILL)]
    assert replay.at(110.1, NobodyLeft())[-1] == (110.1, Finish())


def test_a_command_that_ends_during_its_grace_leaves_the_rest_to_the_same_grace() -> None:
    replay = Replay()
    replay.at(SIGNAL_AT)
    assert replay.at(122.0, CommandEnded(15)) == []
    assert replay.at(126.0) == [(126.0, KILL)]
    assert (replay.watch.status, replay.watch.cause) == (15, LOST)


def test_nobody_left_counts_only_after_the_command_has_ended() -> None:
    replay = Replay()
    assert replay.at(105.0, NobodyLeft()) == []
    assert not replay.watch.finished


def test_a_signal_is_passed_to_the_command_and_after_its_end_to_who_is_left() -> None:
    replay = Replay(orders(leftover="wait"))
    assert replay.at(105.0, PassSignal(10)) == [(105.0, SignalCommand(10))]
    replay.at(106.0, CommandEnded(0))
    assert replay.at(107.0, PassSignal(10)) == [(107.0, SignalTree(10))]


def test_a_passed_signal_starts_no_schedule_of_ours() -> None:
    replay = Replay()
    replay.at(105.0, PassSignal(15))
    assert replay.at(SIGNAL_AT - 0.1) == []
    assert replay.watch.cause is None


def test_a_job_parked_on_its_terminal_loses_no_lock_that_the_kernel_holds() -> None:
    replay = Replay(orders(kernel_held=True, on_terminal=True))
    replay.at(105.0, CommandStopped(20))
    assert replay.watch.wake_at() == FOREVER
    assert replay.at(5000.0, CommandContinued()) == []
    assert replay.at(5022.9) == []
    assert replay.at(5030.0)[0][1] == TERM


@pytest.mark.parametrize(("kernel_held", "on_terminal"), [(True, False), (False, True), (False, False)])
def test_any_other_stopped_job_is_stopped_for_good_at_its_deadline(*, kernel_held: bool, on_terminal: bool) -> None:
    replay = Replay(orders(kernel_held=kernel_held, on_terminal=on_terminal))
    replay.at(105.0, CommandStopped(19))
    assert replay.at(SIGNAL_AT) == [(SIGNAL_AT, TERM), (SIGNAL_AT, CONT)]


def test_a_parked_job_is_continued_to_be_stopped_and_has_its_whole_grace_however_long_it_was_parked() -> None:
    replay = Replay(orders(kernel_held=True, on_terminal=True, max_runtime=50.0))
    replay.at(105.0, CommandStopped(20))
    assert replay.at(150.0) == [(150.0, TERM), (150.0, CONT)]
    assert replay.at(155.0) == [(155.0, KILL)]
    other = Replay(orders(kernel_held=True, on_terminal=True))
    other.at(105.0, CommandStopped(20))
    assert other.at(500.0, StopJob(REVOKED, at_once=False)) == [(500.0, TERM), (500.0, CONT)]
    assert other.at(505.0) == [(505.0, KILL)]


def test_a_guard_that_was_stopped_itself_gives_the_keeper_a_whole_lease_if_the_kernel_has_the_lock() -> None:
    held = orders(kernel_held=True)
    for moment in (SIGNAL_AT - 0.1, SIGNAL_AT + 0.1, SIGNAL_AT + 75):  # however soon after its time it is continued
        watch = Watch(held, SCHEDULE, now=START, deadline=DEADLINE)
        assert watch.on(GuardContinued(), moment) == []
        assert watch.on(Due(), SIGNAL_AT + 75 if moment > DEADLINE else SIGNAL_AT + 0.2) == []
    machine = Watch(held, SCHEDULE, now=START, deadline=DEADLINE)  # paused as a whole: nobody sent CONT
    assert machine.on(Due(), SIGNAL_AT + 75) == []
    assert machine.on(Due(), machine.wake_at()) == [TERM, CONT]
    in_time = Watch(held, SCHEDULE, now=START, deadline=DEADLINE)  # the keeper alone is stopped
    assert in_time.on(Due(), SIGNAL_AT + 0.1) == [TERM, CONT]


def test_a_guard_that_was_stopped_itself_stops_a_job_whose_lease_may_be_over_at_a_server() -> None:
    watch = Watch(orders(), SCHEDULE, now=START, deadline=DEADLINE)
    assert watch.on(GuardContinued(), DEADLINE + 1) == [KILL]


def test_a_parked_command_that_is_killed_from_outside_is_no_lost_lease() -> None:
    replay = Replay(orders(kernel_held=True, on_terminal=True, leftover="wait"))
    replay.at(105.0, CommandStopped(20))
    assert replay.at(500.0, CommandEnded(9)) == []
    assert replay.at(510.0) == []
    assert replay.watch.cause is None


def test_the_first_cause_counts() -> None:
    replay = Replay(orders(max_runtime=5.0))
    replay.at(105.0)
    assert replay.at(106.0, StopJob(REVOKED, at_once=False), KeeperGone()) == []
    assert replay.watch.cause == TIMED_OUT


def test_a_certain_loss_outranks_every_earlier_cause() -> None:
    replay = Replay()
    replay.at(105.0, StopJob(REVOKED, at_once=False))
    assert replay.at(106.0, StopJob(LOST, at_once=True)) == [(106.0, KILL)]
    assert replay.watch.cause == LOST


def test_a_loss_after_the_command_has_ended_is_no_cause_but_kills_who_is_left() -> None:
    replay = Replay()
    replay.at(105.0, CommandEnded(0))
    assert replay.at(105.1, StopJob(LOST, at_once=True)) == [(105.1, KILL)]
    assert replay.watch.cause is None


def test_nothing_happens_after_the_end() -> None:
    replay = Replay()
    replay.at(105.0, CommandEnded(0), NobodyLeft())
    assert replay.at(300.0, Due(), StopJob(LOST, at_once=True), PassSignal(15), KeeperGone(), NobodyLeft()) == []
    assert replay.watch.cause is None


@pytest.mark.parametrize(
    ("kernel_held", "moment", "cause"),
    [(False, DEADLINE - 0.1, None), (False, DEADLINE, LOST), (False, DEADLINE + 60, LOST), (True, DEADLINE + 60, None)],
)
def test_a_command_that_ended_by_itself_after_the_lease_has_lost_it(
    *, kernel_held: bool, moment: float, cause: str | None
) -> None:
    """The whole machine was paused: the guard learns of the end when it wakes, and of nothing else before."""
    watch = Watch(orders(kernel_held=kernel_held), SCHEDULE, now=START, deadline=DEADLINE)
    watch.on(CommandEnded(0), moment)
    watch.on(NobodyLeft(), moment)
    assert (watch.finished, watch.cause, watch.status) == (True, cause, 0)
