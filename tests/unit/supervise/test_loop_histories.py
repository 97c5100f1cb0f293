"""lockctl.supervise.loop under any history that can happen, in any order and at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockctl import events
from lockctl.lease.schedule import HELD_UP, Schedule
from lockctl.supervise import job_events
from lockctl.supervise.loop import Watch
from lockctl.supervise.orders import Orders

if TYPE_CHECKING:
    from lockctl.supervise.job_events import Action, WatchEvent

SCHEDULE = Schedule(ttl=30.0, grace=5.0, margin=2.0, interval=5.0, request_timeout=3.0, rate_error=0.0)
KILL, TERM = job_events.SignalTree(9), job_events.SignalTree(15)
SPANS = st.sampled_from([0.0, 0.01, 0.2, 1.0, 4.9, 5.0, 21.0, 60.0])


class Histories(RuleBasedStateMachine):
    """The guard's loop around a watch; the model knows who lives, what was sent, and until when the lock is ours."""

    @initialize(
        leftover=st.sampled_from(["kill", "wait", "leave"]),
        max_runtime=st.sampled_from([None, 0.0, 7.0, 50.0]),
        kernel_held=st.booleans(),
        on_terminal=st.booleans(),
    )
    def begin(self, leftover: str, max_runtime: float | None, *, kernel_held: bool, on_terminal: bool) -> None:
        self.now = 100.0
        self.deadline = self.now + SCHEDULE.ttl
        self.may_leave = leftover == "leave"
        self.kernel_held = kernel_held
        self.may_park = kernel_held and on_terminal
        self.parked = False
        self.ended = False  # the command
        self.anybody = True  # a process of the job
        self.decided: list[tuple[float, Action]] = []
        orders = Orders(
            first_signal=15,
            leftover=leftover,
            max_runtime=max_runtime,
            kernel_held=kernel_held,
            on_terminal=on_terminal,
            kill_on_loss=True,
            contain="no",
        )
        self.watch = Watch(orders, SCHEDULE, now=self.now, deadline=self.deadline)
        self.take(job_events.Due())

    def take(self, event: WatchEvent) -> None:
        over = self.watch.finished
        if self.kernel_held and self.now > self.watch.wake_at() + HELD_UP:
            self.whole_lease_again()
        actions = self.watch.on(event, self.now)
        assert not (over and actions), "nothing is done after the end"
        self.decided += [(self.now, action) for action in actions]
        if TERM in actions:
            self.no_longer_parked()  # SIGCONT follows

    def no_longer_parked(self) -> None:
        if self.parked:
            self.whole_lease_again()
        self.parked = False

    def whole_lease_again(self) -> None:
        self.deadline = max(self.deadline, SCHEDULE.deadline(self.now, SCHEDULE.ttl))

    @rule(span=SPANS)
    def time_passes(self, span: float) -> None:
        until = self.now + span
        for _ in range(500):
            wake = self.watch.wake_at()
            if self.watch.finished or wake > until:
                break
            self.now = max(self.now, wake)
            self.take(job_events.Due())
            assert self.watch.finished or self.watch.wake_at() > self.now, "it would spin"
        else:
            raise AssertionError("woken too often")
        self.now = until

    @rule(span=SPANS)
    def the_guard_is_held_up_until_an_operator_asks_for_the_lock(self, span: float) -> None:
        self.now += span
        self.take(events.StopJob(events.REVOKED, at_once=False))
        self.take(job_events.Due())

    @rule(span=SPANS)
    def all_of_lockctl_is_stopped_and_goes_on(self, span: float) -> None:
        self.now += span
        if self.kernel_held:
            self.whole_lease_again()
        self.take(job_events.GuardContinued())
        self.take(job_events.Due())

    @rule(slow=st.sampled_from([0.0, 3.0, 40.0]))
    def the_lease_is_renewed(self, slow: float) -> None:
        deadline = self.now - slow + SCHEDULE.ttl
        self.deadline = max(self.deadline, deadline)
        self.take(events.Renewed(deadline))

    @rule(cause=st.sampled_from([events.LOST, events.REVOKED]))
    def the_keeper_says_stop(self, cause: str) -> None:
        self.take(events.StopJob(cause, at_once=False))

    @rule()
    def the_keeper_says_that_the_lease_is_lost_for_certain(self) -> None:
        self.take(events.StopJob(events.LOST, at_once=True))
        assert self.watch.finished or self.decided[-1] == (self.now, KILL)

    @rule()
    def the_keeper_dies(self) -> None:
        self.take(job_events.KeeperGone())

    @rule(signum=st.sampled_from([1, 2, 10]))
    def somebody_sends_a_signal(self, signum: int) -> None:
        self.take(job_events.PassSignal(signum))

    @precondition(lambda self: not self.ended)
    @rule()
    def the_command_stops_itself(self) -> None:
        self.parked = self.may_park
        self.take(job_events.CommandStopped(20))

    @precondition(lambda self: not self.ended)
    @rule()
    def the_command_goes_on(self) -> None:
        self.no_longer_parked()
        self.take(job_events.CommandContinued())

    @precondition(lambda self: not self.ended)
    @rule(last=st.booleans())
    def the_command_ends(self, *, last: bool) -> None:
        self.no_longer_parked()
        self.ended, self.anybody = True, not last
        self.take(job_events.CommandEnded(0))
        if last:
            self.take(job_events.NobodyLeft())

    @precondition(lambda self: self.ended and self.anybody)
    @rule()
    def the_last_process_ends(self) -> None:
        self.anybody = False
        self.take(job_events.NobodyLeft())

    @invariant()
    def nobody_runs_on_unkilled_when_the_lease_can_end(self) -> None:
        over = self.now >= SCHEDULE.kill_at(self.deadline)
        if over and not self.watch.finished and not self.parked and self.anybody:
            assert KILL in [action for _, action in self.decided]

    @invariant()
    def who_is_told_to_stop_is_killed_when_the_grace_is_over(self) -> None:
        told = [moment for moment, action in self.decided if action == TERM]
        if told and self.now >= told[0] + SCHEDULE.grace and not self.watch.finished:
            assert KILL in [action for _, action in self.decided]

    @invariant()
    def the_end_is_not_said_while_somebody_is_left(self) -> None:
        finished = [action for _, action in self.decided if action == job_events.Finish()]
        assert len(finished) == int(self.watch.finished)
        if finished:
            assert self.ended
            assert self.may_leave or not self.anybody
        elif self.ended:
            assert self.anybody

    @invariant()
    def the_first_signal_is_sent_once_and_never_after_the_kill(self) -> None:
        sent = [action for _, action in self.decided if action in (TERM, KILL)]
        assert sent.count(TERM) <= 1
        assert TERM not in sent[1:]

    @invariant()
    def nobody_is_killed_who_could_still_be_asked(self) -> None:
        kills = [moment for moment, action in self.decided if action == KILL]
        if kills and TERM not in [action for _, action in self.decided]:
            assert self.watch.cause == events.LOST or self.ended


Histories.TestCase.settings = settings(
    max_examples=settings().max_examples * 3 // 2, stateful_step_count=25, deadline=None, database=None
)
TestAnyHistory = Histories.TestCase
