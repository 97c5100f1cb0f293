"""What a backend keeps of a lock when nobody holds it any more: a hold, a success, the last runs."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import history
from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.model import Run
from lockctl.value import replace
from tests.contract.harness import LIMIT, Background, refused, take
from tests.contract.keeping import holder_of, revoke

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Grant
    from tests.contract.harness import Harness

HOLD = 2.0  # seconds


def a_run(number: int = 0, **changes: object) -> Run:
    """A run that ended well, *number* seconds after the others."""
    run = Run(
        host="web3",
        user="ops",
        command=("./nightly.sh", "--all"),
        token=41 + number,
        started_at=1_790_000_000.0 + number,
        ended_at=1_790_000_000.5 + number,
        duration=0.5,
        waited=0.25,
        outcome="exited",
        exit_code=0,
        detail=None,
    )
    return replace(run, **changes)


class Remembering:
    """Holds, successes and history; nothing of it is taken for a lock."""

    def test_a_lock_that_is_released_with_a_hold_is_refused_that_long_and_then_free(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        asked = time.monotonic()
        backend.release(grant, timeout=LIMIT, hold=HOLD)
        backend.close()
        assert refused(other, harness.claim())
        lock = other.inspect("nightly", timeout=LIMIT)
        assert lock.state == "held"
        assert [(holder.owner, holder.token) for holder in lock.holders] == [(grant.claim.owner, grant.token)]
        assert lock.holders[0].ended_at is not None
        assert abs(lock.holders[0].ended_at - time.time()) < 5
        harness.pass_time(HOLD - 0.3 - (time.monotonic() - asked))
        early = other.try_acquire(harness.claim(), timeout=LIMIT)
        if early is not None:  # this machine is slow
            assert time.monotonic() - asked >= HOLD
            other.release(early, timeout=LIMIT)
        harness.pass_time(0.3 + harness.hold_slack)
        assert other.inspect("nightly", timeout=LIMIT).state == "free"
        assert take(other, harness.claim()).token > grant.token

    def test_who_waits_for_a_lock_with_a_hold_gets_it_when_the_hold_ends_and_not_before(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        released = time.monotonic()
        backend.release(grant, timeout=LIMIT, hold=HOLD)
        claim = harness.claim(ttl=30.0)
        while (later := other.try_acquire(claim, timeout=LIMIT)) is None:
            assert time.monotonic() - released < HOLD + harness.hold_slack + 2.0
            other.wait(claim, timeout=LIMIT, interrupt=None)
        assert time.monotonic() - released >= HOLD
        assert time.monotonic() - released < HOLD + harness.hold_slack + 1.0
        assert later.token > grant.token

    def test_a_run_that_is_added_with_the_release_is_added_once_however_often_that_is_said(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        release = getattr(backend, "release_with_run", None)
        if release is None:
            return  # then it is remembered by a request of its own
        backend.remember("nightly", a_run(), timeout=LIMIT)
        grant = take(backend, harness.claim())
        assert release(grant, a_run(1), timeout=LIMIT)
        later = take(other, harness.claim())
        release(grant, a_run(1), timeout=LIMIT)
        assert other.history("nightly", timeout=LIMIT) == (a_run(1), a_run())
        assert other.renew(later, timeout=LIMIT).token == later.token

    def test_an_operator_can_end_a_hold(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, harness.claim())
        backend.release(grant, timeout=LIMIT, hold=60.0)
        with pytest.raises(LockctlError):  # there is nobody who could be told
            revoke(other, holder_of(other))
        assert refused(other, harness.claim())
        floor = revoke(other, holder_of(other), now=True)
        assert floor is not None
        assert grant.token < floor <= take(other, harness.claim()).token

    def test_a_grant_says_when_it_was_by_the_clock_of_the_store(self, harness: Harness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        assert abs(grant.at - time.time()) < 5

    def test_a_success_is_told_to_everybody_until_the_next_one(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        assert backend.last_success("nightly", timeout=LIMIT) is None
        grant = take(backend, harness.claim())
        assert other.last_success("nightly", timeout=LIMIT) is None
        backend.note_success(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        noted = other.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - grant.at) < 0.001
        assert other.last_success("nightly.other", timeout=LIMIT) is None
        later = take(other, harness.claim())
        other.note_success(replace(later, at=later.at + 100), timeout=LIMIT)
        other.release(later, timeout=LIMIT)
        noted = backend.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - later.at - 100) < 0.001

    def test_a_success_that_arrives_late_changes_nothing(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        newest = replace(grant, at=grant.at + 50)
        backend.note_success(newest, timeout=LIMIT)
        backend.note_success(grant, timeout=LIMIT)
        noted = other.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - newest.at) < 0.001

    def test_of_successes_that_are_noted_at_the_same_time_the_newest_stays(
        self, harness: Harness, backend: Backend
    ) -> None:
        clients = [harness.client() for _ in range(3)]
        if backend.capabilities.shared:
            grants = [take(client, harness.claim(mode="shared", ttl=60.0)) for client in clients]
        else:
            grants = [take(backend, harness.claim(ttl=60.0))] * 3
        newest = max(grant.at for grant in grants) + 90

        def note(client: Backend, grant: Grant, number: int) -> None:
            for step in range(10):
                client.note_success(replace(grant, at=newest - 30 * number - step), timeout=LIMIT)

        notes = [
            Background(functools.partial(note, client, grant, number))
            for number, (client, grant) in enumerate(zip(clients, grants, strict=True))
        ]
        for each in notes:
            each.result()
        noted = backend.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - newest) < 0.001

    def test_a_success_of_a_clock_that_was_a_day_ahead_gives_way(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim())
        backend.note_success(replace(grant, at=grant.at + 100_000.0), timeout=LIMIT)
        backend.note_success(grant, timeout=LIMIT)
        noted = other.last_success("nightly", timeout=LIMIT)
        assert noted is not None
        assert abs(noted - grant.at) < 0.001

    def test_a_success_that_cannot_be_read_or_written_is_said(self, harness: Harness, backend: Backend) -> None:
        grant = take(backend, harness.claim())
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.last_success("nightly", timeout=0.5)
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.note_success(grant, timeout=0.5)
        backend.note_success(grant, timeout=LIMIT)

    def test_the_history_has_the_last_runs_in_full_the_newest_first(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        assert backend.history("nightly", timeout=LIMIT) == ()
        runs = [
            a_run(0),
            a_run(1, outcome="lost", exit_code=None, detail="by \N{SNOWMAN} \x1b[31m"),
            a_run(2, outcome="held", started_at=None, duration=None, token=None, exit_code=None),
        ]
        for run in runs:
            backend.remember("nightly", run, timeout=LIMIT)
        backend.remember("nightly.other", a_run(9), timeout=LIMIT)
        assert other.history("nightly", timeout=LIMIT) == tuple(runs[::-1])
        assert other.history("nightly.other", timeout=LIMIT) == (a_run(9),)

    def test_the_last_run_of_a_lock_is_the_newest_that_started(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        backend.remember("nightly", a_run(1), timeout=LIMIT)
        backend.remember("nightly", a_run(2, outcome="held", started_at=None, duration=None), timeout=LIMIT)
        assert other.inspect("nightly", timeout=LIMIT).last_run == a_run(1)
        assert other.inspect("nightly.other", timeout=LIMIT).last_run is None
        take(backend, harness.claim())
        assert other.inspect("nightly", timeout=LIMIT).last_run == a_run(1)
        assert [lock.last_run for lock in other.list("nightly", timeout=LIMIT)] == [None]

    def test_what_is_remembered_of_a_lock_is_no_lock(self, harness: Harness, backend: Backend, other: Backend) -> None:
        grant = take(backend, harness.claim("done"))
        backend.note_success(grant, timeout=LIMIT)
        backend.remember("done", a_run(), timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        backend.remember("never-held", a_run(), timeout=LIMIT)
        assert {lock.name for lock in other.list("*", timeout=LIMIT)} <= {"done"}
        assert other.inspect("done", timeout=LIMIT).state == "free"
        assert other.inspect("never-held", timeout=LIMIT).state == "free"
        take(other, harness.claim("never-held"))
        take(other, harness.claim("done"))

    def test_a_history_is_bounded_and_refusals_do_not_push_out_runs(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        backend.remember("nightly", a_run(0), timeout=LIMIT)
        refusal = a_run(0, outcome="held", started_at=None, duration=None)
        refusals = history.KEPT + 3
        for number in range(1, refusals + 1):
            run = replace(refusal, ended_at=1_790_000_000.0 + number)
            backend.remember("nightly", run, timeout=LIMIT)
        kept = other.history("nightly", timeout=LIMIT)
        assert len(kept) <= 1 + 2 * history.KEPT
        assert len([run for run in kept if not run.started]) >= history.KEPT
        assert kept[0].ended_at == 1_790_000_000.0 + refusals
        assert kept[-1] == a_run(0)

    def test_runs_that_end_at_the_same_time_are_all_remembered(self, harness: Harness, backend: Backend) -> None:
        def end(number: int) -> None:
            client = harness.client()
            for count in range(3):
                client.remember("nightly", a_run(10 * number + count), timeout=LIMIT)

        for each in [Background(lambda number=number: end(number)) for number in range(5)]:  # type: ignore[misc]
            each.result()
        kept = backend.history("nightly", timeout=LIMIT)
        assert {run.token for run in kept} == {41 + 10 * number + count for number in range(5) for count in range(3)}

    def test_a_long_command_loses_its_end_and_hostile_text_comes_back_as_it_was(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        hostile = ("sh", "-c", 'echo "\\\x00\r\n\x1b]0;x\x07" \N{SNOWMAN} \' " } ]', *["x" * 200] * 100)
        backend.remember("nightly", a_run(command=hostile, host="\x1b[2J", detail='"}\n'), timeout=LIMIT)
        (run,) = other.history("nightly", timeout=LIMIT)
        assert run.command is not None
        assert run.command[:3] == hostile[:3]
        assert run.command[-1] == "..."
        assert (run.host, run.detail) == ("\x1b[2J", '"}\n')

    def test_a_history_out_of_reach_is_said_and_not_shown_as_empty(self, harness: Harness, backend: Backend) -> None:
        backend.remember("nightly", a_run(), timeout=LIMIT)
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.history("nightly", timeout=0.5)
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.remember("nightly", a_run(), timeout=0.5)
        assert len(backend.history("nightly", timeout=LIMIT)) == 1
