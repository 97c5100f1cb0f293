"""Slots in Consul: the semaphore of its Go API, its keys, its races, and what others may write into it."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.model import SLOT, Revocation
from lockctl.stores.consul import share
from lockctl.stores.consul.layout import LOCK_FLAGS, SEMAPHORE_FLAGS
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, UNHEARD, Background, refused, take
from tests.contract.keeping import revoke
from tests.contract.test_consul import ConsulHarness
from tests.jobs import eventually
from tests.servers.consul import Consul
from tests.stores.consul.test_lock import lose_answers, token_in
from tests.stores.consul.test_strangers import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.model import Claim, Grant


def one_of(harness: ConsulHarness, slots: int, ttl: float = 30.0) -> Claim:
    """A claim for one of so many slots."""
    return harness.claim(mode=SLOT, slots=slots, ttl=ttl)


def foreign(harness: ConsulHarness, *sessions: str, limit: object = 3, living: int | None = None) -> None:
    """Sessions of another program hold slots, of which the first so many live."""
    for session in sessions[:living]:
        path = f"/v1/kv/{harness.prefix}nightly/{session}"
        harness.server.request("PUT", path, acquire=session, flags=SEMAPHORE_FLAGS)
    content = {"Limit": limit, "Holders": dict.fromkeys(sessions, True)}
    harness.write(json.dumps(content).encode(), flags=SEMAPHORE_FLAGS)


def holders(harness: ConsulHarness) -> Any:
    """What the key of a semaphore says."""
    return json.loads(b64decode(harness.entry()["Value"]))


def requests(client: ConsulBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that a client asks for from now on."""
    asked: list[str] = []
    for agent in (client._agent, client._renewing):
        pipeline = agent._client.pipeline

        def counting(requests: Any, *args: Any, pipeline: Any = pipeline, **more: Any) -> Any:
            asked.extend(target for _, target, _ in requests)
            return pipeline(requests, *args, **more)

        monkeypatch.setattr(agent._client, "pipeline", counting)
    return asked


def test_the_keys_are_those_of_the_semaphore_of_consul_and_each_has_its_token(harness: ConsulHarness) -> None:
    first, second = (take(harness.client(), one_of(harness, 3)) for _ in range(2))
    entries = {each["Key"].rpartition("/")[2]: each for each in harness.below()}
    named = entries.pop(".lock")
    assert "Session" not in named
    assert named["Flags"] == SEMAPHORE_FLAGS
    assert json.loads(b64decode(named["Value"])) == {"Limit": 3, "Holders": dict.fromkeys(entries, True)}
    assert sorted(map(token_in, entries.values())) == [first.token, second.token]
    assert all(each["Session"] == session for session, each in entries.items())
    assert {each["Flags"] for each in entries.values()} == {SEMAPHORE_FLAGS}


def test_the_last_one_leaves_neither_keys_nor_sessions_and_the_lock_can_be_one_for_one_holder(
    harness: ConsulHarness,
) -> None:
    clients = [harness.client(), harness.client()]
    grants = [take(client, one_of(harness, 2)) for client in clients]
    clients[0].release(grants[0], timeout=LIMIT)
    assert len(holders(harness)["Holders"]) == 1
    clients[1].release(grants[1], timeout=LIMIT)
    assert harness.below() == []
    assert harness.sessions() == 0
    take(clients[0], harness.claim())
    assert harness.entry()["Flags"] == LOCK_FLAGS


def test_a_slot_costs_no_more_requests_than_a_whole_lock(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.client()
    client.release(take(client, harness.claim("first")), timeout=LIMIT)
    asked = requests(client, monkeypatch)
    grants = []
    for claim in (harness.claim("whole"), one_of(harness, 2)):
        asked.clear()
        grants.append(take(client, claim))
        assert len(asked) == 5, asked
    asked.clear()
    client.renew(grants[0], timeout=LIMIT)
    assert len(asked) == 2, asked
    asked.clear()
    client.release(grants[0], timeout=LIMIT)
    assert len(asked) == 2, asked


def test_slots_are_shared_with_other_programs_and_never_more_than_there_are(harness: ConsulHarness) -> None:
    sessions = [harness.session() for _ in range(2)]
    foreign(harness, *sessions)
    client, claim = harness.client(), one_of(harness, 3)
    grant = take(client, claim)
    assert set(holders(harness)["Holders"]) > set(sessions)
    assert refused(harness.client(), one_of(harness, 3))
    lock = client.inspect("nightly", timeout=LIMIT)
    assert (lock.state, lock.slots) == ("foreign", 3)
    assert [(each.owner, each.token, each.mode) for each in lock.holders] == [
        (None, None, SLOT),
        (None, None, SLOT),
        (claim.owner, grant.token, SLOT),
    ]
    client.release(grant, timeout=LIMIT)
    assert set(holders(harness)["Holders"]) == set(sessions)
    assert refused(client, harness.claim())


def test_holders_that_ended_make_room_and_are_left_out_by_the_next(harness: ConsulHarness) -> None:
    alive, ended = harness.session(), harness.session()
    foreign(harness, alive, ended, limit=2, living=1)
    client = harness.client()
    take(client, one_of(harness, 2))
    assert alive in holders(harness)["Holders"]
    assert ended not in holders(harness)["Holders"]
    assert len(holders(harness)["Holders"]) == 2


def test_a_semaphore_that_all_have_vanished_from_is_free_for_one_holder(harness: ConsulHarness) -> None:
    foreign(harness, harness.session(), harness.session(), living=0)
    take(harness.client(), harness.claim())
    assert harness.entry()["Flags"] == LOCK_FLAGS


def test_who_is_slower_than_another_who_takes_the_last_slot_is_refused(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = harness.client(), harness.client()
    take(harness.client(), one_of(harness, 2))
    original = slow._agent.renew_and_read
    taken: list[Grant] = []

    def delayed(*args: Any) -> Any:
        found = original(*args)
        if not taken:
            taken.append(take(fast, one_of(harness, 2)))
        return found

    monkeypatch.setattr(slow._agent, "renew_and_read", delayed)
    assert refused(slow, one_of(harness, 2))
    assert taken[0].claim.owner in {each.owner for each in fast.inspect("nightly", timeout=LIMIT).holders}
    assert len(holders(harness)["Holders"]) == 2


def test_a_lock_for_one_that_is_taken_between_look_and_step_keeps_slots_out(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = harness.client(), harness.client()
    original = slow._agent.renew_and_read
    session = harness.session()

    def delayed(*args: Any) -> Any:
        found = original(*args)
        if not harness.below():
            harness.write(b"", acquire=session, flags=LOCK_FLAGS)
        return found

    monkeypatch.setattr(slow._agent, "renew_and_read", delayed)
    assert refused(slow, one_of(harness, 2))
    assert harness.entry()["Session"] == session
    assert refused(fast, harness.claim())


def test_the_first_slot_waits_for_the_lock_delay_of_a_holder_that_vanished(harness: ConsulHarness) -> None:
    client, other, claim = harness.client(lock_delay="1s"), harness.client(), one_of(harness, 2)
    take(client, harness.claim())
    harness.server.request("PUT", "/v1/session/destroy/" + harness.entry()["Session"])
    began, tries = time.monotonic(), 0
    while other.try_acquire(claim, timeout=LIMIT) is None:
        other.wait(claim, timeout=LIMIT, interrupt=None)
        tries += 1
    assert 0.5 < time.monotonic() - began < 3.5
    assert 1 <= tries <= 3


@pytest.mark.parametrize("ending", ["own key", "name", "session", "all"])
def test_a_slot_that_was_taken_away_is_noticed_at_the_next_renewal(harness: ConsulHarness, ending: str) -> None:
    client = harness.client()
    take(harness.client(), one_of(harness, 3))
    others = set(holders(harness)["Holders"])
    grant = take(client, one_of(harness, 3))
    (mine,) = set(holders(harness)["Holders"]) - others
    if ending == "own key":
        harness.server.request("DELETE", f"/v1/kv/{grant.key}/{mine}")
    elif ending == "name":
        harness.write(json.dumps({"Limit": 3, "Holders": dict.fromkeys(others, True)}).encode(), flags=SEMAPHORE_FLAGS)
    elif ending == "session":
        harness.server.request("PUT", f"/v1/session/destroy/{mine}")
    else:
        harness.usurp("nightly")
    with pytest.raises(LeaseLost):
        client.renew(grant, timeout=LIMIT)
    client.release(grant, timeout=LIMIT)
    assert harness.sessions() == 1


def test_a_slot_is_kept_whatever_is_written_over_its_own_key(harness: ConsulHarness) -> None:
    client, other = harness.client(), harness.client()
    for value in HOSTILE:
        grant = take(client, one_of(harness, 2))
        (session,) = holders(harness)["Holders"]
        path = f"/v1/kv/{grant.key}/{session}"
        harness.server.request("PUT", path, value.replace(b"SESSION", session.encode()), flags=SEMAPHORE_FLAGS)
        assert client.renew(grant, timeout=LIMIT).token == grant.token, value[:50]
        lock = client.inspect("nightly", timeout=LIMIT)
        assert (lock.state in {"held", "foreign"}, lock.slots, len(lock.holders)) == (True, 2, 1)
        second = take(other, one_of(harness, 2))
        assert refused(harness.client(), one_of(harness, 2))
        client.release(grant, timeout=LIMIT)
        assert len(client.inspect("nightly", timeout=LIMIT).holders) == 1
        other.release(second, timeout=LIMIT)


NOT_NAMED = [
    *HOSTILE,
    b'{"Limit": 2}',
    b'{"Limit": 2, "Holders": 5}',
    b'{"Limit": 2, "Holders": ["SESSION"]}',
    b'{"Limit": 2, "Holders": null}',
    b'{"Limit": 2, "Holders": {"../../x": true, "": true, "a b": true, "\xff": true}}',
    b'{"Limit": 2, "Holders": {"../../x": true, "": true, "a b": true, "..": true, "?": true}}',
    b'{"Limit": 9' + b"9" * 6000 + b', "Holders": {"SESSION": true}}',
]


def test_who_is_no_longer_named_has_lost_its_slot_and_the_key_is_as_good_as_new(harness: ConsulHarness) -> None:
    client, other = harness.client(), harness.client()
    for value in NOT_NAMED:
        grant = take(client, one_of(harness, 2))
        (session,) = holders(harness)["Holders"]
        harness.write(value.replace(b"SESSION", session.encode()), flags=SEMAPHORE_FLAGS)
        with pytest.raises(LeaseLost):
            client.renew(grant, timeout=LIMIT)
        assert client.inspect("nightly", timeout=LIMIT).state == "free", value[:50]
        later = take(other, one_of(harness, 2))
        assert later.token > grant.token
        client.release(grant, timeout=LIMIT)
        assert other.renew(later, timeout=LIMIT).token == later.token
        assert len(holders(harness)["Holders"]) == 1
        other.release(later, timeout=LIMIT)


@pytest.mark.parametrize("limit", [None, "2", 0, -1, 2.5, True, 1 << 40])
def test_a_limit_that_is_none_agrees_with_nobody(harness: ConsulHarness, limit: object) -> None:
    client = harness.client()
    foreign(harness, harness.session(), limit=limit)
    with pytest.raises(ConfigError, match="say the same --slots"):
        client.try_acquire(one_of(harness, 2), timeout=LIMIT)
    assert refused(client, harness.claim())
    lock = client.inspect("nightly", timeout=LIMIT)
    assert (lock.state, lock.slots) == ("foreign", 1)
    assert revoke(client, lock.holders[0], now=True) is not None
    take(client, one_of(harness, 2))


def test_a_slot_whose_answer_was_lost_is_found_again_or_given_back(harness: ConsulHarness) -> None:
    client = harness.client()
    client.release(take(client, harness.claim("first")), timeout=LIMIT)
    for gives_up in (False, True):
        claim = one_of(harness, 2)
        lose_answers(harness, client, "transact")
        with pytest.raises(BackendUnavailable):
            client.try_acquire(claim, timeout=UNHEARD)
        (token,) = [token_in(each) for each in harness.below() if "Session" in each]
        harness.heal(client)
        if gives_up:
            client.withdraw(claim, timeout=LIMIT)
        else:
            grant = take(client, claim)
            assert grant.token == token
            assert take(harness.client(), claim) == grant
            client.release(grant, timeout=LIMIT)
        assert harness.below() == []


def test_one_of_several_foreign_holders_can_be_put_out(harness: ConsulHarness) -> None:
    client = harness.client()
    foreign(harness, harness.session(), harness.session())
    grant = take(client, one_of(harness, 3))
    for left in (2, 1):
        seen = client.inspect("nightly", timeout=LIMIT).holders[0]
        floor = revoke(client, seen, now=True)
        assert floor is not None
        assert floor > grant.token
        assert len(holders(harness)["Holders"]) == left
    assert client.renew(grant, timeout=LIMIT).token == grant.token
    assert len(harness.below()) == 2


def test_a_holder_that_was_asked_keeps_its_token_and_slot_until_it_leaves(harness: ConsulHarness) -> None:
    client, operator = harness.client(), harness.client()
    take(harness.client(), one_of(harness, 2))
    grant = take(client, one_of(harness, 2))
    for reason in ("first", "second"):
        seen = operator.inspect("nightly", timeout=LIMIT).holders[1]
        assert (seen.owner, seen.token) == (grant.claim.owner, grant.token)
        assert (
            operator.revoke("nightly", seen, Revocation(now=False, by="ops", reason=reason), timeout=LIMIT) is not None
        )
    with pytest.raises(LeaseRevoked, match="revoked by ops: second"):
        client.renew(grant, timeout=LIMIT)
    assert refused(operator, one_of(harness, 2))
    assert take(client, grant.claim).token == grant.token
    client.release(grant, timeout=LIMIT)
    take(operator, one_of(harness, 2))


def test_waiting_for_a_slot_asks_once_in_a_long_time_and_hears_of_holders_that_vanish(
    harness: ConsulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, claim, client = harness.session(), one_of(harness, 2), harness.client()
    foreign(harness, session, harness.session(), limit=2)
    asked = requests(client, monkeypatch)
    waiting = Background(lambda: client.wait(claim, timeout=20.0, interrupt=None))
    eventually(lambda: len(asked) == 6)
    time.sleep(1.5)
    assert len(asked) == 6, asked
    # of a session that ends, only its own key changes
    harness.server.request("PUT", f"/v1/session/destroy/{session}")
    ended = time.monotonic()
    waiting.result()
    assert waiting.ended_at - ended < 10.0
    take(client, claim)


def test_who_must_not_see_the_holders_does_not_take_them_for_ended(start_server: Callable[..., Consul]) -> None:
    server = start_server(Consul, acl=True)
    harness = ConsulHarness(server)
    place = f"{harness.prefix}nightly"
    rules = f"""
        key "{place}/.lock" {{ policy = "write" }}
        key_prefix "{harness.prefix}.lockctl/" {{ policy = "write" }}
        session_prefix "" {{ policy = "write" }}
    """
    server.request("PUT", "/v1/acl/policy", json.dumps({"Name": "narrow", "Rules": rules}).encode())
    token = json.loads(server.request("PUT", "/v1/acl/token", b'{"Policies": [{"Name": "narrow"}]}'))["SecretID"]
    foreign(harness, harness.session(), limit=2)
    client = ConsulBackend.from_url(parse_url(f"consul://:{token}@{server.address}/?prefix={harness.prefix}"))
    with pytest.raises(ConfigError, match="policy"):
        client.try_acquire(harness.claim(), timeout=LIMIT)
    client.close()
    assert harness.entry()["Flags"] == SEMAPHORE_FLAGS


def test_what_is_read_of_a_semaphore_is_what_the_go_api_would_read() -> None:
    assert share._describe(2, ["a-b"]) == b'{"Limit":2,"Holders":{"a-b":true}}'
    assert share._parse(b'{"Limit":2,"Holders":{"a-b":true}}') == (2, ["a-b"])
    assert share._parse(b'{"Limit":2,"Holders":null}') == (2, [])
