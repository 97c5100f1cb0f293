"""The tokens of etcd rise: when leaders die, when clocks go back or differ, and when their counter is spoilt."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.etcd import layout, prune, tokens
from tests.contract.harness import LIMIT, Background, claim, one_of, reader, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.remembering import a_run
from tests.jobs import eventually
from tests.promises.tokens import rising, tenure
from tests.servers.etcd import EtcdCluster
from tests.stores.etcd.test_hostile_keys import HOSTILE
from tests.stores.etcd.test_queue import in_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim
    from lockctl.stores.etcd.lock import EtcdBackend
    from tests.servers.etcd import Etcd

    Open = Callable[..., EtcdBackend]

BEST_OF = 3
HOUR = 3600.0
DAMAGED = {
    **HOSTILE,
    "a short number": b"7",
    "a long number": b"9" * 30,
    "a long number that begins with zeros": b"0" * 30,
    "below zero": b"-00000000000000001",
    "digits of another kind": "\N{ARABIC-INDIC DIGIT NINE}".encode() * 9,
}
KINDS = pytest.mark.parametrize("mine", [claim, reader, lambda: one_of(3)], ids=["alone", "reader", "slot"])


class Clocks:
    """The clock of the host, as far as tokens know it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def wall(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(tokens, "wall", made.wall)
    return made


def microseconds() -> int:
    return int(time.time() * 1e6)


def counter(server: Etcd, prefix: str) -> dict[str, Any]:
    (entry,) = server.entries(f"{prefix}.token/nightly")
    return entry


def a_tenure(backend: EtcdBackend, mine: Claim) -> int:
    grant = take(backend, mine)
    assert holder_of(backend).token == grant.token
    backend.release(grant, timeout=LIMIT)
    return grant.token


def waiting(client: EtcdBackend, mine: Claim, seen: EtcdBackend) -> Background:
    """*mine* waits with *client* until it may have the lock."""
    waits = Background(lambda: client.wait(mine, timeout=20.0, interrupt=None))
    eventually(lambda: seen.inspect("nightly", timeout=LIMIT).waiters)
    return waits


def test_tokens_rise_when_leaders_die(start_server: Callable[..., EtcdCluster]) -> None:
    cluster = start_server(EtcdCluster)
    url = f"etcd://{','.join(cluster.addresses)}/?prefix=t{os.urandom(6).hex()}/"
    given = [tenure(url).token]
    for _ in range(2):
        leader = cluster.leader()
        leader.kill()
        given.append(tenure(url).token)
        leader.start()
    given.append(tenure(url).token)
    assert rising(given)


def test_tokens_rise_whichever_member_gives_them(etcd_three: EtcdCluster) -> None:
    prefix = f"t{os.urandom(6).hex()}/"
    urls = [f"etcd://{address}/?prefix={prefix}" for address in etcd_three.addresses]
    assert rising([tenure(url).token for _ in range(4) for url in urls])


class TestClocks:
    """A token is one more than the last one, and never below the clock."""

    @KINDS
    def test_a_token_is_the_clock_in_microseconds(self, backend: EtcdBackend, mine: Callable[[], Claim]) -> None:
        for _ in range(2):
            before = microseconds()
            assert before <= a_tenure(backend, mine()) <= microseconds()

    @KINDS
    def test_a_clock_that_goes_back_does_not_take_tokens_with_it(
        self, backend: EtcdBackend, clocks: Clocks, mine: Callable[[], Claim]
    ) -> None:
        first = a_tenure(backend, mine())
        clocks.ahead = -HOUR
        assert [a_tenure(backend, mine()) for _ in range(3)] == [first + 1, first + 2, first + 3]
        clocks.ahead = -time.time() - HOUR  # before 1970
        assert a_tenure(backend, mine()) == first + 4

    def test_a_clock_before_1970_begins_with_1(self, backend: EtcdBackend, clocks: Clocks) -> None:
        clocks.ahead = -time.time() - HOUR
        assert [a_tenure(backend, claim()) for _ in range(2)] == [1, 2]

    @KINDS
    def test_who_waited_gets_a_later_token_although_its_clock_is_behind(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, clocks: Clocks, mine: Callable[[], Claim]
    ) -> None:
        grant, waiter, client = take(backend, claim()), mine(), connect(etcd_server.address)
        waits = waiting(client, waiter, backend)
        clocks.ahead = -HOUR
        backend.release(grant, timeout=LIMIT)
        waits.result()
        assert take(client, waiter).token == grant.token + 1
        assert holder_of(backend).token == grant.token + 1

    @pytest.mark.parametrize(("ahead", "requests"), [(0.0, 1), (-HOUR, 2)])
    def test_a_clock_that_is_behind_costs_one_round_trip_more(
        self,
        etcd_server: Etcd,
        backend: EtcdBackend,
        connect: Open,
        clocks: Clocks,
        monkeypatch: pytest.MonkeyPatch,
        ahead: float,
        requests: int,
    ) -> None:
        client, asked = connect(etcd_server.address), []
        send = client.cluster._connections._send

        def counted(*words: Any) -> Any:
            asked.append(words)
            return send(*words)

        counts = []
        for _ in range(BEST_OF):  # who waits may look once more in that moment
            clocks.ahead = 0.0
            grant, waiter = take(backend, claim()), claim(ttl=60.0)
            with monkeypatch.context() as patch:
                waits = in_line(client, waiter, patch)
            clocks.ahead = ahead
            with monkeypatch.context() as patch:
                patch.setattr(client.cluster._connections, "_send", counted)
                asked.clear()
                backend.release(grant, timeout=LIMIT)
                waits.result()
                second = take(client, waiter)
                counts.append(len(asked))
            client.release(second, timeout=LIMIT)
        assert min(counts) == requests
        monkeypatch.setattr(client.cluster._connections, "_send", counted)
        asked.clear()
        take(client, claim())
        assert len(asked) == requests


class TestCounter:
    """A key beside the lock, which anybody may have written who may write there."""

    @KINDS
    def test_one_that_is_damaged_counts_as_none(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, mine: Callable[[], Claim]
    ) -> None:
        for value in DAMAGED.values():
            etcd_server.write(f"{prefix}.token/nightly", value)
            before = microseconds()
            given = a_tenure(backend, mine())
            assert before <= given <= microseconds(), value
            assert layout.decoded(counter(etcd_server, prefix)["value"]) == b"%018d" % given
            assert a_tenure(backend, mine()) > given

    def test_one_that_was_removed_or_spoilt_while_somebody_waits(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, prefix: str
    ) -> None:
        client, given = connect(etcd_server.address), [a_tenure(backend, claim())]
        for harm in (("del",), ("put", "~rubbish")):
            grant, waiter = take(backend, claim()), claim()
            waits = waiting(client, waiter, backend)
            etcd_server.command(harm[0], f"{prefix}.token/nightly", *harm[1:])
            backend.release(grant, timeout=LIMIT)
            waits.result()
            mine = take(client, waiter)
            given += [grant.token, mine.token]
            client.release(mine, timeout=LIMIT)
        assert rising(given)

    def test_it_ends_with_the_last_runs_until_the_lock_is_taken_again(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, clocks: Clocks
    ) -> None:
        for release in (False, True):
            grant = take(backend, claim())
            assert "lease" not in counter(etcd_server, prefix)
            if release:
                assert backend.release_with_run(grant, a_run(), timeout=LIMIT)
            else:
                backend.release(grant, timeout=LIMIT)
                backend.remember("nightly", a_run(), timeout=LIMIT)
            assert counter(etcd_server, prefix)["lease"]
            assert layout.decoded(counter(etcd_server, prefix)["value"]) == b"%018d" % grant.token
        clocks.ahead = 365 * 24 * HOUR
        grant = take(backend, claim())
        assert backend.release_with_run(grant, a_run(), timeout=LIMIT)
        assert "lease" not in counter(etcd_server, prefix), "after a year it could still be ahead of the clock"

    def test_a_name_that_has_only_a_counter_is_removed_when_nobody_uses_it(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        grant = take(backend, claim())
        assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == []
        assert not backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)
        assert list(backend.unused("*", older_than=60.0, timeout=LIMIT)) == []
        assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == [("nightly", grant.token // 10**6)]
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        floor = prefix + ".token/.floor"
        assert [*etcd_server.read(prefix)] == [floor]
        assert a_tenure(backend, claim()) > grant.token

    @KINDS
    def test_who_read_that_there_is_none_is_not_below_one_that_came_and_was_removed(
        self,
        etcd_server: Etcd,
        connect: Open,
        clocks: Clocks,
        monkeypatch: pytest.MonkeyPatch,
        mine: Callable[[], Claim],
    ) -> None:
        backend, other = connect(etcd_server.address), connect(etcd_server.address)
        see, before = tokens.Counter.see, list[int]()

        def late(counter: tokens.Counter, *found: Any) -> None:
            see(counter, *found)
            if not before:
                before.append(0)
                clocks.ahead = 0.0
                before.append(a_tenure(other, claim()))
                assert other.forget("nightly", older_than=0.0, timeout=LIMIT)
                clocks.ahead = -HOUR

        monkeypatch.setattr(tokens.Counter, "see", late)
        clocks.ahead = -HOUR
        assert take(backend, mine()).token > before[1] > 0

    def test_a_floor_that_is_damaged_is_none_and_is_put_right(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        for value in DAMAGED.values():
            etcd_server.write(f"{prefix}.token/.floor", value)
            given = a_tenure(backend, claim())
            assert given <= microseconds()
            assert list(backend.unused("*", older_than=0.0, timeout=LIMIT)) == [("nightly", given // 10**6)]
            assert backend.forget("nightly", older_than=0.0, timeout=LIMIT)
            (floor,) = etcd_server.read(f"{prefix}.token/.floor").values()
            assert given < int(floor) <= microseconds()

    def test_many_names_that_are_removed_raise_the_floor_once(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        names = [f"job-{number}" for number in range(5)]
        for name in names:
            backend.release(take(backend, claim(name)), timeout=LIMIT)
        floors = set()
        for name in names:
            assert backend.forget(name, older_than=0.0, timeout=LIMIT)
            floors |= set(etcd_server.read(f"{prefix}.token/.floor").values())
        assert len(floors) == 1

    def test_one_that_is_ahead_of_the_clock_is_not_removed(
        self, backend: EtcdBackend, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clocks.ahead = HOUR
        given = a_tenure(backend, claim())
        clocks.ahead = 0.0
        assert not backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        assert a_tenure(backend, claim()) == given + 1
        monkeypatch.setattr(prune, "wall", lambda: time.time() + 2 * HOUR)
        assert backend.forget("nightly", older_than=0.0, timeout=LIMIT), "by the clock of the host, as it was raised"

    def test_a_grant_between_the_look_and_the_removal_keeps_it(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a_tenure(backend, claim())
        other, call, given = connect(etcd_server.address), backend.cluster.call, []

        def late(path: str, request: dict[str, Any], deadline: Any) -> dict[str, Any]:
            if "compare" in request:
                given.append(a_tenure(other, claim()))
            return call(path, request, deadline)

        monkeypatch.setattr(backend.cluster, "call", late)
        assert not backend.forget("nightly", older_than=0.0, timeout=LIMIT)
        assert len(given) == 1
        assert counter(etcd_server, backend.layout.prefix)


def test_a_holder_without_a_token_is_shown_with_the_revision_of_its_key(
    etcd_server: Etcd, backend: EtcdBackend, prefix: str
) -> None:
    """As a holder of lockctl 0.1 is, or one that was overwritten by a number that is no token."""
    for more in ("", ', "token": true', ', "token": -1', ', "token": "7"', f', "token": {10**30}'):
        document = f'{{"owner": "old", "acquired_at": 1.5{more}}}'
        etcd_server.write(f"{prefix}nightly/1", document.encode())
        (entry,) = etcd_server.entries(f"{prefix}nightly/1")
        shown = holder_of(backend)
        assert shown.token == int(entry["create_revision"])
        next_one = int(entry["create_revision"]) + 1
        assert revoke(backend, shown, now=True) == next_one


def test_who_takes_the_lock_from_one_without_a_token_is_told_of_one_above_all_that_were_granted(
    etcd_server: Etcd, backend: EtcdBackend, connect: Open
) -> None:
    """It had its turn, and was about to be granted the lock: a resource is advanced to what is told."""
    other = connect(etcd_server.address)
    first, second = take(backend, claim()), claim()
    other.wait(second, timeout=0.3, interrupt=None)  # its place is kept
    backend.release(first, timeout=LIMIT)
    shown = holder_of(backend)
    assert (shown.owner, shown.token) != (first.claim.owner, first.token)
    told = revoke(backend, shown, now=True)
    assert told == first.token + 1
    assert take(backend, claim()).token >= told
