"""Readers and slots of ZooKeeper locks: names, the order of their queue, and whom a release wakes."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import ConfigError
from lockctl.model import EXCLUSIVE, SHARED, SLOT
from lockctl.stores.zookeeper import node as nodes
from lockctl.stores.zookeeper import queue, share
from tests.contract.harness import LIMIT, Background, queue_up, refused, take
from tests.contract.waiting import start_waiting
from tests.jobs import eventually
from tests.stores.zookeeper.test_turn import await_silence, watches

if TYPE_CHECKING:
    from lockctl.model import Claim, Grant
    from lockctl.stores.zookeeper.lock import ZooKeeperBackend
    from tests.contract.test_zookeeper import ZooKeeperHarness
    from tests.stores.zookeeper.conftest import Asked

UNIQUE = "0123456789abcdef" * 2
LAYOUTS = ("kazoo", "curator", "curator-rw")


# Names


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("mode", "slots", "kind"),
    [(EXCLUSIVE, 1, 1), (SHARED, 1, share.READERS), (SLOT, 1, 1), (SLOT, 3, 3), (SLOT, 1000, 1000)],
)
def test_a_name_says_how_many_of_its_kind_may_be_inside(layout: str, mode: str, slots: int, kind: int) -> None:
    for number in (42, 0, -1, -(2**31)):
        name = f"{queue.prefix(UNIQUE, layout, mode, slots)}{number:010d}"
        assert (queue.number(name), share.kind(name)) == (number, kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("0123456789abcdef0123456789abcdef__lock__0000000007", 1),
        ("0123456789abcdef0123456789abcdef__rlock__0000000008", 0),
        ("_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000009", 1),
        ("_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000010", 1),
        ("_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000010", 0),
        ("lock-0000000001", 1),
        ("read-lock-0000000001", 1),
        ("x_slots__lock__0000000001", 1),
        ("x_slots0__lock__0000000001", 1),
        ("xslots3__lock__0000000001", 1),
        ("x_slots-3__lock__0000000001", 1),
        ("x_slots9999999__lock__0000000001", 1),
        ("x_slots\N{ARABIC-INDIC DIGIT THREE}__lock__0000000001", 1),
        ("x_slots3__rlock__0000000001", 0),
        ("0000000001", 1),
    ],
)
def test_what_other_tools_or_jokers_name_their_nodes_is_alone_unless_it_is_a_reader(name: str, kind: int) -> None:
    assert share.kind(name) == kind


def test_go_clients_find_the_number_of_every_name_of_kazoos_and_curators_layout() -> None:
    for layout, (mode, slots) in itertools.product(LAYOUTS[:2], [(EXCLUSIVE, 1), (SHARED, 1), (SLOT, 3)]):
        name = queue.prefix(UNIQUE, layout, mode, slots) + "0000000042"
        # parseSeq of go-zookeeper
        parts = name.split("-")
        assert int((parts if len(parts) > 1 else name.split("__"))[-1]) == 42


# Agreement


def test_a_forged_document_does_not_make_a_plain_lock_agree_or_crash(harness: ZooKeeperHarness) -> None:
    client, mine = harness.client(), harness.claim(mode=SLOT, slots=3)
    for data, mistaken in ((b'{"owner":"x","mode":"slot","slots":3}', True), (b'{"owner":5}', False), (b"\xff", False)):
        path = f"{harness.root}/nightly/{UNIQUE}__lock__"
        made = harness.admin.create(path, data, ephemeral=True, sequence=True, makepath=True)
        if mistaken:
            with pytest.raises(ConfigError, match=r"one holder, not 3"):
                client.try_acquire(mine, timeout=LIMIT)
        else:
            assert refused(client, mine)
        harness.admin.delete(made)
    take(client, mine)


def test_a_waiter_behind_another_number_of_slots_is_told_when_those_have_got_in(harness: ZooKeeperHarness) -> None:
    clients = [harness.client() for _ in range(2)]
    first, second = (harness.claim(mode=SLOT, slots=number, ttl=30.0) for number in (3, 2))
    with harness.foreign_hold("nightly"):
        waiting = start_waiting(clients[0], first, clients[0])
        queue_up(clients[1], second, clients[0])
        assert len(harness.line("nightly")) == 3
    waiting.result()
    take(clients[0], first)
    with pytest.raises(ConfigError, match=r"3 slots, not 2"):
        clients[1].try_acquire(second, timeout=LIMIT)
    clients[1].withdraw(second, timeout=LIMIT)
    assert len(harness.line("nightly")) == 1


# The order of the queue


def test_modes_are_served_strictly_in_the_order_of_the_queue(harness: ZooKeeperHarness) -> None:
    holder = harness.client()
    grant = take(holder, harness.claim(ttl=30.0))
    modes = [SHARED, SHARED, EXCLUSIVE, SLOT, SLOT, SLOT, SHARED, EXCLUSIVE]
    inside: list[int] = []
    seen: list[set[int]] = []
    tokens: dict[int, int] = {}

    def turn(number: int) -> None:
        client, mode = harness.client(), modes[number]
        mine = harness.claim(mode=mode, slots=2 if mode == SLOT else 1, ttl=30.0)
        while (got := attempt(client, mine)) is None:
            client.wait(mine, timeout=LIMIT, interrupt=None)
        tokens[number] = got.token
        inside.append(number)
        seen.append(set(inside))
        eventually(lambda: number not in {2, 7} or inside == [number])
        if number in {0, 1}:
            eventually(lambda: {0, 1} <= tokens.keys())
        inside.remove(number)
        client.release(got, timeout=LIMIT)

    def attempt(client: ZooKeeperBackend, mine: Claim) -> Grant | None:
        try:
            return client.try_acquire(mine, timeout=LIMIT)
        except ConfigError:
            return None  # one holder and then two slots: here it is only the order that counts

    turns = []
    for number in range(len(modes)):
        turns.append(Background(functools.partial(turn, number)))
        eventually(lambda number=number: len(harness.line("nightly")) == number + 2)  # type: ignore[misc]
    holder.release(grant, timeout=LIMIT)
    for each in turns:
        each.result()
    groups = [{0, 1}, {2}, {3, 4, 5}, {6}, {7}]
    for before, after in itertools.pairwise(groups):
        assert max(tokens[number] for number in before) < min(tokens[number] for number in after)
    for together in seen:
        assert any(together <= group for group in groups)
    assert max(map(len, seen)) == 2
    assert [next(i for i, group in enumerate(groups) if one <= group) for one in seen] == [0, 0, 1, 2, 2, 2, 3, 4]


def test_a_slot_that_is_given_back_wakes_two_waiters_and_no_more(
    harness: ZooKeeperHarness, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: dict[str, int] = {}
    original = nodes.Node.look

    def look(self: nodes.Node, *words: Any) -> tuple[list[str], Any]:
        looks[self.claim.owner] = looks.get(self.claim.owner, 0) + 1
        return original(self, *words)

    clients = [harness.client() for _ in range(8)]
    claims = [harness.claim(mode=SLOT, slots=2, ttl=30.0) for _ in clients]
    grants = [take(client, claim) for client, claim in zip(clients[:2], claims[:2], strict=True)]
    before = watches(harness.server)
    waits = [
        start_waiting(client, claim, clients[0], count=number + 1)
        for number, (client, claim) in enumerate(zip(clients[2:], claims[2:], strict=True))
    ]
    eventually(lambda: watches(harness.server) - before == len(waits))
    await_silence(asked)  # who has just set its watch may look once more
    for client, grant in zip(clients[:2], grants, strict=True):
        client.renew(grant, timeout=LIMIT)
    monkeypatch.setattr(nodes.Node, "look", look)
    clients[1].release(grants[1], timeout=LIMIT)
    waits[0].result()
    third = take(clients[2], claims[2])
    eventually(lambda: looks.get(claims[3].owner))
    clients[0].renew(grants[0], timeout=LIMIT)
    clients[2].renew(third, timeout=LIMIT)
    assert set(looks) <= {claims[2].owner, claims[3].owner}
    for number in (3, 4):  # and so on, whoever of those inside it is who leaves
        clients[0 if number == 3 else 2].release(grants[0] if number == 3 else third, timeout=LIMIT)
        waits[number - 2].result(limit=LIMIT / 2)
        take(clients[number], claims[number])
    assert [wait.running for wait in waits] == [False] * 3 + [True] * 3
    for number in (5, 6, 7):
        clients[number - 2].release(take(clients[number - 2], claims[number - 2]), timeout=LIMIT)
        waits[number - 2].result(limit=LIMIT / 2)
        take(clients[number], claims[number])


def test_a_slot_waiter_that_gives_up_wakes_those_behind_it_to_their_new_place(harness: ZooKeeperHarness) -> None:
    clients = [harness.client() for _ in range(4)]
    claims = [harness.claim(mode=SLOT, slots=2, ttl=30.0) for _ in clients]
    grants = [take(client, claim) for client, claim in zip(clients[:2], claims[:2], strict=True)]
    queue_up(clients[2], claims[2], clients[0])
    last = start_waiting(clients[3], claims[3], clients[0], count=2)
    clients[2].withdraw(claims[2], timeout=LIMIT)
    clients[0].release(grants[0], timeout=LIMIT)
    last.result(limit=LIMIT / 2)
    take(clients[3], claims[3])


def test_a_waiter_sleeps_while_the_holder_before_it_renews(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    original = nodes.Node.look

    def look(self: nodes.Node, *words: Any) -> tuple[list[str], Any]:
        looks.append(self.claim.mode)
        return original(self, *words)

    holder = harness.client()
    grant = take(holder, harness.claim(ttl=30.0))
    before = watches(harness.server)
    clients = [harness.client() for _ in range(2)]
    claims = [harness.claim(mode=mode, ttl=30.0) for mode in (EXCLUSIVE, SHARED)]
    waits = [
        start_waiting(client, claim, holder, count=number + 1)
        for number, (client, claim) in enumerate(zip(clients, claims, strict=True))
    ]
    eventually(lambda: watches(harness.server) - before == 2)
    monkeypatch.setattr(nodes.Node, "look", look)
    for _ in range(10):
        holder.renew(grant, timeout=LIMIT)
    assert looks == []
    holder.release(grant, timeout=LIMIT)
    waits[0].result()
    clients[0].withdraw(claims[0], timeout=LIMIT)
    waits[1].result(limit=LIMIT / 2)


# Cost


def test_an_exclusive_tenure_takes_as_many_round_trips_as_ever(harness: ZooKeeperHarness, asked: list[Asked]) -> None:
    client = harness.client()
    client.release(take(client, harness.claim()), timeout=LIMIT)
    before = len(asked)
    grant = take(client, harness.claim(ttl=30.0))
    assert len(asked) - before == 2
    client.renew(grant, timeout=LIMIT)
    assert len(asked) - before == 3
    mine, other = harness.claim(ttl=30.0), harness.client()
    waiting = start_waiting(other, mine, harness.client())
    before = len(asked)
    client.release(grant, timeout=LIMIT)
    assert asked[before].calls == 1
    waiting.result()
    before = len(asked)
    take(other, mine)
    assert len(asked) == before + 1, "it hands over, and does not wait for the end of the session in which it waited"
