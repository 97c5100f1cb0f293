"""The counter of a lock in Consul: which clocks it needs, what others write there, and holders without a token."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.model import SLOT
from lockctl.stores.consul.layout import LARGEST_TOKEN, LOCK_FLAGS
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.url import parse_url
from tests.contract.forgetting import forget, unused, use
from tests.contract.harness import LIMIT, Background, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.test_consul import ConsulHarness
from tests.servers.consul import Consul
from tests.stores.consul.test_lock import token_in
from tests.stores.consul.test_slots import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Grant

HOUR = 3600.0  # seconds
COUNTER = "token/nightly/last"
MODES: list[dict[str, Any]] = [{}, {"mode": SLOT, "slots": 2}]
RUBBISH = [b"", b"\xff\xfe\x00", b"{", b"-5", b"1e3", b" 7", b"9" * 18 + b".", b"9" * 19, b"9" * 5000, b"x" * 400_000]


def beside(harness: ConsulHarness, key: str) -> bytes:
    """What a key beside the locks has."""
    (found,) = json.loads(harness.server.request("GET", f"/v1/kv/{harness.prefix}.lockctl/{key}"))
    return b64decode(found["Value"] or "")


def wrong_by(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """This host's clock is so much ahead from now on."""
    true = time.time
    monkeypatch.setattr("lockctl.clock.time.time", lambda: true() + seconds)


def tenure(harness: ConsulHarness, **claim: Any) -> Grant:
    """A lock taken and given back, by a client of its own."""
    client = harness.client()
    grant = take(client, harness.claim(**claim))
    client.release(grant, timeout=LIMIT)
    return grant


@pytest.mark.parametrize("mode", MODES, ids=["whole", "slot"])
def test_a_token_is_the_clock_in_microseconds_and_stands_in_the_counter(
    harness: ConsulHarness, mode: dict[str, Any]
) -> None:
    before = time.time()
    grant = take(harness.client(), harness.claim(**mode))
    assert before * 1_000_000 - 1 <= grant.token <= time.time() * 1_000_000
    assert int(beside(harness, COUNTER)) == grant.token


@pytest.mark.parametrize("mode", MODES, ids=["whole", "slot"])
def test_when_clocks_go_back_each_token_is_the_one_before_and_one(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]
) -> None:
    first = tenure(harness, **mode)
    wrong_by(monkeypatch, -24 * HOUR)
    assert [tenure(harness, **mode).token for _ in range(3)] == [first.token + 1, first.token + 2, first.token + 3]


@pytest.mark.parametrize("key", [COUNTER, "floor"])
def test_a_counter_that_cannot_be_read_is_none_and_the_clock_counts(harness: ConsulHarness, key: str) -> None:
    for value, mode in itertools.product(RUBBISH, MODES):
        harness.put_beside(key, value)
        before = time.time()
        grant = tenure(harness, **mode)
        assert before * 1_000_000 - 1 <= grant.token <= time.time() * 1_000_000
        assert int(beside(harness, COUNTER)) == grant.token
    use(harness, harness.client())
    assert forget(harness.client())
    assert int(beside(harness, "floor")) > grant.token


def test_two_that_read_the_same_counter_never_get_the_same_token(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast, first = harness.client(), harness.client(), tenure(harness)
    original, taken = slow._agent.renew_and_read, list[int]()

    def delayed(*args: Any) -> Any:
        found = original(*args)
        if len(taken) < 2:
            taken.append(take(fast, harness.claim(mode=SLOT, slots=4)).token)
        return found

    monkeypatch.setattr(slow._agent, "renew_and_read", delayed)
    wrong_by(monkeypatch, -HOUR)
    grant = take(slow, harness.claim(mode=SLOT, slots=4))
    assert [*taken, grant.token] == [first.token + 1, first.token + 2, first.token + 3]


def test_who_read_that_there_is_no_counter_is_not_below_one_that_came_and_was_forgotten(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = harness.client(), harness.client()
    original, before = slow._agent.renew_and_read, list[int]()

    def delayed(*args: Any) -> Any:
        found = original(*args)
        if not before:
            with monkeypatch.context() as right:
                right.setattr("lockctl.clock.time.time", time.time)
                before.append(use(harness, fast).token)
                assert forget(fast)
        return found

    monkeypatch.setattr(slow._agent, "renew_and_read", delayed)
    wrong_by(monkeypatch, -HOUR)
    assert take(slow, harness.claim()).token > before[0]


def test_forgetting_many_names_raises_the_floor_once(harness: ConsulHarness) -> None:
    client = harness.client()
    names = [f"job-{number}" for number in range(12)]
    for name in names:
        use(harness, client, name)
    time.sleep(1.0 - time.time() % 1.0)  # the clock of the agent says whole seconds
    assert unused(client) == sorted(names)
    floors = []
    for name in names:
        assert forget(client, name)
        floors.append(beside(harness, "floor"))
    assert len(set(floors)) == 1


def test_a_counter_ahead_of_the_clock_is_not_forgotten(harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    client = harness.client()
    with monkeypatch.context() as ahead:
        wrong_by(ahead, HOUR)
        first = use(harness, client)
    assert unused(client) == []
    assert not forget(client)
    assert tenure(harness).token == first.token + 1


def test_a_name_with_a_counter_alone_can_be_forgotten(harness: ConsulHarness) -> None:
    tenure(harness)
    client = harness.client()
    assert unused(client) == ["nightly"]
    assert unused(client, older_than=HOUR) == []
    assert forget(client)
    assert unused(client) == []


def test_a_holder_that_an_older_lockctl_wrote_has_its_index_and_is_below_the_next(harness: ConsulHarness) -> None:
    client, session, owner = harness.client(), harness.session(), "0" * 32
    document = json.dumps({"owner": owner, "host": "web1", "ttl": 30.0, "acquired_at": 1.0, "session": session})
    harness.write(document.encode(), acquire=session, flags=LOCK_FLAGS)
    index = harness.entry()["ModifyIndex"]
    assert holder_of(client).token == index
    assert revoke(client, holder_of(client)) == index + 1
    assert holder_of(client).token == index
    floor = revoke(client, holder_of(client), now=True)
    assert floor == index + 1
    assert take(client, harness.claim()).token > index


@pytest.mark.parametrize("token", ["true", "-1", "0", '"7"', "1.5", "null", str(LARGEST_TOKEN + 1), "9" * 400])
def test_a_token_in_a_document_that_is_none_is_not_shown(harness: ConsulHarness, token: str) -> None:
    client, session = harness.client(), harness.session()
    document = f'{{"owner":"x","session":"{session}","token":{token}}}'
    harness.write(document.encode(), acquire=session, flags=LOCK_FLAGS)
    assert holder_of(client).token == harness.entry()["ModifyIndex"]


@pytest.mark.parametrize("mode", MODES, ids=["whole", "slot"])
def test_all_that_tell_of_a_holder_tell_its_token(harness: ConsulHarness, mode: dict[str, Any]) -> None:
    client, other = harness.client(), harness.client()
    grant = take(client, harness.claim(**mode))
    (entry,) = [each for each in harness.below() if "Session" in each]
    (listed,) = other.list("*", timeout=LIMIT)
    again = take(other, grant.claim)
    told = [holder_of(other).token, listed.holders[0].token, token_in(entry), again.token]
    assert told == [grant.token] * 4
    client.release(grant, timeout=LIMIT, hold=30.0)
    if not mode:
        assert holder_of(other).token == grant.token


def test_a_wait_that_ends_costs_one_request_and_no_further_round_trip(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, client, mine = harness.client(), harness.client(), harness.claim()
    grant = take(holder, harness.claim())
    assert client.try_acquire(mine, timeout=LIMIT) is None
    waiting = Background(lambda: client.wait(mine, timeout=LIMIT, interrupt=None))
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    asked = requests(client, monkeypatch)
    take(client, mine)
    # the session, the lock, the queue and the counter are one round trip; what takes the lock is another
    assert [path.partition("?")[0].rpartition("/")[2] for path in asked[-2:]] == ["txn", "txn"]
    assert len(asked) == 5, asked


def test_a_wiped_cluster_has_its_name_again_and_another_prefix_another(start_server: Callable[..., Consul]) -> None:
    server = start_server(Consul)

    def domain(prefix: str) -> str:
        url = f"consul://{server.address}/?prefix={prefix}"
        with contextlib.closing(ConsulBackend.from_url(parse_url(url))) as client:
            grant = take(client, ConsulHarness(server).claim())
            client.release(grant, timeout=LIMIT)
            return grant.domain

    first = domain("a/")
    assert domain("b/") != first
    server.wipe()
    assert domain("a/") == first
