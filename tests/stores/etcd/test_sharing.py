"""Readers and semaphores in the queue that a lock in etcd is: what others wrote there, races, and who is woken."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import ConfigError, LeaseLost
from lockctl.model import SHARED
from lockctl.stores.etcd import layout, share, wait
from lockctl.stores.etcd.queue import View
from lockctl.stores.etcd.queue import look as look_truly
from tests.contract.harness import LIMIT, Background, claim, one_of, queue_up, reader, refused, take, wait_for_turn
from tests.contract.keeping import revoke
from tests.jobs import eventually
from tests.stores.etcd.claims import keys_of_locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.etcd.lock import EtcdBackend
    from lockctl.wire.deadline import Deadline
    from tests.servers.etcd import Etcd

    Open = Callable[..., EtcdBackend]


def queue(client: EtcdBackend) -> int:
    """How many wait."""
    waiters = client.inspect("nightly", timeout=LIMIT).waiters
    assert waiters is not None
    return len(waiters)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Owner -> how often it looked at the queue while it waited."""
    counted: dict[str, int] = {}

    def look(backend: EtcdBackend, mine: Claim, created: int, deadline: Deadline) -> View:
        counted[mine.owner] = counted.get(mine.owner, 0) + 1
        return look_truly(backend, mine, created, deadline)

    monkeypatch.setattr(wait, "look", look)
    return counted


class TestGroups:
    """A key says by its name what its owner wants; a name that nobody of us writes is one who wants to be alone."""

    @pytest.mark.parametrize(
        ("key", "group", "slots"),
        [
            (b"shared/1f", b"shared/", 1),
            (b"slots-3/1f", b"slots-3/", 3),
            (b"slots-1000/1f", b"slots-1000/", 1000),
            (b"1f", b"", 1),
            (b"shared", b"", 1),
            (b"slots-3", b"", 1),
            (b"sharedx/1f", b"", 1),
            (b"slots-/1f", b"", 1),
            (b"slots-0/1f", b"", 1),
            (b"slots-03/1f", b"", 1),
            (b"slots-+3/1f", b"", 1),
            (b"slots--3/1f", b"", 1),
            (b"slots-3x/1f", b"", 1),
            (b"slots-\xd9\xa3/1f", b"", 1),
            (b"slots-9999999/1f", b"", 1),
            (b"slots-" + b"9" * 10_000 + b"/1f", b"", 1),
            (b"", b"", 1),
            (b"/", b"", 1),
        ],
    )
    def test_the_group_of_a_key(self, key: bytes, group: bytes, slots: int) -> None:
        assert share.group_of(b"lockctl/nightly/", b"lockctl/nightly/" + key) == group
        assert share.slots_of(group) == slots

    @pytest.mark.parametrize("key", ["slots-20/1", "shared", "slots-3", "x"])
    def test_a_key_in_no_group_keeps_readers_and_slots_out(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, key: str
    ) -> None:
        etcd_server.command("put", f"{prefix}nightly/{key}", "x")
        if key == "slots-20/1":
            with pytest.raises(ConfigError, match="20 slots, not 2:"):
                backend.try_acquire(one_of(2), timeout=LIMIT)
        else:
            assert refused(backend, one_of(2))
            assert refused(backend, reader())
        assert refused(backend, one_of(20)) == (key != "slots-20/1")
        assert backend.inspect("nightly", timeout=LIMIT).state == "foreign"

    def test_what_is_in_a_readers_place_keeps_writers_out_whatever_it_says(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        etcd_server.command("put", f"{prefix}nightly/shared/1", "[")
        grant = take(backend, reader())
        assert refused(backend, claim())
        with pytest.raises(ConfigError):
            backend.try_acquire(one_of(2), timeout=LIMIT)
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert lock.state == "foreign"
        assert [holder.owner for holder in lock.holders] == [None, grant.claim.owner]
        assert revoke(backend, lock.holders[0], now=True) is not None
        assert backend.inspect("nightly", timeout=LIMIT).state == "held"
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_claim_that_is_told_of_other_slots_leaves_nothing(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, prefix: str
    ) -> None:
        writer = take(backend, claim())
        inside = [connect(etcd_server.address) for _ in range(2)]
        claims = [one_of(2), one_of(3)]
        for client, mine in zip(inside, claims, strict=True):
            queue_up(client, mine, backend)
        backend.release(writer, timeout=LIMIT)
        grant = take(inside[0], claims[0])
        with pytest.raises(ConfigError, match="in use with 2 slots, not 3: say the same --slots everywhere"):
            inside[1].try_acquire(claims[1], timeout=LIMIT)
        (left,) = keys_of_locks(etcd_server, prefix)
        assert left.encode() == inside[0].layout.claim_key("nightly", inside[0].lease_of(claims[0]), b"slots-2/")
        inside[0].release(grant, timeout=LIMIT)

    def test_holders_and_waiters_of_a_mixed_queue_are_told_apart(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        first, second = take(backend, one_of(2)), take(connect(etcd_server.address), one_of(2))
        for mine in (one_of(2), claim(), reader(), one_of(2)):
            queue_up(connect(etcd_server.address), mine, backend)
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert [holder.token for holder in lock.holders] == [first.token, second.token]
        assert (lock.slots, queue(backend)) == (2, 4)
        backend.release(first, timeout=LIMIT)
        assert queue(backend) == 3, "the third moves up; the fifth does not pass those before it"

    @pytest.mark.parametrize("mine", [reader(), one_of(2)], ids=["reader", "slot"])
    def test_the_key_of_one_of_several_can_be_deleted_by_hand(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, mine: Claim
    ) -> None:
        beside = take(connect(etcd_server.address), claim(mode=mine.mode, slots=mine.slots))
        grant = take(backend, mine)
        place = backend.layout.claim_key(
            "nightly", backend.lease_of(mine), layout.group(mine.mode, mine.slots)
        ).decode()
        assert etcd_server.command("del", place).strip() == "1"
        with pytest.raises(LeaseLost, match="deleted by another client"):
            backend.renew(grant, timeout=LIMIT)
        assert connect(etcd_server.address).renew(beside, timeout=LIMIT).token == beside.token


class TestRaces:
    """Who counts and then writes may be overtaken in between."""

    def test_a_slot_that_is_taken_after_it_was_counted_is_not_taken_twice(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take(backend, one_of(2))
        quick, slow = connect(etcd_server.address), connect(etcd_server.address)
        truly, transactions = slow.cluster.call, 0

        def call(path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
            nonlocal transactions
            transactions += path == "/v3/kv/txn"
            if transactions == 2:
                transactions += 1
                take(quick, one_of(2))
            return truly(path, request, deadline)

        monkeypatch.setattr(slow.cluster, "call", call)
        assert slow.try_acquire(one_of(2), timeout=LIMIT) is None
        assert transactions == 3, "it counted, found another's key when it wrote, and was refused"
        assert len(backend.inspect("nightly", timeout=LIMIT).holders) == 2

    def test_a_slot_that_was_given_back_after_it_was_counted_is_no_obstacle(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = take(backend, one_of(2))
        slow = connect(etcd_server.address)
        truly, transactions = slow.cluster.call, 0

        def call(path: str, request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
            nonlocal transactions
            transactions += path == "/v3/kv/txn"
            if transactions == 2:
                backend.release(first, timeout=LIMIT)
            return truly(path, request, deadline)

        monkeypatch.setattr(slow.cluster, "call", call)
        assert take(slow, one_of(2)).token > first.token
        assert transactions == 2

    def test_a_lease_that_ended_before_the_key_was_written_is_made_anew(
        self, etcd_server: Etcd, backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for mine in (reader(), one_of(2)):
            lease = f"{backend.lease_of(mine):x}"
            truly, ended = backend.cluster.call, False

            def call(path: str, request: dict[str, Any], deadline: Deadline, lease: str = lease) -> dict[str, Any]:
                nonlocal ended
                if path == "/v3/kv/txn" and not ended:
                    ended = True
                    etcd_server.command("lease", "revoke", lease)
                return truly(path, request, deadline)  # noqa: B023 - always the same

            monkeypatch.setattr(backend.cluster, "call", call)
            grant = take(backend, mine)
            monkeypatch.undo()
            assert ended
            assert backend.renew(grant, timeout=LIMIT).token == grant.token
            backend.release(grant, timeout=LIMIT)


class TestWaking:
    """Few are woken, and nobody is forgotten."""

    def test_readers_behind_a_writer_are_woken_once_and_a_writer_behind_readers_not_by_them_all(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, looks: dict[str, int]
    ) -> None:
        writer = take(backend, claim())
        readers = [(connect(etcd_server.address), reader()) for _ in range(8)]
        waits = []
        for number, (client, mine) in enumerate(readers):
            waits.append(Background(functools.partial(client.wait, mine, timeout=60.0, interrupt=None)))
            eventually(lambda number=number: queue(backend) == number + 1)  # type: ignore[misc]
        backend.release(writer, timeout=LIMIT)
        for each in waits:
            each.result()
        assert max(looks[mine.owner] for _, mine in readers) <= 2  # before it waits, and when it is woken
        grants = [take(client, mine) for client, mine in readers]
        last = connect(etcd_server.address), claim()
        waits = [Background(functools.partial(last[0].wait, last[1], timeout=60.0, interrupt=None))]
        eventually(lambda: queue(backend) == 1)
        for (client, _), grant in zip(readers, grants, strict=True):
            client.release(grant, timeout=LIMIT)
        waits[0].result()
        assert looks[last[1].owner] == 1, "it was woken by the last of them, and by nobody before it"

    @pytest.mark.parametrize("later", [claim(), one_of(2)], ids=["writer", "slot"])
    def test_a_reader_behind_two_of_another_kind_is_woken_by_the_second(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, looks: dict[str, int], later: Claim
    ) -> None:
        first, mine = take(backend, claim()), reader()
        second, third = connect(etcd_server.address), connect(etcd_server.address)
        queue_up(second, later, backend)
        waits = Background(functools.partial(third.wait, mine, timeout=60.0, interrupt=None))
        eventually(lambda: queue(backend) == 2)
        backend.release(first, timeout=LIMIT)
        grant = take(second, later)
        time.sleep(0.3)  # in which it would look
        assert looks[mine.owner] == 1
        second.release(grant, timeout=LIMIT)
        waits.result()
        assert looks[mine.owner] == 2

    def test_who_moves_up_to_be_the_first_watches_all_who_are_inside(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        grants = [take(backend, one_of(2)) for _ in range(2)]
        queued = [(connect(etcd_server.address), one_of(2, ttl=900.0)) for _ in range(2)]  # nobody looks unasked
        waits = []
        for number, (client, mine) in enumerate(queued):
            waits.append(Background(functools.partial(client.wait, mine, timeout=60.0, interrupt=None)))
            eventually(lambda number=number: queue(backend) == number + 1)  # type: ignore[misc]
        backend.release(grants[1], timeout=LIMIT)
        waits[0].result()
        take(*queued[0])
        assert waits[1].running
        backend.release(grants[0], timeout=LIMIT)
        waits[1].result(5.0)
        take(*queued[1])

    def test_each_slot_that_is_given_back_wakes_two_of_many(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, looks: dict[str, int]
    ) -> None:
        first = [take(connect(etcd_server.address), one_of(3)) for _ in range(3)]
        served: list[int] = []
        claims = [one_of(3, ttl=900.0) for _ in range(24)]  # it would be minutes until they looked unasked

        def turn(number: int) -> None:
            client, mine = connect(etcd_server.address), claims[number]
            grant = wait_for_turn(client, mine)
            served.append(number)
            client.release(grant, timeout=LIMIT)

        turns = []
        for number in range(len(claims)):
            turns.append(Background(functools.partial(turn, number)))
            eventually(lambda number=number: queue(backend) == number + 1)  # type: ignore[misc]
        assert set(looks.values()) == {1}
        for grant in first:
            backend.release(grant, timeout=LIMIT)
        for each in turns:
            each.result(60.0)
        assert sorted(served) == list(range(24))
        assert all(abs(number - place) < 6 for place, number in enumerate(served)), served
        assert max(looks.values()) <= 4, "as one of the rest, as the first of them, and when there was room"

    def test_who_gives_up_behind_the_first_does_not_wake_it(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, looks: dict[str, int]
    ) -> None:
        grant = take(backend, one_of(1))
        first, second = connect(etcd_server.address), connect(etcd_server.address)
        mine, others = one_of(1), one_of(1)
        waits = Background(functools.partial(first.wait, mine, timeout=60.0, interrupt=None))
        eventually(lambda: queue(backend) == 1)
        queue_up(second, others, backend)
        assert queue(backend) == 2
        second.withdraw(others, timeout=LIMIT)
        time.sleep(0.3)  # in which it would look
        assert looks[mine.owner] == 1
        backend.release(grant, timeout=LIMIT)
        waits.result()
        assert looks[mine.owner] == 2

    @pytest.mark.parametrize("mine", [reader(), one_of(1), one_of(2)], ids=["reader", "slot", "slots"])
    def test_who_tries_again_while_it_waits_is_refused_and_keeps_its_place(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, mine: Claim
    ) -> None:
        kind = claim if mine.mode == SHARED else functools.partial(one_of, mine.slots)
        grants = [take(backend, kind()) for _ in range(mine.slots)]
        client = connect(etcd_server.address)
        queue_up(client, mine, backend)
        for _ in range(2):
            assert client.try_acquire(mine, timeout=LIMIT) is None
            assert queue(backend) == 1
        backend.release(grants[0], timeout=LIMIT)
        assert take(client, mine).token > grants[-1].token

    def test_a_waiter_that_sleeps_keeps_one_slot_and_not_those_behind_it_from_the_others(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        grants = [take(backend, one_of(2)) for _ in range(2)]
        asleep, awake = connect(etcd_server.address), connect(etcd_server.address)
        queue_up(asleep, one_of(2), backend)  # and then it is stopped, with its place
        mine = one_of(2, ttl=3.0)
        waits = Background(functools.partial(awake.wait, mine, timeout=60.0, interrupt=None))
        eventually(lambda: queue(backend) == 2)
        for grant in grants:
            backend.release(grant, timeout=LIMIT)
        released = time.monotonic()
        waits.result()
        assert waits.ended_at - released < 2.0  # it looks three times in the life of its lease
        take(awake, mine)
        assert refused(backend, one_of(2)), "the sleeper has the other"

    def test_a_waiter_behind_another_kind_goes_on_when_it_gives_up(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open
    ) -> None:
        take(backend, one_of(3))
        writer, mine = claim(), one_of(3)
        impatient, patient = connect(etcd_server.address), connect(etcd_server.address)
        with pytest.raises(ConfigError):
            impatient.try_acquire(writer, timeout=LIMIT)
        queue_up(impatient, writer, backend)
        assert refused(connect(etcd_server.address), one_of(3)), "not past who came before"
        waits = Background(functools.partial(patient.wait, mine, timeout=60.0, interrupt=None))
        eventually(lambda: queue(backend) == 2)
        impatient.withdraw(writer, timeout=LIMIT)
        waits.result()
        take(patient, mine)
