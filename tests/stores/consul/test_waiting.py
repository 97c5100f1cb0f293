"""What waiting for a lock in Consul leaves there, and what a change of a key that is no release does."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable
from lockctl.model import SLOT
from lockctl.stores.consul.protocol import Agent
from tests.contract.harness import LIMIT, Background, take
from tests.jobs import eventually
from tests.servers.consul import ConsulRefused

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Claim
    from tests.contract.test_consul import ConsulHarness


def test_a_wait_goes_on_when_the_key_changes_without_being_free(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(), harness.client(), harness.claim()
    grant = take(client, harness.claim(ttl=10.0))
    index = int(json.loads(harness.server.request("GET", harness.key("nightly")))[0]["ModifyIndex"])
    waiting = Background(lambda: other.wait(claim, timeout=20.0, interrupt=None))
    time.sleep(0.3)
    # any change of the key wakes the request, and what is not a release is waited through
    harness.server.request("PUT", harness.key("nightly"), os.urandom(8), cas=index)
    time.sleep(0.3)
    assert waiting.running
    client.release(grant, timeout=LIMIT)
    waiting.result()


def position_keys(harness: ConsulHarness) -> list[dict[str, Any]]:
    """The keys of those who wait."""
    try:
        answer = harness.server.request("GET", f"/v1/kv/{harness.prefix}.lockctl/queue/nightly/", recurse="true")
    except ConsulRefused:
        return []  # there is none
    return list(json.loads(answer))


def test_a_release_costs_as_many_requests_whoever_waits_behind(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    original = Agent.ask_all

    def counted(self: Agent, requests: Any, *words: Any) -> Any:
        asked.extend(requests)
        return original(self, requests, *words)

    holder, claims = harness.client(), [harness.claim(ttl=60.0) for _ in range(20)]
    clients = [harness.client() for _ in claims]
    grant = take(holder, harness.claim(ttl=60.0))
    waiting = []
    for number, (client, mine) in enumerate(zip(clients, claims, strict=True)):
        waiting.append(Background(lambda client=client, mine=mine: client.wait(mine, timeout=60.0, interrupt=None)))  # type: ignore[misc]
        eventually(lambda number=number: len(position_keys(harness)) == number + 1)  # type: ignore[misc]
    monkeypatch.setattr(Agent, "ask_all", counted)
    spent = []
    for number in range(2):
        before = len(asked)
        holder.release(grant, timeout=LIMIT)
        waiting[number].result()
        holder, grant = clients[number], take(clients[number], claims[number])
        spent.append(len(asked) - before)
    assert all(each.running for each in waiting[2:])
    assert max(spent) <= 15, spent


def test_who_lost_its_position_with_its_session_takes_a_new_one(harness: ConsulHarness) -> None:
    client, other, mine = harness.client(), harness.client(), harness.claim(ttl=2.0)
    grant = take(client, harness.claim(ttl=60.0))
    waiting = Background(lambda: other.wait(mine, timeout=60.0, interrupt=None))
    (first,) = eventually(lambda: position_keys(harness))
    harness.server.request("PUT", f"/v1/session/destroy/{first['Session']}")
    eventually(lambda: [each for each in position_keys(harness) if each["Session"] != first["Session"]])
    client.release(grant, timeout=LIMIT)
    waiting.result()
    take(other, mine)


def test_a_key_in_the_queue_that_no_session_has_is_nobodys_position(harness: ConsulHarness) -> None:
    harness.server.request("PUT", f"/v1/kv/{harness.prefix}.lockctl/queue/nightly/x", b"garbage")
    client = harness.client()
    assert client.inspect("nightly", timeout=LIMIT).waiters == ()
    client.release(take(client, harness.claim()), timeout=LIMIT)


@pytest.mark.parametrize("mode", [{}, {"mode": SLOT, "slots": 2}], ids=["whole", "slot"])
@pytest.mark.parametrize("then", ["it waits", "it tries"])
def test_a_position_whose_answer_was_lost_is_found_again(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch, then: str, mode: dict[str, Any]
) -> None:
    holder, client, mine = harness.client(), harness.client(), harness.claim(ttl=60.0, **mode)
    grant = take(holder, harness.claim(ttl=60.0))
    original = client._agent.transact

    def lost(*words: Any) -> Any:
        original(*words)
        monkeypatch.undo()
        raise BackendUnavailable("the answer was lost")

    monkeypatch.setattr(client._agent, "transact", lost)
    with pytest.raises(BackendUnavailable, match="the answer was lost"):
        client.wait(mine, timeout=LIMIT, interrupt=None)
    (before,) = position_keys(harness)
    if then == "it waits":
        client.wait(mine, timeout=0.2, interrupt=None)
        assert [each["Session"] for each in position_keys(harness)] == [before["Session"]]
    holder.release(grant, timeout=LIMIT)
    client.release(take(client, mine), timeout=LIMIT)
    assert position_keys(harness) == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The paths and queries of each round trip."""
    trips: list[list[str]] = []
    original = Agent.ask_all

    def noting(self: Agent, requests: Any, *words: Any) -> Any:
        trips.append([f"{path}?{query}" for _, path, query, _ in requests])
        return original(self, requests, *words)

    monkeypatch.setattr(Agent, "ask_all", noting)
    return trips


def told(harness: ConsulHarness, client: Backend, mine: Claim, asked: list[list[str]]) -> None:
    """Have a claim wait for a lock that is given back then; it is told of that."""
    holder = harness.client()
    grant = take(holder, harness.claim(ttl=60.0))
    waiting = Background(lambda: client.wait(mine, timeout=60.0, interrupt=None))
    watching = re.compile("/nightly/[?].*index=[1-9]")  # the first look is with index 0
    eventually(lambda: any(watching.search(each) for trip in asked for each in trip))
    holder.release(grant, timeout=LIMIT)
    waiting.result()
    del asked[:]


def test_who_is_told_that_the_lock_is_free_takes_it_in_one_round_trip(
    harness: ConsulHarness, asked: list[list[str]]
) -> None:
    client, mine = harness.client(), harness.claim(ttl=60.0)
    take(client, harness.claim("other"))  # the name of the cluster is known
    told(harness, client, mine, asked)
    grant = take(client, mine)
    ((renewal, transaction),) = asked
    assert (renewal.startswith("/v1/session/renew/"), transaction) == (True, "/v1/txn?")
    assert position_keys(harness) == []
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_who_is_told_that_the_lock_is_free_notices_a_token_that_was_given_meanwhile(
    harness: ConsulHarness, asked: list[list[str]]
) -> None:
    client, mine = harness.client(), harness.claim(ttl=60.0)
    told(harness, client, mine, asked)
    given = int(time.time() * 1e6) + 10**9
    harness.server.request("PUT", f"/v1/kv/{harness.prefix}.lockctl/token/nightly/last", b"%d" % given)
    assert take(client, mine).token == given + 1


def test_who_is_told_that_the_lock_is_free_and_has_no_session_any_more_makes_a_new_one(
    harness: ConsulHarness, asked: list[list[str]]
) -> None:
    client, mine = harness.client(), harness.claim(ttl=60.0)
    told(harness, client, mine, asked)
    for each in json.loads(harness.server.request("GET", "/v1/session/list")):
        if not each["Name"].endswith("(waiting)"):
            harness.server.request("PUT", f"/v1/session/destroy/{each['ID']}")
    client.renew(take(client, mine), timeout=LIMIT)


def test_who_lost_its_position_after_it_was_told_does_not_overtake(
    harness: ConsulHarness, asked: list[list[str]]
) -> None:
    client, other = harness.client(), harness.client()
    mine, theirs = harness.claim(ttl=60.0), harness.claim(ttl=60.0)
    told(harness, client, mine, asked)
    (own,) = position_keys(harness)
    waiting = Background(lambda: other.wait(theirs, timeout=60.0, interrupt=None))
    eventually(lambda: len(position_keys(harness)) == 2)
    harness.server.request("PUT", f"/v1/session/destroy/{own['Session']}")
    waiting.result()
    assert client.try_acquire(mine, timeout=LIMIT) is None
    take(other, theirs)
