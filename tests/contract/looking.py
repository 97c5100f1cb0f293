"""What a backend promises about looking at locks."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import SLOT
from lockctl.value import replace
from tests.contract.harness import LIMIT, LONG, Background, refused, take
from tests.contract.waiting import start_waiting
from tests.jobs import eventually

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import LockInfo
    from tests.contract.harness import Harness


LOOKS = 20


def _in_brief(lock: LockInfo) -> tuple[object, ...]:
    """What is said of a lock to who was refused; how long leases still run differs between two looks."""
    holders = [replace(holder, expires_in=None) for holder in lock.holders]
    return lock.name, lock.backend, lock.key, lock.state, lock.fencing, lock.slots, holders


class Looking:
    """What is shown is true, complete and in order, and a look changes nothing."""

    def test_a_lock_that_nobody_ever_took_is_free_and_not_listed(self, harness: Harness, backend: Backend) -> None:
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert (lock.name, lock.state, lock.holders) == ("nightly", "free", ())
        assert list(backend.list("*", timeout=LIMIT)) == []

    def test_a_held_lock_shows_its_holder_in_full(self, harness: Harness, backend: Backend, other: Backend) -> None:
        claim = harness.claim(host="web3", user="ops", command=("./nightly.sh", "--all"))
        grant = take(backend, claim)
        lock = other.inspect("nightly", timeout=LIMIT)
        assert (lock.name, lock.state, lock.slots, lock.last_run) == ("nightly", "held", 1, None)
        assert (lock.backend, lock.fencing) == (harness.capabilities.scheme, harness.capabilities.fencing)
        assert lock.key == grant.key
        (holder,) = lock.holders
        assert (holder.owner, holder.token, holder.mode) == (claim.owner, grant.token, "exclusive")
        assert (holder.host, holder.pid, holder.user, holder.command) == ("web3", os.getpid(), "ops", claim.command)
        assert holder.acquired_at is not None
        assert abs(holder.acquired_at - time.time()) < 5
        assert holder.ttl == claim.ttl
        if harness.capabilities.leased and harness.tells_expiry:
            assert holder.expires_in is not None
            assert 0 < holder.expires_in <= grant.ttl + harness.clock_error
        else:
            assert holder.expires_in is None

    def test_who_was_refused_sees_the_holder_that_an_operator_sees(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.claim(host="web3", user="ops", command=("./nightly.sh", "--all")))
        assert refused(other, harness.claim())
        assert _in_brief(other.look("nightly", timeout=LIMIT)) == _in_brief(other.inspect("nightly", timeout=LIMIT))
        backend.release(grant, timeout=LIMIT)
        seen = other.look("nightly", timeout=LIMIT)
        assert (seen.name, seen.key, seen.state, seen.holders) == ("nightly", grant.key, "free", ())
        with harness.foreign_hold("other"):
            seen, shown = (ask("other", timeout=LIMIT) for ask in (other.look, other.inspect))
        assert (seen.state, seen.holders[0].owner, seen.holders[0].pid) == ("foreign", None, shown.holders[0].pid)

    def test_who_was_refused_sees_all_who_hold_the_slots(self, harness: Harness, other: Backend) -> None:
        if not harness.capabilities.slots:
            return  # refused: see ``Sharing``
        for client in (harness.client(), harness.client()):
            take(client, harness.claim(mode=SLOT, slots=2))
        assert refused(other, harness.claim(mode=SLOT, slots=2))
        seen = other.look("nightly", timeout=LIMIT)
        assert (seen.slots, len(seen.holders)) == (2, 2)
        assert _in_brief(seen) == _in_brief(other.inspect("nightly", timeout=LIMIT))

    def test_who_was_refused_sees_a_hold(self, harness: Harness, backend: Backend, other: Backend) -> None:
        backend.release(take(backend, harness.claim()), timeout=LIMIT, hold=LONG)
        seen, shown = (ask("nightly", timeout=LIMIT) for ask in (other.look, other.inspect))
        assert seen.holders[0].ended_at is not None
        assert _in_brief(seen) == _in_brief(shown)

    def test_a_released_lock_is_shown_free(self, harness: Harness, backend: Backend, other: Backend) -> None:
        backend.release(take(backend, harness.claim()), timeout=LIMIT)
        lock = other.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.holders) == ("free", ())
        # lockctl-list(1) says which ones keep nothing in the place of a free lock
        kept = harness.capabilities.scheme not in ("etcd", "consul")
        assert [lock.name for lock in other.list("*", timeout=LIMIT)] == (["nightly"] if kept else [])

    def test_the_list_has_the_locks_that_match_in_the_order_of_their_names(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        for name in ("web.b", "db.a", "web.a", "web.c"):
            take(backend, harness.claim(name))
        assert [lock.name for lock in other.list("*", timeout=LIMIT)] == ["db.a", "web.a", "web.b", "web.c"]
        assert [lock.name for lock in other.list("web.[ab]", timeout=LIMIT)] == ["web.a", "web.b"]
        assert [lock.name for lock in other.list("web", timeout=LIMIT)] == []
        assert list(other.list("web.a", timeout=LIMIT)) == [other.inspect("web.a", timeout=LIMIT)] or (
            harness.capabilities.leased  # how long it still lives differs between two looks
        )

    def test_waiters_are_shown_in_their_order_or_said_to_be_unknown(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        third = harness.client()
        grant = take(backend, harness.claim(ttl=30.0))
        first = start_waiting(other, harness.short(), backend, count=1)
        time.sleep(0.05)  # the kernel's clock of process starts ticks every 10 ms
        second = start_waiting(third, harness.short(), backend, count=2 if harness.capabilities.lists_waiters else 1)
        shown = backend.inspect("nightly", timeout=LIMIT).waiters
        backend.release(grant, timeout=LIMIT)
        waits = {first: other, second: third}
        while waits:  # not everywhere in their order
            ended = eventually(lambda: next((each for each in waits if not each.running), None))
            ended.result()
            waits.pop(ended).close()
        if not harness.capabilities.lists_waiters:
            assert shown is None
            return
        assert shown is not None
        assert [(waiter.host, waiter.pid) for waiter in shown] == [(os.uname().nodename, os.getpid())] * 2
        earlier, later = (waiter.since for waiter in shown)
        assert earlier is not None
        assert later is not None
        assert time.time() - 20 < earlier <= later < time.time() + 1
        assert earlier < later or harness.clock_error

    def test_the_lock_of_another_program_is_shown_as_foreign(self, harness: Harness, backend: Backend) -> None:
        with harness.foreign_hold("nightly"):
            lock = backend.inspect("nightly", timeout=LIMIT)
            assert lock.state == "foreign"
            (holder,) = lock.holders
            assert (holder.owner, holder.token) == (None, None)
            assert [(each.name, each.state) for each in backend.list("*", timeout=LIMIT)] == [("nightly", "foreign")]
        assert backend.inspect("nightly", timeout=LIMIT).state == "free"

    def test_the_record_of_our_last_holder_is_not_taken_for_another_programs(
        self, harness: Harness, backend: Backend, other: Backend
    ) -> None:
        grant = take(backend, harness.short())
        harness.expire(grant)
        with harness.foreign_hold("nightly"):
            lock = other.inspect("nightly", timeout=LIMIT)
        assert (lock.state, lock.holders[0].owner) == ("foreign", None)

    def test_looking_never_makes_a_lock_refuse(self, harness: Harness, backend: Backend, other: Backend) -> None:
        def look() -> None:
            for _ in range(LOOKS):
                other.inspect("nightly", timeout=LIMIT)
                list(other.list("*", timeout=LIMIT))

        looking = Background(look)
        while looking.running:
            backend.release(take(backend, harness.claim()), timeout=LIMIT)
        looking.result()

    def test_a_store_out_of_reach_is_not_shown_as_free(self, harness: Harness, backend: Backend) -> None:
        take(backend, harness.claim())
        with harness.cut_off(backend), pytest.raises(BackendUnavailable):
            backend.inspect("nightly", timeout=0.5)
